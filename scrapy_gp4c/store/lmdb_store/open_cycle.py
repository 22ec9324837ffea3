"""The open cycle in memory: what a crawl reads page by page, and what the next commit will write.

All of it is rebuilt from `log` and `new` when the store is opened. Nothing is written outside `commit`, which
is one write transaction; what its return confirmed is never lost, what a failed one could not write stays
buffered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES, VISIT, VISIT_BYTES
from scrapy_gp4c.store.lmdb_store.failures import damaged
from scrapy_gp4c.store.lmdb_store.groups import keep_first_url
from scrapy_gp4c.store.lmdb_store.open_notes import OpenNotes
from scrapy_gp4c.store.lmdb_store.page_values import PageValues
from scrapy_gp4c.store.lmdb_store.sealed import KEY, U32, U32_PAIR, encode
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import CycleRecord, NewVisit, StoredRequest

OF_PAGES: Final = ("validators", "bodies", "descriptions", "finders")
"""Tables that have a value for a page, or none; the last one is of shards alone."""
READ_PAGES: Final = 4_096
"""Pages read in one read transaction."""


class OpenCycle:
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
        """Called before visits are committed; what it raises keeps them buffered."""

    def load(self, txn: Any) -> None:
        """Rebuild from `log` and `new`, in one transaction with the counters; nothing is buffered then."""
        tables = self._tables
        self._visit_buffer: list[bytes] = []
        self._request_buffer: dict[int, bytes] = {}
        self._of_pages: dict[str, PageValues] = {
            name: PageValues(tables.db[name]) for name in OF_PAGES if name in tables.db
        }
        self._unsaved_pages: dict[int, bytes] = {}
        """Page -> what `new` is to have of it: as it was found, whatever replaced its request meanwhile."""
        self._pending: dict[int, int] = {}
        """Key -> id of the pages that are in `new` (or buffered) and not yet in `ids`, in order of id."""
        self._pending_keys: list[int] = []
        self._missed: int | None = None
        """The key that `find` has not found last: mostly the one to be added next."""
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
        self.notes = OpenNotes(txn, tables.db["notes"])

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
        self._check(page)
        if page >= self._tables.merged_pages:
            return columns.NEW_ROW._replace(key=self._pending_keys[page - self._tables.merged_pages])
        block, index = divmod(page, self._tables.block_rows)
        with self._tables.transaction(buffers=True) as txn:
            return columns.row(self._tables.block(txn, block), index)

    def _check(self, page: int) -> None:
        if not 0 <= page < self.pages:
            raise ValueError(f"there is no page {page}: the store has {self.pages}")

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
        yield from list(self._unsaved_pages)

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""
        self._check(page)
        value = self._request_buffer.get(page)
        if value is None:
            with self._tables.transaction() as txn:
                value = self._known_request(txn, page)
        request: StoredRequest = json.loads(value)
        return request

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        ids = np.asarray(pages, dtype=np.int64)
        if len(ids):
            self._check(int(ids.min()))
            self._check(int(ids.max()))
        order = np.argsort(ids, kind="stable")
        result = np.empty(len(ids), object)
        for start in range(0, len(ids), READ_PAGES):
            positions = order[start : start + READ_PAGES]
            result[positions] = self._read_requests(ids[positions].tolist())
        requests: list[StoredRequest] = result.tolist()
        return requests

    def _read_requests(self, ids: list[int]) -> list[StoredRequest]:
        buffered = self._request_buffer
        with self._tables.transaction() as txn:
            values = self._tables.db["urls"].get_many(txn, ids)
            if values is None:  # some are new
                values = [self._known_request(txn, page) for page in ids]
            for position, page in enumerate(ids) if buffered else ():
                values[position] = buffered.get(page, values[position])
        decoded: list[StoredRequest] = json.loads(b"[" + b",".join(values) + b"]")
        return decoded

    def _known_request(self, txn: Any, page: int) -> bytes:
        """Read the request of a page, as the last commit left it or, found since, as it was found."""
        value = self._tables.db["urls"].get(txn, U32.pack(page))
        if value is not None:
            return value
        found = self._unsaved_pages.get(page)
        if found is None:
            found = self._tables.db["new"].get(txn, U32_PAIR.pack(self.number or 0, page))
        if found is None:
            raise damaged(self._tables.path, f"page {page} has no request")
        return found[KEY.size :]

    def kept(self, table: str, page: int) -> bytes | None:
        """Read a page's value in a table of `OF_PAGES`, None where there is none."""
        with self._tables.transaction() as txn:
            return self._of_pages[table].get(txn, page)

    def keep(self, table: str, page: int, value: bytes | None) -> None:
        """Replace a page's value in a table of `OF_PAGES`, at the next commit."""
        self._tables.check_writable()
        self._check(page)
        self._of_pages[table].set(page, value)

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Remember a page discovered in the open cycle; its id is valid at once."""
        self.require()
        if key != self._missed and self.find(key) is not None:
            raise ValueError(f"the key {key:#x} is known already")
        encoded = encode(request)
        self._missed = None
        page = self._add_pending(key)
        self._unsaved_pages[page] = KEY.pack(key) + encoded
        self._visited.append(0)
        return page

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page, at the next commit."""
        self._tables.check_writable()
        self._check(page)
        self._request_buffer[page] = encode(request)

    def note(self, page: int, what: str, value: float) -> None:
        """Note what the open cycle learnt of a page."""
        self.require()
        self._check(page)
        self.notes.add(page, what, value)

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
        self._visit_buffer.append(
            VISIT_BYTES.pack(time, fingerprint, page, bytes, latency_ms, *codes, distance)
        )
        self._visited[page] = 1
        if len(self._visit_buffer) >= self._commit_visits:
            self.commit()

    def commit(self) -> None:
        """Write everything buffered in one transaction. Raises StoreFullError and keeps the buffers."""
        unsaved = (self._visit_buffer, self._unsaved_pages, self._request_buffer)
        if not any((*unsaved, self.notes, *self._of_pages.values())):
            return
        self.before_commit()
        visits = np.frombuffer(b"".join(self._visit_buffer), VISIT)
        cycle, db = self.number or 0, self._tables.db
        with self._tables.transaction(write=True) as txn:
            if len(visits):
                number = len(self._visits)
                db["log"].put(txn, U32_PAIR.pack(cycle, number), visits.tobytes())
            for page, value in self._unsaved_pages.items():
                db["new"].put(txn, U32_PAIR.pack(cycle, page), value)
            for page, request in self._request_buffer.items():
                keep_first_url(txn, db["first_urls"], page, self._known_request(txn, page), request)
                db["urls"].put(txn, U32.pack(page), request)
            for values in self._of_pages.values():
                values.write(txn)
            self.notes.write(txn, cycle)
        if len(visits):
            self._visits.append(visits)
        self.notes.written()
        for values in self._of_pages.values():
            values.written()
        self._visit_buffer = []
        self._unsaved_pages = {}
        self._request_buffer = {}
        self.committed_s = monotonic()

    def visited(self, page: int) -> bool:
        """Tell whether the page has an outcome in the open cycle, committed or buffered."""
        return self.number is not None and page < len(self._visited) and bool(self._visited[page])

    def visits(self) -> npt.NDArray[Any]:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""
        return np.concatenate([*self._visits, np.frombuffer(b"".join(self._visit_buffer), VISIT)])
