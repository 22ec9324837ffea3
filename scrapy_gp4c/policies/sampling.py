"""What policies that sample have in common, and the two baselines (Tan et al. 2007, section 6.2).

A page's draw of the cycle says when its turn as a sample comes, the highest first; what else is drawn follows
from it too (`scrapy_gp4c.scoring.draws.Purpose`). So nothing depends on the order in which answers arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.outcomes import CHANGED, GONE, JUDGED, PANEL, SAMPLE, among
from scrapy_gp4c.policies.policy import NOBODY, Block, Chosen, Evidence, Pages, PolicySettings, Round
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring import terminals

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SAMPLES = (SAMPLE, PANEL)
"""Kinds of visits that tell of other pages: the panel is drawn at random too."""


def turn(block: Block) -> Floats:
    """The higher, the earlier a page's turn as a sample comes: the terminal ``random``."""
    return np.asarray(terminals.TERMINALS["visits"]["random"].formula(block.state, 0))


@dataclass(frozen=True)
class Sampled:
    """Samples whose visits told something."""

    pages: Pages
    """``[S]``."""
    changed: Bools
    """``[S]``."""


def samples_of(evidence: Evidence, begin: int = 0) -> Sampled:
    """The samples among the visits from number ``begin`` on.

    That a page is gone which was there before is a change too (section 3); errors tell nothing.
    """
    found = evidence.visits()
    wanted = among(found.kinds[begin:], SAMPLES)
    pages, outcomes = found.pages[begin:][wanted], found.outcomes[begin:][wanted]
    changed = outcomes == CHANGED
    gone = np.flatnonzero(outcomes == GONE)
    if len(gone):
        changed[gone] = evidence.rows(pages[gone]).state["gone"] == 0
    told = among(outcomes, JUDGED) | changed
    return Sampled(pages[told], changed[told])


def plan_of(parts: list[tuple[int, Pages]]) -> Chosen:
    """A plan of pages that no score chose: kind and pages, the first first."""
    parts = [(kind, pages) for kind, pages in parts if len(pages)]
    if not parts:
        return NOBODY
    pages = np.concatenate([pages for _, pages in parts])
    kinds = np.concatenate([np.full(len(pages), kind, np.uint8) for kind, pages in parts])
    return Chosen(pages, np.full(len(pages), np.nan), None, kinds)


class Turns:
    """The candidates of a cycle in the order of their turns as samples, as far as the budget can go."""

    def __init__(self, evidence: Evidence, remaining: int) -> None:
        """Order them: of 2k pages in turn, the budget's k visits leave enough for every further sample."""
        self._pages = best_candidates(turn, 2 * remaining, evidence).pages
        self._next = 0

    def take(self, wanted: int, evidence: Evidence, but: Pages) -> Pages:
        """The next candidates, as far as there are any; ``but``: pages that the plan has already."""
        taken: list[Pages] = []
        while wanted > 0 and self._next < len(self._pages):
            some = self._pages[self._next : self._next + wanted]
            self._next += len(some)
            free = evidence.may_visit(some)
            if len(but):
                free &= ~np.isin(some, but)
            taken.append(some[free])
            wanted -= len(taken[-1])
        return np.concatenate([*taken, NOBODY.pages])


@dataclass(frozen=True)
class RandomNodes:
    """Random node sampling: any pages."""

    settings: PolicySettings
    name: str = "rns"
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Take the pages whose turn it is."""
        chosen = best_candidates(turn, round.remaining, evidence)
        return plan_of([(SAMPLE, chosen.pages)])


@dataclass(frozen=True)
class RoundRobin:
    """All pages in turn, in their order, on from the last cycle."""

    settings: PolicySettings
    name: str = "rr"
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Take the pages that were visited longest ago, in their order."""

        def waiting(block: Block) -> Floats:
            cycles = (round.cycle - block.state["last_cycle"]).astype(np.float64)
            return np.asarray(cycles * 2.0**32 - block.pages)

        chosen = best_candidates(waiting, round.remaining, evidence)
        return chosen._replace(scores=np.full(len(chosen.pages), np.nan), cut=None)
