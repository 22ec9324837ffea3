"""The page store: pages, visits and cycles in one LMDB file that survives a kill at any moment.

docs/store.md has the tables. Its parts: `Environment`, the open file; `Tables`, what is in it, with the
counters; `OpenCycle`, what is in memory; and functions on these that plan, fold and verify. `Store` is the
front of them, a `PageStore`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.store.lmdb_store import clusters, fold, plans, shadows
from scrapy_gp4c.store.lmdb_store.environment import Environment, InTransaction
from scrapy_gp4c.store.lmdb_store.gains import Gains
from scrapy_gp4c.store.lmdb_store.hints import Hints
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.open_pages import OpenPages
from scrapy_gp4c.store.lmdb_store.reading import columns_of, sample
from scrapy_gp4c.store.lmdb_store.schema import open_tables
from scrapy_gp4c.store.lmdb_store.sealed import encode
from scrapy_gp4c.store.lmdb_store.sizes import USUAL, Sizes
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.verify import problems
from scrapy_gp4c.store.lmdb_store.weights import Weights
from scrapy_gp4c.store.page_store import has_open_cycle
from scrapy_gp4c.store.records import CycleRecord, RoundCounts, StoredGroups, StoredRequest


class Store(OpenPages):
    """One store, open for writing (one process at a time) or for reading (beside a writer)."""

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> None:
        """Open the store in `path`; a writer creates it and completes a fold. Raises a StoreError."""
        self.sizes = sizes
        self.environment = Environment(path, readonly, sizes.map_size)
        try:
            self.tables = Tables(self.environment, open_tables(self.environment, sizes.block_rows))
            self.gains = Gains(self.tables)
            self._open = OpenCycle(self.tables, sizes.commit_visits)
            self.hints = Hints(self.tables, self._open)
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
        learnt = fold.Learnt(self._open.visits(), self._open.all_notes(), self._open.pages)
        fold.fold(self.tables, learnt, record, self.sizes)
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
        """Close the open cycle, fold its visits; after a StoreFullError the same call goes on with that."""
        if self.tables.fold_marker is None:
            self._open.require()
            self._open.commit()
        self._fold(record)
        self.environment.sync()

    def keep_visits(self, cycles: int) -> None:
        """Drop the visits of all but so many of the last finished cycles."""
        if (last := self.last_cycle - cycles) > self.tables.dropped:
            self.gains.drop(last)
            self.hints.drop(last)
            self.tables.drop_visits(last, self.sizes.chunks_per_transaction)

    def cycles(self) -> list[CycleRecord]:
        """Records of all cycles, oldest first; that of the open one has no ``finished``."""
        return self.tables.cycles()

    def add_round(self, chunks: Iterable[npt.NDArray[Any]], seen: int, **about: Unpack[CycleRecord]) -> None:
        """Write the plan of the open cycle's next round: dtype `PLAN`, first to visit first.

        ``seen``: visits of the cycle that it was made from; they are committed first. ``about``: what the
        cycle's record says from then on, written with the last of the plan.
        """
        self._add_round(chunks, seen, about, self._complete)

    def _complete(self, work: InTransaction) -> None:
        """Do work in the transaction that completes a round."""
        with self.tables.transaction(write=True) as txn:
            work(txn)

    def _add_round(
        self,
        chunks: Iterable[npt.NDArray[Any]],
        seen: int,
        about: CycleRecord,
        complete: Callable[[InTransaction], object],
    ) -> None:
        self._open.require()
        if not 0 <= seen <= (visits := len(self._open.visits())):
            raise ValueError(f"the cycle has {visits} visits; found seen = {seen}")
        self._open.commit()
        plans.add_round(self.tables, self._record(), chunks, seen, about, self.sizes, complete)

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

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block, see `PageStore.blocks`."""
        if names is not None:
            return self.tables.blocks(names)
        return self.weights.blocks(self.hints.blocks(self.gains.blocks()))

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

    # --- visits

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""
        return self.tables.visits(first_cycle, last_cycle)

    def directories(self) -> npt.NDArray[Any]:
        """Directories of the pages in `blocks`, dtype `GROUP` ``[G]``, in the order of their numbers."""
        return self.tables.directories()

    def group_visits(self, cycle: int) -> npt.NDArray[Any]:
        """What the visits of a finished cycle tell of directories, dtype `GROUP_VISITS`."""
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
        """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no panel."""
        return shadows.read(self.tables, cycle)

    def keep_shadows(self, cycle: int, kept: npt.NDArray[Any]) -> None:
        """Keep the shadows as `cycle` left them; those of the cycle before stay."""
        shadows.keep(self.tables, cycle, kept)

    def look_over(self) -> str:
        """Check a sample of values; says how much was found right. Raises StoreDamagedError."""
        pages, of = self.environment.looked
        return f"{pages:,} of {of:,} pages of its file and {sample(self.tables)} checksums are right"

    def verify(self) -> list[str]:
        """Compare the tables with each other; returns the problems found, none for a sound store."""
        return list(problems(self.tables, self._open))
