"""Copying a store's tables into a new file, value by value: for a conversion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from scrapy_gp4c.store.lmdb_store.schema import Handles
from scrapy_gp4c.store.lmdb_store.sealed import UNSEALED, Table
from scrapy_gp4c.store.lmdb_store.tables import Tables

BATCH_BYTES: Final = 2**26
"""Of values written in one transaction, about."""
BATCH_VALUES: Final = 2**16


def copy_tables(old: Tables, into: Tables) -> None:
    """Copy every table that both have, but for the columns, into a store that was just made.

    Raises for the first damaged value.
    """
    for name, table in old.db.items():
        if name in into.db and name != "columns":
            _copy(old, table, into, into.db)
    with into.transaction() as txn:
        into.read_counters(txn)


def _copy(old: Tables, table: Table, into: Tables, new: Handles) -> None:
    start = b""
    while True:
        with old.transaction() as reading, into.transaction(write=True) as writing:
            batch = list(_batch(table, reading, start))
            kept = ((key, value) for key, value in batch if key != UNSEALED)
            new[table.name].put_many(writing, kept, append=table.name != "meta")
        if not batch:
            return
        start = batch[-1][0] + b"\0"


def _batch(table: Table, txn: Any, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield values from a key on, as many as one transaction takes."""
    size = count = 0
    for key, value in table.items(txn, start, goes_on=True):
        yield key, bytes(value)
        size, count = size + len(value), count + 1
        if size >= BATCH_BYTES or count >= BATCH_VALUES:
            return
