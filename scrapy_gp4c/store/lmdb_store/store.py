"""The page store: pages, visits and cycles in one LMDB file that survives a kill at any moment.

Page ids are dense integers. During a cycle everything is appended (`log`, `new`); when the cycle ends,
`scrapy_gp4c.store.lmdb_store.fold` does to the page columns what its visits did, in one pass. docs/store.md has the tables.

A store is used by one thread. Nothing is written outside `commit`, which is one write transaction; what
its return confirmed is never lost, what a failed one could not write stays buffered.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.columns import Columns, PageRow, unpack
from scrapy_gp4c.page_state.outcomes import KINDS, NO_DISTANCE, OUTCOMES, PLAN, VISIT, VISIT_BYTES
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.open_cycle import Pages
from scrapy_gp4c.store.lmdb_store.tables import KEY, MAP_SIZE, PLAN_ROWS, U32, U32_PAIR, encode
from scrapy_gp4c.store.lmdb_store.verify import problems
from scrapy_gp4c.store.records import SHADOW, CycleRecord, NewVisit, RoundCounts, StoredRequest

__all__ = ["KINDS", "NO_DISTANCE", "OUTCOMES", "PLAN", "VISIT", "PageRow", "Store"]

COMMIT_VISITS = 100
PLAN_CHUNKS_PER_TRANSACTION: Final = 64


class Store(Pages):
    """One store, open for writing (one process at a time) or for reading (beside a writer)."""

    outcomes = OUTCOMES

    def __init__(
        self, path: str | os.PathLike[str], *, readonly: bool = False, map_size: int = MAP_SIZE
    ) -> None:
        """Open the store in directory `path`; a writer creates it and completes an interrupted fold.

        Raises StoreInUseError, StoreDamagedError, StoreFullError (an interrupted fold needs room), or
        StoreError where there is no store to read or no access.
        """
        super().__init__(path, readonly, map_size)
        self.committed_s = monotonic()
        """When the last commit returned, by the monotonic clock."""
        try:
            self._load()
            if self.fold_state is not None and not readonly:
                fold.fold(self, self.fold_state)
                self._load()
        except BaseException:
            self._release()
            raise

    def _load(self) -> None:
        """Read the counters, and rebuild from `log` and `new` what the open cycle has in memory."""
        self._visit_buffer: list[bytes] = []
        self._visits: list[npt.NDArray[Any]] = []
        self._visited = bytearray()
        with self.transaction() as txn:  # one for all: a writer may be folding meanwhile
            self._read_counters(txn)
            last = self._last_record(txn)
            number = self.last_cycle + 1
            self.open_cycle = number if last is not None and last["cycle"] == number else None
            self._load_pages(txn)
            self._visited = bytearray(self.pages if self.open_cycle else 0)
            for _, value in txn.cursor(self.tables["log"]):
                visits = np.frombuffer(value, VISIT)
                self._visits.append(visits)
                self._mark(visits["page"])

    def _last_record(self, txn: Any) -> CycleRecord | None:
        cursor = txn.cursor(self.tables["cycles"])
        record: CycleRecord | None = json.loads(cursor.value()) if cursor.last() else None
        return record

    def _mark(self, pages: npt.NDArray[Any]) -> None:
        np.frombuffer(self._visited, np.uint8)[pages] = 1

    def close(self) -> None:
        """Commit what is buffered and close; the file is closed even when the commit fails."""
        try:
            if self._environment is not None and self.fold_state is None and not self.readonly:
                self.commit()
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- cycles and plans

    def begin_cycle(self, record: CycleRecord) -> int:
        """Open the next cycle with its JSON record; returns its number, from 1 on."""
        self._writable()
        if self.open_cycle is not None:
            raise ValueError(f"cycle {self.open_cycle} is not finished")
        number = self.last_cycle + 1
        with self.transaction(write=True) as txn:
            txn.put(U32.pack(number), encode({**record, "cycle": number}), db=self.tables["cycles"])
        self.open_cycle = number
        self._visited = bytearray(self.pages)
        return number

    def write_plan(self, chunks: Iterable[npt.NDArray[Any]]) -> None:
        """Write the plan of the open cycle from arrays of dtype `PLAN`, first to visit first.

        Replaces a plan. It counts as written (see `planned`) when all of it is.
        """
        cycle = self._cycle()
        rows: list[npt.NDArray[Any]] = []
        buffered = written = number = 0

        def flush(last: bool) -> None:
            nonlocal rows, buffered, written, number
            plan = np.concatenate(rows) if rows else np.empty(0, PLAN)
            with self.transaction(write=True) as txn:
                if not number:
                    txn.drop(self.tables["plans"], delete=False)
                for start in range(0, len(plan), PLAN_ROWS):
                    chunk = plan[start : start + PLAN_ROWS].tobytes()
                    txn.put(U32_PAIR.pack(cycle, number), chunk, db=self.tables["plans"])
                    number += 1
                written += len(plan)
                if last:
                    self.update_record(txn, cycle, {"planned": written})
            rows, buffered = [], 0

        with self.transaction(write=True) as txn:
            self.update_record(txn, cycle, {"planned": None})
        for chunk in chunks:
            rows.append(np.ascontiguousarray(chunk, PLAN))
            buffered += len(chunk)
            if buffered >= PLAN_ROWS * PLAN_CHUNKS_PER_TRANSACTION:
                flush(last=False)
        flush(last=True)

    def add_round(self, chunks: Iterable[npt.NDArray[Any]], seen: int) -> None:
        """Write the plan of the open cycle's next round: dtype `PLAN`, first to visit first."""
        self.write_plan(chunks)

    def rounds(self) -> list[RoundCounts]:
        """Return the open cycle's planned rounds."""
        planned = self.planned()
        return [] if planned is None else [{"planned": planned, "seen": 0}]

    def amend_record(self, **fields: Unpack[CycleRecord]) -> None:
        """Add to the record of the open cycle, at once."""
        cycle = self._cycle()
        with self.transaction(write=True) as txn:
            self.update_record(txn, cycle, fields)

    def columns_of(self, pages: npt.NDArray[np.uint32]) -> Columns:
        """Columns ``[P]`` of some pages, ids ascending, each one below `merged_pages`."""
        parts = [unpack(b"")]
        of_page = pages // self.block_rows
        for block in np.unique(of_page).tolist():
            with self.transaction() as txn:
                state = unpack(self.get_block(txn, block))
            rows = pages[of_page == block] - np.uint32(block * self.block_rows)
            parts.append({name: column[rows] for name, column in state.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def keep_shadows(self, cycle: int, shadows: npt.NDArray[Any]) -> None:
        """Keep the shadows as `cycle` left them; those of the cycle before stay."""
        with self.transaction(write=True) as txn:
            txn.put(_shadows_key(cycle), _shadows_head(cycle) + shadows.tobytes(), db=self.tables["meta"])

    def shadows(self, cycle: int) -> npt.NDArray[Any]:
        """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no panel."""
        with self.transaction() as txn:
            value = txn.get(_shadows_key(cycle), db=self.tables["meta"], default=b"")
        head = _shadows_head(cycle)
        return np.frombuffer(value[len(head) :] if value.startswith(head) else b"", SHADOW)

    def planned(self) -> int | None:
        """Pages of the open cycle's plan; None while there is no complete one."""
        with self.transaction() as txn:
            record = self._last_record(txn)
        return record.get("planned") if self.open_cycle is not None and record else None

    def finish_cycle(self, record: CycleRecord) -> None:
        """Close the open cycle with what `record` adds to its JSON record, and fold its visits.

        After a StoreFullError in the middle, the same call (or the next opening) goes on with the fold.
        """
        if self.fold_state is None:
            self._cycle()
            self.commit()
        fold.fold(self, self.fold_state or {"record": record, "next_block": 0})
        self._load()

    def _cycle(self) -> int:
        self._writable()
        if self.open_cycle is None:
            raise ValueError("no cycle is open: call begin_cycle first")
        return self.open_cycle

    def _writable(self) -> None:
        if self.readonly:
            raise StoreError(f"the store {self.path} was opened for reading only.")
        if self.fold_state is not None:
            raise StoreError(
                f"the store {self.path} could not complete cycle {self.last_cycle + 1}: free disk space "
                "and open it again."
            )

    # --- pages

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Remember a page discovered in the open cycle; its id is valid at once."""
        self._cycle()
        if key != self._missed and self.find(key) is not None:
            raise ValueError(f"the key {key:#x} is known already")
        encoded = encode(request)
        self._missed = None
        page = self._add_pending(key)
        self._unsaved_pages.append((page, key))
        self._request_buffer[page] = encoded
        self._visited.append(0)
        return page

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page, at the next commit."""
        self._writable()
        self._check(page)
        self._request_buffer[page] = encode(request)

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace the validators of a page, at the next commit."""
        self._writable()
        self._check(page)
        self._validator_buffer[page] = etag, last_modified

    def add_pages(self, pages: Iterable[tuple[int, StoredRequest]]) -> tuple[int, int]:
        """Add pages in bulk, outside a crawl, in bounded memory; returns how many were added and known.

        Pages come as (key, request). What was added stays when `pages` raises.
        """
        self._writable()
        self.commit()
        try:
            return fold.add_pages(self, ((key, encode(request)) for key, request in pages))
        finally:
            self._load()

    # --- visits

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle; written with the next commit, at `COMMIT_VISITS` at latest.

        Raises ValueError for a second visit of a page in one cycle, struct.error for a number that its field
        cannot hold, StoreFullError when a commit fails: the visit is kept for the next one.
        """
        page, outcome, time, kind, fingerprint, distance, bytes, latency_s = visit
        self._cycle()
        self._check(page)
        if self._visited[page]:
            raise ValueError(f"page {page} was visited in this cycle already")
        latency_ms = min(65_535, math.ceil(1000 * latency_s))
        codes = KINDS.index(kind), OUTCOMES.index(outcome)
        self._visit_buffer.append(
            VISIT_BYTES.pack(time, fingerprint, page, bytes, latency_ms, *codes, distance)
        )
        self._visited[page] = 1
        if len(self._visit_buffer) >= COMMIT_VISITS:
            self.commit()

    def commit(self) -> None:
        """Write everything buffered in one transaction. Raises StoreFullError and keeps the buffers."""
        unsaved = (self._visit_buffer, self._unsaved_pages, self._request_buffer, self._validator_buffer)
        if not any(unsaved):
            return
        visits = np.frombuffer(b"".join(self._visit_buffer), VISIT)
        cycle = self.open_cycle or 0
        requests = dict(self._request_buffer)
        with self.transaction(write=True) as txn:
            if len(visits):
                number = len(self._visits)
                txn.put(U32_PAIR.pack(cycle, number), visits.tobytes(), db=self.tables["log"])
            for page, key in self._unsaved_pages:
                value = KEY.pack(key) + requests.pop(page)
                txn.put(U32_PAIR.pack(cycle, page), value, db=self.tables["new"])
            for page, request in requests.items():
                txn.put(U32.pack(page), request, db=self.tables["urls"])
            for page, validators in self._validator_buffer.items():
                if validators == (None, None):
                    txn.delete(U32.pack(page), db=self.tables["validators"])
                else:
                    txn.put(U32.pack(page), encode(validators), db=self.tables["validators"])
        if len(visits):
            self._visits.append(visits)
        self._visit_buffer = []
        self._unsaved_pages = []
        self._request_buffer = {}
        self._validator_buffer = {}
        self.committed_s = monotonic()

    def visited(self, page: int) -> bool:
        """Tell whether the page has an outcome in the open cycle, committed or buffered."""
        return self.open_cycle is not None and page < len(self._visited) and bool(self._visited[page])

    def open_visits(self) -> npt.NDArray[Any]:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""
        return np.concatenate([*self._visits, np.frombuffer(b"".join(self._visit_buffer), VISIT)])

    def verify(self) -> list[str]:
        """Compare the tables with each other; returns the problems found, none for a sound store."""
        return list(problems(self))


def _shadows_key(cycle: int) -> bytes:
    return b"shadows%d" % (cycle % 2)


def _shadows_head(cycle: int) -> bytes:
    return encode({"cycle": cycle, "columns": SHADOW.descr}) + b"\n"
