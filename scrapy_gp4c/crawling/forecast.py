"""Forecasts: what the next cycles would visit, were every page found as it was last time; and why.

Nothing is fetched and nothing is written. The plan of a cycle's first round is the one that a crawl would
make; further rounds look at what the rounds before have found, here nothing, and so may come out differently.
A single forecast plans on the store itself. Several in a row plan on a copy of the columns in memory, because
they change it as finished cycles would. (A write transaction of the store would keep crawls from writing.)
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.crawling.neighbourhood import KnownPages, Neighbourhood, columns_in_order
from scrapy_gp4c.crawling.planning import PlannedRound, Planner
from scrapy_gp4c.crawling.promises import PageRules, page_rules
from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.claims import NO_CLAIMS, after_visits
from scrapy_gp4c.page_state.columns import Columns, is_awake, stages
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, NO_VISITS, count_visits
from scrapy_gp4c.page_state.outcomes import (
    CHANGED,
    FIRST,
    JUDGED,
    KINDS,
    OUTCOMES,
    PLAN,
    UNCHANGED,
    VISIT,
    WARMUP,
    among,
)
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.policies.base import NO_VISITS_YET, UNPLANNED, CycleVisits, Planned
from scrapy_gp4c.policies.site_share import NONE
from scrapy_gp4c.scoring import functions, hints, terminals
from scrapy_gp4c.scoring.ranking import draw_salt, draws_of
from scrapy_gp4c.scoring.refresh_value import GAIN, observe_gains
from scrapy_gp4c.scoring.terminals import change_probability
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import TRUST, CycleRecord, PlanCounts, StoredGroups, StoredRequest


class PagesInMemory:
    """Copy of a store's pages in memory, 100 bytes each, on which a forecast plans cycle after cycle."""

    def __init__(
        self,
        state: Columns,
        site_keys: npt.NDArray[np.uint64],
        group_visits: dict[int, Array],
        each_request: Callable[[Array], Iterator[StoredRequest]],
        before: KnownPages | None = None,
    ) -> None:
        """Take columns ``[P]``, which `fold` changes; visits, trust and clusters are read from `before`."""
        self.each_request = each_request
        self._before = before
        self._folded: dict[int, Array] = {}
        self.state = {
            name: np.zeros(len(state["key"]), dtype) for name, dtype in hints.COLUMNS.items()
        } | state
        self._site_keys = site_keys
        self._group_visits = group_visits

    @classmethod
    def of(cls, pages: KnownPages, last_cycle: int) -> Self:
        """Return a copy of a store's pages as its last finished cycle left them."""
        parts = [block for _, block in pages.blocks()]
        parts = parts or [columns.new_columns(np.empty(0, np.uint64))]
        state = {name: np.concatenate([columns[name] for columns in parts]) for name in parts[0]}
        cycles = range(max(1, last_cycle - KEPT_CYCLES + 1), last_cycle + 1)
        visits = {cycle: pages.group_visits(cycle) for cycle in cycles}
        return cls(state, pages.site_keys(), visits, pages.each_request, pages)

    @property
    def merged_pages(self) -> int:
        return len(self.state["key"])

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield all pages in one block, which `fold` changes."""
        yield 0, self.state

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        return {name: column[pages] for name, column in self.state.items()}

    def site_keys(self) -> npt.NDArray[np.uint64]:
        return self._site_keys

    def trust(self) -> Array:
        return np.empty(0, TRUST) if self._before is None else self._before.trust()

    def clusters(self) -> StoredGroups | None:
        return None if self._before is None else self._before.clusters()

    def group_visits(self, cycle: int) -> Array:
        return self._group_visits.get(cycle, NO_VISITS)

    def visits(self, first_cycle: int = 1, last_cycle: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield visits of finished cycles: the store's, then those of forecast cycles."""
        if self._before is not None:
            yield from self._before.visits(first_cycle, last_cycle)
        for cycle, visits in self._folded.items():
            if first_cycle <= cycle and (last_cycle is None or cycle <= last_cycle):
                yield cycle, visits

    def fold(self, visits: Array, cycle: int) -> None:
        """Update the pages by the visits of a cycle, dtype `VISIT`, as its close would update the store."""
        self._folded[cycle] = visits
        judged = visits[among(visits["outcome"], JUDGED)]
        state = self.columns_of(judged["page"])
        predicted = change_probability(state, cycle)
        self._group_visits[cycle] = count_visits(
            state["group"], judged["outcome"] == CHANGED, predicted, judged["kind"] == WARMUP
        )
        if "dq_n" in self.state:
            gains = np.zeros(len(judged), GAIN)
            gains["gap_cycles"] = cycle - state["last_cycle"]
            observe_gains(self.state, judged["page"].astype(np.intp), gains)
        rows = visits["page"].astype(np.intp)
        columns.apply_visits(self.state, rows, visits, cycle)
        after_visits(self.state, rows, visits["outcome"], NO_CLAIMS, cycle, np.zeros(len(rows)))


TIMELESS = frozenset(terminals.STATE) - {"last_cycle", "first_cycle", "found_cycle"}
"""Columns that only visits change: a score of these alone stays the same until a visit."""


class Forecast(NamedTuple):
    """Plan of a future cycle, and the visits that it is expected to make."""

    cycle: int
    rounds: list[Array]
    """Plan of each round, dtype `PLAN`, first to visit first."""
    counts: PlanCounts
    visits: Array
    """Dtype `VISIT`, without times: as if every page were found unchanged, or fetched for the first time."""

    @property
    def plan(self) -> Array:
        """The plan of all rounds, dtype `PLAN`."""
        return np.concatenate([*self.rounds, np.empty(0, PLAN)])

    def round_of(self, page: int) -> int | None:
        """Return the number of the round that visits a page, from 1; None: no round does."""
        rounds = (number for number, one in enumerate(self.rounds, 1) if (one["page"] == page).any())
        return next(rounds, None)


class RankOfPage(NamedTuple):
    """Score and rank of a page among the candidates of a cycle's first round."""

    score: float
    rank: int | None
    """Rank among the candidates, from 1; None: the page is no candidate."""
    candidates: int
    chosen: int
    """Number of candidates that the round visits, the best ones."""
    cut: float | None
    """Score of the last chosen page; None: none is chosen by score."""


NO_WEIGHTS = np.empty(0, np.uint32), np.empty(0)


def rules_before(store: Store, settings: Settings) -> PageRules | None:
    """Return the page rules for the cycle after the open or last one; None: there are no rules."""
    return page_rules(store, settings, (store.open_cycle or store.last_cycle) + 1)


def pages_before(store: Store, rules: PageRules | None = None) -> tuple[KnownPages, int]:
    """Return the pages as the next cycle will find them, and that cycle's number.

    Where a cycle is under way, its planned pages without an outcome count as visited and unchanged; pages
    that it has discovered are left out. ``rules``: of the pages, for their weights.
    """
    cycle = store.last_cycle + 1
    weights = NO_WEIGHTS if rules is None else rules.weights()
    if store.open_cycle is None and not len(weights[0]):
        return store, cycle
    pages = PagesInMemory.of(store, store.last_cycle)
    pages.state["weight"][weights[0]] = weights[1]  # as the next cycle begins with them
    if store.open_cycle is None:
        return pages, cycle
    visited = store.open_visits()
    unvisited = np.setdiff1d(store.plan()["page"], visited["page"])
    visits = np.concatenate((visited, _unchanged_visits(pages, unvisited)))
    pages.fold(visits[visits["page"] < pages.merged_pages], cycle)
    return pages, cycle + 1


def forecast(pages: KnownPages, cycle: int, settings: Settings, rules: PageRules | None = None) -> Forecast:
    """Return the plan of a cycle, and the visits that it would make. Raises PolicyError or ScoreError."""
    planner = Planner(pages, settings, cycle, rules=rules)
    planned: PlannedRound | None = planner.plan_first()
    rounds: list[Array] = []
    visits = np.empty(0, VISIT)
    while planned is not None:
        counts = planned.counts
        plan = planned.plan()
        rounds.append(plan)
        round_visits = _unchanged_visits(pages, plan["page"])
        round_visits["kind"] = plan["kind"]
        visits = np.concatenate((visits, round_visits))
        planned = None
        if not planner.is_over:
            planned = planner.plan_next(counts, Planned.of(visits), CycleVisits.of(visits))
    return Forecast(cycle, rounds, counts, visits)


def forecasts(
    pages: KnownPages, cycle: int, settings: Settings, rules: PageRules | None = None
) -> Iterator[Forecast]:
    """Yield the plans of a cycle and of all later cycles, without end; leaves `pages` as they are."""
    known = PagesInMemory.of(pages, cycle - 1)
    while True:
        expected = forecast(known, cycle, settings, rules)
        yield expected
        known.fold(expected.visits, cycle)
        cycle += 1
        rules = None if rules is None else rules.at(cycle)


def state_of(pages: KnownPages, page: int, cycle: int, settings: Settings) -> RoundState:
    """Return one page's columns as a cycle's first round sees them, with those made of related pages."""
    columns = pages.columns_of(np.array([page], np.uint32))
    neighbourhood = Neighbourhood(pages, cycle, terminals.ROUND)
    draw = draws_of(columns["key"], draw_salt(settings.seed, cycle))
    known = neighbourhood.columns(columns, np.array([page]))
    return RoundState(known, slice(None), neighbourhood.seen_by(), draw)


def rank_of_page(
    pages: KnownPages, page: int, cycle: int, settings: Settings, rules: PageRules | None = None
) -> RankOfPage:
    """Return the rank of a page in the first round of a cycle. Raises PolicyError or ScoreError."""
    planner = Planner(pages, settings, cycle, rules=rules)
    function = settings.score_function
    state = state_of(pages, page, cycle, settings)
    score, tie = float(function.scores(state, cycle)[0]), state["draw"][0]
    before = candidates = 0
    is_candidate = False
    for block in planner.evidence(0, UNPLANNED, NO_VISITS_YET).candidates():
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
    return RankOfPage(
        score,
        before + 1 if is_candidate else None,
        candidates,
        len(chosen.pages),
        None if chosen.cut is None else chosen.cut.score,
    )


def is_shut_out(pages: KnownPages, page: int, cycle: int, settings: Settings, budget: int) -> bool:
    """Whether a page past its warm-up gets no visit until some page changes: `budget` others rank higher.

    False for scores that depend on time, draws or other pages, as this cannot be known of them. Only pages
    count whose higher scores stay as they are after visits without a change.
    """
    function = settings.score_function
    if function.expression is None or not TIMELESS.issuperset(function.columns):
        return False
    known = PagesInMemory.of(pages, cycle - 1)
    planner = Planner(known, settings, cycle)
    score = float(function.scores(state_of(known, page, cycle, settings), cycle)[0])
    higher = 0
    for block in planner.evidence(0, UNPLANNED, NO_VISITS_YET).candidates():
        scores = function.scores(block.state, cycle)
        if len(scores):
            later = {name: np.array(block.state[name]) for name in terminals.STATE}
            terminals.observe(later, np.zeros(len(scores), np.bool_), cycle)
            # What one unchanged visit leaves as it is, all do, as no column depends on others.
            same = [later[name] == block.state[name] for name in function.columns]
            lasting = np.logical_and.reduce(same)
            higher += int(np.count_nonzero((scores > score) & lasting))
    return higher >= budget


def _unchanged_visits(pages: KnownPages, visited: npt.NDArray[np.uint32]) -> Array:
    """Return visits, dtype `VISIT`, that find pages unchanged, or fetch them for the first time."""
    visits = np.zeros(len(visited), VISIT)
    visits["page"] = visited
    inside = visited < pages.merged_pages
    state = columns_in_order(pages, visited[inside])
    visits["outcome"][inside] = np.where(state["has_copy"] != 0, UNCHANGED, FIRST)
    visits["fingerprint"][inside] = state["fingerprint"]
    return visits


@dataclass(frozen=True)
class PastCycle:
    """Record of one page in a finished cycle: the outcome of its visit, or why there was none."""

    cycle: int
    outcome: str | None
    """Outcome of the page's visit; None: it was not visited."""
    why: str
    """Kind of the visit, or the reason why the page was not visited."""


def visit_history(store: Store, page: int, settings: Settings, cycles: int) -> list[PastCycle]:
    """Return what the last `cycles` finished cycles did with a page, newest first."""
    known = store.columns_of(np.array([page], np.uint32), ("key", "group"))
    state = columns.new_columns(known["key"])
    state["group"][:] = known["group"]
    site = int(store.site_keys()[known["group"][0]])
    visits = _visits(store, page)
    records = [record for record in store.cycles() if record["cycle"] <= store.last_cycle]
    history = []
    for record in records:
        cycle = record["cycle"]
        visit = visits.get(cycle)
        if cycle > store.last_cycle - cycles:
            if visit is None:
                history.append(PastCycle(cycle, None, _why_not(state, page, site, record, settings)))
            else:
                history.append(PastCycle(cycle, OUTCOMES[visit["outcome"][0]], KINDS[visit["kind"][0]]))
        if visit is not None:
            columns.apply_visits(state, np.zeros(1, np.intp), visit, cycle)
    return history[::-1]


def _visits(store: Store, page: int) -> dict[int, Array]:
    by_cycle: dict[int, Array] = {}
    for cycle, visits in store.visits():
        rows = np.flatnonzero(visits["page"] == page)
        if len(rows):
            by_cycle[cycle] = np.asarray(visits[rows[:1]], VISIT)
    return by_cycle


def _why_not(state: Columns, page: int, site: int, record: CycleRecord, settings: Settings) -> str:
    """Return the reason why a cycle did not visit a page.

    ``state``: the page's columns before it, ``[1]``; ``site``: key of the page's site.
    """
    cycle, plan = record["cycle"], record.get("plan")
    if plan is not None and page >= plan.get("known", page + 1):
        return "not known yet"
    stage = stages(state, settings.warmup_visits, settings.gone_after)
    if stage.gone[0]:
        return f"gone: {counted(state['gone'][0], 'answer')} of 404 or 410 in a row (GP4C_GONE_AFTER), waited"
    if not is_awake(state, cycle, settings.in_every_cycle(state))[0]:
        return f"rested after {counted(state['failures'][0], 'failure')} in a row"
    if stage.unfetched[0]:
        return "never fetched, and not among the first visits of the cycle (GP4C_NEW_PAGES)"
    if stage.warming[0]:
        return "in warm-up, yet the cycle ended without its visit"
    if plan is None or not (cuts := plan["cuts"]):
        return "not chosen"
    of_sites = [{key: (score, tie) for key, score, tie in row} for row in plan.get("site_cuts", ())]
    is_full = any(site in row for row in of_sites)
    lowest = [
        row.get(site, (cut[0], cut[1])) for row, cut in zip(of_sites, cuts, strict=True) if cut is not None
    ]
    if not lowest:
        return "not chosen: the budget was spent"
    if is_full and min(lowest) == NONE:
        return "not chosen: its site had its share of the budget (GP4C_SITE_SHARE)"
    share = " of its site, which had its share of the budget (GP4C_SITE_SHARE)," if is_full else ""
    cut_off = f"the cut-off{share} was a score of {min(score for score, _ in lowest):.4g}"
    score = _score(state, record, settings)
    return f"not chosen: {cut_off}" + ("" if score is None else f", its own {score:.4g}")


def _score(state: Columns, record: CycleRecord, settings: Settings) -> float | None:
    """Return the page's score in a past cycle; None where it depended on more than is recorded."""
    try:
        function = functions.recorded(record["formula"], settings.score_function).on_clock(record["clock"])
    except (KeyError, ScoreError, ExpressionError):
        return None
    if function.expression is None or not {*terminals.STATE, "draw"}.issuperset(function.columns):
        return None
    draw = draws_of(state["key"], draw_salt(record["seed"], record["cycle"]))(slice(None))
    return float(function.scores({**state, "draw": draw}, record["cycle"])[0])
