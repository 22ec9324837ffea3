"""The open cycle in memory: what a crawl reads page by page, and what the next commit will write.

All of it is rebuilt from `log` and `new` when the store is opened. Nothing is written outside `commit`, which
is one write transaction; what its return confirmed is never lost, what a failed one could not write stays
in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import blocks, columns
from scrapy_gp4c.page_state.claims import NOTE, weights_said
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES, VISIT, VISIT_BYTES
from scrapy_gp4c.store.lmdb_store.open_requests import READ_PAGES, OpenRequests
from scrapy_gp4c.store.lmdb_store.sealed import KEY, U32, U32_PAIR, encode
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.unsaved import Unsaved
from scrapy_gp4c.store.records import CycleRecord, NewVisit, StoredRequest


class OpenCycle(OpenRequests):
    """The open cycle, if there is one, and all known pages: the tables with what is still buffered.

    ``number``: of the unfinished cycle, or None; ``pages``: number of ids given out, 0..pages-1, those of the
    cycle's new pages included; ``committed_s``: when the last commit returned, by the monotonic clock.
    """

    def __init__(self, tables: Tables, commit_visits: int) -> None:
        """Take the tables; `load` reads them."""
        self._tables = tables
        self._commit_visits = commit_visits
        self.number: int | None = None
        self.pages = 0
        self.committed_s = monotonic()
        self.before_commit: Callable[[], object] = lambda: None
        """Called before visits are committed; what it raises keeps them in memory."""

    def load(self, txn: Any) -> None:
        """Rebuild from `log` and `new`, in one transaction with the counters; nothing is unsaved then."""
        tables = self._tables
        self._unsaved = Unsaved()
        self._pending: dict[int, int] = {}
        """Key -> id of the pages that are in `new` (or unsaved) and not yet in `ids`, in order of id."""
        self._pending_keys: list[int] = []
        self._missed: int | None = None
        """The key that `find` has not found last: mostly the one to be added next."""
        self._row: tuple[int, PageRow] = -1, columns.NEW_ROW  # read last: a visit looks at its page's twice
        last, number = tables.last_record(txn), tables.last_cycle + 1
        self.number = number if last is not None and last["cycle"] == number else None
        self.pages = tables.merged_pages
        for key, value in tables.db["new"].items(txn):
            page = U32_PAIR.unpack(key)[1]
            if page > self.pages:
                raise tables.db["new"].wrong(key, f"page {self.pages} is missing")
            if page == self.pages:
                self._add_pending(KEY.unpack_from(value)[0])
        self._visits: list[npt.NDArray[Any]] = []
        self._visited = bytearray(self.pages if self.number else 0)
        for key, value in tables.db["log"].items(txn):
            if U32_PAIR.unpack(key)[1] != len(self._visits):
                raise tables.db["log"].wrong(key, f"commit {len(self._visits)} is missing")
            visits = np.frombuffer(value, VISIT)
            self._visits.append(visits)
            np.frombuffer(self._visited, np.uint8)[visits["page"]] = 1
        self._notes = [np.frombuffer(bytes(value), NOTE) for _, value in tables.db["notes"].items(txn)]
        self.weights = weights_said(self._notes)
        """Page -> the weight that was said last in the cycle, committed or not."""

    def begin(self, record: CycleRecord) -> int:
        """Open the next cycle with its record; returns its number, from 1 on."""
        tables = self._tables
        tables.check_writable()
        if self.number is not None:
            raise ValueError(f"cycle {self.number} is not finished")
        number = tables.last_cycle + 1
        with tables.transaction(write=True) as txn:
            tables.put_record(txn, number, {**record, "cycle": number})
        self.number = number
        self._visited = bytearray(self.pages)
        return number

    def require(self) -> int:
        """Return the number of the open cycle; raises ValueError where none is open."""
        self._tables.check_writable()
        if self.number is None:
            raise ValueError("no cycle is open: call begin_cycle first")
        return self.number

    def commit(self) -> None:
        """Write the buffer in one transaction. Raises StoreFullError; then all of it stays in memory."""
        buffer = self._unsaved
        if not buffer:
            return
        self.before_commit()
        cycle, visits, notes = self.number or 0, self._visits.copy(), buffer.notes()
        with self._tables.transaction(write=True) as txn:
            buffer.write(txn, self._tables.db, cycle, self._known_request)
            if buffer.visits:
                visits.append(buffer.visit_rows())
                key = U32_PAIR.pack(cycle, len(visits) - 1)
                self._tables.db["log"].put(txn, key, visits[-1].tobytes())
            if len(notes):
                key = U32_PAIR.pack(cycle, len(self._notes))
                self._tables.db["notes"].put(txn, key, notes.tobytes())
        self._visits = visits
        self._notes += [notes] if len(notes) else []
        self._unsaved = Unsaved()
        self.committed_s = monotonic()

    # --- pages

    def _add_pending(self, key: int) -> int:
        page = self.pages
        self._pending[key] = page
        self._pending_keys.append(key)
        self.pages += 1
        return page

    def find(self, key: int) -> int | None:
        """Page id of a request fingerprint's first 8 bytes (big-endian), or None."""
        page = self._pending.get(key)
        if page is None:
            with self._tables.transaction(buffers=True) as txn:
                page = self._tables.get_id(txn, key)
            if page is None:
                self._missed = key
        return page

    def found_now(self, key: int) -> int:
        """Page id of a key that the open cycle has found, or -1."""
        return self._pending.get(key, -1)

    def page(self, page: int) -> PageRow:
        """Columns of one page as of the last fold."""
        if page == self._row[0] and not self._tables.readonly:
            return self._row[1]
        self._check(page)
        if page >= self._tables.merged_pages:
            return columns.NEW_ROW._replace(key=self._pending_keys[page - self._tables.merged_pages])
        block, index = divmod(page, self._tables.block_rows)
        with self._tables.transaction(buffers=True) as txn:
            self._row = page, blocks.row(self._tables.block(txn, block), index)
        return self._row[1]

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages discovered in the open cycle, in order."""
        start = 0
        while True:
            with self._tables.transaction() as txn:
                items = self._tables.db["new"].items(txn, U32_PAIR.pack(self.number or 0, start))
                found = [U32_PAIR.unpack(key)[1] for key, _ in islice(items, READ_PAGES)]
            yield from found
            if len(found) < READ_PAGES:
                break
            start = found[-1] + 1
        yield from list(self._unsaved.pages)

    def kept(self, table: str, page: int) -> bytes | None:
        """Read a page's value in a table of `OF_PAGES`, None where there is none."""
        if page in self._unsaved.values[table]:
            return self._unsaved.values[table][page]
        with self._tables.transaction() as txn:
            return self._tables.db[table].get(txn, U32.pack(page))

    def keep(self, table: str, page: int, value: bytes | None) -> None:
        """Replace a page's value in a table of `OF_PAGES`, at the next commit."""
        self._tables.check_writable()
        self._check(page)
        self._unsaved.values[table][page] = value

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Remember a page discovered in the open cycle; its id is valid at once."""
        self.require()
        if key != self._missed and self.find(key) is not None:
            raise ValueError(f"the key {key:#x} is known already")
        encoded = encode(request)
        self._missed = None
        page = self._add_pending(key)
        self._unsaved.pages[page] = KEY.pack(key) + encoded
        self._visited.append(0)
        return page

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page, at the next commit."""
        self._tables.check_writable()
        self._check(page)
        self._unsaved.requests[page] = encode(request)

    def note(self, page: int, what: str, value: float) -> None:
        """Note what the open cycle learnt of a page."""
        self.require()
        self._check(page)
        self._unsaved.note(page, what, value)
        if what == "weight":
            self.weights[page] = value

    def note_many(self, pages: npt.NDArray[Any], what: str, values: npt.NDArray[Any]) -> None:
        """Note what the open cycle learnt of many pages."""
        self.require()
        self._unsaved.note_many(pages, what, values)
        if what == "weight":
            self.weights.update(zip(pages.tolist(), values.tolist(), strict=True))

    def all_notes(self) -> npt.NDArray[Any]:
        """Notes of the cycle, dtype `NOTE`, in the order in which they were made."""
        return np.concatenate([*self._notes, self._unsaved.notes()])

    # --- visits

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle; written with the next commit, at so many visits at latest.

        Raises ValueError for a second visit of a page in one cycle, struct.error for a number that its field
        cannot hold, StoreFullError when a commit fails: the visit is kept for the next one.
        """
        page, outcome, time, kind, fingerprint, distance, bytes, latency_s = visit
        self.require()
        self._check(page)
        if self._visited[page]:
            raise ValueError(f"page {page} was visited in this cycle already")
        latency_ms = min(65_535, math.ceil(1000 * latency_s))
        codes = KINDS.index(kind), OUTCOMES.index(outcome)
        visits = self._unsaved.visits
        visits.append(VISIT_BYTES.pack(time, fingerprint, page, bytes, latency_ms, *codes, distance))
        self._visited[page] = 1
        if len(visits) >= self._commit_visits:
            self.commit()

    def visited(self, page: int) -> bool:
        """Tell whether the page has an outcome in the open cycle, committed or not."""
        return self.number is not None and page < len(self._visited) and bool(self._visited[page])

    def visits(self) -> npt.NDArray[Any]:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""
        written = (visits.tobytes() for visits in self._visits)
        return np.frombuffer(bytearray().join((*written, *self._unsaved.visits)), VISIT)
