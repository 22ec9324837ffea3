"""Functions that open, check, back up, repair and rewrite a store; other packages import them from here."""

import os
from pathlib import Path

from scrapy_gp4c.store.lmdb_store.backup import backup, compact, remove_leftovers, restore_backup
from scrapy_gp4c.store.lmdb_store.environment import ARCHIVE, SEARCH_INDEX, WRITER_LOCK, WriterLock
from scrapy_gp4c.store.lmdb_store.forget import forget
from scrapy_gp4c.store.lmdb_store.import_history import import_history
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import USUAL, Sizes
from scrapy_gp4c.store.lmdb_store.verify import check, verify

__all__ = [
    "ARCHIVE", "SEARCH_INDEX", "USUAL", "Sizes", "Store", "backup", "check", "check_unused", "compact",
    "forget", "import_history", "open_store", "recover", "remove_leftovers", "restore_backup", "verify",
]  # fmt: skip


open_store = Store


def check_unused(path: str | os.PathLike[str]) -> None:
    """Raise StoreInUseError, which names the writing process, if the store at `path` has a writer."""
    if Path(path, WRITER_LOCK).exists():
        WriterLock(Path(path)).release()
