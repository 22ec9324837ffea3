"""Checking a store, backing it up beside a crawl, bringing a backup back, and giving room back."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreInUseError
from scrapy_gp4c.store.lmdb_store.backup import backup, compact, restore_backup
from scrapy_gp4c.store.lmdb_store.environment import WriterLock
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.records import NewVisit
from tests.crawling.test_damaged_store import damage
from tests.store.test_environment import read_all, varied
from tests.store.test_store_kill import SMALL

BACKUP = """
import sys
from pathlib import Path
from scrapy_gp4c.store.opening import backup
backup(Path(sys.argv[1]), Path(sys.argv[2]), None)
"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something in every table."""
    return varied(tmp_path_factory.mktemp("crawled") / "store")


@pytest.fixture
def path(crawled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(crawled, tmp_path / "store")
    return tmp_path / "store"


def test_a_sample_is_looked_over(path: Path) -> None:
    """How much is said; a damaged value among it is an error."""
    with Store(path, readonly=True) as store:
        assert 60 < store.check_sample() < 120
    damage(path, "urls", 0)
    with Store(path, readonly=True) as store, pytest.raises(StoreDamagedError, match="urls 0"):
        store.check_sample()
    with Store(path / "new") as store:
        assert store.check_sample() == 0


def test_a_page_of_the_file_is_checked(path: Path) -> None:
    """Damage that ends whoever reads the file with a signal is found by a process of its own."""
    data = bytearray((path / "data.mdb").read_bytes())
    page = os.sysconf("SC_PAGE_SIZE")
    with Store(path, readonly=True) as store, store.transaction() as txn:
        value = txn.get(b"\0\0\0\0", db=store.db["urls"].handle)
    at = data.index(value) // page * page
    data[:] = data.replace(data[at : at + page], bytes(page))
    (path / "data.mdb").write_bytes(data)
    (problem,) = check(path)
    assert problem.startswith("data.mdb: LMDB cannot read its pages")


def test_a_backup_is_what_was_committed(path: Path, tmp_path: Path) -> None:
    """Made beside a crawl, it has what was committed then; it can be crawled on with, and brought back."""
    before = list(read_all(path))
    with Store(path, sizes=SMALL) as store:
        store.record(NewVisit(7, "changed", 1.0))
        command = [sys.executable, "-c", BACKUP, path, tmp_path / "backups"]
        subprocess.run(command, check=True, timeout=60)
    (made,) = (tmp_path / "backups").iterdir()
    assert made.name.startswith("store-20")
    assert (made / "data.mdb").stat().st_mode & 0o777 == 0o600
    assert list(read_all(made)) == before != list(read_all(path))
    damage(path, "columns", 0)
    aside = restore_backup(path, made)
    assert list(read_all(path)) == before
    assert aside is not None
    assert check(aside) == ["columns: pages 0 to 3: the state of a block of pages is damaged"]
    with Store(path, sizes=SMALL) as store:
        store.finish_cycle({})
        assert store.verify() == []


def test_old_backups_go(path: Path, tmp_path: Path) -> None:
    """The newest stay, and whatever has another name."""
    folder = tmp_path / "backups"
    for name in (
        "store-20200101-000000", "store-20210101-000000", "store-20220101-000000", "store-other",
        "store-20230101-000000.part",
    ):  # fmt: skip
        (folder / name).mkdir(parents=True)
    made = backup(path, folder, 2)
    assert sorted(one.name for one in folder.iterdir()) == ["store-20220101-000000", made.name, "store-other"]


def named_copy(path: Path, name: str) -> None:
    """A backup of this name."""
    path.mkdir(exist_ok=True)
    shutil.copytree(path.parent / "store", path / name)


def test_a_running_backup_of_another_store_or_process_stays(path: Path, tmp_path: Path) -> None:
    """Names are compared as a whole, and unfinished backups that a process is writing are left alone."""
    folder = tmp_path / "backups"
    for name in ("store-b-20230101-000000.part", "store-20230101-000000.part", "store-20230102-000000.part"):
        (folder / name).mkdir(parents=True)
    lock = WriterLock(folder / "store-20230101-000000.part")
    made = backup(path, folder, 1)
    lock.release()
    assert sorted(one.name for one in folder.iterdir()) == sorted(
        ["store-b-20230101-000000.part", "store-20230101-000000.part", made.name]
    )


def test_the_new_backup_stays_though_the_clock_is_behind(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backups with the highest cycles stay, whatever their names say."""
    folder = tmp_path / "backups"
    named_copy(folder, "store-20300101-000000")
    with Store(path, sizes=SMALL) as store:
        store.finish_cycle({})
    named_copy(folder, "store-20200101-000000")
    monkeypatch.setattr(time, "strftime", lambda stamp: "20100101-000000")
    made = backup(path, folder, 2)
    assert made.exists()
    assert sorted(one.name for one in folder.iterdir()) == ["store-20100101-000000", "store-20200101-000000"]


def test_a_store_with_any_name_is_backed_up(path: Path, tmp_path: Path) -> None:
    """Brackets and stars in names stand for themselves."""
    strange = path.rename(tmp_path / "[st]o*re")
    folder = tmp_path / "backups"
    (folder / "so-20200101-000000").mkdir(parents=True)
    (folder / "[st]o*re-20200101-000000").mkdir()
    made = backup(strange, folder, 1)
    assert sorted(one.name for one in folder.iterdir()) == sorted([made.name, "so-20200101-000000"])


@pytest.mark.parametrize("inner", ["", "backups", "a/b"])
def test_a_backup_into_the_store_is_refused(path: Path, inner: str) -> None:
    """Its directory would hold files that are not the store's."""
    before = sorted(path.iterdir())
    with pytest.raises(StoreError, match="expected a directory outside the store"):
        backup(path, path / inner, None)
    assert sorted(path.iterdir()) == before


def test_a_damaged_store_is_not_backed_up(path: Path, tmp_path: Path) -> None:
    """Nothing is left of the copy, and older ones stay."""
    damage(path, "visits", 0)
    (tmp_path / "backups" / "store-20200101-000000").mkdir(parents=True)
    with pytest.raises(StoreDamagedError, match="visits: cycle 1"):
        backup(path, tmp_path / "backups", 1)
    assert [one.name for one in (tmp_path / "backups").iterdir()] == ["store-20200101-000000"]


def test_a_damaged_backup_is_not_brought_back(path: Path, tmp_path: Path) -> None:
    """The store stays as it is; so it does while a crawl has it."""
    made = backup(path, tmp_path, None)
    with Store(path, sizes=SMALL), pytest.raises(StoreInUseError):
        restore_backup(path, made)
    assert restore_backup(tmp_path / "new", made) is None
    assert list(read_all(tmp_path / "new")) == list(read_all(path))
    damage(made, "urls", 0)
    before = (path / "data.mdb").read_bytes()
    with pytest.raises(StoreDamagedError, match="urls: page 0"):
        restore_backup(path, made)
    assert (path / "data.mdb").read_bytes() == before


def test_compacting_gives_room_back(path: Path) -> None:
    """All stays as it was, in fewer bytes; a damaged store is left alone."""
    with Store(path, sizes=SMALL) as store:
        store.finish_cycle({})
    before = list(read_all(path))
    bytes_before, bytes_after = compact(path)
    assert bytes_after == (path / "data.mdb").stat().st_size < bytes_before
    assert list(read_all(path)) == before
    damage(path, "urls", 0)
    with pytest.raises(StoreDamagedError, match="urls: page 0"):
        compact(path)
