"""The tables of a store's LMDB file: opening it, transactions, and reading and writing each table.

docs/store.md describes keys and values. Numbers in keys are big-endian, so that they sort.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import lmdb
import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.outcomes import PLAN, VISIT
from scrapy_gp4c.store.lmdb_store.environment import (
    WriterLock,
    check_directory,
    in_use,
    open_environment,
    store_error,
    translated,
)
from scrapy_gp4c.store.records import CycleRecord

SCHEMA: Final = "gp4c-store/3"
TABLES: Final = ("meta", "ids", "urls", "pages", "validators", "log", "new", "visits", "cycles", "plans")
MAP_SIZE: Final = 2**40
"""Address space, not disk: the most that a store can grow to."""
PLAN_ROWS: Final = 16_384

U32: Final = struct.Struct(">I")
U32_PAIR: Final = struct.Struct(">II")
"""Keys of tables by (cycle, number): big-endian, so that they sort."""
KEY: Final = struct.Struct(">Q")

_open: dict[str, Tables] = {}
"""What this process has open: LMDB allows one environment per file and process."""


_JSON: Final = json.JSONEncoder(separators=(",", ":"))


def encode(content: Any) -> bytes:
    """JSON as the store keeps it."""
    return _JSON.encode(content).encode()


class Transaction:
    """The context of one LMDB transaction (not a generator: a crawl opens several for every page)."""

    __slots__ = ("_path", "_txn")

    def __init__(self, path: Path, txn: Any) -> None:
        """Take the transaction that was begun."""
        self._path = path
        self._txn = txn

    def __enter__(self) -> Any:
        return self._txn.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._txn.__exit__(kind, error, trace)
        except lmdb.Error as failure:
            raise store_error(self._path, failure) from failure
        if isinstance(error, lmdb.Error):
            raise store_error(self._path, error) from error


class Tables:
    """An open LMDB file with the tables of a store, and its counters.

    ``path``: its directory; ``store_id``: random hex digits that name it; ``last_cycle``: the last
    finished cycle, 0: none.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool, map_size: int) -> None:
        """Open or create the file; raises StoreInUseError, StoreDamagedError or another StoreError."""
        self.path = Path(path)
        self.readonly = readonly
        self._real = os.path.realpath(self.path)
        if self._real in _open:
            raise in_use(self.path, "this process")
        check_directory(self.path, readonly)
        self._lock = None if readonly else WriterLock(self.path)
        self._environment: Any = None
        try:
            self._environment = open_environment(self.path, readonly, map_size)
            self._open_tables()
            with self.transaction() as txn:
                self._read_counters(txn)
        except BaseException:
            self._release()
            raise
        _open[self._real] = self

    def _read_counters(self, txn: Any) -> None:
        self.store_id: str = self.get_meta(txn, "store_id")
        self.block_rows: int = self.get_meta(txn, "block_rows")
        self.merged_pages: int = self.get_meta(txn, "pages")
        """Pages in `ids`, `urls` and the columns: ids below this number."""
        self.last_cycle: int = self.get_meta(txn, "last_cycle")
        self.fold_state: dict[str, Any] | None = self.get_meta(txn, "fold")
        """The fold's marker: where an interrupted fold goes on."""

    def close(self) -> None:
        """Close the file and give up the right to write."""
        self._release()

    def _release(self) -> None:
        if _open.get(self._real) is self:
            del _open[self._real]
        if self._environment is not None:
            self._environment.close()
            self._environment = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open_tables(self) -> None:
        with translated(self.path), self._environment.begin() as txn:
            empty = txn.stat()["entries"] == 0
        if empty and self.readonly:
            raise StoreError(f"the store {self.path} is being created just now: try again in a moment.")
        if empty:
            with self.transaction(write=True) as txn:
                self.tables = {name: self._environment.open_db(name.encode(), txn) for name in TABLES}
                self.put_meta(txn, "schema", SCHEMA)
                self.put_meta(txn, "store_id", secrets.token_hex(8))
                self.put_meta(txn, "block_rows", columns.BLOCK_ROWS)
                self.put_meta(txn, "pages", 0)
                self.put_meta(txn, "last_cycle", 0)
            return
        try:
            self.tables = {"meta": self._environment.open_db(b"meta", create=False)}
        except lmdb.Error as error:
            raise StoreDamagedError(
                f"the LMDB file in {self.path} holds no page store. Set GP4C_STORE to another directory, or "
                "move this one away."
            ) from error
        with translated(self.path):
            with self._environment.begin() as txn:
                schema = txn.get(b"schema", db=self.tables["meta"], default=b"none").decode("latin-1")
            if schema != f'"{SCHEMA}"':
                raise StoreDamagedError(
                    f"the store {self.path} has schema {schema}; this version reads {SCHEMA!r}. Use the "
                    "version of scrapy-gp4c that wrote it, or set GP4C_STORE to another directory."
                )
            self.tables = {name: self._environment.open_db(name.encode(), create=False) for name in TABLES}

    def transaction(self, *, write: bool = False, buffers: bool = False) -> Transaction:
        """One LMDB transaction; its errors are StoreErrors and nothing of it stays then."""
        if write and self.readonly:
            raise StoreError(f"the store {self.path} was opened for reading only.")
        try:
            return Transaction(self.path, self._environment.begin(write=write, buffers=buffers))
        except lmdb.Error as error:
            raise store_error(self.path, error) from error

    def get_meta(self, txn: Any, name: str) -> Any:
        """Read a value of the `meta` table; None where there is none."""
        value = txn.get(name.encode(), db=self.tables["meta"])
        return None if value is None else json.loads(bytes(value))

    def put_meta(self, txn: Any, name: str, value: Any) -> None:
        """Write a value of the `meta` table."""
        txn.put(name.encode(), encode(value), db=self.tables["meta"])

    def update_record(self, txn: Any, cycle: int, record: CycleRecord) -> None:
        """Add to the JSON record of a cycle, creating it."""
        key = U32.pack(cycle)
        old = txn.get(key, db=self.tables["cycles"])
        merged = {"cycle": cycle, **(json.loads(old) if old else {}), **record}
        txn.put(key, encode(merged), db=self.tables["cycles"])

    def get_block(self, txn: Any, block: int) -> bytes:
        """Read the bytes of a block of page columns."""
        value: bytes = txn.get(U32.pack(block), db=self.tables["pages"])
        return value

    def put_block(self, txn: Any, block: int, state: columns.Columns) -> None:
        """Write a block of page columns."""
        txn.put(U32.pack(block), columns.pack(state), db=self.tables["pages"])

    def put_visits(self, txn: Any, cycle: int, number: int, visits: npt.NDArray[Any]) -> None:
        """Write one chunk of folded visits."""
        txn.put(U32_PAIR.pack(cycle, number), visits.tobytes(), db=self.tables["visits"])

    def put_pages(
        self, txn: Any, first: int, keys: npt.NDArray[np.uint64], requests: Sequence[bytes]
    ) -> None:
        """Write keys and JSON requests of pages `first`, `first` + 1, ...; keeps requests that exist."""
        order = np.argsort(keys)
        sorted_keys = split(keys[order].astype(">u8").tobytes(), KEY.size)
        ids = split((order + first).astype(">u4").tobytes(), U32.size)
        txn.cursor(self.tables["ids"]).putmulti(zip(sorted_keys, ids, strict=True))
        pages = split(np.arange(first, first + len(keys)).astype(">u4").tobytes(), U32.size)
        txn.cursor(self.tables["urls"]).putmulti(zip(pages, requests, strict=True), overwrite=False)

    def get_new(self, first: int, stop: int) -> list[tuple[int, bytes]]:
        """Read (key, JSON request) of the pages first..stop-1 from `new`."""
        pages = []
        with self.transaction() as txn:
            for page in range(first, stop):
                value = txn.get(U32_PAIR.pack(self.last_cycle + 1, page), db=self.tables["new"])
                pages.append((KEY.unpack_from(value)[0], value[KEY.size :]))
        return pages

    def get_id(self, txn: Any, key: int) -> int | None:
        """Page id of a key in `ids`, or None."""
        value = txn.get(KEY.pack(key), db=self.tables["ids"])
        return None if value is None else int.from_bytes(value, "big")

    def cycles(self) -> list[CycleRecord]:
        """Records of all cycles, oldest first; that of the open one has no ``finished``."""
        with self.transaction() as txn:
            return [json.loads(value) for _, value in txn.cursor(self.tables["cycles"])]

    def plan(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the open cycle's plan, dtype `PLAN`, in chunks, first to visit first."""
        number = 0
        while True:
            with self.transaction() as txn:
                key = U32_PAIR.pack(self.last_cycle + 1, number)
                chunk = txn.get(key, db=self.tables["plans"])
            if chunk is None:
                return
            yield np.frombuffer(chunk, PLAN)
            number += 1

    def blocks(self) -> Iterator[tuple[int, columns.Columns]]:
        """Yield the page columns block by block: first page id, and read-only columns ``[rows]``."""
        for block in range(-(-self.merged_pages // self.block_rows)):
            with self.transaction() as txn:
                value = txn.get(U32.pack(block), db=self.tables["pages"])
            yield block * self.block_rows, columns.unpack(value)

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""
        last = self.last_cycle if last_cycle is None else min(last_cycle, self.last_cycle)
        key = U32_PAIR.pack(first_cycle, 0)
        while True:
            with self.transaction() as txn:
                cursor = txn.cursor(self.tables["visits"])
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
