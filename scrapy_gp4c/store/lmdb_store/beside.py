"""Building what replaces a store beside it, on the same disk, so that a kill leaves the store as it was."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.lmdb_store.environment import ARCHIVE, INDEX_FILES, OUR_FILES, WriterLock
from scrapy_gp4c.store.lmdb_store.failures import DATA
from scrapy_gp4c.store.whole_files import sync

IMPORT: Final = "import"
REWRITE: Final = "rewrite"


@contextmanager
def beside(place: Path, purpose: str) -> Iterator[Path]:
    """A directory to build in, which is gone afterwards, and what a kill left of one before it begins.

    For those who hold the lock of the store at `place`; raises StoreError where other files are in it.
    """
    work = _work(place, purpose)
    remove_leftovers(place, purpose)
    if work.exists():
        raise StoreError(
            f"the directory {work} is needed for the {purpose} and holds other files: move it away."
        )
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the right to write to the store at `place`, whatever its file is like; raises StoreInUseError."""
    lock = WriterLock(place)
    try:
        yield
    finally:
        lock.release()


def keep_aside(place: Path, why: str) -> Path:
    """Give a store's file a second name, beside the store; returns the directory that holds it."""
    real = Path(os.path.realpath(place))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = next(
        path
        for number in count()
        if not (path := real.with_name(f"{real.name}.{why}-{stamp}{f'-{number}' if number else ''}")).exists()
    )
    aside.mkdir(0o700)
    try:
        os.link(place / DATA, aside / DATA)
    except OSError:  # a file system without links
        shutil.copy2(place / DATA, aside / DATA)
    sync(aside / DATA)
    return aside


def drop_search_index(place: Path) -> None:
    """Remove the search index beside a store whose pages come to have other numbers or texts: it refills."""
    for name in INDEX_FILES:
        (place / name).unlink(missing_ok=True)


def copy_archive(place: Path, into: Path) -> None:
    """Copy the archive of texts that is beside a store, if there is one; raises StoreError.

    It knows pages by their keys alone, so that it fits any store with these.
    """
    old, new = place / ARCHIVE, into / ARCHIVE
    if not old.exists():
        return
    for end in ("", "-wal", "-shm"):
        new.with_name(new.name + end).unlink(missing_ok=True)
    new.touch(0o600)
    try:
        with (
            closing(sqlite3.connect(f"{old.resolve().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(new)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise StoreError(
            f"cannot copy the archive of texts {old}: {error}. Move it away, and the crawl fills a new one."
        ) from error
    sync(new)


def remove_leftovers(place: Path, purpose: str = IMPORT) -> None:
    """Remove what a kill left beside a store; for those who hold its lock. Other files stay."""
    work = _work(place, purpose)
    if work.is_dir() and not set(os.listdir(work)) - OUR_FILES:
        shutil.rmtree(work)


def _work(place: Path, purpose: str) -> Path:
    real = Path(os.path.realpath(place))
    return real.with_name(f"{real.name}.{purpose}")
