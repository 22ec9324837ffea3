"""Tables of a store: made for a new one, opened for one that exists.

docs/store.md describes their keys and values.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Final

import lmdb

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.failures import translated
from scrapy_gp4c.store.lmdb_store.request_text import RequestTable
from scrapy_gp4c.store.lmdb_store.sealed import TABLES, UNSEALED, Table

SCHEMA: Final = "gp4c-store/1"
_PLAIN: Final = "ids"
"""The table without checksums of its own: what is in it, the pages' columns say too."""

Handles = dict[str, Table]
"""Tables by their names."""


def open_tables(environment: Environment, block_rows: int) -> Handles:
    """Open the tables, or create those of a new store, with so many pages per block.

    Raises StoreDamagedError for another schema, or another StoreError.
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
        if schema != _json(SCHEMA):
            raise StoreDamagedError(
                f"the store {path} has schema {schema}; this version reads {SCHEMA!r}. Use the "
                "version of scrapy-gp4c that wrote it, or set GP4C_STORE to another directory."
            )
        return _tables(path, {name: file.open_db(name.encode(), create=False) for name in TABLES})


def _tables(path: Path, handles: dict[str, object]) -> Handles:
    kinds: dict[str, type[Table]] = {"urls": RequestTable}
    return {
        name: kinds.get(name, Table)(path, name, handle, plain=name == _PLAIN)
        for name, handle in handles.items()
    }


def _create(environment: Environment, block_rows: int) -> Handles:
    if environment.readonly:
        raise StoreError(f"the store {environment.path} is being created just now: try again in a moment.")
    path = environment.path
    with environment.transaction(write=True) as txn:
        handles = {name: environment.lmdb.open_db(name.encode(), txn) for name in TABLES}
        db = _tables(path, handles)
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
