"""The panel: a fixed random share of the pages, visited in every cycle, and what it tells about the others.

A crawl that visits the pages most likely to have changed cannot tell what happens on the others. Panel
pages can: each is observed in every cycle, and each keeps beside its real state a *shadow*, the state it
would have if it were no panel page: visited only in cycles in which its score, computed from that state and
from what a round could know of related pages, reaches the cut of that round's ranking. The panel is a simple
random sample of all pages, so the shadows that a cycle leaves unvisited are a simple random sample of the
pages that it leaves unvisited, and the share of them whose copy is out of date estimates the share out there.
docs/closing-the-loop.md explains both with an example.

Interval: E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA
22, with the effective sample size of a prediction from m sampled pages to M others, m * M / (m + M).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.estimates import Tally, estimates
from scrapy_gp4c.crawling.evidence import Draws
from scrapy_gp4c.crawling.planning import has_cut, ranks_all
from scrapy_gp4c.crawling.shadows import Apart, OwnVisits, enter, own_visits, remember
from scrapy_gp4c.crawling.surroundings import KnownPages, Surroundings
from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.fingerprint.sketches import differ
from scrapy_gp4c.page_state.blocks import EXTRAS
from scrapy_gp4c.page_state.claims import KINDS_OF
from scrapy_gp4c.page_state.columns import Columns, in_panel
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS, NOT_MODIFIED
from scrapy_gp4c.page_state.related import RoundColumns, RoundState
from scrapy_gp4c.policies.base import CycleVisits
from scrapy_gp4c.policies.table import TOP_K, columns_read
from scrapy_gp4c.scoring import discovery, functions, refresh_value, terminals, weights
from scrapy_gp4c.scoring.draws import draw_salt
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


class Choice(NamedTuple):
    """Which shadows a cycle would have visited."""

    visited: Bools
    """``[S]``."""
    own: OwnVisits | None = None
    """What it visited their pages for; None: nobody asked for related pages."""


def choose(
    pages: KnownPages,
    visits: Array,
    shadows: Array,
    record: CycleRecord,
    warmup_visits: int,
    own: ScoreFunction | None = None,
) -> Choice:
    """Tell which shadows the open cycle, of `record` and not yet folded, would have visited.

    ``visits``: those of the cycle, dtype `VISIT`; ``shadows``: dtype `SHADOW` ``[S]``, as the cycle before
    left them. They take part in the ranking of every round by the formula, clock and seed of the record, even
    if settings have changed since the cycle was planned. ``own``: see `functions.recorded`, as for what it
    raises.
    """
    plan, cycle = record["plan"], record["cycle"]
    visited = np.asarray(shadows["n"] < warmup_visits)
    if ranks_all(plan):
        return Choice(np.ones(len(shadows), np.bool_))
    if not plan["ranked"]:
        return Choice(visited)
    function = functions.recorded(record["formula"], own).on_clock(record["clock"])
    needed = ("n", *columns_read(function, TOP_K))
    surroundings = Surroundings(pages, cycle, needed)
    columns = {name: np.ascontiguousarray(shadows[name]) for name in terminals.STATE if name in needed}
    own_pages = None
    if surroundings.is_needed:
        own_pages, position = own_visits(pages, shadows, visits, cycle)
        columns["group"] = own_pages.state["group"]
        columns = dict(surroundings.columns(columns, shadows["page"]))
    columns |= _growth(pages, shadows["page"], needed)
    found = CycleVisits.of(visits)
    draw = Draws(np.ascontiguousarray(shadows["key"]), draw_salt(record["seed"], cycle))
    for (score, tie), seen, spent in _rounds(record):
        related = surroundings.seen_by(found.first(seen), spent)
        told: RoundColumns = related
        if own_pages is not None:
            told = Apart(related, shadows, own_pages.only(position < seen), cycle)
        state = RoundState(columns, slice(None), told, draw)
        scores = function.scores(state, cycle)
        visited |= (scores > score) | ((scores == score) & (state["draw"] <= np.uint64(tie)))
    return Choice(visited, own_pages)


def _growth(known: KnownPages, pages: Array, needed: Sequence[str]) -> Columns:
    """What the visits to the pages of shadows brought and gained, and their claims, if needed: panel or
    not."""
    names = [
        name for name in (*discovery.COLUMNS, *refresh_value.COLUMNS, *weights.COLUMNS) if name in needed
    ]
    if not {*EXTRAS, *KINDS_OF}.isdisjoint(needed):
        names += EXTRAS
    if not names:
        return {}
    order = np.argsort(pages)
    state = known.columns_of(pages[order])
    return {name: state[name][np.argsort(order)] for name in names if name in state}


class _Ranking(NamedTuple):
    """A round that chose pages."""

    cut: tuple[float, int]
    seen: int
    """Visits that it saw."""
    spent: float
    """Share of the budget that the rounds before used."""


def _rounds(record: CycleRecord) -> Iterator[_Ranking]:
    plan = record["plan"]
    beside = sum(plan[kind] for kind in ("hub", "panel", "warmup", "new"))
    planned = 0
    for cut, counts in zip(plan["cuts"] or (), record["rounds"], strict=False):
        if cut is not None:
            spent = max(0, planned - beside)
            yield _Ranking(cut, counts["seen"], spent / plan["budget"] if plan["budget"] else 0.0)
        planned += counts["planned"]


def advance(
    pages: KnownPages,
    visits: Array,
    shadows: Array,
    record: CycleRecord,
    warmup_visits: int,
    distance_bits: int,
    own: ScoreFunction | None = None,
) -> tuple[Array, Tally]:
    """Take the shadows through a cycle that is over and not yet folded, whose record has all rounds.

    ``visits``: those of the cycle, dtype `VISIT`; ``shadows``: dtype `SHADOW` ``[S]`` as the cycle before
    left them; ``own``: as for `choose`.
    A page that is not judged in this cycle (an error, a rest after errors) tells nothing and its shadow
    stays as it is; the next judged visit covers the time since.
    """
    judged_visits = visits[["page", "outcome", "fingerprint"]][np.isin(visits["outcome"], JUDGED)]
    _, rows, of_visit = np.intersect1d(
        shadows["page"], judged_visits["page"], assume_unique=True, return_indices=True
    )
    current = np.ascontiguousarray(shadows["current"])
    compared = judged_visits["outcome"][of_visit] != NOT_MODIFIED
    current[rows[compared]] = judged_visits["fingerprint"][of_visit[compared]]
    outdated = differ(current, np.ascontiguousarray(shadows["copy"]), distance_bits)[rows]
    choice = choose(pages, visits, shadows, record, warmup_visits, own)
    visited = choice.visited[rows]
    tally = Tally(len(rows), int((~visited).sum()), int((outdated & ~visited).sum()))

    shadows = shadows.copy()
    shadows["current"] = current
    remember(shadows, choice.own, rows[visited], rows[visited & outdated])
    rows, outdated = rows[visited], outdated[visited]
    state = {name: shadows[name][rows] for name in terminals.STATE}
    terminals.observe(state, outdated, record["cycle"])
    for name, values in state.items():
        shadows[name][rows] = values
    shadows["copy"][rows] = current[rows]
    return shadows, tally


def close_cycle(
    store: PageStore,
    record: CycleRecord,
    share: float,
    warmup_visits: int,
    distance_bits: int,
    own: ScoreFunction | None = None,
) -> dict[str, Any] | None:
    """Advance the shadows of the open cycle and return the estimates that they allow, for its record.

    None where there is no panel, no cut, or no function that the formula of the record may be taken for.

    Call it before the cycle is folded, with its record. The shadows of the cycle before are kept
    besides, so that a cycle that is resumed after a kill is closed from where it began.
    """
    plan = record.get("plan")
    if share <= 0.0 or plan is None or not has_cut(plan):
        return None
    cycle, visits = record["cycle"], store.open_visits()
    shadows = store.shadows(cycle - 1)
    shadows = shadows[in_panel(np.ascontiguousarray(shadows["key"]), share)]
    entering = np.setdiff1d(visits["page"][visits["kind"] == KINDS.index("panel")], shadows["page"])
    shadows = np.concatenate((shadows, enter(entering, store.columns_of(entering))))
    try:
        shadows, tally = advance(store, visits, shadows, record, warmup_visits, distance_bits, own)
    except (ScoreError, ExpressionError):
        return None
    store.keep_shadows(cycle, shadows)
    outcome = visits["outcome"]
    judged, changed, first = (int(np.isin(outcome, codes).sum()) for codes in (JUDGED, (CHANGED,), (FIRST,)))
    found = estimates(tally, plan["copies"], judged, changed, first)
    freshness = weighted_freshness(store, shadows, distance_bits)
    if found is not None and freshness is not None:
        found["weighted_freshness"] = freshness
    return found


def weighted_freshness(store: PageStore, shadows: Array, distance_bits: int) -> float | None:
    """Share of weight whose copy is current (Olston & Najork 2010, WF); None: all pages weigh 1, or nothing.

    ``shadows``: dtype `SHADOW` ``[S]``, after a cycle.
    """
    pages = shadows["page"].astype(np.uint32)
    order = np.argsort(pages)
    weight = store.columns_of(pages[order])["weight"]
    current, copy = (np.ascontiguousarray(shadows[name][order]) for name in ("current", "copy"))
    is_current = ~differ(current, copy, distance_bits)
    if not weight.any() or not (weight != weights.DEFAULT_WEIGHT).any():
        return None
    return float(weight[is_current].sum()) / float(weight.sum())
