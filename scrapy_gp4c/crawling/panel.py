"""The panel: a fixed random share of the pages, visited in every cycle, and what it tells about the others.

A crawl that visits the pages most likely to have changed cannot tell what happens on the others. Panel
pages can: each is observed in every cycle, and each keeps beside its real state a *shadow*, the state it
would have if it were no panel page: visited only in cycles in which its score, computed from that state,
reaches the cut of the cycle's ranking. The panel is a simple random sample of all pages, so the shadows
that a cycle leaves unvisited are a simple random sample of the pages that it leaves unvisited, and the
share of them whose copy is out of date estimates the share out there. docs/closing-the-loop.md explains
both with an example.

Interval: E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA
22, with the effective sample size of a prediction from m sampled pages to M others, m * M / (m + M).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.estimates import Tally, estimates
from scrapy_gp4c.crawling.planning import has_cut
from scrapy_gp4c.crawling.shadows import enter
from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.fingerprint.distance import differ
from scrapy_gp4c.page_state.classes import in_panel
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS, NOT_MODIFIED
from scrapy_gp4c.scoring import draws, functions, terminals
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.store.page_store import PageStore

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


def chosen(
    shadows: Array, record: Mapping[str, Any], warmup_visits: int, own: ScoreFunction | None = None
) -> Bools:
    """Tell which shadows the cycle of `record` would have visited: bool ``[S]``.

    ``shadows``: dtype `SHADOW` ``[S]``, as the cycle before left them. They take part in its ranking by the
    formula, clock and seed of the record, even if settings have changed since the cycle was planned.
    ``own``: see `functions.recorded`, as for what it raises.
    """
    plan, cycle = record["plan"], record["cycle"]
    warming = np.asarray(shadows["n"] < warmup_visits)
    if plan["ranked"] == plan["rankable"]:
        return np.ones(len(shadows), np.bool_)
    if not plan["ranked"]:
        return warming
    function = functions.recorded(record["formula"], own).on_clock(record["clock"])
    needed = ("n", *terminals.columns_of(function.terminals, function.clock))
    state = {name: np.ascontiguousarray(shadows[name]) for name in terminals.STATE if name in needed}
    state["draw"] = draws.draws(np.ascontiguousarray(shadows["key"]), record["seed"], cycle)
    scores = function.scores(state, cycle)
    cut, draw = plan["cut"]
    return np.asarray(warming | (scores > cut) | ((scores == cut) & (state["draw"] <= np.uint64(draw))))


def advance(
    shadows: Array,
    visits: Array,
    record: Mapping[str, Any],
    warmup_visits: int,
    distance_bits: int,
    own: ScoreFunction | None = None,
) -> tuple[Array, Tally]:
    """Take the shadows through one cycle, given what it visited.

    ``shadows``: dtype `SHADOW` ``[S]`` as the cycle before left them; ``visits``: dtype `VISIT` ``[V]``.
    ``own``: as for `chosen`.
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
    visited = chosen(shadows, record, warmup_visits, own)[rows]
    tally = Tally(len(rows), int((~visited).sum()), int((outdated & ~visited).sum()))

    shadows = shadows.copy()
    shadows["current"] = current
    rows, outdated = rows[visited], outdated[visited]
    state = {name: shadows[name][rows] for name in terminals.STATE}
    terminals.observe(state, outdated, record["cycle"])
    for name, values in state.items():
        shadows[name][rows] = values
    shadows["copy"][rows] = current[rows]
    return shadows, tally


def close_cycle(
    store: PageStore,
    record: Mapping[str, Any],
    share: float,
    warmup_visits: int,
    distance_bits: int,
    own: ScoreFunction | None = None,
) -> dict[str, Any] | None:
    """Advance the shadows of the open cycle and return its estimates (see `estimates`).

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
        shadows, tally = advance(shadows, visits, record, warmup_visits, distance_bits, own)
    except (ScoreError, ExpressionError):
        return None
    store.keep_shadows(cycle, shadows)
    outcome = visits["outcome"]
    counts = [int(np.isin(outcome, codes).sum()) for codes in (JUDGED, (CHANGED,), (FIRST,))]
    return estimates(tally, plan["copies"], *counts)
