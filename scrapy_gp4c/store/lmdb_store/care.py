"""Backups of a store, what becomes of them, and giving unused room back."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Final, NamedTuple

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.lmdb_store.beside import REWRITE, beside, drop_search_index, keep_aside, locked
from scrapy_gp4c.store.lmdb_store.checking import check, check_pages
from scrapy_gp4c.store.lmdb_store.environment import Environment, put_in_place
from scrapy_gp4c.store.lmdb_store.failures import DATA, damaged, translated
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.store import Store

_STAMP: Final = "%Y%m%d-%H%M%S"
_PART: Final = ".part"


class Compacted(NamedTuple):
    """Bytes of a store's file."""

    before: int
    after: int


def backup(path: Path, directory: Path, keep: int | None, sizes: Sizes) -> Path:
    """Copy a store, as the last commit left it, into a directory of its own in `directory`; returns that.

    Works beside a crawl. The copy is checked before it gets its name. ``keep``: of the copies of this store
    in `directory`, so many of the newest stay. Raises StoreDamagedError where the store or the copy is
    damaged, StoreError where it cannot be written.
    """
    name = Path(os.path.realpath(path)).name
    while (target := directory / f"{name}-{time.strftime(_STAMP)}").exists():
        time.sleep(0.1)  # names tell the second
    part = target.with_name(target.name + _PART)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            part.mkdir(0o700)
            _copy(path, part, sizes)
            if found := check(part, sizes):
                raise damaged(path, found[0])
            part.rename(target)
            if keep is not None:
                for old in sorted(_copies(directory, name))[:-keep]:
                    old.rename(old.with_name(old.name + _PART))  # else a kill leaves half of one
        finally:
            for left in directory.glob(f"{name}-*{_PART}"):
                shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"cannot write the backup {target}: {error.strerror}. Give another directory."
        ) from error
    return target


def _copy(path: Path, target: Path, sizes: Sizes) -> None:
    """Let LMDB write a copy without the room that is not used, of a store whose pages are sound."""
    if found := check_pages(path):
        raise damaged(path, found)
    environment = Environment(path, True, sizes.map_size)
    try:
        with translated(path):
            environment.lmdb.copy(str(target), compact=True)
    finally:
        environment.close()
    (target / DATA).chmod(0o600)


def _copies(directory: Path, name: str) -> list[Path]:
    """The backups of a store."""
    found = []
    for path in directory.glob(f"{name}-*"):
        try:
            time.strptime(path.name.removeprefix(f"{name}-"), _STAMP)
        except ValueError:
            continue
        found.append(path)
    return found


def bring_back(path: Path, copy: Path, sizes: Sizes) -> Path | None:
    """Put a backup in the place of a store, damaged or not; returns where the file is kept that was there.

    Raises StoreDamagedError for a copy that is damaged, StoreInUseError where a crawl has the store.
    """
    if found := check(copy, sizes):
        raise damaged(copy, found[0])
    path.mkdir(0o700, parents=True, exist_ok=True)
    with locked(path), beside(path, REWRITE) as work:
        work.mkdir(0o700)
        shutil.copyfile(copy / DATA, work / DATA)
        (work / DATA).chmod(0o600)
        aside = keep_aside(path, "before-restore") if (path / DATA).exists() else None
        drop_search_index(path)
        put_in_place(path, work / DATA)
    return aside


def compact(path: Path, sizes: Sizes) -> Compacted:
    """Write a store anew without the room that it does not use; raises StoreInUseError, StoreDamagedError."""
    with Store(path, sizes=sizes) as store, beside(path, REWRITE) as work:
        before = (path / DATA).stat().st_size
        work.mkdir(0o700)
        if found := check_pages(path):
            raise damaged(path, found)
        with translated(path):
            store.environment.lmdb.copy(str(work), compact=True)
        if found := "; ".join(check(work, sizes)[:1]):
            raise damaged(path, found)
        store.environment.replace_with(work / DATA)
    return Compacted(before, (path / DATA).stat().st_size)
