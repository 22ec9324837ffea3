"""Opening, restoring and taking care of a store: the one place that says which kind of store there is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from scrapy_gp4c.store.lmdb_store.beside import remove_leftovers
from scrapy_gp4c.store.lmdb_store.care import backup, bring_back, compact
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.environment import (
    ARCHIVE,
    FILES_OF_STORE,
    SEARCH_INDEX,
    WRITER_LOCK,
    WriterLock,
    room_for_files,
)
from scrapy_gp4c.store.lmdb_store.forgetting import forget
from scrapy_gp4c.store.lmdb_store.joining import join
from scrapy_gp4c.store.lmdb_store.repair import repair
from scrapy_gp4c.store.lmdb_store.restore import restore
from scrapy_gp4c.store.lmdb_store.shard import LmdbShard, Sealed, make_shard, shard_of_tables, sizes_of_shards
from scrapy_gp4c.store.lmdb_store.sizes import USUAL, Sizes
from scrapy_gp4c.store.lmdb_store.splitting import Progress, no_progress, split
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.uniting import unite
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.shards.directory import is_sharded, read_shards_file, shard_path
from scrapy_gp4c.store.shards.part import ShardOf, is_a_shard
from scrapy_gp4c.store.shards.sharded import ShardedStore

__all__ = [
    "ARCHIVE", "SEARCH_INDEX", "USUAL", "LmdbShard", "Progress", "Sealed", "Sizes", "backup", "bring_back",
    "check", "check_unused", "compact", "forget", "join", "new_shard", "no_progress", "open_shard",
    "open_sharded", "open_store", "remove_leftovers", "repair", "restore", "shards_in", "split", "unite",
]  # fmt: skip


def open_store(path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> PageStore:
    """Open the store in directory `path`; a writer creates it and completes an interrupted fold.

    A directory of shards is opened as the store that they make up.

    Raises StoreInUseError, StoreDamagedError, StoreFullError (an interrupted fold needs room), or
    StoreError where there is no store to read or no access.
    """
    if is_sharded(Path(path)):
        return open_sharded(path, readonly=readonly, sizes=sizes)
    store = Store(path, readonly=readonly, sizes=sizes)
    if (of := shard_of_tables(store.tables)) is not None:
        store.close()
        raise is_a_shard(path, of)
    return store


def check_unused(path: str | os.PathLike[str]) -> None:
    """Raise StoreInUseError, which names the writer, while a process writes to the store at `path`."""
    if Path(path, WRITER_LOCK).exists():
        WriterLock(Path(path)).release()


def shards_in(directory: Path) -> list[Path]:
    """Directories of all shards of a directory; raises StoreError where they are not complete."""
    return [shard_path(directory, number) for number in range(read_shards_file(directory).shards)]


def open_sharded(
    path: str | os.PathLike[str],
    shards: Sequence[Path] | None = None,
    *,
    readonly: bool = False,
    sizes: Sizes = USUAL,
) -> ShardedStore:
    """Open shards as one store; a writer mends what a kill between two of them has left.

    ``path``: their directory; ``shards``: those that are to be opened, by number, wherever they are; None:
    all that are in it. Raises what `open_store` raises, for the first shard that cannot be opened, and
    StoreError for shards that are not of one store.
    """
    places = shards_in(Path(path)) if shards is None else list(shards)
    room_for_files(FILES_OF_STORE * len(places))
    small = sizes_of_shards(sizes, len(places))
    with ExitStack() as opened:
        stores = []
        for place in places:
            stores.append(LmdbShard(place, readonly=readonly, sizes=small))
            opened.callback(stores[-1].close)
        found = ShardedStore(Path(path), stores, readonly=readonly)
        opened.pop_all()
    return found


def open_shard(path: Path, shards: int, sizes: Sizes = USUAL) -> LmdbShard:
    """Open one of so many shards for writing, wherever it is; raises what `open_store` raises."""
    return LmdbShard(path, sizes=sizes_of_shards(sizes, shards))


def new_shard(path: Path, of: ShardOf, sizes: Sizes = USUAL) -> None:
    """Make a shard without pages in a directory that is empty or not there."""
    with Store(path, sizes=sizes_of_shards(sizes, of.shards)) as store:
        make_shard(store, of, np.empty(0, np.uint32))
