"""The tables of a store's LMDB file: reading and writing each, and the counters that move with them.

docs/store.md describes keys and values. Numbers in keys are big-endian, so that they sort.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state import blocks
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.store.lmdb_store import groups, trust
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.failures import damaged, read_only
from scrapy_gp4c.store.lmdb_store.groups import Told
from scrapy_gp4c.store.lmdb_store.schema import Handles
from scrapy_gp4c.store.lmdb_store.sealed import KEY, U32, U32_PAIR, decode, encode, split
from scrapy_gp4c.store.lmdb_store.sizes import BLOCKS_TOGETHER
from scrapy_gp4c.store.records import CycleRecord, FoldMarker

Array = npt.NDArray[Any]

_META: Final = {
    "schema", "store_id", "block_rows", "pages", "groups", "last_cycle", "dropped", "fold",
    "shadows0", "shadows1", "query_log",
}  # fmt: skip
"""Names in `meta`: one that was altered would stand for none."""


class Tables:
    """The tables of an open LMDB file, and its counters, which only methods of this class move.

    ``store_id``: random hex digits that name it; ``block_rows``: pages per block; ``merged_pages``: pages in
    `ids`, `urls` and the columns: ids below this number; ``groups``: known directories; ``last_cycle``: the
    last finished, 0: none; ``dropped``: the last whose visits are not all there; ``fold_marker``: of a fold.
    """

    store_id: str
    block_rows: int
    merged_pages: int
    groups: int
    last_cycle: int
    dropped: int
    fold_marker: FoldMarker | None

    def __init__(self, environment: Environment, db: Handles) -> None:
        """Take an open file and the handles of its tables."""
        self.path = environment.path
        self.readonly = environment.readonly
        self.transaction = environment.transaction
        self.db = db
        self._checked_blocks: set[int] = set()
        with self.transaction() as txn:
            self.read_counters(txn)

    def read_counters(self, txn: Any) -> None:
        """Read the counters as they are in a transaction."""
        if strange := {key.decode("latin-1") for key in self.db["meta"].keys(txn)} - _META:
            raise damaged(self.path, f"the table meta has {', '.join(map(repr, strange))}")
        self.store_id = self.get_meta(txn, "store_id")
        self.block_rows = self.get_meta(txn, "block_rows")
        self.merged_pages = self.get_meta(txn, "pages")
        self.groups = self.get_meta(txn, "groups") or 0
        self.last_cycle = self.get_meta(txn, "last_cycle")
        self.dropped = self.get_meta(txn, "dropped") or 0
        self.fold_marker = self.get_meta(txn, "fold")

    def check_writable(self) -> None:
        """Raise StoreError where nothing can be written: opened for reading, or a fold found no room."""
        if self.readonly:
            raise read_only(self.path)
        if self.fold_marker is not None:
            raise StoreError(
                f"the store {self.path} could not complete cycle {self.last_cycle + 1}: free disk space "
                "and open it again."
            )

    # --- what moves the counters: one transaction each

    def mark_fold(self, marker: FoldMarker) -> None:
        """Begin the fold of the open cycle."""
        with self.transaction(write=True) as txn:
            self.put_meta(txn, "fold", marker)
        self.fold_marker = marker

    def change_blocks(
        self, numbers: Sequence[int], change: Callable[[Any, int, Columns], Told], marker: FoldMarker
    ) -> None:
        """Let `change(txn, block, columns)` alter blocks in place, keep what it tells, move the fold's
        marker."""
        with self.transaction(write=True) as txn:
            parts = []
            for block in numbers:
                state = {name: kept.copy() for name, kept in blocks.unpack(self.block(txn, block)).items()}
                parts.append(change(txn, block, state))
                self.put_block(txn, block, state)
            self.put_group_visits(txn, self.last_cycle + 1, numbers[0], groups.counted(parts))
            self.put_meta(txn, "fold", marker)
        self.fold_marker = marker

    def end_cycle(self, cycle: int, record: CycleRecord) -> None:
        """End the fold: `cycle` is the last finished one, and what the open cycle had is dropped."""
        with self.transaction(write=True) as txn:
            self.put_record(txn, cycle, record)
            self.put_meta(txn, "last_cycle", cycle)
            groups.sum_up(txn, self.db["group_visits"], cycle)
            trust.sum_up(txn, self.db, self.groups, cycle)
            for table in ("log", "new", "notes", "plans"):
                self.db[table].drop(txn)
            self.db["meta"].delete(txn, b"fold")
        self.last_cycle, self.fold_marker = cycle, None

    def drop_visits(self, cycle: int, chunks: int) -> None:
        """Drop the visits of the cycles up to this one, so many chunks in a transaction; columns stay."""
        stop = U32_PAIR.pack(cycle + 1, 0)
        while True:
            with self.transaction(write=True) as txn:
                keys = [key for key, _ in islice(self.db["visits"].items(txn, stop=stop), chunks)]
                for key in keys:
                    self.db["visits"].delete(txn, key)
                if cycle > self.dropped:
                    self.put_meta(txn, "dropped", cycle)
            self.dropped = max(self.dropped, cycle)
            if len(keys) < chunks:
                return

    def restore_cycles(self, records: Sequence[CycleRecord]) -> None:
        """Give a store without cycles the records of cycles 1..C, as finished.

        Their pages follow by `append_pages`, their visits by `put_visits`.
        """
        with self.transaction(write=True) as txn:
            for cycle, record in enumerate(records, 1):
                self.put_record(txn, cycle, {**record, "cycle": cycle})
                groups.sum_up(txn, self.db["group_visits"], cycle)
            self.put_meta(txn, "last_cycle", len(records))
        self.last_cycle = len(records)

    def append_pages(self, requests: Sequence[bytes], state: Columns, directories: Array) -> None:
        """Append pages by their JSON requests and columns, and the directories that were not known before.

        The keys must be unknown. A request that was replaced meanwhile is kept. ``directories``: dtype
        `GROUP`.
        """
        first, pages = self.merged_pages, len(requests)
        with self.transaction(write=True) as txn:
            self._put_pages(txn, first, state["key"], requests)
            groups.append(txn, self.db["groups"], directories, self.groups, self.block_rows)
            start = 0
            while start < pages:
                block, filled = divmod(first + start, self.block_rows)
                stop = min(pages, start + self.block_rows - filled)
                parts = [blocks.unpack(self.block(txn, block))] if filled else []
                parts.append({name: state[name][start:stop] for name in COLUMNS})
                self.put_block(txn, block, {n: np.concatenate([part[n] for part in parts]) for n in COLUMNS})
                start = stop
            self.put_meta(txn, "pages", first + pages)
            self.put_meta(txn, "groups", self.groups + len(directories))
        self.merged_pages += pages
        self.groups += len(directories)

    # --- each table

    def get_meta(self, txn: Any, name: str) -> Any:
        """Read a value of the `meta` table; None where there is none."""
        value = self.db["meta"].get(txn, name.encode())
        return None if value is None else json.loads(value)

    def put_meta(self, txn: Any, name: str, value: Any) -> None:
        """Write a value of the `meta` table."""
        self.db["meta"].put(txn, name.encode(), encode(value))

    def put_record(self, txn: Any, cycle: int, record: CycleRecord) -> None:
        """Add to the JSON record of a cycle, creating it."""
        key = U32.pack(cycle)
        old = self.db["cycles"].get(txn, key)
        merged = {"cycle": cycle, **(decode(old) if old else {}), **record}
        self.db["cycles"].put(txn, key, encode(merged))

    def last_record(self, txn: Any) -> CycleRecord | None:
        """Record of the newest cycle, open or finished."""
        value = self.db["cycles"].last(txn)
        record: CycleRecord | None = None if value is None else decode(value)
        return record

    def block(self, txn: Any, block: int) -> memoryview:
        """Read the bytes of a block of page columns; a writer checks them once, as only it changes them."""
        known = not self.readonly and block in self._checked_blocks
        value = self.db["columns"].view(txn, U32.pack(block), trusted=known)
        self._checked_blocks.add(block)
        return value

    def put_block(self, txn: Any, block: int, state: Columns) -> None:
        """Write a block of page columns."""
        self.db["columns"].put(txn, U32.pack(block), blocks.pack(state))

    def put_validators(self, txn: Any, page: int, validators: tuple[str | None, str | None]) -> None:
        """Write the ETag and Last-Modified of a page's copy."""
        self.db["validators"].put(txn, U32.pack(page), encode(validators))

    def put_visits(self, txn: Any, cycle: int, number: int, visits: npt.NDArray[Any]) -> None:
        """Write one chunk of folded visits."""
        self.db["visits"].put(txn, U32_PAIR.pack(cycle, number), visits.tobytes())

    def _put_pages(
        self, txn: Any, first: int, keys: npt.NDArray[np.uint64], requests: Sequence[bytes]
    ) -> None:
        """Write keys and JSON requests of pages `first`, `first` + 1, ...; keeps requests that exist."""
        order = np.argsort(keys)
        sorted_keys = split(keys[order].astype(">u8").tobytes(), KEY.size)
        ids = split((order + first).astype(">u4").tobytes(), U32.size)
        self.db["ids"].put_many(txn, zip(sorted_keys, ids, strict=True))
        pages = split(np.arange(first, first + len(keys)).astype(">u4").tobytes(), U32.size)
        self.db["urls"].put_many(txn, zip(pages, requests, strict=True), overwrite=False)

    def get_id(self, txn: Any, key: int) -> int | None:
        """Page id of a key in `ids`, or None; `txn` had better hand out buffers.

        That a key is known is believed if its page has it; that it is not, if its neighbours' have theirs.
        """
        table, packed = self.db["ids"], KEY.pack(key)
        value = txn.get(packed, db=table.handle)
        if value is not None:
            return self._id_of(txn, packed, value)
        for found, value in table.neighbours(txn, packed):
            self._id_of(txn, found, value)
        return None

    def _id_of(self, txn: Any, key: bytes, value: bytes) -> int:
        """What stands in `ids` under a key, if that is the page's."""
        page = int.from_bytes(value, "big")
        block, row = divmod(page, self.block_rows)
        if page >= self.merged_pages or blocks.key_at(self.block(txn, block), row) != KEY.unpack(key)[0]:
            raise self.db["ids"].wrong(key, f"page {page} has another key")
        return page

    def put_group_visits(self, txn: Any, cycle: int, number: int, part: Array) -> None:
        """Write a part of what the visits of a cycle tell of directories, dtype `GROUP_VISITS`."""
        groups.put_part(txn, self.db["group_visits"], cycle, number, part)

    def group_visits(self, cycle: int) -> Array:
        """What the visits of a finished cycle tell of directories, dtype `GROUP_VISITS`."""
        with self.transaction() as txn:
            return groups.visits_of(txn, self.db["group_visits"], cycle if cycle <= self.last_cycle else 0)

    def directories(self) -> Array:
        """Directories of the pages, dtype `GROUP` ``[G]``."""
        with self.transaction() as txn:
            return groups.read(txn, self.db["groups"], self.groups)

    def cycles(self) -> list[CycleRecord]:
        """Records of all cycles, oldest first; that of the open one has no ``finished``."""
        with self.transaction() as txn:
            return [decode(bytes(value)) for _, value in self.db["cycles"].items(txn)]

    def urls(self, first: int, stop: int) -> list[str]:
        """Read the URLs of the pages first..stop-1, all merged; raises StoreDamagedError for what is none."""
        with self.transaction() as txn:
            requests = self.db["urls"].get_many(txn, np.arange(first, stop))
        if requests is None:
            raise damaged(self.path, f"of the pages {first} to {stop - 1}, some have no request")
        try:
            return groups.urls_of(requests)
        except ValueError as error:
            raise damaged(self.path, f"the requests of the pages {first} to {stop - 1}: {error}") from None

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block: first page id, and read-only columns ``[rows]``.

        ``names``: these columns alone, copied out of the file, those of several blocks at a time; None: all.
        """
        count, together = -(-self.merged_pages // self.block_rows), 1 if names is None else BLOCKS_TOGETHER
        for first in range(0, count, together):
            with self.transaction(buffers=names is not None) as txn:
                values = [self.block(txn, block) for block in range(first, min(count, first + together))]
                state = blocks.unpack(values[0]) if names is None else blocks.some_of(values, names)
            yield first * self.block_rows, state

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""
        last = self.last_cycle if last_cycle is None else min(last_cycle, self.last_cycle)
        key, stop, goes_on = U32_PAIR.pack(first_cycle, 0), U32_PAIR.pack(last + 1, 0), False
        while True:
            with self.transaction() as txn:  # one for each: whoever takes the visits may take long
                found = next(self.db["visits"].items(txn, key, stop, goes_on=goes_on), None)
            if found is None:
                return
            cycle, number = U32_PAIR.unpack(found[0])
            yield cycle, np.frombuffer(found[1], VISIT)
            key, goes_on = U32_PAIR.pack(cycle, number + 1), True
