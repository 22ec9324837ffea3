"""What goes wrong with a store, as one error each: LMDB's, of the disk, of damage, of a second writer."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import lmdb

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError, StoreInUseError

DATA: Final = "data.mdb"

_LITTLE: Final = 2**20
"""Bytes: what is left where a write came up short, with some for other processes."""

_DAMAGE: Final = (
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError,
    lmdb.IncompatibleError, lmdb.NotFoundError,
)  # fmt: skip


def damaged(path: Path, what: str) -> StoreDamagedError:
    """Return the error for a store whose content cannot be trusted."""
    error = StoreDamagedError(
        f"the store {path} is damaged: {what}. Try `scrapy gp4c repair`, bring back a backup (`scrapy gp4c "
        "restore`), or import an export (`scrapy gp4c import`) into an empty directory. Nothing was changed."
    )
    error.what = what
    return error


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
    # LMDB panics when a header could not be written: this process can do nothing more with the store.
    faulty = isinstance(error, lmdb.PanicError) or os.strerror(errno.EIO) in str(error)
    if not full:
        texts = (os.strerror(code) for code in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
        full = any(text in str(error) for text in texts) or (faulty and _has_no_room(path))
    if full:
        return StoreFullError(
            f"no room to write to the store {path} ({error}). What was committed is still readable: free "
            "disk space (or raise the quota) and run again, or move the directory and set GP4C_STORE."
        )
    if isinstance(error, _DAMAGE):
        return damaged(path, str(error))
    remedy = "Check the disk (dmesg) and the quota" if faulty else "Check its owner and GP4C_STORE"
    if os.strerror(errno.ENOMEM) in str(error):
        remedy = "Lower GP4C_MAP_SIZE, the address space that the store may take (ulimit -v)"
    return StoreError(f"the store {path} cannot be used: {error}. {remedy}.")


def _has_no_room(path: Path) -> bool:
    """Tell a full disk, or a limit of file sizes, from a faulty disk: LMDB calls a short write EIO too."""
    try:
        left = shutil.disk_usage(path).free
        with suppress(ImportError):
            import resource  # only where there are such limits

            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            if limit != resource.RLIM_INFINITY:
                left = min(left, limit - (path / DATA).stat().st_size)
    except OSError:
        return False
    return left < _LITTLE


def read_only(path: Path) -> StoreError:
    """Return the error for writing to a store that was opened for reading."""
    return StoreError(f"the store {path} was opened for reading only.")


def in_use(path: Path, holder: str) -> StoreInUseError:
    """Return the error for a second writer."""
    return StoreInUseError(
        f"the store {path} is in use by {holder}: one crawl at a time can write to it. Wait until it "
        "ends, or set GP4C_STORE to another directory for this crawl."
    )
