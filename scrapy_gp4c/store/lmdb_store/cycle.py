"""Open cycle of a store: what a crawl reads page by page, what the next commit writes, and its plan.

Visits, new pages and notes are rebuilt from `log`, `new` and `notes` when the store is opened. Nothing is
written outside `commit`, which is one write transaction: what it confirmed by returning is never lost, what a
failed one could not write stays in the buffer.

A plan is written round by round and read as one. A round is complete when the cycle's record counts it, in
the transaction of the round's last chunk; what a kill left of an incomplete round is overwritten by the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.claims import NO_NOTES, NOTE, WHAT, weights_said
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import KINDS, NO_DISTANCE, OUTCOMES, PLAN, VISIT, VISIT_BYTES
from scrapy_gp4c.store.lmdb_store.environment import KEY, U32, U32_PAIR, damaged, decode, encode
from scrapy_gp4c.store.lmdb_store.optional_tables import Handles
from scrapy_gp4c.store.lmdb_store.tables import Sizes, Tables, keep_first_url
from scrapy_gp4c.store.records import CycleRecord, NewVisit, RoundCounts, StoredRequest

_READ_PAGES: Final = 4_096
"""Pages read in one read transaction."""
_BUFFERED: Final = ("validators", "copies", "descriptions", "answers")
"""Tables whose values of pages wait for the next commit."""


class WriteBuffer:
    """Visits, pages, notes and values since the last commit; of a page's values, the newest."""

    def __init__(self) -> None:
        """Start empty."""
        self.visits: list[bytes] = []
        """As bytes of dtype `VISIT`."""
        self.pages: dict[int, bytes] = {}
        """New page -> its value in `new`: as it was found, even if its request was replaced since."""
        self.requests: dict[int, bytes] = {}
        """Page -> request that replaces the stored one."""
        self.values: dict[str, dict[int, bytes | None]] = {name: {} for name in _BUFFERED}
        """Table -> page -> its new value; None: the old one is deleted."""
        self._notes: list[npt.NDArray[Any]] = []
        self._latest_notes: list[tuple[int, int, float]] = []

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return any((self.visits, self.pages, self.requests, self._notes, self._latest_notes)) or any(
            self.values.values()
        )

    def note(self, page: int, what: str, value: float) -> None:
        """Note a value of a page; ``what``: one of `WHAT`."""
        self._latest_notes.append((page, WHAT.index(what), value))

    def _gather(self) -> None:
        """Bring the latest notes into order with those of many pages."""
        if self._latest_notes:
            self._notes.append(np.array(self._latest_notes, NOTE))
            self._latest_notes = []

    def note_many(self, pages: npt.NDArray[Any], what: str, values: npt.NDArray[Any]) -> None:
        """Note values of many pages."""
        notes = np.zeros(len(pages), NOTE)
        notes["page"], notes["what"], notes["value"] = pages, WHAT.index(what), values
        self._gather()
        self._notes.append(notes)

    def notes(self) -> npt.NDArray[Any]:
        """All notes, dtype `NOTE`, in the order in which they were made."""
        self._gather()
        return np.concatenate(self._notes) if self._notes else NO_NOTES

    def write(self, txn: Any, db: Handles, cycle: int, known_request: Callable[[Any, int], bytes]) -> None:
        """Write pages, requests and values of pages: all but visits and notes, which are numbered.

        ``known_request``: reads the request of a page as the last commit left it or, of a new page, as found.
        """
        for page, new_value in self.pages.items():
            db["new"].put(txn, U32_PAIR.pack(cycle, page), new_value)
        for page, request in self.requests.items():
            keep_first_url(txn, db["first_urls"], page, known_request(txn, page), request)
            db["urls"].put(txn, U32.pack(page), request)
        for name, values in self.values.items():
            for page, value in values.items():
                if value is None:
                    db[name].delete(txn, U32.pack(page))
                else:
                    db[name].put(txn, U32.pack(page), value)

    def visit_rows(self) -> npt.NDArray[Any]:
        """The visits, dtype `VISIT`, in order of time."""
        return np.frombuffer(b"".join(self.visits), VISIT)


class OpenCycle:
    """Open cycle, if there is one, and all known pages: the tables with the write buffer on top.

    ``open_cycle``: number of the unfinished cycle, or None; ``pages``: number of ids given out, 0..pages-1,
    those of the cycle's new pages included; ``committed_s``: when the last commit returned, by the monotonic
    clock.
    """

    def __init__(self, tables: Tables, commit_visits: int) -> None:
        """Take the tables; `load` reads them."""
        self.tables = tables
        self._commit_visits = commit_visits
        self.open_cycle: int | None = None
        self.pages = 0
        self.committed_s = monotonic()
        self._before_commit: Callable[[], object] = lambda: None

    def load(self, txn: Any) -> None:
        """Rebuild from `log` and `new`, in one transaction with the counters; the buffer is empty then."""
        tables = self.tables
        self._buffer = WriteBuffer()
        self._pending: dict[int, int] = {}
        """Key -> id of pages in `new` or the buffer and not yet in `ids`, in order of id."""
        self._pending_keys: list[int] = []
        self._missed: int | None = None
        """The key that `find` has not found last: mostly the one to be added next."""
        self._row: tuple[int, PageRow] = -1, columns.NEW_ROW  # read last: a visit looks at its page's twice
        last, number = tables.last_record(txn), tables.last_cycle + 1
        self.open_cycle = number if last is not None and last["cycle"] == number else None
        self.pages = tables.merged_pages
        for key, value in tables.db["new"].items(txn):
            page = U32_PAIR.unpack(key)[1]
            if page > self.pages:
                raise tables.db["new"].wrong(key, f"page {self.pages} is missing")
            if page == self.pages:
                self._add_pending(KEY.unpack_from(value)[0])
        self._visits: list[npt.NDArray[Any]] = []
        self._visited = bytearray(self.pages if self.open_cycle else 0)
        for key, value in tables.db["log"].items(txn):
            if U32_PAIR.unpack(key)[1] != len(self._visits):
                raise tables.db["log"].wrong(key, f"commit {len(self._visits)} is missing")
            visits = np.frombuffer(value, VISIT)
            self._visits.append(visits)
            np.frombuffer(self._visited, np.uint8)[visits["page"]] = 1
        self._notes = [np.frombuffer(bytes(value), NOTE) for _, value in tables.db["notes"].items(txn)]
        self.said_weights = weights_said(self._notes)
        """Page -> the weight that was said last in the cycle, committed or not."""

    def begin_cycle(self, record: CycleRecord) -> int:
        tables = self.tables
        tables.check_writable()
        if self.open_cycle is not None:
            raise ValueError(f"cycle {self.open_cycle} is not finished")
        number = tables.last_cycle + 1
        with tables.transaction(write=True) as txn:
            tables.put_record(txn, number, {**record, "cycle": number})
        self.open_cycle = number
        self._visited = bytearray(self.pages)
        return number

    def require(self) -> int:
        """Return the number of the open cycle; raises ValueError where none is open."""
        self.tables.check_writable()
        if self.open_cycle is None:
            raise ValueError("no cycle is open: call begin_cycle first")
        return self.open_cycle

    def before_commit(self, call: Callable[[], object]) -> None:
        self._before_commit = call

    def commit(self) -> None:
        """Write the buffer in one transaction. Raises StoreFullError; then all of it stays in memory."""
        buffer = self._buffer
        if not buffer:
            return
        self._before_commit()
        cycle, visits, notes = self.open_cycle or 0, self._visits.copy(), buffer.notes()
        with self.tables.transaction(write=True) as txn:
            buffer.write(txn, self.tables.db, cycle, self._known_request)
            if buffer.visits:
                visits.append(buffer.visit_rows())
                key = U32_PAIR.pack(cycle, len(visits) - 1)
                self.tables.db["log"].put(txn, key, visits[-1].tobytes())
            if len(notes):
                key = U32_PAIR.pack(cycle, len(self._notes))
                self.tables.db["notes"].put(txn, key, notes.tobytes())
        self._visits = visits
        self._notes += [notes] if len(notes) else []
        self._buffer = WriteBuffer()
        self.committed_s = monotonic()

    # --- pages

    def _add_pending(self, key: int) -> int:
        page = self.pages
        self._pending[key] = page
        self._pending_keys.append(key)
        self.pages += 1
        return page

    def find(self, key: int) -> int | None:
        page = self._pending.get(key)
        if page is None:
            with self.tables.transaction(buffers=True) as txn:
                page = self.tables.get_id(txn, key)
            if page is None:
                self._missed = key
        return page

    def found_now(self, key: int) -> int:
        """Page id of a key that the open cycle has found, or -1."""
        return self._pending.get(key, -1)

    def page(self, page: int) -> PageRow:
        if page == self._row[0] and not self.tables.readonly:
            return self._row[1]
        self._check(page)
        if page >= self.tables.merged_pages:
            return columns.NEW_ROW._replace(key=self._pending_keys[page - self.tables.merged_pages])
        block, index = divmod(page, self.tables.block_rows)
        with self.tables.transaction(buffers=True) as txn:
            self._row = page, columns.row(self.tables.block(txn, block), index)
        return self._row[1]

    def _check(self, page: int) -> None:
        if not 0 <= page < self.pages:
            raise ValueError(f"there is no page {page}: the store has {self.pages}")

    def request(self, page: int) -> StoredRequest:
        self._check(page)
        value = self._buffer.requests.get(page)
        if value is None:
            with self.tables.transaction() as txn:
                value = self._known_request(txn, page)
        request: StoredRequest = decode(value)
        return request

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        ids = np.asarray(pages, dtype=np.int64)
        if len(ids):
            self._check(int(ids.min()))
            self._check(int(ids.max()))
        if (ids[1:] >= ids[:-1]).all():
            return self._read_ascending(ids)
        order = np.argsort(ids, kind="stable")
        ascending = self._read_ascending(ids[order])
        positions = np.empty(len(ids), np.intp)
        positions[order] = np.arange(len(ids))
        return [ascending[position] for position in positions.tolist()]

    def _read_ascending(self, ids: npt.NDArray[np.int64]) -> list[StoredRequest]:
        read: list[StoredRequest] = []
        for start in range(0, len(ids), _READ_PAGES):
            read += self._read_requests(ids[start : start + _READ_PAGES])
        return read

    def _read_requests(self, ids: npt.NDArray[np.int64]) -> list[StoredRequest]:
        with self.tables.transaction() as txn:
            text = self.tables.db["urls"].joined(txn, ids)
            if text is None:  # some are new
                text = b",".join([self._known_request(txn, page) for page in ids.tolist()])
        decoded: list[StoredRequest] = decode(b"[" + text + b"]")
        replaced = self._buffer.requests
        for position, page in enumerate(ids.tolist()) if replaced else ():
            if (request := replaced.get(page)) is not None:
                decoded[position] = decode(request)
        return decoded

    def _known_request(self, txn: Any, page: int) -> bytes:
        """Read the request of a page, as the last commit left it or, found since, as it was found."""
        value = self.tables.db["urls"].get(txn, U32.pack(page))
        if value is not None:
            return value
        new_page = self._buffer.pages.get(page)
        if new_page is None:
            new_page = self.tables.db["new"].get(txn, U32_PAIR.pack(self.open_cycle or 0, page))
        if new_page is None:
            raise damaged(self.tables.path, f"page {page} has no request")
        return new_page[KEY.size :]

    def new_pages(self) -> Iterator[int]:
        start = 0
        while True:
            with self.tables.transaction() as txn:
                items = self.tables.db["new"].items(txn, U32_PAIR.pack(self.open_cycle or 0, start))
                pages = [U32_PAIR.unpack(key)[1] for key, _ in islice(items, _READ_PAGES)]
            yield from pages
            if len(pages) < _READ_PAGES:
                break
            start = pages[-1] + 1
        yield from list(self._buffer.pages)

    def value(self, table: str, page: int) -> bytes | None:
        """Read a page's value in a table of `_BUFFERED`, None where there is none."""
        if page in self._buffer.values[table]:
            return self._buffer.values[table][page]
        with self.tables.transaction() as txn:
            return self.tables.db[table].get(txn, U32.pack(page))

    def put_value(self, table: str, page: int, value: bytes | None) -> None:
        """Replace a page's value in a table of `_BUFFERED`, at the next commit."""
        self.tables.check_writable()
        self._check(page)
        self._buffer.values[table][page] = value

    def add_page(self, key: int, request: StoredRequest) -> int:
        self.require()
        if key != self._missed and self.find(key) is not None:
            raise ValueError(f"the key {key:#x} is known already")
        encoded = encode(request)
        self._missed = None
        page = self._add_pending(key)
        self._buffer.pages[page] = KEY.pack(key) + encoded
        self._visited.append(0)
        return page

    def set_request(self, page: int, request: StoredRequest) -> None:
        self.tables.check_writable()
        self._check(page)
        self._buffer.requests[page] = encode(request)

    def note(self, page: int, what: str, value: float) -> None:
        self.require()
        self._check(page)
        self._buffer.note(page, what, value)
        if what == "weight":
            self.said_weights[page] = value

    def note_many(self, pages: npt.NDArray[Any], what: str, values: npt.NDArray[Any]) -> None:
        """Note what the open cycle learnt of many pages."""
        self.require()
        self._buffer.note_many(pages, what, values)
        if what == "weight":
            self.said_weights.update(zip(pages.tolist(), values.tolist(), strict=True))

    def notes(self) -> npt.NDArray[Any]:
        return np.concatenate([*self._notes, self._buffer.notes()])

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
        visits = self._buffer.visits
        visits.append(VISIT_BYTES.pack(time, fingerprint, page, bytes, latency_ms, *codes, distance))
        self._visited[page] = 1
        if len(visits) >= self._commit_visits:
            self.commit()

    def amend_visit(self, page: int, outcome: str) -> None:
        """Replace the outcome of a page's visit by one that has no fingerprint, committed or not."""
        code = OUTCOMES.index(outcome)
        for number, row in enumerate(self._buffer.visits):
            visits = np.frombuffer(row, VISIT).copy()
            if visits["page"][0] == page:
                self._buffer.visits[number] = _amended(visits, 0, code)
                return
        for number, committed in enumerate(self._visits):
            rows = np.flatnonzero(committed["page"] == page)
            if len(rows):
                value = _amended(committed.copy(), int(rows[0]), code)
                with self.tables.transaction(write=True) as txn:
                    self.tables.db["log"].put(txn, U32_PAIR.pack(self.require(), number), value)
                self._visits[number] = np.frombuffer(value, VISIT)
                return

    def visited(self, page: int) -> bool:
        return self.open_cycle is not None and page < len(self._visited) and bool(self._visited[page])

    def open_visits(self) -> npt.NDArray[Any]:
        written = (visits.tobytes() for visits in self._visits)
        return np.frombuffer(bytearray().join((*written, *self._buffer.visits)), VISIT)


def _amended(visits: npt.NDArray[Any], row: int, outcome: int) -> bytes:
    visits["outcome"][row], visits["fingerprint"][row], visits["distance"][row] = outcome, 0, NO_DISTANCE
    return visits.tobytes()


def rounds_of(record: CycleRecord) -> list[RoundCounts]:
    """Return the complete rounds of a cycle."""
    return record.get("rounds", [])


def plan_chunks(tables: Tables, cycle: int, planned: int) -> Iterator[Array]:
    """Yield a plan of so many pages, dtype `PLAN`, in the chunks that it was written in."""
    number = 0
    while planned > 0:
        with tables.transaction() as txn:
            chunk = tables.db["plans"].view(txn, U32_PAIR.pack(cycle, number))
        rows = np.frombuffer(chunk, PLAN)
        yield rows
        planned -= len(rows)
        number += 1


def add_round(
    tables: Tables,
    record: CycleRecord,
    parts: Iterable[Array],
    seen: int,
    about: CycleRecord,
    sizes: Sizes,
) -> None:
    """Write the plan of the next round of the cycle of `record`, from arrays of dtype `PLAN`.

    ``about``: added to the record in the transaction that completes the round.
    """
    cycle, before = record["cycle"], rounds_of(record)
    planned = sum(one["planned"] for one in before)
    number = sum(1 for _ in plan_chunks(tables, cycle, planned))
    written = 0
    group: list[Array] = []
    for chunk in _of_equal_size(parts, sizes.plan_rows):
        if len(group) == sizes.chunks_per_transaction:
            with tables.transaction(write=True) as txn:
                number = _put(tables, txn, cycle, number, group)
            group = []
        group.append(chunk)
        written += len(chunk)
    completed: CycleRecord = {
        **about,
        "planned": planned + written,
        "rounds": [*before, {"planned": written, "seen": seen}],
    }
    with tables.transaction(write=True) as txn:
        _drop_from(tables, txn, cycle, _put(tables, txn, cycle, number, group))
        tables.put_record(txn, cycle, completed)


def _of_equal_size(arrays: Iterable[Array], size: int) -> Iterator[Array]:
    """Cut arrays anew, into chunks of `size` rows; the last one is shorter."""
    waiting: list[Array] = []
    for rows_in in arrays:
        waiting.append(np.ascontiguousarray(rows_in, PLAN))
        if sum(map(len, waiting)) >= size:
            rows = np.concatenate(waiting)
            full = len(rows) - len(rows) % size
            for start in range(0, full, size):
                yield rows[start : start + size]
            waiting = [rows[full:]]
    if any(map(len, waiting)):
        yield np.concatenate(waiting)


def _put(tables: Tables, txn: Any, cycle: int, number: int, group: Iterable[Array]) -> int:
    """Write chunks from `number` on; returns the next number."""
    for chunk in group:
        tables.db["plans"].put(txn, U32_PAIR.pack(cycle, number), chunk.tobytes())
        number += 1
    return number


def _drop_from(tables: Tables, txn: Any, cycle: int, number: int) -> None:
    """Delete the chunks from `number` on, which an interrupted writing has left."""
    for key in tables.db["plans"].keys(txn):
        if key >= U32_PAIR.pack(cycle, number):
            tables.db["plans"].delete(txn, key)
