"""The LMDB file of a store: opening it, its transactions, every way in which that goes wrong, errors as ours.

LMDB maps its file into memory, so that a truncated file ends the process with SIGBUS instead of an error;
therefore `structure` looks at it before LMDB does. Nothing here deletes or overwrites what it finds.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import filelock
import lmdb

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.store.lmdb_store.failures import DATA, damaged, in_use, read_only, store_error, translated
from scrapy_gp4c.store.lmdb_store.header import NoLmdbFileError
from scrapy_gp4c.store.lmdb_store.structure import Looked, look
from scrapy_gp4c.store.whole_files import sync

InTransaction = Callable[[Any], object]
"""Is called with a write transaction."""
WRITER_LOCK: Final = "writer.lock"
READERS: Final = "lock.mdb"
SEARCH_INDEX: Final = "search.sqlite"
"""Name of the search index, which a crawl with a log of queries has beside its store."""
INDEX_FILES: Final = tuple(SEARCH_INDEX + end for end in ("", "-wal", "-shm"))
ARCHIVE: Final = "texts.sqlite"
"""Name of the archive of texts, which a crawl with ``GP4C_ARCHIVE`` has beside its store."""
OUR_FILES: Final = {
    *(DATA, READERS, WRITER_LOCK, *INDEX_FILES),
    *(ARCHIVE + end for end in ("", "-wal", "-shm")),
}

_OWNERS: Final = stat.S_IRUSR | stat.S_IWUSR
_ANOTHER: Final = "Set GP4C_STORE to another directory, or move this one away."


def check_directory(path: Path, readonly: bool) -> Looked:
    """Look at a store's directory before LMDB opens it; creates the directory of a new store.

    Raises StoreDamagedError for what is no store, or a truncated one; StoreError when there is none to
    read, or no access.
    """
    data = path / DATA
    try:
        if path.exists() and not path.is_dir():
            raise StoreDamagedError(f"the store {path} must be a directory; found a file. {_ANOTHER}")
        if not data.exists() or data.stat().st_size == 0:
            strangers = sorted(set(os.listdir(path)) - OUR_FILES) if path.exists() else []
            if strangers:
                raise StoreDamagedError(
                    f"the directory {path} holds no page store but other files ({strangers[0]!r}, ...). "
                    f"{_ANOTHER}"
                )
            if readonly:
                raise StoreError(
                    f"there is no page store in {path} yet: run the spider once, or check GP4C_STORE."
                )
            _create_directory(path)
            return Looked(0, 0)
        return _check_data(path, data)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"cannot open the store {path}: {error.strerror}. Check its owner and GP4C_STORE."
        ) from error


def _create_directory(path: Path) -> None:
    """Make a directory that is its owner's alone, as requests may hold secrets; one that exists stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(_OWNERS | stat.S_IXUSR)
        path.chmod(_OWNERS | stat.S_IXUSR)


def _create_file(path: Path) -> None:
    """Make an empty file that is its owner's alone, whatever the umask; one that exists stays as it is."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNERS))
        path.chmod(_OWNERS)


def _check_data(path: Path, data: Path) -> Looked:
    try:
        return look(data)
    except NoLmdbFileError as error:
        if error.args:
            raise damaged(path, f"{DATA} {error}") from None
        raise StoreDamagedError(f"{data} is not the file of a page store. {_ANOTHER}") from None


def open_environment(path: Path, readonly: bool, map_size: int) -> Any:
    """Open the LMDB environment in a directory that `check_directory` accepted."""
    with suppress(OSError):  # of which LMDB will tell
        for name in (READERS,) if readonly else (READERS, DATA):
            _create_file(path / name)
    with translated(path):
        environment = lmdb.open(
            str(path),
            mode=_OWNERS,
            map_size=map_size,
            metasync=False,
            readonly=readonly,
            create=not readonly,
            max_dbs=32,
        )
        environment.reader_check()
        return environment


class WriterLock:
    """The right to write to a store: held by at most one process, and gone when that process is."""

    def __init__(self, path: Path) -> None:
        """Take the lock or raise StoreInUseError that names the holder."""
        self._path = path / WRITER_LOCK
        try:
            while not self._take(path):
                pass
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(
                f"cannot write to the store {path}: {error.strerror}. Check its owner and GP4C_STORE."
            ) from error

    def _take(self, path: Path) -> bool:
        """Take the lock; False if its file was removed by the one who held it: that locks nobody out."""
        _create_file(self._path)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, _OWNERS)
        if not filelock.lock_descriptor(self._file, blocking=False):
            os.lseek(self._file, 1, os.SEEK_SET)  # Windows locks the first byte
            holder = os.read(self._file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise in_use(path, f"process {holder}")
        if not os.fstat(self._file).st_nlink:
            os.close(self._file)
            return False
        os.ftruncate(self._file, 0)
        os.write(self._file, f" {os.getpid()}\n".encode())
        return True

    def release(self, *, remove: bool = False) -> None:
        """Give the lock back; ``remove``: its file too, as there is no store that it was for."""
        if remove:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def put_in_place(path: Path, data: Path) -> None:
    """Put a file of the same disk in the place of a store's, with its owner and mode; for its lock's holder.

    After a crash there is either, complete.
    """
    place = path / DATA
    if place.exists():
        found = place.stat()
        data.chmod(stat.S_IMODE(found.st_mode))
        with suppress(OSError, AttributeError):  # root may have come for the file's owner; others may not
            shutil.chown(data, found.st_uid, found.st_gid)
    sync(data)
    os.replace(data, place)
    (path / READERS).unlink(missing_ok=True)  # its readers look at the file that was
    sync(path)


class Transaction:
    """The context of one LMDB transaction (not a generator: a crawl opens several for every page)."""

    __slots__ = ("_path", "_txn")

    def __init__(self, path: Path, txn: Any) -> None:
        """Take the transaction that was begun."""
        self._path = path
        self._txn = txn

    def __enter__(self) -> Any:
        return self._txn.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._txn.__exit__(kind, error, trace)
        except lmdb.Error as failure:
            raise store_error(self._path, failure) from failure
        if isinstance(error, lmdb.Error):
            raise store_error(self._path, error) from error


_open: dict[str, Environment] = {}
"""What this process has open: LMDB allows one environment per file and process."""


class Environment:
    """An open LMDB file and, for a writer, the right to write to it.

    ``path``: its directory; ``lmdb``: LMDB's own environment, None once closed; ``looked``: how much of
    the file was looked at before.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool, map_size: int) -> None:
        """Open or create the file; raises StoreInUseError, StoreDamagedError or another StoreError."""
        self.path = Path(path)
        self.readonly = readonly
        self._map_size = map_size
        self.lmdb: Any = None
        self._real = os.path.realpath(self.path)
        if self._real in _open:
            raise in_use(self.path, "this process")
        self.looked = check_directory(self.path, readonly)
        self._lock = None if readonly else WriterLock(self.path)
        try:
            self.lmdb = open_environment(self.path, readonly, map_size)
        except BaseException:
            self.close()
            raise
        _open[self._real] = self

    def sync(self) -> None:
        """Wait until the last commit is on the disk, header and all: it would not survive a power cut."""
        if self.lmdb is not None and not self.readonly:
            with translated(self.path):
                self.lmdb.sync(True)

    def replace_with(self, data: Path) -> None:
        """Put another file of the same disk in the place of this one and open it; the right to write stays.

        After a crash there is either, complete.
        """
        self.lmdb.close()
        self.lmdb = None
        put_in_place(self.path, data)
        self.lmdb = open_environment(self.path, self.readonly, self._map_size)

    def close(self) -> None:
        """Close the file and give up the right to write; a second time, do nothing. Raises StoreError."""
        if _open.get(self._real) is self:
            del _open[self._real]
        try:
            self.sync()
        finally:
            environment, self.lmdb = self.lmdb, None
            if environment is not None:
                environment.close()
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    def transaction(self, *, write: bool = False, buffers: bool = False) -> Transaction:
        """One LMDB transaction; its errors are StoreErrors and nothing of it stays then."""
        if write and self.readonly:
            raise read_only(self.path)
        try:
            return Transaction(self.path, self.lmdb.begin(write=write, buffers=buffers))
        except lmdb.Error as error:
            raise store_error(self.path, error) from error
