"""The page store: pages, visits and cycles in one LMDB file that survives a kill at any moment.

Page ids are dense integers. During a cycle everything is appended (`log`, `new`); when the cycle ends,
`scrapy_gp4c.fold` does to the page columns what its visits did, in one pass. docs/store.md has the tables.

A store is used by one thread. Nothing is written outside `commit`, which is one write transaction; what
its return confirmed is never lost, what a failed one could not write stays buffered.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c import columns, fold
from scrapy_gp4c.columns import KINDS, NO_DISTANCE, OUTCOMES, PLAN, VISIT, PageRow
from scrapy_gp4c.environment import damaged
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.tables import KEY, MAP_SIZE, PLAN_ROWS, U32, U32_PAIR, Record, Tables, encode, split
from scrapy_gp4c.verify import problems

__all__ = ["KINDS", "NO_DISTANCE", "OUTCOMES", "PLAN", "VISIT", "PageRow", "Store"]

COMMIT_VISITS = 100
READ_PAGES: Final = 4_096
"""Pages read in one read transaction."""
PLAN_CHUNKS_PER_TRANSACTION: Final = 64

Request = dict[str, Any]


class Store(Tables):
    """One store, open for writing (one process at a time) or for reading (beside a writer).

    ``pages`` counts the ids given out, 0..pages-1, those of the open cycle's new pages included;
    ``open_cycle`` is the unfinished cycle or None.
    """

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
        self._visit_buffer: list[tuple[Any, ...]] = []
        self._request_buffer: dict[int, bytes] = {}
        self._validator_buffer: dict[int, tuple[str | None, str | None]] = {}
        self._unsaved_pages: list[tuple[int, int]] = []
        self._visits: list[npt.NDArray[Any]] = []
        self._visited = bytearray()
        self._pending: dict[int, int] = {}
        """Key -> id of the pages that are in `new` (or buffered) and not yet in `ids`, in order of id."""
        self._pending_keys: list[int] = []
        with self.transaction() as txn:  # one for all: a writer may be folding meanwhile
            self._read_counters(txn)
            last = self._last_record(txn)
            number = self.last_cycle + 1
            self.open_cycle = number if last is not None and last["cycle"] == number else None
            self.pages = self.merged_pages
            for key, value in txn.cursor(self.tables["new"]):
                page = U32_PAIR.unpack(key)[1]
                if page >= self.merged_pages:
                    self._add_pending(KEY.unpack_from(value)[0])
            self._visited = bytearray(self.pages if self.open_cycle else 0)
            for _, value in txn.cursor(self.tables["log"]):
                visits = np.frombuffer(value, VISIT)
                self._visits.append(visits)
                self._mark(visits["page"])

    def _add_pending(self, key: int) -> int:
        page = self.pages
        self._pending[key] = page
        self._pending_keys.append(key)
        self.pages += 1
        return page

    def _last_record(self, txn: Any) -> Record | None:
        cursor = txn.cursor(self.tables["cycles"])
        record: Record | None = json.loads(cursor.value()) if cursor.last() else None
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

    def begin_cycle(self, record: Record) -> int:
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

    def planned(self) -> int | None:
        """Pages of the open cycle's plan; None while there is no complete one."""
        with self.transaction() as txn:
            record = self._last_record(txn)
        return record.get("planned") if self.open_cycle is not None and record else None

    def finish_cycle(self, record: Record) -> None:
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

    def find(self, key: int) -> int | None:
        """Page id of a request fingerprint's first 8 bytes (big-endian), or None."""
        page = self._pending.get(key)
        if page is not None:
            return page
        with self.transaction() as txn:
            return self.get_id(txn, key)

    def page(self, page: int) -> PageRow:
        """Columns of one page as of the last fold."""
        self._check(page)
        if page >= self.merged_pages:
            return columns.NEW_ROW._replace(key=self._pending_keys[page - self.merged_pages])
        block, index = divmod(page, self.block_rows)
        with self.transaction(buffers=True) as txn:
            return columns.row(txn.get(U32.pack(block), db=self.tables["pages"]), index)

    def _check(self, page: int) -> None:
        if not 0 <= page < self.pages:
            raise ValueError(f"there is no page {page}: the store has {self.pages}")

    def add_page(self, key: int, request: Request) -> int:
        """Remember a page discovered in the open cycle; its id is valid at once."""
        self._cycle()
        if self.find(key) is not None:
            raise ValueError(f"the key {key:#x} is known already")
        encoded = encode(request)
        page = self._add_pending(key)
        self._unsaved_pages.append((page, key))
        self._request_buffer[page] = encoded
        self._visited.append(0)
        return page

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages discovered in the open cycle, in order."""
        start = 0
        while True:
            with self.transaction() as txn:
                cursor = txn.cursor(self.tables["new"])
                found = []
                if cursor.set_range(U32_PAIR.pack(self.open_cycle or 0, start)):
                    for key in cursor.iternext(keys=True, values=False):
                        found.append(U32_PAIR.unpack(key)[1])
                        if len(found) == READ_PAGES:
                            break
            yield from found
            if len(found) < READ_PAGES:
                break
            start = found[-1] + 1
        yield from [page for page, _ in self._unsaved_pages]

    def request(self, page: int) -> Request:
        """Return the stored request of one page."""
        return self.requests([page])[0]

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[Request]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        ids = np.asarray(pages, dtype=np.int64)
        if len(ids):
            self._check(int(ids.min()))
            self._check(int(ids.max()))
        order = np.argsort(ids, kind="stable")
        result: list[Request] = [{}] * len(ids)
        for start in range(0, len(ids), READ_PAGES):
            positions = order[start : start + READ_PAGES]
            found = self._read_requests(ids[positions])
            for position, request in zip(positions.tolist(), found, strict=True):
                result[position] = request
        return result

    def _read_requests(self, ids: npt.NDArray[np.int64]) -> list[Request]:
        buffered = self._request_buffer
        open_cycle = self.open_cycle or 0
        with self.transaction() as txn:
            keys = split(ids.astype(">u4").tobytes(), U32.size)
            found = txn.cursor(self.tables["urls"]).getmulti(keys)
            if len(found) == len(keys):
                values = [value for _, value in found]
            else:  # getmulti leaves out what it does not find
                values = list(map(dict(found).get, keys))
            elsewhere = enumerate(ids.tolist()) if buffered or None in values else ()
            for position, page in elsewhere:
                if page in buffered:
                    values[position] = buffered[page]
                elif values[position] is None:
                    new = txn.get(U32_PAIR.pack(open_cycle, page), db=self.tables["new"])
                    if new is None:
                        raise damaged(self.path, f"page {page} has no request")
                    values[position] = new[KEY.size :]
        decoded: list[Request] = json.loads(b"[" + b",".join(values) + b"]")
        return decoded

    def set_request(self, page: int, request: Request) -> None:
        """Replace the stored request of a page, at the next commit."""
        self._writable()
        self._check(page)
        self._request_buffer[page] = encode(request)

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of the page's copy, as the server sent them."""
        if page in self._validator_buffer:
            return self._validator_buffer[page]
        with self.transaction() as txn:
            value = txn.get(U32.pack(page), db=self.tables["validators"])
        if value is None:
            return None, None
        etag, last_modified = json.loads(value)
        return etag, last_modified

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace the validators of a page, at the next commit."""
        self._writable()
        self._check(page)
        self._validator_buffer[page] = etag, last_modified

    def add_pages(self, pages: Iterable[tuple[int, Request]]) -> tuple[int, int]:
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

    def record(
        self,
        page: int,
        outcome: str,
        *,
        time: float,
        kind: str = "other",
        fingerprint: int = 0,
        distance: int = NO_DISTANCE,
        bytes: int = 0,
        latency_s: float = 0.0,
    ) -> None:
        """Note one visit of the open cycle; written with the next commit, at `COMMIT_VISITS` at latest.

        ``time``: s since 1970; ``bytes``: of the body; ``latency_s``: from request to response headers, 0:
        not measured. Raises ValueError for a second visit of a page in
        one cycle, StoreFullError when a commit fails: the visit is kept for the next one.
        """
        self._cycle()
        self._check(page)
        if self._visited[page]:
            raise ValueError(f"page {page} was visited in this cycle already")
        latency_ms = min(65_535, math.ceil(1000 * latency_s))
        codes = KINDS.index(kind), OUTCOMES.index(outcome)
        visit = (time, fingerprint, page, bytes, latency_ms, *codes, distance)
        np.array(visit, VISIT)  # raises OverflowError now, not in a commit full of other visits
        self._visit_buffer.append(visit)
        self._visited[page] = 1
        if len(self._visit_buffer) >= COMMIT_VISITS:
            self.commit()

    def commit(self) -> None:
        """Write everything buffered in one transaction. Raises StoreFullError and keeps the buffers."""
        unsaved = (self._visit_buffer, self._unsaved_pages, self._request_buffer, self._validator_buffer)
        if not any(unsaved):
            return
        visits = np.array(self._visit_buffer, VISIT)
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
        return np.concatenate([*self._visits, np.array(self._visit_buffer, VISIT)])

    def verify(self) -> list[str]:
        """Compare the tables with each other; returns the problems found, none for a sound store."""
        return list(problems(self))
