"""Which tables a store has, by its schema: making those of a new one, opening those of an old one.

docs/store.md describes their keys and values. A store of the schema before is left to `migration`.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Final

import lmdb

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.failures import damaged, translated
from scrapy_gp4c.store.lmdb_store.request_text import RequestTable
from scrapy_gp4c.store.lmdb_store.sealed import OF_SHARDS, SHARD, TABLES, UNSEALED, Table, is_sealed, seed_of

SCHEMA: Final = "gp4c-store/8"
OLDER: Final = {
    "gp4c-store/7": TABLES[:23],
    "gp4c-store/6": TABLES[:22],
    "gp4c-store/5": TABLES[:14],
    "gp4c-store/4": TABLES[:13],
    "gp4c-store/3": (*TABLES[:9], "pages"),
}
"""Schema -> its tables. Up to 7, columns of blocks were in full width; in schema 3, fewer, in `pages`."""
SEALED: Final = (SCHEMA, "gp4c-store/7", "gp4c-store/6", "gp4c-store/5")
"""Schemas whose values have checksums."""
_PLAIN: Final = "ids"
"""The table without checksums of its own: what is in it, the pages' columns say too."""

Handles = dict[str, Table]
"""Tables by their names."""


class OlderStoreError(StoreError):
    """The store has the schema before: whoever opens it for writing converts it."""


def open_tables(environment: Environment, block_rows: int, *, older: bool = False) -> Handles:
    """Open the tables, or create those of a new store, with so many pages per block.

    ``older``: a store of the schema before is opened too, with the tables that it has. Raises
    OlderStoreError otherwise, StoreDamagedError for another schema, or another StoreError.
    """
    path, file = environment.path, environment.lmdb
    with translated(path), file.begin() as txn:
        empty = txn.stat()["entries"] == 0
    if empty:
        return _create(environment, block_rows)
    try:
        meta = file.open_db(b"meta", create=False)
    except lmdb.Error as error:
        raise StoreDamagedError(
            f"the LMDB file in {path} holds no page store. Set GP4C_STORE to another directory, or "
            "move this one away."
        ) from error
    with translated(path):
        with file.begin() as txn:
            schema = txn.get(UNSEALED, db=meta, default=b"none").decode("latin-1")
            store_id = txn.get(b"store_id", db=meta, default=b"")
            is_shard = txn.get(SHARD, db=meta) is not None
        found = next((one for one in (SCHEMA, *OLDER) if _json(one) == schema), None)
        if found is None:
            raise StoreDamagedError(
                f"the store {path} has schema {schema}; this version reads {SCHEMA!r}. Use the "
                "version of scrapy-gp4c that wrote it, or set GP4C_STORE to another directory."
            )
        if is_sealed(seed_of("meta", b"store_id"), store_id) != (found in SEALED):
            raise damaged(path, f"its schema is given as {found}, and its values are not of that")
        if found in OLDER and not older:
            raise OlderStoreError(
                f"the store {path} has schema {schema}, and is converted to {SCHEMA!r} when it is next "
                "opened for writing."
            )
        names = (*OLDER.get(found, TABLES), *(OF_SHARDS if is_shard else ()))
        handles = {name: file.open_db(name.encode(), create=False) for name in names}
        plain = {_PLAIN} if found in SEALED else set(names)
        return _tables(path, handles, plain)


def is_older(environment: Environment, block_rows: int) -> bool:
    """Tell whether an open file has an older schema, and is to be converted; a new store gets its tables."""
    try:
        open_tables(environment, block_rows)
    except OlderStoreError:
        return True
    return False


def add_shard_tables(environment: Environment) -> Handles:
    """Give a store that was just made the tables that a shard has besides; returns these."""
    with environment.transaction(write=True) as txn:
        handles = {name: environment.lmdb.open_db(name.encode(), txn) for name in OF_SHARDS}
    return {name: Table(environment.path, name, handle) for name, handle in handles.items()}


def _tables(path: Path, handles: dict[str, object], plain: set[str]) -> Handles:
    kinds: dict[str, type[Table]] = {"urls": RequestTable}
    return {
        name: kinds.get(name, Table)(path, name, handle, plain=name in plain)
        for name, handle in handles.items()
    }


def _create(environment: Environment, block_rows: int) -> Handles:
    if environment.readonly:
        raise StoreError(f"the store {environment.path} is being created just now: try again in a moment.")
    path = environment.path
    with environment.transaction(write=True) as txn:
        handles = {name: environment.lmdb.open_db(name.encode(), txn) for name in TABLES}
        db = _tables(path, handles, {_PLAIN})
        values: dict[str, str | int] = {"schema": SCHEMA, "store_id": secrets.token_hex(8)}
        values |= {"block_rows": block_rows, "pages": 0, "groups": 0, "last_cycle": 0}
        for name, value in values.items():
            if name.encode() == UNSEALED:
                txn.put(UNSEALED, _json(value).encode(), db=db["meta"].handle)
            else:
                db["meta"].put(txn, name.encode(), _json(value).encode())
    return db


def _json(value: str | int) -> str:
    return json.dumps(value)
