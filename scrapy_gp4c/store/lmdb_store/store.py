"""Page store: pages, visits and cycles in one LMDB file that survives a kill at any moment.

docs/code/store.md describes the tables. `Environment` is the open file, `Tables` the committed content.

Visits, new pages and notes (`NOTE`, other facts about pages) of the open cycle are rebuilt from the tables
`log`, `new` and `notes` when the store is opened. During a cycle `commit` writes them in one transaction:
what it confirmed by returning is never lost, what a failed one could not write stays in the buffer.

The plan of a round is written in one transaction with the cycle's record; `plan` joins those of all rounds.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import count, islice
from time import monotonic
from typing import Any, Final, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import claims, columns
from scrapy_gp4c.page_state.claims import CLAIM, NOTE, NOTE_BYTES, WHAT, weights_of_notes
from scrapy_gp4c.page_state.columns import PageRow, unpack
from scrapy_gp4c.page_state.groupings import PageGroups
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import DOUBTFUL, NO_DISTANCE, VISIT
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.environment import KEY, U32, U32_PAIR, Environment, damaged, decode, encode
from scrapy_gp4c.store.lmdb_store.page_facts import read_trust, shorten_waits
from scrapy_gp4c.store.lmdb_store.tables import (
    CLAIMS,
    HINTS,
    PLANS,
    SHADOWS,
    USUAL,
    WEIGHTS,
    Handles,
    Sizes,
    Tables,
    keep_first_url,
    open_tables,
)
from scrapy_gp4c.store.lmdb_store.verify import problems
from scrapy_gp4c.store.records import (
    NO_ANSWER,
    CycleRecord,
    LastAnswer,
    NewVisit,
    RoundCounts,
    StoredGroups,
    StoredRequest,
    packed_visit,
)

_AFTER_END: Final = 2**31
"""Part number in `claims` of the first claims made between two cycles; lower ones are block numbers."""
_READ_PAGES: Final = 4_096
"""Number of pages read in one transaction."""
_CLUSTERS: Final = b"all"
"""The only key in the table `clusters`."""
_BUFFERED: Final = ("validators", "copies", "descriptions", "answers")
"""Tables by page whose new values are buffered until the next commit.

``copies``: packed notes of the last copy (`scrapy_gp4c.fingerprint.copy_notes`); ``descriptions``: packed,
for clustering (`scrapy_gp4c.words.descriptions`).
"""


class WriteBuffer:
    """Uncommitted changes of a store: visits, new pages, requests, notes, and values of pages."""

    def __init__(self) -> None:
        self.visits: list[bytes] = []
        """Each visit as bytes of dtype `VISIT`, by time."""
        self.pages: dict[int, bytes] = {}
        """New page -> its value in `new`: key and first request, even if the request was replaced since."""
        self.requests: dict[int, bytes] = {}
        """Page -> request that replaces the stored one."""
        self.values: dict[str, dict[int, bytes | None]] = {name: {} for name in _BUFFERED}
        """Table -> page -> its new value; None: the old one is deleted."""
        self.notes: list[bytes] = []
        """Facts about pages beside their visits, as bytes of dtype `NOTE`, in the order they were made in."""

    def __bool__(self) -> bool:
        return any((self.visits, self.pages, self.requests, self.notes, *self.values.values()))

    def write(self, txn: Any, db: Handles, cycle: int, known_request: Callable[[Any, int], bytes]) -> None:
        """Write all changes but visits and notes, which `Store.commit` writes under numbered keys.

        ``known_request(txn, page)``: reads the stored request that a new one replaces.
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


class Store(Tables):
    """Page store in one LMDB file, open for writing (one process at a time) or for reading; for one thread.

    A writer creates a missing store, and completes a fold (the pass that ends a cycle) that a kill
    interrupted. Raises StoreInUseError, StoreDamagedError, StoreFullError (an interrupted fold needs room),
    or StoreError where there is no store to read or no access.

    ``pages``: number of known pages, with ids 0..pages-1, those found in the open cycle included;
    ``open_cycle``: number of the unfinished cycle, or None; ``committed_s``: when the last commit returned,
    by the monotonic clock, s. Readers work beside a writer. Every method that writes raises StoreError on a
    store opened for reading, and StoreFullError where there is no room.
    """

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> None:
        self.sizes = sizes
        self.committed_s = monotonic()
        self._before_commit: Callable[[], object] = lambda: None
        self.environment = Environment(path, readonly)
        try:
            super().__init__(self.environment, open_tables(self.environment, sizes.block_rows))
            self._load()
            if self.is_folding and not readonly:
                self._fold({})
        except BaseException:
            self.environment.close()
            raise

    def _load(self) -> None:
        """Read the counters and the open cycle in one transaction, because others may write meanwhile."""
        with self.transaction() as txn:
            self.read_counters(txn)
            self._load_open_cycle(txn)

    def _load_open_cycle(self, txn: Any) -> None:
        """Rebuild the open cycle's state in memory from `log`, `new` and `notes`, with an empty buffer."""
        self._buffer = WriteBuffer()
        self._pending: dict[int, int] = {}
        """Key -> id of pages in `new` or the buffer and not yet in `ids`, in order of id."""
        self._pending_keys: list[int] = []
        self._missed: int | None = None
        """Key of the last unsuccessful `find`: mostly the key that `add_page` gets next."""
        self._row: tuple[int, PageRow] = -1, columns.NEW_ROW  # of the last page read: a visit reads it twice
        self.open_cycle = self.unfinished_cycle(txn)
        self.pages = self.merged_pages
        for key in self.new_keys(txn):
            self._add_pending(key)
        self._visits = self.log(txn)
        self._visited = bytearray(self.pages if self.open_cycle else 0)
        for visits in self._visits:
            np.frombuffer(self._visited, np.uint8)[visits["page"]] = 1
        self._notes = [np.frombuffer(bytes(value), NOTE) for _, value in self.db["notes"].items(txn)]
        self.noted_weights = weights_of_notes(self._notes)
        """Page -> its weight by the newest note of the open cycle, committed or not."""

    def begin_cycle(self, record: CycleRecord) -> int:
        """Open the next cycle with its first `record`; returns its number. ValueError while one is open."""
        self.check_writable()
        if self.open_cycle is not None:
            raise ValueError(f"cycle {self.open_cycle} is not finished")
        number = self.last_cycle + 1
        with self.transaction(write=True) as txn:
            self.put_record(txn, number, {**record, "cycle": number})
        self.open_cycle = number
        self._visited = bytearray(self.pages)
        return number

    def require_open_cycle(self) -> int:
        """Return the number of the open cycle; raises ValueError without one, StoreError if read-only."""
        self.check_writable()
        if self.open_cycle is None:
            raise ValueError("no cycle is open: call begin_cycle first")
        return self.open_cycle

    def before_commit(self, call: Callable[[], object]) -> None:
        """Set the function `call` to be called before each commit; if it raises, nothing is committed."""
        self._before_commit = call

    def commit(self) -> None:
        """Write all buffered changes in one transaction; on StoreFullError they stay buffered."""
        buffer = self._buffer
        if not buffer:
            return
        self._before_commit()
        cycle, visits, notes = self.open_cycle or 0, self._visits.copy(), b"".join(buffer.notes)
        with self.transaction(write=True) as txn:
            buffer.write(txn, self.db, cycle, self._known_request)
            if buffer.visits:
                visits.append(np.frombuffer(b"".join(buffer.visits), VISIT))
                key = U32_PAIR.pack(cycle, len(visits) - 1)
                self.db["log"].put(txn, key, visits[-1].tobytes())
            if notes:
                self.db["notes"].put(txn, U32_PAIR.pack(cycle, len(self._notes)), notes)
        self._visits = visits
        self._notes += [np.frombuffer(notes, NOTE)] if notes else []
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
        """Return the id of the page with this key, new pages included, or None."""
        page = self._pending.get(key)
        if page is None:
            with self.transaction(buffers=True) as txn:
                page = self.get_id(txn, key)
            if page is None:
                self._missed = key
        return page

    def page(self, page: int) -> PageRow:
        """Read the columns of one page as the last finished cycle left them; a new page has defaults."""
        if page == self._row[0] and not self.readonly:
            return self._row[1]
        self._check(page)
        if page >= self.merged_pages:
            self._row = page, columns.NEW_ROW._replace(key=self._pending_keys[page - self.merged_pages])
            return self._row[1]
        block, index = divmod(page, self.block_rows)
        with self.transaction(buffers=True) as txn:
            self._row = page, columns.row(self.block(txn, block), index)
        return self._row[1]

    def _check(self, page: int) -> None:
        if not 0 <= page < self.pages:
            raise ValueError(f"there is no page {page}: the store has {self.pages}")

    def request(self, page: int) -> StoredRequest:
        self._check(page)
        value = self._buffer.requests.get(page)
        if value is None:
            with self.transaction() as txn:
                value = self._known_request(txn, page)
        return decode(value)

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        """Return the stored request of each of `pages` (ids in any order), in the same order."""
        return list(self.each_request(pages))

    def each_request(self, pages: Sequence[int] | npt.NDArray[Any]) -> Iterator[StoredRequest]:
        """Yield the stored request of each of `pages`, in the same order; reads some thousands at a time."""
        for start in range(0, len(pages), _READ_PAGES):
            ids = np.asarray(pages[start : start + _READ_PAGES], np.int64)
            self._check(int(ids.min()))
            self._check(int(ids.max()))
            order = np.argsort(ids, kind="stable")
            yield from map(self._read_requests(ids[order]).__getitem__, np.argsort(order).tolist())

    def _read_requests(self, ids: npt.NDArray[np.int64]) -> list[StoredRequest]:
        with self.transaction() as txn:
            requests = self.db["urls"].joined(txn, ids, b",")
            if requests is None:  # some are new
                requests = b",".join([self._known_request(txn, page) for page in ids.tolist()])
        decoded: list[StoredRequest] = decode(b"[" + requests + b"]")
        replaced = self._buffer.requests
        for position, page in enumerate(ids.tolist()) if replaced else ():
            if (request := replaced.get(page)) is not None:
                decoded[position] = decode(request)
        return decoded

    def _known_request(self, txn: Any, page: int) -> bytes:
        """Read the JSON request of a page from the last commit or, for a page found since, its first one."""
        value = self.db["urls"].get(txn, U32.pack(page))
        if value is not None:
            return value
        new_page = self._buffer.pages.get(page)
        if new_page is None:
            new_page = self.db["new"].get(txn, U32_PAIR.pack(self.open_cycle or 0, page))
        if new_page is None:
            raise damaged(self.path, f"page {page} has no request")
        return new_page[KEY.size :]

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages found in the open cycle, ascending."""
        start = 0
        while True:
            with self.transaction() as txn:
                items = self.db["new"].items(txn, U32_PAIR.pack(self.open_cycle or 0, start))
                pages = [U32_PAIR.unpack(key)[1] for key, _ in islice(items, _READ_PAGES)]
            yield from pages
            if len(pages) < _READ_PAGES:
                break
            start = pages[-1] + 1
        yield from list(self._buffer.pages)

    def value(self, table: str, page: int) -> bytes | None:
        """Read a page's value in one of the tables `_BUFFERED`, committed or not; None: it has none."""
        if page in self._buffer.values[table]:
            return self._buffer.values[table][page]
        with self.transaction() as txn:
            return self.db[table].get(txn, U32.pack(page))

    def put_value(self, table: str, page: int, value: bytes | None) -> None:
        """Replace a page's value, as `value` reads it, at the next commit; ``value`` None: delete it."""
        self.check_writable()
        self._check(page)
        self._buffer.values[table][page] = value

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Add a page found in the open cycle; returns its id, valid at once. ValueError for a known key."""
        self.require_open_cycle()
        if key != self._missed and self.find(key) is not None:
            raise ValueError(f"the key {key:#x} is known already")
        encoded = encode(request)
        self._missed = None
        page = self._add_pending(key)
        self._buffer.pages[page] = KEY.pack(key) + encoded
        self._visited.append(0)
        return page

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page at the next commit."""
        self.check_writable()
        self._check(page)
        self._buffer.requests[page] = encode(request)

    def note(self, page: int, what: str, value: float) -> None:
        """Note a fact about a page beside its visits, for the fold of the open cycle.

        ``what``: its subject, one of `claims.WHAT`; ``value``: as described there.
        """
        self.require_open_cycle()
        self._check(page)
        self._buffer.notes.append(NOTE_BYTES.pack(page, WHAT.index(what), value))
        if what == "weight":
            self.noted_weights[page] = value

    def note_many(self, pages: npt.NDArray[Any], what: str, values: npt.NDArray[Any]) -> None:
        """Note the same kind of fact about many pages, as `note` does; ``values``: ``[P]``.

        The next commit writes all of these notes or none. Those of a claim, ``what`` in `hints.KINDS`, have
        the times of changes, s since 1970, or for kinds of `hints.SPANS` durations, s.
        """
        self.require_open_cycle()
        notes = np.zeros(len(pages), NOTE)
        notes["page"], notes["what"], notes["value"] = pages, WHAT.index(what), values
        self._buffer.notes.append(notes.tobytes())
        if what == "weight":
            self.noted_weights.update(zip(pages.tolist(), values.tolist(), strict=True))

    def notes(self) -> npt.NDArray[Any]:
        """Return the notes (facts besides visits) of the open cycle so far, dtype `NOTE`."""
        return np.concatenate([*self._notes, np.frombuffer(b"".join(self._buffer.notes), NOTE)])

    # --- visits

    def record(self, visit: NewVisit) -> None:
        """Buffer one visit of the open cycle, and commit if `Sizes.commit_visits` visits are buffered.

        Raises ValueError for a second visit of a page in one cycle, struct.error for a number that its field
        cannot hold, StoreFullError when a commit fails: the visit is kept for the next one.
        """
        self.require_open_cycle()
        self._check(visit.page)
        if self._visited[visit.page]:
            raise ValueError(f"page {visit.page} was visited in this cycle already")
        visits = self._buffer.visits
        visits.append(packed_visit(visit))
        self._visited[visit.page] = 1
        if len(visits) >= self.sizes.commit_visits:
            self.commit()

    def doubt_visit(self, page: int) -> None:
        """Change the outcome of a page's visit in the open cycle to ``doubtful``, as for a block page."""
        for number, row in enumerate(self._buffer.visits):
            visits = np.frombuffer(row, VISIT).copy()
            if visits["page"][0] == page:
                self._buffer.visits[number] = _doubted(visits, 0)
                return
        for number, committed in enumerate(self._visits):
            rows = np.flatnonzero(committed["page"] == page)
            if len(rows):
                value = _doubted(committed.copy(), int(rows[0]))
                with self.transaction(write=True) as txn:
                    self.db["log"].put(txn, U32_PAIR.pack(self.require_open_cycle(), number), value)
                self._visits[number] = np.frombuffer(value, VISIT)
                return

    def visited(self, page: int) -> bool:
        """Whether the page was visited in the open cycle, committed or not."""
        return self.open_cycle is not None and page < len(self._visited) and bool(self._visited[page])

    def open_visits(self) -> npt.NDArray[Any]:
        """Return the visits of the open cycle so far, buffered ones too: dtype `VISIT`, by time."""
        written = (visits.tobytes() for visits in self._visits)
        return np.frombuffer(bytearray().join((*written, *self._buffer.visits)), VISIT)

    # --- opening, closing, folding

    def _fold(self, record: CycleRecord) -> None:
        fold.fold(self, self.open_visits(), self.notes(), self.pages, record, self.sizes)
        self._load()

    def close(self) -> None:
        """Commit buffered changes and close the file, even when the commit fails."""
        try:
            is_open = self.environment.lmdb is not None
            if is_open and not self.is_folding and not self.readonly:
                self.commit()
        finally:
            self.environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_folding(self) -> bool:
        """Whether a fold is incomplete: it lacked room, or (only readers see that) was killed or runs."""
        return self.fold_marker is not None

    # --- cycles and plans

    def amend_record(self, number: int | None = None, /, **fields: Unpack[CycleRecord]) -> None:
        """Set `fields` of the record of cycle `number` (None: the open one), in a transaction of its own."""
        number = number or self.require_open_cycle()
        with self.transaction(write=True) as txn:
            self.put_record(txn, number, fields)

    def finish_cycle(self, record: CycleRecord) -> None:
        """Finish the open cycle: commit, then fold its visits into the page columns.

        ``record``: fields to add to the cycle's record. After a StoreFullError, a second call goes on.
        """
        if not self.is_folding:
            self.require_open_cycle()
            self.commit()
        self._fold(record)
        self.environment.sync()

    def keep_visits(self, cycles: int) -> None:
        """Delete the visits of all finished cycles but the last `cycles` ones; the page columns stay."""
        if (last := self.last_cycle - cycles) > self.dropped:
            self.drop_cycles(last, self.sizes.chunks_per_transaction)

    def add_round(self, rows: Array, seen: int, **fields: Unpack[CycleRecord]) -> None:
        """Write the plan of the open cycle's next round.

        ``rows``: dtype `PLAN`, first to visit first; ``seen``: number of the cycle's visits that it is based
        on, which are committed first; ``fields``: further fields of the cycle's record to set.
        """
        cycle = self.require_open_cycle()
        if not 0 <= seen <= (visits := len(self.open_visits())):
            raise ValueError(f"the cycle has {counted(visits, 'visit')}; found seen = {seen}")
        self.commit()
        rounds: list[RoundCounts] = [*self.rounds(), {"planned": len(rows), "seen": seen}]
        counts: CycleRecord = {"planned": sum(one["planned"] for one in rounds), "rounds": rounds}
        with self.transaction(write=True) as txn:
            number = len(self.db["plans"].keys(txn))
            for start in range(0, len(rows), self.sizes.plan_rows):
                PLANS.put(txn, self.db, cycle, number, rows[start : start + self.sizes.plan_rows])
                number += 1
            self.put_record(txn, cycle, {**fields, **counts})

    def rounds(self) -> list[RoundCounts]:
        """Return the counts of the open cycle's planned rounds; [] before the first one."""
        return self._record().get("rounds", [])

    def planned(self) -> int | None:
        """Return the number of pages planned in all rounds of the open cycle; None before the first."""
        return self._record().get("planned")

    def plan(self) -> Array:
        """Read the plan of all rounds of the open cycle: dtype `PLAN`, first to visit first."""
        with self.transaction() as txn:
            plan = PLANS.read(txn, self.db, self.open_cycle or 0)
        if len(plan) != (planned := self.planned() or 0):
            raise damaged(self.path, f"the plan should have {counted(planned, 'page')}; found {len(plan)}")
        return plan

    def _record(self) -> CycleRecord:
        with self.transaction() as txn:
            record = self.last_record(txn)
        return record if self.open_cycle is not None and record is not None else {}

    # --- pages

    def add_pages(self, pages: Iterable[tuple[int, StoredRequest]]) -> tuple[int, int]:
        """Add many pages, given as (key, request), outside a crawl; returns (added, known before).

        Pages that were added before the iterator `pages` raises an error stay.
        """
        self.check_writable()
        self.commit()
        try:
            fold.merge_new(self, self.pages, self.sizes)
            return fold.add_pages(self, ((key, encode(page)) for key, page in pages), self.sizes)
        finally:
            self._load()

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """Return ETag and Last-Modified of the page's last copy, as the server sent them; None: not sent."""
        value = self.value("validators", page)
        etag, last_modified = (None, None) if value is None else json.loads(value)
        return etag, last_modified

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace the ETag and Last-Modified of a page at the next commit."""
        validators = etag, last_modified
        self.put_value("validators", page, None if validators == (None, None) else encode(validators))

    def answer(self, page: int) -> LastAnswer:
        """Return how a page's last visit failed, or to which URL it was redirected; `NO_ANSWER`: neither."""
        value = self.value("answers", page)
        return NO_ANSWER if value is None else LastAnswer(*json.loads(value))

    def set_answer(self, page: int, answer: LastAnswer) -> None:
        """Replace the `LastAnswer` of a page at the next commit; `NO_ANSWER` deletes it."""
        self.put_value("answers", page, None if answer == NO_ANSWER else encode(answer))

    # --- visits and groups

    def descriptions(self) -> Iterator[tuple[int, bytes]]:
        """Yield (page, its packed description for clustering) for all pages that have a committed one."""
        with self.transaction() as txn:
            for key, value in self.db["descriptions"].items(txn):
                yield U32.unpack(key)[0], bytes(value)

    def clusters(self) -> StoredGroups | None:
        """Read clusters, links and popularity by page id, without newer pages; None: there are none."""
        with self.transaction() as txn:
            value = self.db["clusters"].get(txn, _CLUSTERS)
        if value is None:
            return None
        with np.load(BytesIO(value), allow_pickle=False) as arrays:
            return StoredGroups(PageGroups.of_arrays(arrays), arrays["popularity"])

    def put_clusters(self, stored: StoredGroups) -> None:
        """Replace clusters, links and popularity of pages; raises StoreError while a cycle is open."""
        self.check_writable()
        self.check_may_cluster()
        content = BytesIO()
        groups = dataclasses.replace(stored.groups, keys=None)  # they are by page here
        np.savez(content, allow_pickle=False, popularity=stored.popularity, **groups.arrays())
        with self.transaction(write=True) as txn:
            self.db["clusters"].put(txn, _CLUSTERS, content.getvalue())

    def check_may_cluster(self) -> None:
        """Raise StoreError while a cycle is open, because its plan may be based on the stored clusters."""
        if self.open_cycle is not None:
            raise StoreError(
                f"cycle {self.open_cycle} of the store {self.path} is not finished, and its plan may follow "
                "from the clusters that it has: run the spider until it is, then cluster its pages."
            )

    def find_many(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the page ids of page keys, ``[K]`` in any order; -1 for unknown keys."""
        known, position = np.unique(keys, return_inverse=True)
        page_ids = self.ids_of(known)
        for row in np.flatnonzero(page_ids < 0).tolist():
            page_ids[row] = self._pending.get(int(known[row]), -1)  # found by the open cycle
        return page_ids[position]

    def claim_changes(self, pages: Array, time_s: float) -> None:
        """Claim that pages changed at `time_s`, as `scrapy gp4c hint` does, and commit.

        With an open cycle this is a note. Without one, the claim says that the next cycle sees the change,
        and pages that wait after failures are due in that cycle.
        """
        pages = np.unique(pages.astype(np.uint32))
        if self.open_cycle is not None:
            self.note_many(pages, "told", np.full(len(pages), time_s))
            self.commit()
            return
        self.check_writable()
        claimed = np.zeros(len(pages), CLAIM)
        claimed["page"], claimed["kind"] = pages, hints.KINDS.index("told")
        claimed["value"] = self.last_cycle + 1
        with self.transaction(write=True) as txn:
            for block in np.unique(pages // self.block_rows).tolist():
                block_claims = claimed[pages // self.block_rows == block]
                block_claims["page"] -= block * self.block_rows
                shorten_waits(txn, self, block, block_claims["page"].astype(np.intp))
                state = unpack(self.block(txn, block))
                state = state | HINTS.read(txn, self.db, block, len(state["n"]))
                claims.apply_claims(state, block_claims)
                HINTS.put(txn, self.db, block, state)
            keys = (U32_PAIR.pack(self.last_cycle, number) for number in count(_AFTER_END))
            unused = next(key for key in keys if self.db["claims"].get(txn, key) is None)
            CLAIMS.put(txn, self.db, self.last_cycle, U32_PAIR.unpack(unused)[1], claimed)

    def claims_of_cycles(self, first: int = 1) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, claims) in chunks of dtype `CLAIM`, for the finished cycles from `first` on."""
        return self.rows_of_cycles(CLAIMS, first)

    def weight(self, page: int) -> float:
        """Return a page's weight, the newest note of the open cycle included; 1 if none was ever set."""
        new_weight = self.noted_weights.get(page)
        if new_weight is not None or page >= self.merged_pages:
            return DEFAULT_WEIGHT if new_weight is None else new_weight
        block, row = divmod(page, self.block_rows)
        with self.transaction() as txn:
            return float(WEIGHTS.read(txn, self.db, block, row + 1)["weight"][row])

    def put_weights(self, pages: npt.NDArray[Any], values: npt.NDArray[np.float64]) -> None:
        """Set the weights `values` of `pages`, both ``[P]``, and commit; for a repeated page the last counts.

        While a cycle is open, they are notes, which its fold applies.
        """
        if self.open_cycle is not None:
            self.note_many(pages, "weight", values)
            self.commit()
            return
        self.check_writable()
        self.put_values(WEIGHTS, pages, {"weight": values})

    def trust(self) -> Array:
        """Read how often each site's claims were right in finished cycles: dtype `TRUST`, by site."""
        with self.transaction() as txn:
            return read_trust(txn, self.db)

    def site_names(self, sites: Iterable[int]) -> dict[int, str]:
        """Return site key -> name, by the URL of one of its pages, for those of `sites` that have a page."""
        of_directory = self.site_keys()
        todo, names = set(sites), dict[int, str]()
        for first, block in self.blocks() if todo else ():
            groups, rows = np.unique(block["group"], return_index=True)
            for group, row in zip(groups.tolist(), rows.tolist(), strict=True):
                site = int(of_directory[group])
                if site in todo:
                    url_place = place_of_url(self.request(first + row)["url"])
                    if url_place.site_key == site:  # else the page is requested elsewhere by now
                        todo.remove(site)
                        names[site] = url_place.site
            if not todo:
                break
        return names

    def shadows(self, cycle: int) -> npt.NDArray[Any]:
        """Read the states that pages of the control group would have without it (`SHADOW`), after `cycle`."""
        with self.transaction() as txn:
            return SHADOWS.read(txn, self.db, cycle)

    def put_shadows(self, cycle: int, shadows: npt.NDArray[Any]) -> None:
        """Write the control group's shadows after `cycle`; delete those from before the previous cycle."""
        with self.transaction(write=True) as txn:
            SHADOWS.drop(txn, self.db, 0, cycle - 2)
            SHADOWS.put(txn, self.db, cycle, 0, shadows)

    def verify(self) -> list[str]:
        """Check all committed tables against each other; returns a sentence per problem, [] if sound."""
        return list(problems(self))


def _doubted(visits: npt.NDArray[Any], row: int) -> bytes:
    visits["outcome"][row], visits["fingerprint"][row], visits["distance"][row] = DOUBTFUL, 0, NO_DISTANCE
    return visits.tobytes()
