"""Why the last cycles visited a page, or did not: by the log, and by the page's state before each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.evidence import Draws
from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import Columns, is_awake, stages
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES, VISIT
from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.draws import draw_salt
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PastCycle:
    """What a cycle did with a page."""

    cycle: int
    outcome: str | None
    """None: it was not visited."""
    why: str
    """Of a visit its kind, else what kept the page out."""


def past(store: PageStore, page: int, settings: Settings, cycles: int) -> list[PastCycle]:
    """The last `cycles` finished cycles, newest first."""
    state = columns.new_columns(store.columns_of(np.array([page], np.uint32))["key"])
    visits = _visits(store, page)
    records = [record for record in store.cycles() if record["cycle"] <= store.last_cycle]
    found = []
    for record in records:
        cycle = record["cycle"]
        visit = visits.get(cycle)
        if cycle > store.last_cycle - cycles:
            if visit is None:
                found.append(PastCycle(cycle, None, _why_not(state, page, record, settings)))
            else:
                found.append(PastCycle(cycle, OUTCOMES[visit["outcome"][0]], KINDS[visit["kind"][0]]))
        if visit is not None:
            columns.apply_visits(state, np.zeros(1, np.intp), visit, cycle)
    return found[::-1]


def _visits(store: PageStore, page: int) -> dict[int, Array]:
    """Cycle -> the page's visit, dtype `VISIT` ``[1]``."""
    found: dict[int, Array] = {}
    for cycle, visits in store.visits():
        rows = np.flatnonzero(visits["page"] == page)
        if len(rows):
            found[cycle] = np.asarray(visits[rows[:1]], VISIT)
    return found


def _why_not(state: Columns, page: int, record: CycleRecord, settings: Settings) -> str:
    """What kept a page out of a cycle, told by its columns ``[1]`` before."""
    cycle, plan = record["cycle"], record.get("plan")
    if plan is not None and page >= plan.get("known", page + 1):
        return "not known yet"
    stage = stages(state, settings.warmup_visits, settings.gone_after)
    if stage.gone[0]:
        return f"gone: {state['gone'][0]} answers of 404 or 410 in a row (GP4C_GONE_AFTER)"
    if not is_awake(state, cycle)[0]:
        return f"rested after {state['failures'][0]} failures in a row"
    if stage.unfetched[0]:
        return "never fetched, and not among the first visits of the cycle (GP4C_NEW_PAGES)"
    if stage.warming[0]:
        return "in warm-up, yet the cycle ended without its visit"
    if plan is None or not (cuts := plan["cuts"]):
        return "not chosen"
    lowest = [cut for cut in cuts if cut is not None]
    if not lowest:
        return "not chosen: the budget was spent"
    cut_off = f"the cut-off was a score of {min(score for score, _ in lowest):.4g}"
    score = _score(state, record, settings)
    return f"not chosen: {cut_off}" + ("" if score is None else f", its own {score:.4g}")


def _score(state: Columns, record: CycleRecord, settings: Settings) -> float | None:
    """The page's score in a past cycle, by what is recorded; None where that is not all it depended on."""
    try:
        function = functions.recorded(record["formula"], settings.score_function).on_clock(record["clock"])
    except (KeyError, ScoreError, ExpressionError):
        return None
    if function.expression is None or not {*terminals.STATE, "draw"}.issuperset(function.columns):
        return None
    draw = Draws(state["key"], draw_salt(record["seed"], record["cycle"]))(slice(None))
    return float(function.scores({**state, "draw": draw}, record["cycle"])[0])
