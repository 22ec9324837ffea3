"""The LMDB file of a store: opening it, its transactions, every way in which that goes wrong, errors as ours.

LMDB maps its file into memory, so that a truncated file ends the process with SIGBUS instead of an error;
therefore `header` looks at it before LMDB does. Nothing here deletes or overwrites what it finds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import lmdb

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError, StoreInUseError
from scrapy_gp4c.store.lmdb_store.header import NoLmdbFileError, is_whole

DATA: Final = "data.mdb"
WRITER_LOCK: Final = "writer.lock"
READERS: Final = "lock.mdb"
OUR_FILES: Final = {DATA, READERS, WRITER_LOCK}

_OWNERS: Final = stat.S_IRUSR | stat.S_IWUSR
_LITTLE: Final = 2**20
"""Bytes: what is left where a write came up short, with some for other processes."""

_ANOTHER: Final = "Set GP4C_STORE to another directory, or move this one away."


def check_directory(path: Path, readonly: bool) -> None:
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
            return
        _check_data(path, data)
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
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNERS)
        os.fchmod(file, _OWNERS)
        os.close(file)


def _check_data(path: Path, data: Path) -> None:
    try:
        whole = is_whole(data)
    except NoLmdbFileError as error:
        if error.args:
            raise damaged(path, f"{DATA} {error}") from None
        raise StoreDamagedError(f"{data} is not the file of a page store. {_ANOTHER}") from None
    if not whole:
        raise damaged(path, f"{DATA} is truncated")


def damaged(path: Path, what: str) -> StoreDamagedError:
    """Return the error for a store whose content cannot be trusted."""
    return StoreDamagedError(
        f"the store {path} is damaged: {what}. Restore the directory from a backup, or import an export "
        "(`scrapy gp4c import`) into an empty directory. Nothing was changed."
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise every LMDB error of the block as one of our StoreErrors."""
    try:
        yield
    except lmdb.Error as error:
        raise store_error(path, error) from error


def store_error(path: Path, error: Exception) -> StoreError:
    """Return an LMDB error as one of our StoreErrors."""
    full = isinstance(error, lmdb.MapFullError | lmdb.DiskError)
    faulty = os.strerror(errno.EIO) in str(error)
    if not full:
        texts = (os.strerror(code) for code in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
        full = any(text in str(error) for text in texts) or (faulty and _has_no_room(path))
    if full:
        return StoreFullError(
            f"no room to write to the store {path} ({error}). What was committed is still readable: free "
            "disk space (or raise the quota) and run again, or move the directory and set GP4C_STORE."
        )
    if isinstance(
        error,
        lmdb.CorruptedError
        | lmdb.InvalidError
        | lmdb.VersionMismatchError
        | lmdb.PageNotFoundError
        | lmdb.PanicError
        | lmdb.IncompatibleError
        | lmdb.NotFoundError,
    ):
        return damaged(path, str(error))
    remedy = "Check the disk (dmesg) and the quota" if faulty else "Check its owner and GP4C_STORE"
    return StoreError(f"the store {path} cannot be used: {error}. {remedy}.")


def _has_no_room(path: Path) -> bool:
    """Tell a full disk, or a limit of file sizes, from a faulty disk: LMDB calls a short write EIO too."""
    try:
        room = os.statvfs(path)
        left = room.f_bavail * room.f_frsize
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY:
            left = min(left, limit - (path / DATA).stat().st_size)
    except OSError:
        return False
    return left < _LITTLE


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
            max_dbs=16,
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
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNERS)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise in_use(path, f"process {holder}") from None
        if not os.fstat(self._file).st_nlink:
            os.close(self._file)
            return False
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        return True

    def release(self, *, remove: bool = False) -> None:
        """Give the lock back; ``remove``: its file too, as there is no store that it was for."""
        if remove:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def read_only(path: Path) -> StoreError:
    """Return the error for writing to a store that was opened for reading."""
    return StoreError(f"the store {path} was opened for reading only.")


def in_use(path: Path, holder: str) -> StoreInUseError:
    """Return the error for a second writer."""
    return StoreInUseError(
        f"the store {path} is in use by {holder}: one crawl at a time can write to it. Wait until it "
        "ends, or set GP4C_STORE to another directory for this crawl."
    )


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

    ``path``: its directory; ``lmdb``: LMDB's own environment, None once closed.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool, map_size: int) -> None:
        """Open or create the file; raises StoreInUseError, StoreDamagedError or another StoreError."""
        self.path = Path(path)
        self.readonly = readonly
        self.lmdb: Any = None
        self._real = os.path.realpath(self.path)
        if self._real in _open:
            raise in_use(self.path, "this process")
        check_directory(self.path, readonly)
        self._lock = None if readonly else WriterLock(self.path)
        try:
            self.lmdb = open_environment(self.path, readonly, map_size)
        except BaseException:
            self.close()
            raise
        _open[self._real] = self

    def close(self) -> None:
        """Close the file and give up the right to write; a second time, do nothing."""
        if _open.get(self._real) is self:
            del _open[self._real]
        if self.lmdb is not None:
            self.lmdb.close()
            self.lmdb = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def transaction(self, *, write: bool = False, buffers: bool = False) -> Transaction:
        """One LMDB transaction; its errors are StoreErrors and nothing of it stays then."""
        if write and self.readonly:
            raise read_only(self.path)
        try:
            return Transaction(self.path, self.lmdb.begin(write=write, buffers=buffers))
        except lmdb.Error as error:
            raise store_error(self.path, error) from error
