"""Opening, restoring and taking care of a store: the one place that says which kind of store there is."""

from __future__ import annotations

import os
from pathlib import Path

from scrapy_gp4c.store.lmdb_store.beside import remove_leftovers
from scrapy_gp4c.store.lmdb_store.care import backup, bring_back, compact
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.environment import (
    ARCHIVE,
    SEARCH_INDEX,
    WRITER_LOCK,
    WriterLock,
)
from scrapy_gp4c.store.lmdb_store.forgetting import forget
from scrapy_gp4c.store.lmdb_store.repair import repair
from scrapy_gp4c.store.lmdb_store.restore import restore
from scrapy_gp4c.store.lmdb_store.sizes import USUAL, Sizes
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.page_store import PageStore

__all__ = [
    "ARCHIVE", "SEARCH_INDEX", "USUAL", "Sizes", "backup", "bring_back", "check", "check_unused", "compact",
    "forget", "open_store", "remove_leftovers", "repair", "restore",
]  # fmt: skip


def open_store(path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> PageStore:
    """Open the store in directory `path`; a writer creates it and completes an interrupted fold.

    Raises StoreInUseError, StoreDamagedError, StoreFullError (an interrupted fold needs room), or
    StoreError where there is no store to read or no access.
    """
    return Store(path, readonly=readonly, sizes=sizes)


def check_unused(path: str | os.PathLike[str]) -> None:
    """Raise StoreInUseError, which names the writer, while a process writes to the store at `path`."""
    if Path(path, WRITER_LOCK).exists():
        WriterLock(Path(path)).release()
