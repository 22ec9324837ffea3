"""Building the replacement of a store next to it, on the same disk: a kill leaves the store as it was."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.atomic_files import sync
from scrapy_gp4c.store.lmdb_store.environment import DATA, INDEX_FILES, OUR_FILES, WriterLock

IMPORT: Final = "import"
REWRITE: Final = "rewrite"


@contextmanager
def work_directory(store_path: Path, purpose: str) -> Iterator[Path]:
    """Directory to build a store's replacement in; it is removed afterwards, leftovers of a kill before.

    The caller holds the lock of the store at `store_path`. Raises StoreError where other files are in it.
    """
    work = _work(store_path, purpose)
    remove_leftovers(store_path, purpose)
    if work.exists():
        raise StoreError(
            f"the directory {work} is needed for the {purpose} and holds other files: move it away."
        )
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def locked(store_path: Path) -> Iterator[None]:
    """Hold the right to write to the store at `store_path`, damaged or not; raises StoreInUseError."""
    lock = WriterLock(store_path)
    try:
        yield
    finally:
        lock.release()


def keep_aside(store_path: Path, why: str) -> Path:
    """Give a store's file a second name next to the store; returns the directory that holds it."""
    real = Path(os.path.realpath(store_path))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = next(
        path
        for number in count()
        if not (path := real.with_name(f"{real.name}.{why}-{stamp}{f'-{number}' if number else ''}")).exists()
    )
    aside.mkdir(0o700)
    try:
        os.link(store_path / DATA, aside / DATA)
    except OSError:  # a file system without links
        shutil.copy2(store_path / DATA, aside / DATA)
    sync(aside / DATA)
    return aside


def drop_search_index(store_path: Path) -> None:
    """Remove the search index of a store whose pages get other numbers or texts: the index refills itself."""
    for name in INDEX_FILES:
        (store_path / name).unlink(missing_ok=True)


def remove_leftovers(store_path: Path, purpose: str = IMPORT) -> None:
    """Remove what a kill left next to a store, whose lock the caller holds. Other files stay."""
    work = _work(store_path, purpose)
    if work.is_dir() and not set(os.listdir(work)) - OUR_FILES:
        shutil.rmtree(work)


def _work(store_path: Path, purpose: str) -> Path:
    real = Path(os.path.realpath(store_path))
    return real.with_name(f"{real.name}.{purpose}")
