"""Opening and restoring a store: the one place that says which kind of store there is."""

from __future__ import annotations

import os

from scrapy_gp4c.store.lmdb_store.restore import remove_leftovers, restore
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import USUAL, Sizes
from scrapy_gp4c.store.page_store import PageStore

__all__ = ["USUAL", "Sizes", "open_store", "remove_leftovers", "restore"]


def open_store(path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> PageStore:
    """Open the store in directory `path`; a writer creates it and completes an interrupted fold.

    Raises StoreInUseError, StoreDamagedError, StoreFullError (an interrupted fold needs room), or
    StoreError where there is no store to read or no access.
    """
    return Store(path, readonly=readonly, sizes=sizes)
