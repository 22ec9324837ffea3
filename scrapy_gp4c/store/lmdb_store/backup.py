"""Backups of a store, their restoration, and compaction; building a new LMDB file next to a store.

A new file is built on the same disk and renamed when complete, so that a kill leaves the store as it was.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Final

from scrapy_gp4c.errors import StoreError, StoreInUseError
from scrapy_gp4c.store.atomic_files import explained, sync
from scrapy_gp4c.store.lmdb_store.environment import (
    DATA,
    INDEX_FILES,
    OUR_FILES,
    Environment,
    WriterLock,
    damaged,
    put_in_place,
    translated,
)
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.verify import check, check_tree_pages

IMPORT: Final = "import"
REWRITE: Final = "rewrite"
_STAMP: Final = "%Y%m%d-%H%M%S"
_PART: Final = ".part"


@contextmanager
def work_directory(store_path: Path, purpose: str) -> Iterator[Path]:
    """Make a directory next to the store, ``<store>.<purpose>``, for building its replacement.

    The caller holds the store's lock. The directory is removed after the block. One that a killed process
    left is removed first. Raises StoreError if that has files that are not a store's.
    """
    work = _work(store_path, purpose)
    remove_leftovers(store_path, purpose)
    if work.exists():
        raise StoreError(
            f"the directory {work} is needed for the {purpose} and holds other files: move it away."
        )
    with explained(f"cannot make the directory {work}", "Check its owner and GP4C_STORE."):
        work.mkdir(0o700)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def locked(store_path: Path) -> Iterator[None]:
    """Hold the writer's lock of the store at `store_path`, damaged or not; raises StoreInUseError."""
    lock = WriterLock(store_path)
    try:
        yield
    finally:
        lock.release()


def keep_aside(store_path: Path) -> Path:
    """Link or copy a store's LMDB file, before it is replaced, into a new directory, which is returned."""
    real = Path(os.path.realpath(store_path))
    name = f"{real.name}.before-restore-{time.strftime(_STAMP)}"
    names = chain([name], (f"{name}-{number}" for number in count(1)))
    aside = next(path for path in map(real.with_name, names) if not path.exists())
    aside.mkdir(0o700)
    try:
        os.link(store_path / DATA, aside / DATA)
    except OSError:  # a file system without links
        shutil.copy2(store_path / DATA, aside / DATA)
    sync(aside / DATA)
    return aside


def drop_search_index(store_path: Path) -> None:
    """Delete a store's search index, for callers that change page ids; the next crawl fills a new one."""
    for name in INDEX_FILES:
        (store_path / name).unlink(missing_ok=True)


def remove_leftovers(store_path: Path, purpose: str = IMPORT) -> None:
    """Remove a killed process's work directory if it has only our files; the caller holds the lock."""
    work = _work(store_path, purpose)
    names = {name for _, _, files in os.walk(work) for name in files}
    if work.is_dir() and not names - OUR_FILES:
        shutil.rmtree(work)


def _work(store_path: Path, purpose: str) -> Path:
    real = Path(os.path.realpath(store_path))
    return real.with_name(f"{real.name}.{purpose}")


def backup(path: Path, directory: Path, keep: int | None) -> Path:
    """Copy a store, as last committed, into a new directory below `directory`; returns the new directory.

    Works during a crawl. The copy is checked before it gets its final name. ``keep``: number of backups of
    this store to leave in `directory`, the new one and those of the latest cycles; None: all. Raises
    StoreDamagedError where the store or the copy is damaged, StoreError where the copy cannot be written.
    """
    real = Path(os.path.realpath(path))
    if Path(os.path.realpath(directory)).is_relative_to(real):
        raise StoreError(
            f"expected a directory outside the store for its backup; found {directory}, which is in {path}. "
            "Give another directory."
        )
    while (target := directory / f"{real.name}-{time.strftime(_STAMP)}").exists():
        time.sleep(0.1)  # the name has the second
    unfinished = target.with_name(target.name + _PART)
    with explained(f"cannot write the backup {target}", "Give another directory."):
        directory.mkdir(parents=True, exist_ok=True)
        unfinished.mkdir(0o700)
        lock = WriterLock(unfinished)  # tells other backups that this one is under way
        try:
            with closing(Environment(path, readonly=True)) as environment:
                _copy(environment, unfinished)
            unfinished.rename(target)
        finally:
            lock.release()
            shutil.rmtree(unfinished, ignore_errors=True)
        if keep is not None:
            others = [copy for copy in _directories(directory, real.name) if copy != target]
            others.sort(key=lambda copy: (_last_cycle(copy), copy.name), reverse=True)
            for old in others[keep - 1 :]:
                old.rename(old.with_name(old.name + _PART))  # else a kill leaves half of one
        _remove_unfinished_backups(directory, real.name)
    return target


def _copy(environment: Environment, target: Path) -> None:
    """Write a compacted copy into directory `target`; raises StoreDamagedError if either is damaged."""
    path = environment.path
    if problem := check_tree_pages(path):
        raise damaged(path, problem)
    with translated(path):
        environment.lmdb.copy(str(target), compact=True)
    (target / DATA).chmod(0o600)
    if problems := check(target):
        raise damaged(path, problems[0])


def _directories(directory: Path, name: str, end: str = "") -> list[Path]:
    """List the backups of store `name` in a directory; ``end``: suffix after their date and time."""
    pattern = re.compile(re.escape(name) + r"-\d{8}-\d{6}" + re.escape(end))
    return [path for path in directory.iterdir() if pattern.fullmatch(path.name)]


def _last_cycle(copy: Path) -> int:
    """Return the last finished cycle of a backup; -1 where it cannot be read."""
    try:
        with Store(copy, readonly=True) as store:
            return store.last_cycle
    except StoreError:
        return -1


def _remove_unfinished_backups(directory: Path, name: str) -> None:
    """Remove unfinished backups of store `name` that no process is writing any more."""
    for unfinished in _directories(directory, name, _PART):
        try:
            WriterLock(unfinished).release()
        except StoreInUseError:
            continue
        shutil.rmtree(unfinished, ignore_errors=True)


def restore_backup(path: Path, copy: Path) -> Path | None:
    """Replace the store at `path`, damaged or not, by the backup at `copy`.

    Returns the new directory that keeps the replaced file, or None if there was none. Raises
    StoreDamagedError for a damaged backup, StoreInUseError where a crawl has the store.
    """
    if problems := check(copy):
        raise damaged(copy, problems[0])
    path.mkdir(0o700, parents=True, exist_ok=True)
    with locked(path), work_directory(path, REWRITE) as work:
        shutil.copyfile(copy / DATA, work / DATA)
        (work / DATA).chmod(0o600)
        aside = keep_aside(path) if (path / DATA).exists() else None
        drop_search_index(path)
        put_in_place(path, work / DATA)
    return aside


def compact(path: Path) -> tuple[int, int]:
    """Rewrite a store's LMDB file without free pages; returns its size in bytes before and after.

    Raises StoreInUseError, StoreDamagedError.
    """
    with Store(path) as store, work_directory(path, REWRITE) as work:
        before = (path / DATA).stat().st_size
        _copy(store.environment, work)
        store.environment.replace_with(work / DATA)
    return before, (path / DATA).stat().st_size
