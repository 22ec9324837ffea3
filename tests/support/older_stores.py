"""Stores as the version before wrote them."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np

from scrapy_gp4c.page_state import blocks
from scrapy_gp4c.scoring import discovery
from scrapy_gp4c.scoring.terminals import STATE
from scrapy_gp4c.store.lmdb_store.sealed import (
    SUM_BYTES,
    TABLES,
    UNSEALED,
    is_sealed,
    seal,
    seed_of,
)

ADDED = ("E", "T", "found_cycle", "group")
"""Columns that schema 3 had not."""


def make_older(path: Path, version: int = 3) -> None:
    """Make a store, open or in a fold or closed, the one of schema 3 to 7 that it would have been."""
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        with environment.begin() as txn:
            names = [bytes(name) for name, _ in txn.cursor()]
        tables = {name: environment.open_db(name) for name in names}
        with environment.begin(write=True) as txn:
            for name in set(names) - {b"ids"} if version < 5 else ():
                for key, value in list(txn.cursor(tables[name])):
                    if key != UNSEALED:
                        assert is_sealed(seed_of(name.decode(), key), value)
                        txn.put(key, value[:-SUM_BYTES], db=tables[name])
            txn.put(UNSEALED, b'"gp4c-store/%d"' % version, db=tables[b"meta"])
            for name in TABLES[{7: 23, 6: 22}.get(version, 14) :]:
                txn.drop(tables[name.encode()])
            _widen_columns(txn, tables[b"columns"], version)
        if version >= 5:
            return
        with environment.begin(write=True) as txn:
            txn.drop(tables[b"notes"])
        if version > 3:
            return
        old = environment.open_db(b"pages")
        with environment.begin(write=True) as txn:
            for block, value in txn.cursor(tables[b"columns"]):
                txn.put(block, value, db=old)
            for name in (b"columns", b"groups", b"group_visits", b"first_urls"):
                txn.drop(tables[name])
            txn.delete(b"groups", db=tables[b"meta"])


def _widen_columns(txn: lmdb.Transaction, table: object, version: int) -> None:
    """Make each block the columns that the schema had, one behind the other and in full width."""
    lacks = {3: {*ADDED, *discovery.COLUMNS}, 4: {*discovery.COLUMNS}}.get(version, set())
    for key, value in list(txn.cursor(table)):
        assert version < 5 or is_sealed(seed_of("columns", key), value)
        state = blocks.unpack(value if version < 5 else value[:-SUM_BYTES])
        wide = b"".join(column.tobytes() for name, column in state.items() if name not in lacks)
        txn.put(key, wide if version < 5 else seal(seed_of("columns", key), wide), db=table)


def schema(path: Path) -> str:
    """The schema that a store says it has."""
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin() as txn:
            return bytes(txn.get(b"schema", db=meta)).decode().strip('"')


OLD_SHADOW = np.dtype(
    [
        ("page", "<u4"),
        ("key", "<u8"),
        ("current", "<u8"),
        ("copy", "<u8"),
        *((name, dtype) for name, dtype in STATE.items() if name not in ADDED),
    ]
)
"""A shadow of schema 3."""
