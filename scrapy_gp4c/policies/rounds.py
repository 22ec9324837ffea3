"""The highest scores in several rounds: what a round finds counts for the scores of the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scrapy_gp4c.page_state.groupings import Level
from scrapy_gp4c.page_state.outcomes import SAMPLE
from scrapy_gp4c.policies.base import Evidence, Pages, PolicySettings, Round, Selection
from scrapy_gp4c.policies.members import first_members, plan_of
from scrapy_gp4c.policies.top_k import best_candidates, scored_by
from scrapy_gp4c.scoring.draws import Purpose, drawn_for


@dataclass(frozen=True)
class Rounds:
    """Spend the budget in equal parts, scoring anew before each; if asked to, sample all groups first.

    Without a sample, and with scores that depend on a page's own past alone, it visits what `TopK` visits, in
    the same order.
    """

    settings: PolicySettings
    equal_rounds: int = 4
    sample: float = 0.0
    level: Level = "site"

    @property
    def name(self) -> str:
        """``rounds(...)`` with its number of rounds, and its sample if there is one."""
        sample = f", sample={self.sample}, level={self.level!r}" if self.sample else ""
        return f"rounds(rounds={self.equal_rounds}{sample})"

    @property
    def rounds(self) -> int:
        """Number of rounds: the equal ones, and that of the sample."""
        return self.equal_rounds + (self.sample > 0)

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Take this round's share of what is left: of 10 visits in 4 rounds 2, 2, 3 and 3."""
        if self.sample > 0 and round.number == 0:
            wanted = int(self.sample * round.remaining + 1e-9)
            return plan_of([(SAMPLE, one_a_group(wanted, self.level, evidence))])
        share = round.remaining // (self.rounds - round.number)
        return best_candidates(scored_by(self.settings, round), share, evidence)


def one_a_group(wanted: int, level: Level, evidence: Evidence) -> Pages:
    """Candidates at random: a first of each group, groups in random order, then a second of each, and so on.

    Pages in no group come last.
    """
    members = first_members(evidence, evidence.grouping(level), wanted)
    size = np.diff(members.begin)
    layer = np.arange(len(members.pages)) - np.repeat(members.begin[:-1], size)
    last = int(np.searchsorted(np.cumsum(np.bincount(layer)), wanted))
    rows = np.flatnonzero(layer <= last)
    layer = layer[rows]
    drawn = drawn_for(np.repeat(members.drawn, size)[rows] + layer.astype(np.uint64), Purpose.GROUP)
    chosen = members.pages[rows[np.lexsort((drawn, layer))[:wanted]]]
    return np.concatenate((chosen, members.alone[: wanted - len(chosen)]))
