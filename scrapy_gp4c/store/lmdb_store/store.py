"""The page store: pages, visits and cycles in one LMDB file that survives a kill at any moment.

Page ids are dense integers. During a cycle everything is appended (`log`, `new`); when the cycle ends, `fold`
does to the page columns what its visits did, in one pass. docs/store.md has the tables.

Its parts: `Environment`, the open file; `Tables`, what is in it, with the counters; `OpenCycle`, what is in
memory; and functions on these that plan, fold and verify. `Store` is the front of them, a `PageStore`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import Columns, PageRow, unpack
from scrapy_gp4c.store.lmdb_store import fold, plans
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.tables import USUAL, Sizes, Tables, encode
from scrapy_gp4c.store.lmdb_store.verify import problems
from scrapy_gp4c.store.records import SHADOW, CycleRecord, NewVisit, RoundCounts, StoredRequest


class Store:
    """One store, open for writing (one process at a time) or for reading (beside a writer)."""

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> None:
        """Open the store in directory `path`; a writer creates it and completes an interrupted fold.

        Raises StoreInUseError, StoreDamagedError, StoreFullError (an interrupted fold needs room), or
        StoreError where there is no store to read or no access.
        """
        self.sizes = sizes
        self.environment = Environment(path, readonly, sizes.map_size)
        try:
            self.tables = Tables(self.environment, sizes.block_rows)
            self._open = OpenCycle(self.tables, sizes.commit_visits)
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
        fold.fold(self.tables, self._open.visits(), self._open.pages, record, self.sizes)
        self._load()

    def close(self) -> None:
        """Commit what is buffered and close; the file is closed even when the commit fails."""
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
        """Its directory."""
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
        """When the last commit returned, by the monotonic clock."""
        return self._open.committed_s

    # --- cycles and plans

    def begin_cycle(self, record: CycleRecord) -> int:
        """Open the next cycle with its record; returns its number, from 1 on."""
        return self._open.begin(record)

    def amend_record(self, **fields: Unpack[CycleRecord]) -> None:
        """Add to the record of the open cycle, at once."""
        cycle = self._open.require()
        with self.tables.transaction(write=True) as txn:
            self.tables.put_record(txn, cycle, fields)

    def finish_cycle(self, record: CycleRecord) -> None:
        """Close the open cycle with what `record` adds to its record, and fold its visits.

        After a StoreFullError in the middle, the same call (or the next opening) goes on with the fold.
        """
        if self.tables.fold_marker is None:
            self._open.require()
            self._open.commit()
        self._fold(record)

    def cycles(self) -> list[CycleRecord]:
        """Records of all cycles, oldest first; that of the open one has no ``finished``."""
        return self.tables.cycles()

    def add_round(self, chunks: Iterable[npt.NDArray[Any]], seen: int, **about: Unpack[CycleRecord]) -> None:
        """Write the plan of the open cycle's next round: dtype `PLAN`, first to visit first.

        ``seen``: visits of the cycle that it was made from; they are committed first. ``about``: what the
        cycle's record says from then on, written with the last of the plan.
        """
        self._open.require()
        if not 0 <= seen <= len(self._open.visits()):
            raise ValueError(f"the cycle has {len(self._open.visits())} visits; found seen = {seen}")
        self._open.commit()
        plans.add_round(self.tables, self._record(), chunks, seen, about, self.sizes)

    def rounds(self) -> list[RoundCounts]:
        """Return the open cycle's planned rounds; empty while there is no complete one."""
        return plans.rounds(self._record())

    def planned(self) -> int | None:
        """Pages of all complete rounds of the open cycle; None while there is none."""
        return self._record().get("planned")

    def plan(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the complete rounds' plan, dtype `PLAN`, in chunks, first to visit first."""
        record = self._record()
        return plans.chunks(self.tables, record.get("cycle", 0), record.get("planned") or 0)

    def _record(self) -> CycleRecord:
        """Record of the open cycle; empty where none is open."""
        with self.tables.transaction() as txn:
            record = self.tables.last_record(txn)
        return record if self._open.number is not None and record is not None else {}

    # --- pages

    def find(self, key: int) -> int | None:
        """Page id of a request fingerprint's first 8 bytes (big-endian), or None."""
        return self._open.find(key)

    def page(self, page: int) -> PageRow:
        """Columns of one page as of the last fold."""
        return self._open.page(page)

    def blocks(self) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block: first page id, and read-only columns ``[rows]``."""
        return self.tables.blocks()

    def columns_of(self, pages: npt.NDArray[np.uint32]) -> Columns:
        """Columns ``[P]`` of some pages, ids ascending, each one below `merged_pages`."""
        parts = [unpack(b"")]
        of_page = pages // self.tables.block_rows
        for block in np.unique(of_page).tolist():
            with self.tables.transaction() as txn:
                state = unpack(self.tables.get_block(txn, block))
            rows = pages[of_page == block] - np.uint32(block * self.tables.block_rows)
            parts.append({name: column[rows] for name, column in state.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""
        return self._open.request(page)

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        return self._open.requests(pages)

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of the page's copy, as the server sent them."""
        return self._open.validators(page)

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
        self._open.set_validators(page, etag, last_modified)

    def add_pages(self, pages: Iterable[tuple[int, StoredRequest]]) -> tuple[int, int]:
        """Add pages in bulk, outside a crawl, in bounded memory; returns how many were added and known.

        Pages come as (key, request). What was added stays when `pages` raises.
        """
        self.tables.check_writable()
        self._open.commit()
        try:
            fold.merge_new(self.tables, self._open.pages, self.sizes)
            return fold.add_pages(self.tables, ((key, encode(page)) for key, page in pages), self.sizes)
        finally:
            self._load()

    # --- visits

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle; written with the next commit, at `Sizes.commit_visits` at latest.

        Raises ValueError for a second visit of a page in one cycle, struct.error for a number that its field
        cannot hold, StoreFullError when a commit fails: the visit is kept for the next one.
        """
        self._open.record(visit)

    def commit(self) -> None:
        """Write everything buffered in one transaction. Raises StoreFullError and keeps the buffers."""
        self._open.commit()

    def visited(self, page: int) -> bool:
        """Tell whether the page has an outcome in the open cycle, committed or buffered."""
        return self._open.visited(page)

    def open_visits(self) -> npt.NDArray[Any]:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""
        return self._open.visits()

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""
        return self.tables.visits(first_cycle, last_cycle)

    def shadows(self, cycle: int) -> npt.NDArray[Any]:
        """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no panel."""
        with self.tables.transaction() as txn:
            value = txn.get(_shadows_key(cycle), db=self.tables.db["meta"], default=b"")
        head = _shadows_head(cycle)
        return np.frombuffer(value[len(head) :] if value.startswith(head) else b"", SHADOW)

    def keep_shadows(self, cycle: int, shadows: npt.NDArray[Any]) -> None:
        """Keep the shadows as `cycle` left them; those of the cycle before stay."""
        with self.tables.transaction(write=True) as txn:
            txn.put(_shadows_key(cycle), _shadows_head(cycle) + shadows.tobytes(), db=self.tables.db["meta"])

    def verify(self) -> list[str]:
        """Compare the tables with each other; returns the problems found, none for a sound store."""
        return list(problems(self.tables, self._open))


def _shadows_key(cycle: int) -> bytes:
    return b"shadows%d" % (cycle % 2)


def _shadows_head(cycle: int) -> bytes:
    return encode({"cycle": cycle, "columns": SHADOW.descr}) + b"\n"
