"""What happened in a crawl's cycles, read from its store in one pass: for `training.reporting.crawl`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.page_state.outcomes import CHANGED, FAILED, JUDGED, KINDS, OUTCOMES
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord

TOP_PAGES: Final = 20


@dataclass
class Host:
    """A host's pages and visits over all finished cycles."""

    name: str
    pages: int = 0
    visits: int = 0
    judged: int = 0
    changed: int = 0
    failed: int = 0
    """Visits without a copy: error, gone, excluded."""
    latencies_ms: list[npt.NDArray[Any]] = field(default_factory=list)

    def latency_ms(self, percentile: float) -> float:
        """Percentile of the measured latencies; nan where none was measured."""
        measured = np.concatenate([*self.latencies_ms, np.empty(0)])
        return float(np.percentile(measured, percentile)) if len(measured) else float("nan")


@dataclass
class TopPage:
    """A page that changes often."""

    url: str
    n: int
    X: int
    age_cycles: int
    outcome: str


@dataclass
class Story:
    """All that the report of a crawl shows."""

    path: str
    store_id: str
    records: list[CycleRecord]
    """Of the finished cycles, oldest first."""
    counts: npt.NDArray[np.int64]
    """``[cycles, kinds, outcomes]``: visits."""
    known: int
    last_outcomes: dict[str, int]
    """Outcome of the last visit -> pages; ``never visited``."""
    hosts: list[Host]
    top: list[TopPage]
    open_cycle: int | None

    def rate(self, cycle: int | slice, kinds: tuple[str, ...] = KINDS) -> float:
        """Change rate of the visits of these kinds; nan where none was judged."""
        counts = self.counts[cycle].reshape(-1, len(KINDS), len(OUTCOMES))
        chosen = counts[:, [KINDS.index(kind) for kind in kinds]].sum(axis=(0, 1))
        judged = int(chosen[list(JUDGED)].sum())
        return int(chosen[CHANGED]) / judged if judged else float("nan")


def read_story(path: Path) -> Story:
    """Read a store. Raises HistoryError where there is none, or no finished cycle in it."""
    try:
        with open_store(path, readonly=True) as store:
            if not store.last_cycle:
                raise HistoryError(
                    f"the store {path} has no finished cycle: there is nothing to report yet; let the "
                    "crawl finish"
                )
            return _read(store, str(path))
    except StoreError as error:
        raise HistoryError(f"there is no crawl to report in {path}: {error}") from error


def _read(store: PageStore, path: str) -> Story:
    cycles = store.last_cycle
    hosts: dict[str, Host] = {}
    host_of = np.empty(store.merged_pages, np.int32)
    numbers: dict[str, int] = {}
    last_outcomes: dict[str, int] = {}
    best: list[tuple[int, int, int]] = []
    shown = Credentials.of_store(store.cycles()).url
    for first, block in store.blocks():
        rows = len(block["n"])
        for row, request in enumerate(store.requests(np.arange(first, first + rows))):
            name = urlsplit(shown(request["url"])).netloc
            host_of[first + row] = numbers.setdefault(name, len(numbers))
        attempted = block["last_attempt"] > 0
        for code, count in enumerate(np.bincount(block["outcome"][attempted], minlength=len(OUTCOMES))):
            last_outcomes[OUTCOMES[code]] = last_outcomes.get(OUTCOMES[code], 0) + int(count)
        last_outcomes["never visited"] = last_outcomes.get("never visited", 0) + int((~attempted).sum())
        order = np.lexsort((block["n"], -block["X"].astype(np.int64)))[:TOP_PAGES]
        best += [(-int(block["X"][row]), int(block["n"][row]), first + int(row)) for row in order]
    pages = np.bincount(host_of, minlength=len(numbers))
    hosts = {name: Host(name, pages=int(pages[number])) for name, number in numbers.items()}
    counts = np.zeros((cycles, len(KINDS), len(OUTCOMES)), np.int64)
    listed = list(hosts.values())
    for cycle, visits in store.visits(1, cycles):
        np.add.at(counts[cycle - 1], (visits["kind"], visits["outcome"]), 1)
        _count_hosts(listed, host_of[visits["page"]], visits)
    top = []
    for changes, visited, page in sorted(best)[:TOP_PAGES]:
        if changes:
            columns = store.page(page)
            top.append(
                TopPage(
                    shown(store.request(page)["url"]),
                    visited,
                    -changes,
                    cycles + 1 - columns.last_cycle,
                    OUTCOMES[columns.outcome],
                )
            )
    records = [record for record in store.cycles() if record["cycle"] <= cycles]
    return Story(
        path, store.store_id, records, counts, store.pages, last_outcomes, listed, top, store.open_cycle
    )


def _count_hosts(hosts: list[Host], number: npt.NDArray[np.int32], visits: npt.NDArray[Any]) -> None:
    order = np.argsort(number, kind="stable")
    present, starts = np.unique(number[order], return_index=True)
    for host, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        outcome, latency_ms = visits["outcome"][rows], visits["latency_ms"][rows]
        one = hosts[host]
        one.visits += len(rows)
        judged = int(np.isin(outcome, JUDGED).sum())
        one.judged += judged
        one.changed += int((outcome == CHANGED).sum())
        one.failed += int(np.isin(outcome, FAILED).sum())
        one.latencies_ms.append(latency_ms[latency_ms > 0])
