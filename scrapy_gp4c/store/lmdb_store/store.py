"""Page store: pages, visits and cycles in one LMDB file that survives a kill at any moment.

docs/code/store.md describes the tables. `Environment` is the open file, `Tables` its content with the
counters, `OpenCycle` the part in memory; `Store` adds the rest of `scrapy_gp4c.store.protocols`, which
describes the methods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.store.lmdb_store import cycle, fold
from scrapy_gp4c.store.lmdb_store.cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.environment import Environment, encode
from scrapy_gp4c.store.lmdb_store.optional_tables import SHADOWS
from scrapy_gp4c.store.lmdb_store.page_facts import (
    Claims,
    Gains,
    Weights,
    descriptions,
    put_clusters,
    read_clusters,
)
from scrapy_gp4c.store.lmdb_store.page_table import (
    blocks_with_optional,
    check_sample,
    columns_of,
)
from scrapy_gp4c.store.lmdb_store.tables import USUAL, Sizes, Tables, open_tables
from scrapy_gp4c.store.lmdb_store.verify import problems
from scrapy_gp4c.store.protocols import has_open_cycle
from scrapy_gp4c.store.records import (
    NO_ANSWER,
    CycleRecord,
    LastAnswer,
    RoundCounts,
    StoredGroups,
    StoredRequest,
)


class Store(OpenCycle):
    """Page store in one LMDB file, open for writing (one process at a time) or for reading."""

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> None:
        """Open the store in `path`; a writer creates it and completes a fold. Raises a StoreError."""
        self.sizes = sizes
        self.environment = Environment(path, readonly, sizes.map_size)
        try:
            tables = Tables(self.environment, open_tables(self.environment, sizes.block_rows))
            super().__init__(tables, sizes.commit_visits)
            self.gains = Gains(tables)
            self.hints = Claims(tables, self)
            self.weights = Weights(tables, self)
            self._load()
            if self.is_folding and not readonly:
                self._fold({})
        except BaseException:
            self.environment.close()
            raise

    def _load(self) -> None:
        with self.tables.transaction() as txn:  # one for all: a writer may be folding meanwhile
            self.tables.read_counters(txn)
            self.load(txn)

    def _fold(self, record: CycleRecord) -> None:
        fold.fold(
            self.tables, fold.CycleContent(self.open_visits(), self.notes(), self.pages), record, self.sizes
        )
        self._load()

    def close(self) -> None:
        """Commit what is buffered and close, even when the commit fails."""
        try:
            is_open = self.environment.lmdb is not None
            if is_open and not self.is_folding and not self.tables.readonly:
                self.commit()
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
        return self.tables.path

    @property
    def store_id(self) -> str:
        return self.tables.store_id

    @property
    def merged_pages(self) -> int:
        return self.tables.merged_pages

    @property
    def last_cycle(self) -> int:
        return self.tables.last_cycle

    @property
    def is_folding(self) -> bool:
        """Whether a fold was interrupted: for want of room, or, where this only reads, by a kill."""
        return self.tables.fold_marker is not None

    # --- cycles and plans

    def amend_record(self, number: int | None = None, /, **fields: Unpack[CycleRecord]) -> None:
        """Add to the record of a cycle, at once; None: of the open one."""
        number = number or self.require()
        with self.tables.transaction(write=True) as txn:
            self.tables.put_record(txn, number, fields)

    def finish_cycle(self, record: CycleRecord) -> None:
        """Close the open cycle, fold its visits; after a StoreFullError the same call goes on with that."""
        if not self.is_folding:
            self.require()
            self.commit()
        self._fold(record)
        self.environment.sync()

    def keep_visits(self, cycles: int) -> None:
        if (last := self.last_cycle - cycles) > self.tables.dropped:
            self.tables.drop_cycles(last, self.sizes.chunks_per_transaction)

    def cycles(self, first: int = 1) -> list[CycleRecord]:
        return self.tables.cycles(first)

    def starts_s(self, cycles: Iterable[int]) -> dict[int, float]:
        """Starts of some cycles, s since 1970; without those that are not known."""
        return self.tables.starts_s(cycles)

    def newest_record(self, name: str) -> CycleRecord:
        return self.tables.newest_record(name)

    def add_round(self, chunks: Iterable[npt.NDArray[Any]], seen: int, **about: Unpack[CycleRecord]) -> None:
        self.require()
        if not 0 <= seen <= (visits := len(self.open_visits())):
            raise ValueError(f"the cycle has {visits} visits; found seen = {seen}")
        self.commit()
        cycle.add_round(self.tables, self._record(), chunks, seen, about, self.sizes)

    def rounds(self) -> list[RoundCounts]:
        return cycle.rounds_of(self._record())

    def planned(self) -> int | None:
        return self._record().get("planned")

    def plan(self) -> Iterator[npt.NDArray[Any]]:
        record = self._record()
        return cycle.plan_chunks(self.tables, record.get("cycle", 0), record.get("planned") or 0)

    def _record(self) -> CycleRecord:
        """Record of the open cycle; empty where none is open."""
        with self.tables.transaction() as txn:
            record = self.tables.last_record(txn)
        return record if self.open_cycle is not None and record is not None else {}

    # --- pages

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        return blocks_with_optional(self.tables) if names is None else self.tables.blocks(names)

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        return columns_of(self.tables, pages, names)

    def add_pages(self, pages: Iterable[tuple[int, StoredRequest]]) -> tuple[int, int]:
        """Add (key, request) pairs in bulk, outside a crawl; what was added stays when `pages` raises."""
        self.tables.check_writable()
        self.commit()
        try:
            fold.merge_new(self.tables, self.pages, self.sizes)
            return fold.add_pages(self.tables, ((key, encode(page)) for key, page in pages), self.sizes)
        finally:
            self._load()

    def validators(self, page: int) -> tuple[str | None, str | None]:
        value = self.value("validators", page)
        etag, last_modified = (None, None) if value is None else json.loads(value)
        return etag, last_modified

    def copy_notes(self, page: int) -> bytes | None:
        return self.value("copies", page)

    def has_description(self, page: int) -> bool:
        return self.value("descriptions", page) is not None

    def set_description(self, page: int, packed: bytes) -> None:
        self.put_value("descriptions", page, packed)

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        validators = etag, last_modified
        self.put_value("validators", page, None if validators == (None, None) else encode(validators))

    def set_copy_notes(self, page: int, packed: bytes) -> None:
        self.put_value("copies", page, packed)

    def answer(self, page: int) -> LastAnswer:
        value = self.value("answers", page)
        return NO_ANSWER if value is None else LastAnswer(*json.loads(value))

    def set_answer(self, page: int, answer: LastAnswer) -> None:
        self.put_value("answers", page, None if answer == NO_ANSWER else encode(answer))

    # --- visits and groups

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        return self.tables.visits(first_cycle, last_cycle)

    def directories(self) -> npt.NDArray[Any]:
        return self.tables.directories()

    def group_visits(self, cycle: int) -> npt.NDArray[Any]:
        return self.tables.group_visits(cycle)

    def descriptions(self) -> Iterator[tuple[int, bytes]]:
        return descriptions(self.tables)

    def clusters(self) -> StoredGroups | None:
        return read_clusters(self.tables)

    def put_clusters(self, groups: StoredGroups) -> None:
        self.tables.check_writable()
        if self.open_cycle is not None:
            raise has_open_cycle(self.path, self.open_cycle)
        put_clusters(self.tables, groups)

    def shadows(self, cycle: int) -> npt.NDArray[Any]:
        with self.tables.transaction() as txn:
            return SHADOWS.read(txn, self.tables.db, cycle)

    def keep_shadows(self, cycle: int, shadows: npt.NDArray[Any]) -> None:
        with self.tables.transaction(write=True) as txn:
            SHADOWS.drop(txn, self.tables.db, 0, cycle - 2)
            SHADOWS.put(txn, self.tables.db, cycle, 0, shadows)

    def look_over(self) -> str:
        return f"{check_sample(self.tables)} checksums are right"

    def verify(self) -> list[str]:
        return list(problems(self.tables, self))
