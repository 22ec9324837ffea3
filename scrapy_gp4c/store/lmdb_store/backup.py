"""Replacing a store's file by one that is built beside it; backups, their restoration, and compaction.

What is built is on the same disk: a kill leaves the store as it was.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Final, NamedTuple

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
from scrapy_gp4c.store.lmdb_store.verify import check, check_pages

IMPORT: Final = "import"
REWRITE: Final = "rewrite"
_STAMP: Final = "%Y%m%d-%H%M%S"
_PART: Final = ".part"


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


def keep_aside(store_path: Path) -> Path:
    """Give a store's file a second name next to the store; returns the directory that holds it."""
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


class Compacted(NamedTuple):
    """Bytes of a store's file."""

    before: int
    after: int


def backup(path: Path, directory: Path, keep: int | None) -> Path:
    """Copy a store, as the last commit left it, into a directory of its own in `directory`; returns that.

    Works during a crawl. The copy is checked before it gets its name. ``keep``: number of backups of this
    store that stay in `directory`, this one and those with the highest cycles. Raises StoreDamagedError where
    the store or the copy is damaged, StoreError where the copy cannot be written.
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
        _remove_leftovers(directory, real.name)
    return target


def _copy(environment: Environment, target: Path) -> None:
    """Let LMDB write a copy without unused room; raises StoreDamagedError where either is damaged."""
    path = environment.path
    if problem := check_pages(path):
        raise damaged(path, problem)
    with translated(path):
        environment.lmdb.copy(str(target), compact=True)
    (target / DATA).chmod(0o600)
    if problems := check(target):
        raise damaged(path, problems[0])


def _directories(directory: Path, name: str, end: str = "") -> list[Path]:
    """Backups in a directory, those of a store by its name; ``end``: what follows their times."""
    pattern = re.compile(re.escape(name) + r"-\d{8}-\d{6}" + re.escape(end))
    return [path for path in directory.iterdir() if pattern.fullmatch(path.name)]


def _last_cycle(copy: Path) -> int:
    """Last finished cycle of a backup; -1 where it cannot be read."""
    try:
        with Store(copy, readonly=True) as store:
            return store.last_cycle
    except StoreError:
        return -1


def _remove_leftovers(directory: Path, name: str) -> None:
    """Remove unfinished backups of a store that no process is writing."""
    for unfinished in _directories(directory, name, _PART):
        try:
            WriterLock(unfinished).release()
        except StoreInUseError:
            continue
        shutil.rmtree(unfinished, ignore_errors=True)


def restore_backup(path: Path, copy: Path) -> Path | None:
    """Put a backup in the place of a store, damaged or not; returns where the replaced file is kept.

    Raises StoreDamagedError for a backup that is damaged, StoreInUseError where a crawl has the store.
    """
    if problem := check(copy):
        raise damaged(copy, problem[0])
    path.mkdir(0o700, parents=True, exist_ok=True)
    with locked(path), work_directory(path, REWRITE) as work:
        work.mkdir(0o700)
        shutil.copyfile(copy / DATA, work / DATA)
        (work / DATA).chmod(0o600)
        aside = keep_aside(path) if (path / DATA).exists() else None
        drop_search_index(path)
        put_in_place(path, work / DATA)
    return aside


def compact(path: Path) -> Compacted:
    """Write a store anew without the room that it does not use; raises StoreInUseError, StoreDamagedError."""
    with Store(path) as store, work_directory(path, REWRITE) as work:
        before = (path / DATA).stat().st_size
        work.mkdir(0o700)
        _copy(store.environment, work)
        store.environment.replace_with(work / DATA)
    return Compacted(before, (path / DATA).stat().st_size)
