"""Crawls of a simulated web: the plan, the page columns and the panel of a live crawl, no network.

What a run does to a page is what `scrapy_gp4c.page_state.columns.apply_visits` says; what it visits is what
`scrapy_gp4c.crawling.planning.Planner` plans. `crawl` leaves out queue, download and disk, so that hundreds
of crawls can be repeated in a minute, and the truth about pages that nobody visited is known; `crawl_store`
leaves out queue and download.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling import panel
from scrapy_gp4c.crawling.cycle import Cycle as LiveCycle
from scrapy_gp4c.crawling.estimates import estimates
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.crawling.shadows import enter
from scrapy_gp4c.fingerprint.distance import differ
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.outcomes import CHANGED, ERROR, FIRST, JUDGED, KINDS, PLAN, UNCHANGED, VISIT
from scrapy_gp4c.scoring import draws
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import SHADOW, PlanCounts, RoundCounts

Texts = npt.NDArray[np.uint64]


class Cycle(NamedTuple):
    """What one simulated cycle did, and the truth that the crawl cannot see."""

    record: dict[str, Any]
    """As the store's, with the panel's estimates."""
    visits: npt.NDArray[Any]
    outdated_before: npt.NDArray[np.bool_]
    """``[P]``: pages whose copy was out of date just before the visits."""
    outdated_after: npt.NDArray[np.bool_]
    had_copy: npt.NDArray[np.bool_]
    shadows: npt.NDArray[Any]
    state: columns.Columns
    """After the cycle; the next one changes it in place."""


class _Counts:
    """The statistics collector that a live cycle needs."""

    def inc_value(self, name: str) -> None:
        """Count nothing."""


def crawl_store(path: Path, texts: Texts, settings: Settings, keys: npt.NDArray[np.uint64]) -> None:
    """Crawl, or go on crawling, into the store at `path`; the other arguments as for `crawl`."""
    with Store(path) as store:
        store.add_pages((int(key), {"url": f"http://h{key % 10}/{key}"}) for key in keys)
        while store.last_cycle < len(texts):
            cycle = LiveCycle(store, settings, _Counts())  # type: ignore[arg-type]
            pages = list(cycle.remaining())
            while pages or not cycle.rounds_over:
                for page in pages:
                    visit = cycle.claim(page, "h")
                    assert visit is not None
                    cycle.judge(visit, int(texts[cycle.number - 1, page]), 10)
                pages = [] if cycle.rounds_over else cycle.plan_round()
            cycle.finish("finished")


class _Pages:
    """What planning asks a store, with the plan of the last cycle."""

    def __init__(self, keys: npt.NDArray[np.uint64]) -> None:
        self.pages = len(keys)
        self.state = columns.new_columns(keys)
        self.open_cycle = 0

    def plan(self, settings: Settings, cycle: int) -> tuple[npt.NDArray[Any], PlanCounts]:
        """Plan a cycle of one round."""
        self.open_cycle = cycle
        Planner(self, settings).plan({}, np.empty(0, np.uint32))  # type: ignore[arg-type]
        return self._rows, self._counts

    def rounds(self) -> list[RoundCounts]:
        return []

    def add_round(self, chunks: Iterator[npt.NDArray[Any]], seen: int, plan: PlanCounts) -> None:
        self._rows, self._counts = np.concatenate([*chunks, np.empty(0, PLAN)]), plan

    def blocks(self) -> Iterator[tuple[int, columns.Columns]]:
        yield 0, self.state


def texts_of(changed: npt.NDArray[np.bool_], rng: np.random.Generator) -> Texts:
    """Fingerprints uint64 ``[D + 1, P]`` of pages that change as told, bool ``[D, P]``, and never back."""
    versions = np.concatenate((np.zeros((1, changed.shape[1]), np.int64), np.cumsum(changed, axis=0)))
    pages = rng.integers(1, 2**63, changed.shape[1], dtype=np.uint64)
    return draws.salted_draws(pages[None, :] + versions.astype(np.uint64), np.uint64(1))


def crawl(
    texts: Texts,
    settings: Settings,
    keys: npt.NDArray[np.uint64],
    failing: npt.NDArray[np.bool_] | None = None,
) -> Iterator[Cycle]:
    """Crawl pages that are all known from the beginning, once per row of `texts`.

    ``texts``: fingerprint of every page in cycle 1, 2, ...: uint64 ``[cycles, P]``, not 0; ``keys``: uint64
    ``[P]``; ``failing``: visits that end with an error: bool ``[cycles, P]``.
    """
    pages = _Pages(keys)
    state = pages.state
    shadows = np.empty(0, SHADOW)
    function, bits = settings.score_function, settings.distance_bits
    for cycle, text in enumerate(texts, 1):
        plan, counts = pages.plan(settings, cycle)
        record: dict[str, Any] = {
            "cycle": cycle,
            "formula": function.formula,
            "clock": function.clock,
            "seed": settings.seed,
            "plan": counts,
        }
        rows = np.sort(plan, order="page")["page"].astype(np.intp)
        had_copy = state["has_copy"] != 0
        outdated = had_copy & differ(text, state["fingerprint"], bits)
        visits = np.zeros(len(rows), VISIT)
        visits["page"], visits["fingerprint"] = rows, text[rows]
        visits["kind"] = np.sort(plan, order="page")["kind"]
        visits["outcome"] = np.where(had_copy[rows], np.where(outdated[rows], CHANGED, UNCHANGED), FIRST)
        if failing is not None:
            visits["outcome"][failing[cycle - 1, rows]] = ERROR
        new = np.setdiff1d(visits["page"][visits["kind"] == KINDS.index("panel")], shadows["page"])
        shadows = np.concatenate((shadows, enter(new, {name: column[new] for name, column in state.items()})))
        shadows, tally = panel.advance(shadows, visits, record, settings.warmup_visits, bits)
        outcome = visits["outcome"]
        record["panel"] = estimates(
            tally,
            counts["copies"],
            int(np.isin(outcome, JUDGED).sum()),
            int((outcome == CHANGED).sum()),
            int((outcome == FIRST).sum()),
        )
        columns.apply_visits(state, rows, visits, cycle)
        after = (state["has_copy"] != 0) & differ(text, state["fingerprint"], bits)
        yield Cycle(record, visits, outdated, after, had_copy, shadows, state)
