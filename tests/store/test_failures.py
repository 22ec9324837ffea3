"""Errors of LMDB and of the disk, each as one of ours that names the store and what to do."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from unittest.mock import patch

import lmdb
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError, StoreInUseError
from scrapy_gp4c.store.lmdb_store.environment import (
    DATA,
    damaged,
    in_use,
    read_only,
    store_error,
    translated,
)

PATH = Path("stores", "mine")
FULL = [
    lmdb.MapFullError("MDB_MAP_FULL"),
    lmdb.DiskError("No space"),
    *(
        lmdb.Error(f"mdb_txn_commit: {os.strerror(code)}")
        for code in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
    ),
]
DAMAGED = [
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError,
    lmdb.IncompatibleError, lmdb.NotFoundError,
]  # fmt: skip
FREE = shutil.disk_usage("/")._replace(free=2**40)


@pytest.mark.parametrize("error", FULL, ids=str)
def test_no_room_is_told_apart(error: lmdb.Error) -> None:
    """Of the map, the disk, a quota, a limit of file sizes: what was committed is safe."""
    found = store_error(PATH, error)
    assert type(found) is StoreFullError
    assert f"{PATH} ({error})" in str(found)
    assert "still readable: free disk space" in str(found)


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_told_apart(kind: type[lmdb.Error]) -> None:
    """With the two ways back, and what LMDB found in a few words."""
    found = store_error(PATH, kind("page 7"))
    assert type(found) is StoreDamagedError
    assert found.what in str(found)
    assert "page 7" in found.what
    assert "scrapy gp4c restore" in str(found)
    assert "--from-damaged" in str(found)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            lmdb.Error(f"{PATH}: {os.strerror(errno.ENOMEM)}"),
            "Allow this process more address space (ulimit -v)",
        ),
        (lmdb.Error(f"{PATH}: {os.strerror(errno.EACCES)}"), "Check its owner and GP4C_STORE"),
        (lmdb.ReadonlyError("x"), "Check its owner"),
    ],
)
def test_other_errors_have_a_remedy_of_their_own(error: lmdb.Error, remedy: str) -> None:
    """They are neither damage nor a full disk."""
    found = store_error(PATH, error)
    assert type(found) is StoreError
    assert str(found).startswith(f"the store {PATH} cannot be used: {error}. {remedy}")


def test_a_store_whose_header_could_not_be_written_is_not_damaged(tmp_path: Path) -> None:
    """LMDB refuses all work of that process from then on; what was committed is there for the next one."""
    found = store_error(tmp_path, lmdb.PanicError("mdb_txn_begin"))
    assert type(found) is StoreError
    assert "Check the disk (dmesg)" in str(found)


def test_a_short_write_is_a_full_disk_if_the_disk_is_full(tmp_path: Path) -> None:
    """LMDB calls it an input/output error, as it does that of a faulty disk."""
    error = lmdb.Error(f"mdb_put: {os.strerror(errno.EIO)}")
    for free, kind in ((0, StoreFullError), (2**20 - 1, StoreFullError), (2**20, StoreError)):
        with patch.object(shutil, "disk_usage", lambda path, free=free: FREE._replace(free=free)):
            found = store_error(tmp_path, error)
        assert type(found) is kind, free
    assert "Check the disk (dmesg)" in str(found)


def test_a_short_write_is_one_at_the_limit_of_file_sizes(tmp_path: Path) -> None:
    """Counted from what the file takes already; a store that is not there tells nothing."""
    resource = pytest.importorskip("resource")
    error = lmdb.Error(os.strerror(errno.EIO))
    with (
        patch.object(shutil, "disk_usage", lambda path: FREE),
        patch.object(resource, "getrlimit", lambda which: (2**21, 2**21)),
    ):
        assert type(store_error(tmp_path, error)) is StoreError  # there is no file
        (tmp_path / DATA).write_bytes(b"x" * 100)
        assert type(store_error(tmp_path, error)) is StoreError
        (tmp_path / DATA).write_bytes(bytes(2**20 + 1))
        assert type(store_error(tmp_path, error)) is StoreFullError
        with patch.object(shutil, "disk_usage", side_effect=FileNotFoundError):
            assert type(store_error(tmp_path, error)) is StoreError


def test_errors_of_lmdb_are_translated_and_no_others(tmp_path: Path) -> None:
    """A real one: its cause stays with it; a mistake of ours stays what it is."""
    with pytest.raises(StoreError, match="cannot be used") as caught, translated(tmp_path):
        lmdb.open(str(tmp_path / "no" / "such" / "place"), create=False)
    assert isinstance(caught.value.__cause__, lmdb.Error)
    for own in (KeyError("x"), damaged(PATH, "y")):
        with pytest.raises(type(own)) as kept, translated(tmp_path):
            raise own
        assert kept.value is own


def test_a_map_that_is_full_is_a_full_store(tmp_path: Path) -> None:
    """By LMDB itself, not by its texts alone."""
    with (
        lmdb.open(str(tmp_path), map_size=2**16) as environment,
        pytest.raises(StoreFullError),
        translated(tmp_path),
        environment.begin(write=True) as txn,
    ):
        txn.put(b"key", bytes(2**17))


def test_the_other_errors_name_the_store() -> None:
    """And what went on with it; all are errors of the operating system to whoever catches those."""
    for found, kind, told in (
        (
            damaged(PATH, "page 7 is torn"),
            StoreDamagedError,
            "page 7 is torn. Bring back a backup (`scrapy gp4c restore",
        ),
        (read_only(PATH), StoreError, "opened for reading only"),
        (in_use(PATH, "process 7"), StoreInUseError, "is in use by process 7: one crawl at a time"),
    ):
        assert type(found) is kind
        assert isinstance(found, OSError)
        assert f"the store {PATH} " in str(found)
        assert told in str(found)
    assert damaged(PATH, "x").what == "x"
