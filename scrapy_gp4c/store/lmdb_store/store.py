"""Page store: pages, visits and cycles in one LMDB file that survives a kill at any moment.

docs/code/store.md describes the tables. `Environment` is the open file, `Tables` its content with the
counters, `OpenCycle` the part in memory; `Store` puts them behind the protocols of
`scrapy_gp4c.store.protocols`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import Columns, PageRow
from scrapy_gp4c.store.lmdb_store import clusters, cycle, fold
from scrapy_gp4c.store.lmdb_store.claims import Claims
from scrapy_gp4c.store.lmdb_store.cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.environment import Environment, encode
from scrapy_gp4c.store.lmdb_store.gains import Gains
from scrapy_gp4c.store.lmdb_store.optional_tables import SHADOWS, WEIGHTS
from scrapy_gp4c.store.lmdb_store.page_table import (
    blocks_with_optional,
    check_sample,
    columns_of,
    put_some,
    weight_of,
)
from scrapy_gp4c.store.lmdb_store.tables import USUAL, Sizes, Tables, open_tables
from scrapy_gp4c.store.lmdb_store.verify import problems
from scrapy_gp4c.store.protocols import has_open_cycle
from scrapy_gp4c.store.records import (
    NO_ANSWER,
    CycleRecord,
    LastAnswer,
    NewVisit,
    RoundCounts,
    StoredGroups,
    StoredRequest,
)


class Weights:
    """Weights of a store's pages: a `scrapy_gp4c.store.protocols.PageWeights`."""

    def __init__(self, tables: Tables, opened: OpenCycle) -> None:
        """Take the tables, and the open cycle, in which weights are noted until its fold."""
        self._tables = tables
        self._open = opened

    def of(self, page: int) -> float:
        """Weight of a page, as the newest request or list has it."""
        said = self._open.weights.get(page)
        return weight_of(self._tables, page) if said is None else said

    def put(self, pages: npt.NDArray[Any], values: npt.NDArray[np.float64]) -> None:
        """Set the weights of pages, ``[P]``, and commit: see `PageWeights`."""
        if self._open.number is not None:
            self._open.require()
            self._open.note_many(pages, "weight", values)
            self._open.commit()
            return
        self._tables.check_writable()
        put_some(self._tables, WEIGHTS, pages, {"weight": values})


class Store:
    """Page store in one LMDB file, open for writing (one process at a time) or for reading."""

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> None:
        """Open the store in `path`; a writer creates it and completes a fold. Raises a StoreError."""
        self.sizes = sizes
        self.environment = Environment(path, readonly, sizes.map_size)
        try:
            self.tables = Tables(self.environment, open_tables(self.environment, sizes.block_rows))
            self.gains = Gains(self.tables)
            self._open = OpenCycle(self.tables, sizes.commit_visits)
            self.hints = Claims(self.tables, self._open)
            self.weights = Weights(self.tables, self._open)
            self._load()
            if self.tables.fold_marker is not None and not readonly:
                self._fold({})
        except BaseException:
            self.environment.close()
            raise

    def _load(self) -> None:
        with self.tables.transaction() as txn:  # one for all: a writer may be folding meanwhile
            self.tables.read_counters(txn)
            self._open.load(txn)

    def _fold(self, record: CycleRecord) -> None:
        content = fold.CycleContent(self._open.visits(), self._open.all_notes(), self._open.pages)
        fold.fold(self.tables, content, record, self.sizes)
        self._load()

    def close(self) -> None:
        """Commit what is buffered and close, even when the commit fails."""
        try:
            is_open = self.environment.lmdb is not None
            if is_open and self.tables.fold_marker is None and not self.tables.readonly:
                self._open.commit()
        finally:
            self.environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """Directory of the store."""
        return self.tables.path

    @property
    def store_id(self) -> str:
        """Random hex digits that name it."""
        return self.tables.store_id

    @property
    def pages(self) -> int:
        """Number of known pages: ids are 0..pages-1, those found in the open cycle included."""
        return self._open.pages

    @property
    def merged_pages(self) -> int:
        """Number of pages with columns in `blocks`: all but those found in the open cycle."""
        return self.tables.merged_pages

    @property
    def last_cycle(self) -> int:
        """The last finished cycle; 0: none."""
        return self.tables.last_cycle

    @property
    def open_cycle(self) -> int | None:
        """The unfinished cycle."""
        return self._open.number

    @property
    def is_folding(self) -> bool:
        """Whether a fold was interrupted: for want of room, or, where this only reads, by a kill."""
        return self.tables.fold_marker is not None

    @property
    def committed_s(self) -> float:
        """Time when the last commit returned, by the monotonic clock."""
        return self._open.committed_s

    # --- cycles and plans

    def begin_cycle(self, record: CycleRecord) -> int:
        """Open the next cycle with its record; returns its number, from 1 on."""
        return self._open.begin(record)

    def amend_record(self, number: int | None = None, /, **fields: Unpack[CycleRecord]) -> None:
        """Add to the record of a cycle, at once; None: of the open one."""
        number = number or self._open.require()
        with self.tables.transaction(write=True) as txn:
            self.tables.put_record(txn, number, fields)

    def finish_cycle(self, record: CycleRecord) -> None:
        """Close the open cycle, fold its visits; after a StoreFullError the same call goes on with that."""
        if self.tables.fold_marker is None:
            self._open.require()
            self._open.commit()
        self._fold(record)
        self.environment.sync()

    def keep_visits(self, cycles: int) -> None:
        """Drop the visits of all but so many of the last finished cycles."""
        if (last := self.last_cycle - cycles) > self.tables.dropped:
            self.tables.drop_cycles(last, self.sizes.chunks_per_transaction)

    def cycles(self, first: int = 1) -> list[CycleRecord]:
        """Records of all cycles from one on, oldest first; that of the open one has no ``finished``."""
        return self.tables.cycles(first)

    def newest_record(self, name: str) -> CycleRecord:
        """Record of the newest cycle that has a value of this name; empty where none has."""
        return self.tables.newest_record(name)

    def add_round(self, chunks: Iterable[npt.NDArray[Any]], seen: int, **about: Unpack[CycleRecord]) -> None:
        """Write the plan of the open cycle's next round: dtype `PLAN`, first to visit first.

        ``seen``: visits of the cycle that it was made from; they are committed first. ``about``: what the
        cycle's record says from then on, written with the last of the plan.
        """
        self._open.require()
        if not 0 <= seen <= (visits := len(self._open.visits())):
            raise ValueError(f"the cycle has {visits} visits; found seen = {seen}")
        self._open.commit()
        cycle.add_round(self.tables, self._record(), chunks, seen, about, self.sizes)

    def rounds(self) -> list[RoundCounts]:
        """Return the open cycle's planned rounds; empty while there is no complete one."""
        return cycle.rounds_of(self._record())

    def planned(self) -> int | None:
        """Pages of all complete rounds of the open cycle; None while there is none."""
        return self._record().get("planned")

    def plan(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the complete rounds' plan, dtype `PLAN`, in chunks, first to visit first."""
        record = self._record()
        return cycle.plan_chunks(self.tables, record.get("cycle", 0), record.get("planned") or 0)

    def _record(self) -> CycleRecord:
        """Record of the open cycle; empty where none is open."""
        with self.tables.transaction() as txn:
            record = self.tables.last_record(txn)
        return record if self._open.number is not None and record is not None else {}

    # --- pages

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block, see `PageStore.blocks`."""
        if names is not None:
            return self.tables.blocks(names)
        return blocks_with_optional(self.tables)

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        """Columns ``[P]`` of some pages, ids ascending, see `PageStore.columns_of`."""
        return columns_of(self.tables, pages, names)

    def add_pages(self, pages: Iterable[tuple[int, StoredRequest]]) -> tuple[int, int]:
        """Add (key, request) pairs in bulk, outside a crawl; what was added stays when `pages` raises."""
        self.tables.check_writable()
        self._open.commit()
        try:
            fold.merge_new(self.tables, self._open.pages, self.sizes)
            return fold.add_pages(self.tables, ((key, encode(page)) for key, page in pages), self.sizes)
        finally:
            self._load()

    def find(self, key: int) -> int | None:
        """Page id of a request fingerprint's first 8 bytes (big-endian), or None."""
        return self._open.find(key)

    def page(self, page: int) -> PageRow:
        """Columns of one page as of the last fold."""
        return self._open.page(page)

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""
        return self._open.request(page)

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        return self._open.requests(pages)

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of the page's copy, as the server sent them."""
        value = self._open.value("validators", page)
        etag, last_modified = (None, None) if value is None else json.loads(value)
        return etag, last_modified

    def copy_notes(self, page: int) -> bytes | None:
        """Notes of the page's copy; None where none are kept."""
        return self._open.value("copies", page)

    def has_description(self, page: int) -> bool:
        """Whether a description of the page's copy is kept."""
        return self._open.value("descriptions", page) is not None

    def set_description(self, page: int, packed: bytes) -> None:
        """Replace the description of a page's copy, at the next commit."""
        self._open.put_value("descriptions", page, packed)

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages discovered in the open cycle, in order."""
        return self._open.new_pages()

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Remember a page discovered in the open cycle; its id is valid at once."""
        return self._open.add_page(key, request)

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page, at the next commit."""
        self._open.set_request(page, request)

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace the validators of a page, at the next commit."""
        validators = etag, last_modified
        self._open.put_value("validators", page, None if validators == (None, None) else encode(validators))

    def set_copy_notes(self, page: int, packed: bytes) -> None:
        """Replace the notes of a page's copy, at the next commit."""
        self._open.put_value("copies", page, packed)

    def answer(self, page: int) -> LastAnswer:
        """How the last visit of a page failed, or from where it was answered."""
        value = self._open.value("answers", page)
        return NO_ANSWER if value is None else LastAnswer(*json.loads(value))

    def set_answer(self, page: int, answer: LastAnswer) -> None:
        """Replace the last answer of a page, at the next commit."""
        self._open.put_value("answers", page, None if answer == NO_ANSWER else encode(answer))

    # --- visits

    def note(self, page: int, what: str, value: float) -> None:
        """Note what the open cycle learnt of a page, for its fold."""
        self._open.note(page, what, value)

    def notes(self) -> npt.NDArray[Any]:
        """Notes of the open cycle so far, dtype `NOTE`, in the order in which they were made."""
        return self._open.all_notes()

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle, see `OpenCycle.record`."""
        self._open.record(visit)

    def amend_visit(self, page: int, outcome: str) -> None:
        """Replace the outcome of a page's visit of the open cycle, see `OpenCycle.amend`."""
        self._open.amend(page, outcome)

    def before_commit(self, call: Callable[[], object]) -> None:
        """Set a function to call before each commit; an exception of it keeps everything buffered."""
        self._open.before_commit = call

    def commit(self) -> None:
        """Write everything buffered in one transaction. Raises StoreFullError and keeps the buffers."""
        self._open.commit()

    def visited(self, page: int) -> bool:
        """Whether the page has an outcome in the open cycle, committed or buffered."""
        return self._open.visited(page)

    def open_visits(self) -> npt.NDArray[Any]:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""
        return self._open.visits()

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""
        return self.tables.visits(first_cycle, last_cycle)

    def directories(self) -> npt.NDArray[Any]:
        """Directories of the pages in `blocks`, dtype `GROUP` ``[G]``, in the order of their numbers."""
        return self.tables.directories()

    def group_visits(self, cycle: int) -> npt.NDArray[Any]:
        """Sums of a finished cycle's visits by directory, dtype `GROUP_VISITS`."""
        return self.tables.group_visits(cycle)

    def descriptions(self) -> Iterator[tuple[int, bytes]]:
        """Yield the descriptions of copies that are committed, by page."""
        return clusters.descriptions(self.tables)

    def clusters(self) -> StoredGroups | None:
        """Clusters, links and popularity of pages; None while there are none."""
        return clusters.read(self.tables)

    def put_clusters(self, groups: StoredGroups) -> None:
        """Replace them; raises StoreError while a cycle is open."""
        self.tables.check_writable()
        if self._open.number is not None:
            raise has_open_cycle(self.path, self._open.number)
        clusters.put(self.tables, groups)

    def shadows(self, cycle: int) -> npt.NDArray[Any]:
        """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no control group."""
        with self.tables.transaction() as txn:
            return SHADOWS.read(txn, self.tables.db, cycle)

    def keep_shadows(self, cycle: int, shadows: npt.NDArray[Any]) -> None:
        """Keep the shadows as `cycle` left them; those of the cycle before stay."""
        with self.tables.transaction(write=True) as txn:
            SHADOWS.drop(txn, self.tables.db, 0, cycle - 2)
            SHADOWS.put(txn, self.tables.db, cycle, 0, shadows)

    def look_over(self) -> str:
        """Check a sample of checksums; says how many are right. Raises StoreDamagedError."""
        return f"{check_sample(self.tables)} checksums are right"

    def verify(self) -> list[str]:
        """Compare the tables with each other; returns the problems found, none for a sound store."""
        return list(problems(self.tables, self._open))
