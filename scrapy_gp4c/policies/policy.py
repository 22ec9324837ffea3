"""What a policy is, and the one driver that asks it, in a crawl and in a replay.

A policy decides which pages a cycle visits, in one or several rounds: before each, it sees the candidates and
what the cycle has found so far. Its plan is a pure function of its settings, the round and that evidence, so
that a killed crawl and a replay come to the same. docs/architecture.md, "The policy contract", has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import Gp4cError, PolicyError
from scrapy_gp4c.page_state.outcomes import CHANGED
from scrapy_gp4c.scoring.functions import ScoreFunction

Pages = npt.NDArray[np.uint32]


class PolicySettings(NamedTuple):
    """What a policy is made from."""

    score_function: ScoreFunction
    seed: int
    """All random choices follow from it, the cycle and the page."""


class Round(NamedTuple):
    """What is to be planned."""

    cycle: int
    number: int
    """From 0."""
    remaining: int
    """Visits that the cycle's budget has left."""


class Block(NamedTuple):
    """Some of the pages that a round may choose, in ascending order of their ids."""

    pages: Pages
    """``[rows]``."""
    state: Mapping[str, npt.NDArray[Any]]
    """State columns by name, each ``[rows]``, and ``draw``: one random number per page and cycle."""
    ties: npt.NDArray[np.uint64]
    """``[rows]``: of pages of equal score, the one with the smaller number comes first."""


class Found(NamedTuple):
    """Visits of this cycle that are over, in order of time."""

    pages: Pages
    """``[visits]``."""
    outcomes: npt.NDArray[np.uint8]
    """``[visits]``: positions in `scrapy_gp4c.page_state.outcomes.OUTCOMES`."""

    @property
    def changed(self) -> Pages:
        """Pages that were found changed."""
        return np.asarray(self.pages[self.outcomes == CHANGED])


class Evidence(Protocol):
    """What a policy may look at."""

    def candidates(self) -> Iterator[Block]:
        """Yield the pages that may be chosen: none that was planned or visited in this cycle."""

    def visits(self) -> Found:
        """Return what the cycle has found so far."""


class Cut(NamedTuple):
    """Where a ranking was cut off: score and tie of the last page chosen."""

    score: float
    tie: int


class Chosen(NamedTuple):
    """A round's plan."""

    pages: Pages
    """``[rows]``, best first."""
    scores: npt.NDArray[np.float64]
    """``[rows]``; NaN where a page was not chosen by a score."""
    cut: Cut | None
    """None: no score divides the chosen from the others, so that the panel cannot speak for the others."""


class Policy(Protocol):
    """What decides which pages a cycle visits within its budget.

    New pages, those in warm-up and the panel are no policy's affair.
    """

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def rounds(self) -> int:
        """Rounds of a cycle, at least 1."""

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Choose at most ``round.remaining`` of the candidates."""


NOBODY = Chosen(np.empty(0, np.uint32), np.empty(0), None)
"""A plan without pages."""


def choose(policy: Policy, round: Round, evidence: Evidence) -> Chosen:
    """Ask a policy for the plan of one round, and hold it to the contract.

    Raises PolicyError, which names policy and breach, for more pages than the budget has left, a page that is
    no candidate, a page twice, or scores that do not belong to the pages.
    """
    watched = _Watched(evidence)
    try:
        chosen = policy.plan(round, watched)
    except Gp4cError:
        raise
    except Exception as error:
        raise PolicyError(
            f"the policy {policy.name!r} failed in round {round.number} of cycle {round.cycle}: {error!r}"
        ) from error
    breach = _breach(chosen, round, watched.offered)
    if breach is not None:
        raise PolicyError(
            f"the policy {policy.name!r} broke its contract in round {round.number} of cycle {round.cycle}: "
            f"{breach}. Correct the policy, or set GP4C_POLICY to another"
        )
    return chosen


class _Watched:
    """Evidence that remembers which candidates were offered, in one byte per page."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.offered = np.zeros(0, np.bool_)

    def candidates(self) -> Iterator[Block]:
        for block in self._evidence.candidates():
            if len(block.pages):
                last = int(block.pages[-1])
                if last >= len(self.offered):
                    self.offered = np.concatenate((self.offered, np.zeros(last + 1, np.bool_)))
                self.offered[block.pages] = True
            yield block

    def visits(self) -> Found:
        return self._evidence.visits()


def _breach(chosen: Chosen, round: Round, offered: npt.NDArray[np.bool_]) -> str | None:
    pages = chosen.pages
    if len(chosen.scores) != len(pages):
        return f"expected one score for each of {len(pages):,} pages; found {len(chosen.scores):,}"
    if len(pages) > round.remaining:
        return f"expected at most {round.remaining:,} pages, which the budget has left; found {len(pages):,}"
    if not len(pages):
        return None
    known = np.append(offered, False)  # the last place stands for all pages beyond
    strangers = pages[~known[np.minimum(pages, len(offered))]]
    if len(strangers):
        return f"expected candidates only; found page {strangers[0]}, which is none"
    ordered = np.sort(pages)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        return f"expected every page once; found page {twice[0]} twice"
    return None
