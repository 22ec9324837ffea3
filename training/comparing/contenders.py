"""What takes part in an evaluation: score functions under policies, and policies that need none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from scrapy_gp4c.policies.table import POLICIES
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.named import BASELINES
from training.histories.history import ChangeHistory
from training.replaying import foreseen
from training.replaying.arranged import DEFAULTS, CrawlChoices
from training.replaying.metrics import ORACLE
from training.replaying.peers import Peer
from training.replaying.replay import load, policy_of

DEFAULT_SCORES: Final = (*BASELINES, ORACLE)
EVERY: Final = "all"
"""Stands for all policies of the table that a history has the groups for."""
UNDER: Final = " under "
"""Between score function and policy in the name of a row."""


class Contender(NamedTuple):
    """What takes part."""

    text: str
    """What its row is called."""
    function: ScoreFunction | Peer | None
    """None: the oracle, or a policy that needs no score function."""
    policy: str | None
    """None for oracle and peers."""


class Asked(NamedTuple):
    """What an evaluation was asked for."""

    scores: Sequence[str]
    policies: Sequence[str] = ()
    """Texts; none: every score function goes with the crawl's policy, or its own."""

    def contenders(self, crawl: CrawlChoices = DEFAULTS) -> list[Contender]:
        """Every score function under every policy that chooses by one, and the other policies on their own.

        Raises ScoreError, ExpressionError or PolicyError for what cannot be read.
        """
        timed = [peer for text in self.policies if (peer := foreseen.load(text))]
        choices = [load_policy(text) for text in self.policies if not foreseen.is_replays(text)]
        by_score: list[str | None] = [one.text for one in choices if one.scored]
        found = []
        for text in self.scores:
            function = load(text, crawl.clock)
            if not isinstance(function, ScoreFunction):
                found.append(Contender(text, function, None))
                continue
            for policy in by_score or [None if timed else crawl.policy]:
                row = f"{text}{UNDER}{policy}" if len(by_score) > 1 else text
                found.append(Contender(row, function, policy or policy_of(function)))
        found += [Contender(one.text, one, None) for one in timed]
        return found + [Contender(one.text, None, one.text) for one in choices if not one.scored]


def asked(
    history: ChangeHistory, named: Sequence[str], scores: Sequence[str], policies: Sequence[str]
) -> Asked:
    """What options say: ``named`` for all that has a name, and what else was given.

    Without either, and unless all policies given need no score function, `DEFAULT_SCORES`.
    """
    texts = [one for text in policies for one in (_known(history) if text == EVERY else [text])]
    live = [text for text in texts if not foreseen.is_replays(text)]
    alone = bool(texts) and not any(load_policy(text).scored for text in live)
    return Asked([*named, *scores] or ([] if alone else [*DEFAULT_SCORES]), texts)


def _known(history: ChangeHistory) -> list[str]:
    """The policies of the table, with their defaults, that a history has the groups for."""
    known = history.neighbours.knows
    return [text for text in POLICIES if all(known(name) for name in load_policy(text).near)]
