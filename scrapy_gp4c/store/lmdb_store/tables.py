"""The tables of a store's LMDB file: reading and writing each, and the counters that move with them.

docs/store.md describes keys and values. Numbers in keys are big-endian, so that they sort.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypedDict

import lmdb
import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.store.lmdb_store.environment import Environment, read_only, translated
from scrapy_gp4c.store.records import CycleRecord

SCHEMA: Final = "gp4c-store/3"
TABLES: Final = ("meta", "ids", "urls", "pages", "validators", "log", "new", "visits", "cycles", "plans")

U32: Final = struct.Struct(">I")
U32_PAIR: Final = struct.Struct(">II")
"""Keys of tables by (cycle, number): big-endian, so that they sort."""
KEY: Final = struct.Struct(">Q")

_JSON: Final = json.JSONEncoder(separators=(",", ":"))


def encode(content: Any) -> bytes:
    """JSON as the store keeps it."""
    return _JSON.encode(content).encode()


class Sizes(NamedTuple):
    """How much a store takes at a time; a test takes little, to have many of each."""

    block_rows: int = 16_384
    """Pages per block of a new store; an existing store remembers its own."""
    commit_visits: int = 100
    visits_per_chunk: int = 16_384
    plan_rows: int = 16_384
    """Pages per chunk of a plan."""
    chunks_per_transaction: int = 64
    blocks_per_transaction: int = 64
    pages_per_transaction: int = 65_536
    map_size: int = 2**40
    """Address space in bytes, not disk: the most that a store can grow to."""


USUAL: Final = Sizes()


class FoldMarker(TypedDict):
    """Where an interrupted fold goes on."""

    record: CycleRecord
    """What finishes the cycle's record."""
    next_block: int


class Tables:
    """The tables of an open LMDB file, and its counters, which only methods of this class move.

    ``store_id``: random hex digits that name it; ``block_rows``: pages per block; ``merged_pages``: pages in
    `ids`, `urls` and the columns: ids below this number; ``last_cycle``: the last finished cycle, 0: none;
    ``fold_marker``: None unless a fold is under way.
    """

    store_id: str
    block_rows: int
    merged_pages: int
    last_cycle: int
    fold_marker: FoldMarker | None

    def __init__(self, environment: Environment, block_rows: int) -> None:
        """Open the tables, or create those of a new store; raises StoreDamagedError or another StoreError."""
        self.path = environment.path
        self.readonly = environment.readonly
        self.transaction = environment.transaction
        self._open_tables(environment.lmdb, block_rows)
        with self.transaction() as txn:
            self.read_counters(txn)

    def read_counters(self, txn: Any) -> None:
        """Read the counters as they are in a transaction."""
        self.store_id = self.get_meta(txn, "store_id")
        self.block_rows = self.get_meta(txn, "block_rows")
        self.merged_pages = self.get_meta(txn, "pages")
        self.last_cycle = self.get_meta(txn, "last_cycle")
        self.fold_marker = self.get_meta(txn, "fold")

    def _open_tables(self, environment: Any, block_rows: int) -> None:
        with translated(self.path), environment.begin() as txn:
            empty = txn.stat()["entries"] == 0
        if empty and self.readonly:
            raise StoreError(f"the store {self.path} is being created just now: try again in a moment.")
        if empty:
            with self.transaction(write=True) as txn:
                self.db = {name: environment.open_db(name.encode(), txn) for name in TABLES}
                self.put_meta(txn, "schema", SCHEMA)
                self.put_meta(txn, "store_id", secrets.token_hex(8))
                self.put_meta(txn, "block_rows", block_rows)
                self.put_meta(txn, "pages", 0)
                self.put_meta(txn, "last_cycle", 0)
            return
        try:
            self.db = {"meta": environment.open_db(b"meta", create=False)}
        except lmdb.Error as error:
            raise StoreDamagedError(
                f"the LMDB file in {self.path} holds no page store. Set GP4C_STORE to another directory, or "
                "move this one away."
            ) from error
        with translated(self.path):
            with environment.begin() as txn:
                schema = txn.get(b"schema", db=self.db["meta"], default=b"none").decode("latin-1")
            if schema != f'"{SCHEMA}"':
                raise StoreDamagedError(
                    f"the store {self.path} has schema {schema}; this version reads {SCHEMA!r}. Use the "
                    "version of scrapy-gp4c that wrote it, or set GP4C_STORE to another directory."
                )
            self.db = {name: environment.open_db(name.encode(), create=False) for name in TABLES}

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
        self, blocks: Sequence[int], change: Callable[[int, Columns], None], marker: FoldMarker
    ) -> None:
        """Let `change(block, columns)` alter blocks in place, and move the fold's marker."""
        with self.transaction(write=True) as txn:
            for block in blocks:
                state = columns.unpack(memoryview(bytearray(self.get_block(txn, block))))
                change(block, state)
                self._put_block(txn, block, state)
            self.put_meta(txn, "fold", marker)
        self.fold_marker = marker

    def end_cycle(self, cycle: int, record: CycleRecord) -> None:
        """End the fold: `cycle` is the last finished one, and what the open cycle had is dropped."""
        with self.transaction(write=True) as txn:
            self.put_record(txn, cycle, record)
            self.put_meta(txn, "last_cycle", cycle)
            for table in ("log", "new", "plans"):
                txn.drop(self.db[table], delete=False)
            txn.delete(b"fold", db=self.db["meta"])
        self.last_cycle, self.fold_marker = cycle, None

    def restore_cycles(self, records: Sequence[CycleRecord]) -> None:
        """Give a store without cycles the records of cycles 1..C, as finished.

        Their pages follow by `append_pages`, their visits by `put_visits`.
        """
        with self.transaction(write=True) as txn:
            for cycle, record in enumerate(records, 1):
                self.put_record(txn, cycle, {**record, "cycle": cycle})
            self.put_meta(txn, "last_cycle", len(records))
        self.last_cycle = len(records)

    def append_pages(self, pages: Sequence[tuple[int, bytes]], state: Columns | None = None) -> None:
        """Append pages, (key, JSON request), with columns of their own or those of a new page.

        The keys must be unknown. A request that was replaced meanwhile is kept.
        """
        if not pages:
            return
        first = self.merged_pages
        keys = np.array([key for key, _ in pages], dtype=np.uint64)
        if state is None:
            state = columns.new_columns(keys)
        with self.transaction(write=True) as txn:
            self._put_pages(txn, first, keys, [request for _, request in pages])
            start = 0
            while start < len(pages):
                block, filled = divmod(first + start, self.block_rows)
                stop = min(len(pages), start + self.block_rows - filled)
                old = columns.unpack(self.get_block(txn, block) if filled else b"")
                joined = {name: np.concatenate((old[name], state[name][start:stop])) for name in old}
                self._put_block(txn, block, joined)
                start = stop
            self.put_meta(txn, "pages", first + len(pages))
        self.merged_pages = first + len(pages)

    # --- each table

    def get_meta(self, txn: Any, name: str) -> Any:
        """Read a value of the `meta` table; None where there is none."""
        value = txn.get(name.encode(), db=self.db["meta"])
        return None if value is None else json.loads(bytes(value))

    def put_meta(self, txn: Any, name: str, value: Any) -> None:
        """Write a value of the `meta` table."""
        txn.put(name.encode(), encode(value), db=self.db["meta"])

    def put_record(self, txn: Any, cycle: int, record: CycleRecord) -> None:
        """Add to the JSON record of a cycle, creating it."""
        key = U32.pack(cycle)
        old = txn.get(key, db=self.db["cycles"])
        merged = {"cycle": cycle, **(json.loads(old) if old else {}), **record}
        txn.put(key, encode(merged), db=self.db["cycles"])

    def last_record(self, txn: Any) -> CycleRecord | None:
        """Record of the newest cycle, open or finished."""
        cursor = txn.cursor(self.db["cycles"])
        record: CycleRecord | None = json.loads(cursor.value()) if cursor.last() else None
        return record

    def get_block(self, txn: Any, block: int) -> bytes:
        """Read the bytes of a block of page columns."""
        value: bytes = txn.get(U32.pack(block), db=self.db["pages"])
        return value

    def _put_block(self, txn: Any, block: int, state: Columns) -> None:
        """Write a block of page columns."""
        txn.put(U32.pack(block), columns.pack(state), db=self.db["pages"])

    def put_validators(self, txn: Any, page: int, validators: tuple[str | None, str | None]) -> None:
        """Write, or delete, the ETag and Last-Modified of a page's copy."""
        if validators == (None, None):
            txn.delete(U32.pack(page), db=self.db["validators"])
        else:
            txn.put(U32.pack(page), encode(validators), db=self.db["validators"])

    def put_visits(self, txn: Any, cycle: int, number: int, visits: npt.NDArray[Any]) -> None:
        """Write one chunk of folded visits."""
        txn.put(U32_PAIR.pack(cycle, number), visits.tobytes(), db=self.db["visits"])

    def _put_pages(
        self, txn: Any, first: int, keys: npt.NDArray[np.uint64], requests: Sequence[bytes]
    ) -> None:
        """Write keys and JSON requests of pages `first`, `first` + 1, ...; keeps requests that exist."""
        order = np.argsort(keys)
        sorted_keys = split(keys[order].astype(">u8").tobytes(), KEY.size)
        ids = split((order + first).astype(">u4").tobytes(), U32.size)
        txn.cursor(self.db["ids"]).putmulti(zip(sorted_keys, ids, strict=True))
        pages = split(np.arange(first, first + len(keys)).astype(">u4").tobytes(), U32.size)
        txn.cursor(self.db["urls"]).putmulti(zip(pages, requests, strict=True), overwrite=False)

    def get_id(self, txn: Any, key: int) -> int | None:
        """Page id of a key in `ids`, or None."""
        value = txn.get(KEY.pack(key), db=self.db["ids"])
        return None if value is None else int.from_bytes(value, "big")

    def cycles(self) -> list[CycleRecord]:
        """Records of all cycles, oldest first; that of the open one has no ``finished``."""
        with self.transaction() as txn:
            return [json.loads(value) for _, value in txn.cursor(self.db["cycles"])]

    def blocks(self) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block: first page id, and read-only columns ``[rows]``."""
        for block in range(-(-self.merged_pages // self.block_rows)):
            with self.transaction() as txn:
                value = txn.get(U32.pack(block), db=self.db["pages"])
            yield block * self.block_rows, columns.unpack(value)

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""
        last = self.last_cycle if last_cycle is None else min(last_cycle, self.last_cycle)
        key = U32_PAIR.pack(first_cycle, 0)
        while True:
            with self.transaction() as txn:
                cursor = txn.cursor(self.db["visits"])
                if not cursor.set_range(key):
                    return
                key, value = cursor.item()
            cycle, number = U32_PAIR.unpack(key)
            if cycle > last:
                return
            yield cycle, np.frombuffer(value, VISIT)
            key = U32_PAIR.pack(cycle, number + 1)


def split(buffer: bytes, size: int) -> list[bytes]:
    """Cut a buffer into pieces of `size` bytes."""
    return [buffer[start : start + size] for start in range(0, len(buffer), size)]
