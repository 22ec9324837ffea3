"""Crawls of a simulated web: the plan, the page columns and the panel of a live crawl, no network.

`scrapy_gp4c.crawling.planning.Planner` plans the visits, `scrapy_gp4c.page_state.columns.apply_visits`
applies them. `crawl` leaves out queue, download and disk, so that hundreds of crawls take a minute;
`crawl_store` leaves out queue and download.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling import control_group
from scrapy_gp4c.crawling.control_group import estimates, new_shadows
from scrapy_gp4c.crawling.cycle import Cycle as LiveCycle
from scrapy_gp4c.crawling.forecast import PagesInMemory
from scrapy_gp4c.crawling.measuring import Measuring
from scrapy_gp4c.crawling.planning import PlannedRound, Planner
from scrapy_gp4c.fingerprint import PageReading, differ
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.outcomes import CHANGED, ERROR, FIRST, JUDGED, KINDS, UNCHANGED, VISIT
from scrapy_gp4c.policies.base import CycleVisits, Planned
from scrapy_gp4c.scoring import ranking
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import USUAL, Sizes
from scrapy_gp4c.store.records import SHADOW, StoredRequest
from training.histories.neighbours import Neighbours, PageDirectories

Texts = npt.NDArray[np.uint64]


class Cycle(NamedTuple):
    """One simulated cycle: its visits, and the truth that the crawl cannot see."""

    record: dict[str, Any]
    """Record of the cycle, as in a store, with the panel's estimates."""
    visits: npt.NDArray[Any]
    outdated_before: npt.NDArray[np.bool_]
    """``[P]``: pages whose copy was out of date just before the visits."""
    outdated_after: npt.NDArray[np.bool_]
    had_copy: npt.NDArray[np.bool_]
    shadows: npt.NDArray[Any]
    state: columns.Columns
    """Page columns after the cycle; the next one changes them in place."""


class Counts:
    """Stand-in for Scrapy's stats collector."""

    def inc_value(self, name: str) -> None:
        """Count nothing."""


def crawl_store(
    path: Path,
    texts: Texts,
    settings: Settings,
    keys: npt.NDArray[np.uint64],
    urls: Sequence[str] | None = None,
    page_texts: Sequence[Sequence[str]] | None = None,
    sizes: Sizes = USUAL,
    size_bytes: npt.NDArray[np.int64] | None = None,
    latency_ms: npt.NDArray[np.int64] | None = None,
) -> None:
    """Crawl the cycles that the store at `path` lacks; other arguments as for `crawl`.

    ``page_texts``: normalised texts of every page in cycles 1, 2, ..., which a query log's index needs.
    ``size_bytes``: of every page in cycle 1, ``[P]``, growing by cycle; None: 10. ``latency_ms``: of every
    page in cycle 1, ``[P]``, 1 ms more in each later cycle; None: not measured.
    """
    if urls is None:
        urls = [f"http://h{key % 10}/{key}" for key in keys]
    with Store(path, sizes=sizes) as store:
        store.add_pages((int(key), {"url": url}) for key, url in zip(keys, urls, strict=True))
        index = None if settings.query_log is None else Measuring(store, settings)
        while store.last_cycle < len(texts):
            cycle = LiveCycle(store, settings, Counts(), index)  # type: ignore[arg-type]
            pages = list(cycle.remaining())
            while pages or not cycle.rounds_over:
                for page in pages:
                    visit = cycle.claim(page, "h")
                    assert visit is not None
                    text = page_texts[cycle.number - 1][page] if page_texts is not None else None
                    length = 10 if size_bytes is None else int(size_bytes[page]) * cycle.number
                    reading = PageReading(int(texts[cycle.number - 1, page]), text)
                    # Half a millisecond less, which is rounded up.
                    late_ms = 0.0 if latency_ms is None else latency_ms[page] + cycle.number - 1.5
                    seconds = float(late_ms) / 1000
                    cycle.end(visit, size_bytes=length, latency_s=seconds, reading=reading)
                pages = [] if cycle.rounds_over else cycle.plan_round()
            cycle.commit()
            cycle.finish("finished")
        if index is not None:
            index.close()


def _known(keys: npt.NDArray[np.uint64], groups: PageDirectories) -> PagesInMemory:
    """Known pages without a visit."""
    state = columns.new_columns(keys)
    state["group"][:] = groups.group

    def each_request(pages: npt.NDArray[Any]) -> Iterator[StoredRequest]:
        return iter([{"url": f"http://h/{page}"} for page in pages])

    return PagesInMemory(state, groups.directories.site.astype(np.uint64), {}, each_request)


def texts_of(changed: npt.NDArray[np.bool_], rng: np.random.Generator) -> Texts:
    """Fingerprints uint64 ``[D + 1, P]`` of pages that change where `changed`, bool ``[D, P]``, is set."""
    versions = np.concatenate((np.zeros((1, changed.shape[1]), np.int64), np.cumsum(changed, axis=0)))
    pages = rng.integers(1, 2**63, changed.shape[1], dtype=np.uint64)
    return ranking.salted_draws(pages[None, :] + versions.astype(np.uint64), np.uint64(1))


def crawl(
    texts: Texts,
    settings: Settings,
    keys: npt.NDArray[np.uint64],
    failing: npt.NDArray[np.bool_] | None = None,
    groups: PageDirectories | None = None,
) -> Iterator[Cycle]:
    """Crawl pages that are all known from the beginning, once per row of `texts`.

    ``texts``: fingerprint of every page in cycle 1, 2, ...: uint64 ``[cycles, P]``, not 0; ``keys``: uint64
    ``[P]``; ``failing``: visits that end with an error: bool ``[cycles, P]``; ``groups``: directories of
    the pages, None: all are in one.
    """
    if groups is None:
        groups = Neighbours(np.zeros(len(keys), np.int32), None).groups
    known = _known(keys, groups)
    state, bits = known.state, settings.distance_bits
    shadows = np.empty(0, SHADOW)
    for cycle, text in enumerate(texts, 1):
        had_copy = state["has_copy"] != 0
        outdated = had_copy & differ(text, state["fingerprint"], bits)
        outcome = np.where(had_copy, np.where(outdated, CHANGED, UNCHANGED), FIRST)
        if failing is not None:
            outcome[failing[cycle - 1]] = ERROR
        record, visits = _visit_all(known, cycle, settings, text, outcome)
        new = np.setdiff1d(visits["page"][visits["kind"] == KINDS.index("panel")], shadows["page"])
        shadows = np.concatenate((shadows, new_shadows(new, known.columns_of(new))))
        shadows, tally = control_group.advance(known, visits, shadows, record, settings.warmup_visits, bits)  # type: ignore[arg-type]
        record["panel"] = estimates(
            tally,
            record["plan"]["copies"],
            int(np.isin(visits["outcome"], JUDGED).sum()),
            int((visits["outcome"] == CHANGED).sum()),
            int((visits["outcome"] == FIRST).sum()),
        )
        known.fold(visits, cycle)
        after = (state["has_copy"] != 0) & differ(text, state["fingerprint"], bits)
        yield Cycle(record, visits, outdated, after, had_copy, shadows, state)


def _visit_all(
    pages: PagesInMemory,
    cycle: int,
    settings: Settings,
    text: npt.NDArray[np.uint64],
    outcome: npt.NDArray[np.int64],
) -> tuple[dict[str, Any], npt.NDArray[Any]]:
    """Plan all rounds of a cycle and visit their pages; returns its record and the visits."""
    planner = Planner(pages, settings, cycle)
    visits, rounds = np.empty(0, VISIT), []
    planned: PlannedRound | None = planner.plan_first()
    while planned is not None:
        counts = planned.counts
        plan = planned.plan()
        rounds.append({"planned": len(plan), "seen": len(visits)})
        made = np.zeros(len(plan), VISIT)
        made["page"], made["kind"] = plan["page"], plan["kind"]
        made["fingerprint"], made["outcome"] = text[made["page"]], outcome[made["page"]]
        visits = np.concatenate((visits, made))
        planned = None
        if not planner.is_over:
            planned = planner.plan_next(counts, Planned.of(visits), CycleVisits.of(visits))
    function = settings.score_function
    record = {
        "cycle": cycle,
        "formula": function.formula,
        "clock": function.clock,
        "seed": settings.seed,
        "plan": counts,
        "rounds": rounds,
    }
    return record, visits
