"""What the next cycles would visit by what is known now, were every page found as it was last time.

Nothing is fetched and nothing is written. The plan of a cycle's first round is the one that a crawl would
make; further rounds look at what the rounds before have found, here nothing, and so may come out differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.evidence import UNPLANNED, Draws
from scrapy_gp4c.crawling.imagined import InMemory
from scrapy_gp4c.crawling.planning import PlannedRound, Planner
from scrapy_gp4c.crawling.surroundings import NOTHING, KnownPages, Surroundings
from scrapy_gp4c.page_state.outcomes import FIRST, PLAN, UNCHANGED, VISIT
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.policies.base import CycleVisits, Planned
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.draws import draw_salt
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import PlanCounts

Array = npt.NDArray[Any]
TIMELESS = frozenset(terminals.STATE) - {"last_cycle", "first_cycle", "found_cycle"}
"""Columns of which a page's score depends in the same way in every cycle."""


class Forecast(NamedTuple):
    """A cycle's plan."""

    cycle: int
    rounds: list[Array]
    """Each dtype `PLAN`, first to visit first."""
    counts: PlanCounts
    visits: Array
    """Dtype `VISIT`, without times: as if every page were found unchanged, or fetched for the first time."""

    @property
    def plan(self) -> Array:
        """Of all rounds."""
        return np.concatenate([*self.rounds, np.empty(0, PLAN)])

    def round_of(self, page: int) -> int | None:
        """Round that visits a page, from 1; None: none does."""
        found = (number for number, one in enumerate(self.rounds, 1) if (one["page"] == page).any())
        return next(found, None)


class Standing(NamedTuple):
    """Where a page stands in the first round."""

    score: float
    rank: int | None
    """Among the candidates, from 1; None: it is none."""
    candidates: int
    chosen: int
    """Candidates that the round visits: the first so many."""
    cut: float | None
    """Score of the last of these; None: there is none."""


def pages_before(store: PageStore) -> tuple[KnownPages, int]:
    """The pages as the next cycle will find them, and its number.

    Where a cycle is under way, its planned pages without an outcome are taken for visited and unchanged;
    pages that it has found are left out.
    """
    cycle = store.last_cycle + 1
    if store.open_cycle is None:
        return store, cycle
    pages = InMemory.of(store, store.last_cycle)
    visited = store.open_visits()
    planned = np.concatenate([np.empty(0, np.uint32), *(chunk["page"] for chunk in store.plan())])
    rest = np.setdiff1d(planned, visited["page"])
    visits = np.concatenate((visited, _found(pages, rest)))
    pages.fold(visits[visits["page"] < pages.merged_pages], cycle)
    return pages, cycle + 1


def forecast(pages: KnownPages, cycle: int, settings: Settings) -> Forecast:
    """The plan of a cycle, and the visits that it would make. Raises PolicyError or ScoreError."""
    planner = Planner(pages, settings, cycle)
    planned: PlannedRound | None = planner.plan_first()
    rounds: list[Array] = []
    visits = np.empty(0, VISIT)
    while planned is not None:
        counts = planned.counts
        plan = np.concatenate([*planned.chunks(), np.empty(0, PLAN)])
        rounds.append(plan)
        found = _found(pages, plan["page"])
        found["kind"] = plan["kind"]
        visits = np.concatenate((visits, found))
        planned = None
        if not planner.is_over:
            planned = planner.plan_next(counts, Planned.of(visits), CycleVisits.of(visits))
    return Forecast(cycle, rounds, counts, visits)


def forecasts(pages: KnownPages, cycle: int, settings: Settings) -> Iterator[Forecast]:
    """The plans of a cycle and of those after it, without end; ``pages`` stay as they are."""
    known = InMemory.of(pages, cycle - 1)
    while True:
        found = forecast(known, cycle, settings)
        yield found
        known.fold(found.visits, cycle)
        cycle += 1


def state_of(pages: KnownPages, page: int, cycle: int, settings: Settings) -> RoundState:
    """Columns of one page as the first round of a cycle sees them, related pages included."""
    columns = pages.columns_of(np.array([page], np.uint32))
    surroundings = Surroundings(pages, cycle, terminals.ROUND)
    draw = Draws(columns["key"], draw_salt(settings.seed, cycle))
    known = surroundings.columns(columns, np.array([page]))
    return RoundState(known, slice(None), surroundings.seen_by(NOTHING, spent=0.0), draw)


def standing(pages: KnownPages, page: int, cycle: int, settings: Settings) -> Standing:
    """Where a page stands in the first round of a cycle. Raises PolicyError or ScoreError."""
    planner = Planner(pages, settings, cycle)
    function = settings.score_function
    state = state_of(pages, page, cycle, settings)
    score, tie = float(function.scores(state, cycle)[0]), state["draw"][0]
    before = candidates = 0
    is_candidate = False
    for block in planner.evidence(0, UNPLANNED, NOTHING).candidates():
        if not len(block.pages):
            continue
        scores = function.scores(block.state, cycle)
        equal = np.flatnonzero(scores == score)
        before += int(np.count_nonzero(scores > score))
        if len(equal):
            before += int(np.count_nonzero(block.ties_of(equal) < tie))
        candidates += len(scores)
        is_candidate |= bool((block.pages == page).any())
    chosen = planner.first_choice()
    return Standing(
        score,
        before + 1 if is_candidate else None,
        candidates,
        len(chosen.pages),
        None if chosen.cut is None else chosen.cut.score,
    )


def is_shut_out(pages: KnownPages, page: int, cycle: int, settings: Settings, budget: int) -> bool:
    """Tell whether a settled page is behind `budget` others for ever, as long as nothing changes.

    So it is where scores depend neither on the time nor on draws nor on other pages, and those of that many
    others are higher and stay as they are whatever visits find nothing.
    """
    function = settings.score_function
    if function.expression is None or not TIMELESS.issuperset(function.columns):
        return False
    known = InMemory.of(pages, cycle - 1)
    planner = Planner(known, settings, cycle)
    score = float(function.scores(state_of(known, page, cycle, settings), cycle)[0])
    higher = 0
    for block in planner.evidence(0, UNPLANNED, NOTHING).candidates():
        scores = function.scores(block.state, cycle)
        if len(scores):
            later = {name: np.array(block.state[name]) for name in terminals.STATE}
            terminals.observe(later, np.zeros(len(scores), np.bool_), cycle)
            # Each column goes its own way: what one such visit leaves as it is, all do.
            same = [later[name] == block.state[name] for name in function.columns]
            lasting = np.logical_and.reduce(same)
            higher += int(np.count_nonzero((scores > score) & lasting))
    return higher >= budget


def _found(pages: KnownPages, visited: npt.NDArray[np.uint32]) -> Array:
    """Visits that find pages as they were, or fetch them for the first time."""
    visits = np.zeros(len(visited), VISIT)
    visits["page"] = visited
    order = np.argsort(visited)
    inside = order[visited[order] < pages.merged_pages]
    state = pages.columns_of(visited[inside])
    visits["outcome"][inside] = np.where(state["has_copy"] != 0, UNCHANGED, FIRST)
    visits["fingerprint"][inside] = state["fingerprint"]
    return visits
