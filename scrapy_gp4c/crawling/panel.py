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
from scrapy_gp4c.crawling.plan_counts import cuts_of, has_cut, ranks_all, share_of, spent_of
from scrapy_gp4c.crawling.shadows import Apart, OwnVisits, enter, own_visits, remember
from scrapy_gp4c.crawling.surroundings import Surroundings
from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.fingerprint.sketches import differ
from scrapy_gp4c.page_state.blocks import EXTRAS
from scrapy_gp4c.page_state.claims import KINDS_OF
from scrapy_gp4c.page_state.columns import Columns, in_panel
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS, NOT_MODIFIED
from scrapy_gp4c.page_state.related import RoundState, Tells
from scrapy_gp4c.policies.policy import Found
from scrapy_gp4c.policies.table import TOP_K, columns_read
from scrapy_gp4c.scoring import discovery, functions, refresh_value, terminals, weights
from scrapy_gp4c.scoring.draws import draw_salt
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord, RoundCounts

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


class Choice(NamedTuple):
    """Which shadows a cycle would have visited."""

    visited: Bools
    """``[S]``."""
    own: OwnVisits | None = None
    """What it visited their pages for; None: nobody asked for related pages."""


def choose(
    store: PageStore,
    shadows: Array,
    record: CycleRecord,
    warmup_visits: int,
    own: ScoreFunction | None = None,
) -> Choice:
    """Tell which shadows the open cycle, of `record` and not yet folded, would have visited.

    ``shadows``: dtype `SHADOW` ``[S]``, as the cycle before left them. They take part in the ranking of every
    round by the formula, clock and seed of the record, even if settings have changed since the cycle was
    planned. ``own``: see `functions.recorded`, as for what it raises.
    """
    plan, cycle = record["plan"], record["cycle"]
    visited = np.asarray(shadows["n"] < warmup_visits)
    if ranks_all(plan):
        return Choice(np.ones(len(shadows), np.bool_))
    if not spent_of(plan):
        return Choice(visited)
    function = functions.recorded(record["formula"], own).on_clock(record["clock"])
    needed = ("n", *columns_read(function, TOP_K))
    surroundings = Surroundings(store, cycle, needed)
    columns = {name: np.ascontiguousarray(shadows[name]) for name in terminals.STATE if name in needed}
    visits, pages = store.open_visits(), None
    if surroundings.is_needed:
        pages, position = own_visits(store, shadows, visits, cycle)
        columns["group"] = pages.state["group"]
        columns = dict(surroundings.columns(columns, shadows["page"]))
    columns |= _growth(store, shadows["page"], needed)
    found = Found.of(visits)
    draw = Draws(np.ascontiguousarray(shadows["key"]), draw_salt(record["seed"], cycle))
    for (score, tie), seen, spent, sums in _rounds(record):
        related = surroundings.seen_by(found.first(seen), spent, sums)
        told: Tells = related
        if pages is not None:
            told = Apart(related, shadows, pages.only(position < seen), cycle)
        state = RoundState(columns, slice(None), told, draw)
        scores = function.scores(state, cycle)
        visited |= (scores > score) | ((scores == score) & (state["draw"] <= np.uint64(tie)))
    return Choice(visited, pages)


def _growth(store: PageStore, pages: Array, needed: Sequence[str]) -> Columns:
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
    state = store.columns_of(pages[order])
    return {name: state[name][np.argsort(order)] for name in names if name in state}


class _Ranking(NamedTuple):
    """A round that chose pages."""

    cut: tuple[float, int]
    seen: int
    """Visits that it saw."""
    spent: float
    """Share of the budget that the rounds before used."""
    sums: list[int] | None
    """Over the pages of all shards; None: there are no others."""


def _rounds(record: CycleRecord) -> Iterator[_Ranking]:
    plan, whole = record["plan"], record["plan"].get("whole")
    beside = sum(plan[kind] for kind in ("panel", "warmup", "new")) if "cuts" in plan else 0
    beside += plan.get("hub", 0)
    # Nothing that the version before could score by looked at the round.
    rounds = record["rounds"] if "cuts" in plan else [RoundCounts(planned=0, seen=0)]
    planned = 0
    for number, (cut, counts) in enumerate(zip(cuts_of(plan) or (), rounds, strict=False)):
        spent = max(0, planned - beside) if whole is None else sum(whole["ranked"][:number])
        if cut is not None:
            sums = None if whole is None else whole["sums"][number]
            yield _Ranking(cut, counts["seen"], share_of(plan.get("budget", 0), spent), sums)
        planned += counts["planned"]


def advance(
    store: PageStore,
    shadows: Array,
    record: CycleRecord,
    warmup_visits: int,
    distance_bits: int,
    own: ScoreFunction | None = None,
) -> tuple[Array, Tally]:
    """Take the shadows through the open cycle of a store, whose record has all rounds.

    ``shadows``: dtype `SHADOW` ``[S]`` as the cycle before left them. ``own``: as for `choose`.
    A page that is not judged in this cycle (an error, a rest after errors) tells nothing and its shadow
    stays as it is; the next judged visit covers the time since.
    """
    visits = store.open_visits()
    judged_visits = visits[["page", "outcome", "fingerprint"]][np.isin(visits["outcome"], JUDGED)]
    _, rows, of_visit = np.intersect1d(
        shadows["page"], judged_visits["page"], assume_unique=True, return_indices=True
    )
    current = np.ascontiguousarray(shadows["current"])
    compared = judged_visits["outcome"][of_visit] != NOT_MODIFIED
    current[rows[compared]] = judged_visits["fingerprint"][of_visit[compared]]
    outdated = differ(current, np.ascontiguousarray(shadows["copy"]), distance_bits)[rows]
    choice = choose(store, shadows, record, warmup_visits, own)
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


class OnPanel(NamedTuple):
    """What a cycle found by a panel, in one store or shard."""

    tally: Tally
    copies: int
    """Pages with a copy, and not gone, before the cycle."""
    judged: int
    changed: int
    first: int
    """Visits, as are the two before."""
    weight: float
    """Of the shadows' pages."""
    current: float
    """Weight of those whose copy is current."""
    weighed: bool
    """Whether any of them weighs other than 1."""


def close_cycle(
    store: PageStore,
    record: CycleRecord,
    share: float,
    warmup_visits: int,
    distance_bits: int,
    own: ScoreFunction | None = None,
) -> OnPanel | None:
    """Advance the shadows of the open cycle and return what they tell, for `estimated`.

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
        shadows, tally = advance(store, shadows, record, warmup_visits, distance_bits, own)
    except (ScoreError, ExpressionError):
        return None
    store.keep_shadows(cycle, shadows)
    outcome = visits["outcome"]
    judged, changed, first = (int(np.isin(outcome, codes).sum()) for codes in (JUDGED, (CHANGED,), (FIRST,)))
    weight = weighed(store, shadows, distance_bits)
    return OnPanel(tally, plan["copies"], judged, changed, first, *weight)


def estimated(found: Sequence[OnPanel]) -> dict[str, Any] | None:
    """What all shards, or one store, tell of all pages; None where there is nothing to tell by."""
    if not found:
        return None
    tally = Tally(*map(sum, zip(*(one.tally for one in found), strict=True)))
    copies, judged, changed, first = map(sum, zip(*(one[1:5] for one in found), strict=True))
    told = estimates(tally, copies, judged, changed, first)
    weight = sum(one.weight for one in found)
    if told is not None and weight and any(one.weighed for one in found):
        told["weighted_freshness"] = sum(one.current for one in found) / weight
    return told


def weighed(store: PageStore, shadows: Array, distance_bits: int) -> tuple[float, float, bool]:
    """What weighted freshness (Olston & Najork 2010, WF) follows from, see `OnPanel`.

    ``shadows``: dtype `SHADOW` ``[S]``, after a cycle.
    """
    pages = shadows["page"].astype(np.uint32)
    order = np.argsort(pages)
    weight = store.columns_of(pages[order])["weight"]
    current, copy = (np.ascontiguousarray(shadows[name][order]) for name in ("current", "copy"))
    is_current = ~differ(current, copy, distance_bits)
    is_weighed = bool((weight != weights.USUAL).any())
    return float(weight.sum()), float(weight[is_current].sum()), is_weighed
