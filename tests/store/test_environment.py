"""Opening a store: locks, access, truncated files, and failures of LMDB and of the disk."""

import errno
import io
import json
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError, StoreInUseError
from scrapy_gp4c.page_state.columns import pack
from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.store.lmdb_store import environment as environment_module
from scrapy_gp4c.store.lmdb_store.environment import TABLES as ALL_TABLES
from scrapy_gp4c.store.lmdb_store.environment import (
    U32,
    RequestTable,
    Table,
    damaged,
    decode,
    encode,
    in_full,
    is_intact,
    read_header,
    seed_of,
    shortened,
    store_error,
    translated,
    with_checksum,
)
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.opening import import_history
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL, build, crawl, in_child, key, wait
from tests.support.sources import ROOT
from tests.support.stores import pages


def in_process(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own; it finds its arguments in `sys.argv`."""
    command = [
        sys.executable,
        "-c",
        "import sys\nfrom scrapy_gp4c.store.lmdb_store.store import Store\n" + code,
    ]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def tree(path: Path) -> dict[str, bytes]:
    """Every file below `path` but LMDB's reader table."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != "lock.mdb"
    }


def test_a_second_writer_is_told_who_holds_the_store(tmp_path: Path) -> None:
    """Another process gets StoreInUseError with the holder's id, the setting and the remedy."""
    with Store(tmp_path / "store"):
        result = in_process("Store(sys.argv[1])", tmp_path / "store")
    assert "StoreInUseError" in result.stderr
    assert f"process {os.getpid()}" in result.stderr
    assert "GP4C_STORE" in result.stderr
    assert in_process("Store(sys.argv[1])", tmp_path / "store").returncode == 0


def test_readers_work_beside_a_writer(tmp_path: Path) -> None:
    """A reader in another process sees what is committed, and the writer goes on."""
    read = "with Store(sys.argv[1], readonly=True) as s: print(s.pages, len(s.open_visits()), s.verify())"
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(10))
        store.begin_cycle({"started": 1.0})
        store.record(NewVisit(3, "first", time=1.0))
        assert in_process(read, tmp_path / "store").stdout == "10 0 []\n"
        store.commit()
        assert in_process(read, tmp_path / "store").stdout == "10 1 []\n"
        store.finish_cycle({"finished": 1.0})
        assert in_process(read, tmp_path / "store").stdout == "10 0 []\n"


def test_a_reader_keeps_its_view_while_a_writer_goes_on(tmp_path: Path) -> None:
    """An open reader does not stop a writer, and blocks read later are sound."""
    path = tmp_path / "store"
    with Store(path) as store:
        store.add_pages(pages(5))
    more = "with Store(sys.argv[1]) as s: print(s.add_pages([(7, {'url': 'http://x/'})]))"
    with Store(path, readonly=True) as reader:
        blocks = reader.blocks()
        assert in_process(more, path).stdout == "(1, 0)\n"
        ((first, block),) = blocks
        assert (first, len(block["n"])) == (0, 6)
        assert reader.pages == 5


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    """Every writing call of a read-only store says that it is one."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(3))
    with Store(tmp_path / "store", readonly=True) as reader:
        calls: list[Callable[[], object]] = [
            lambda: reader.begin_cycle({}),
            lambda: reader.add_pages([]),
            lambda: reader.set_request(0, {}),
            lambda: reader.set_validators(0, None, None),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="reading only"):
                call()


def test_one_environment_per_process(tmp_path: Path) -> None:
    """A process cannot open a store twice, by whatever path; after closing it can."""
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with Store(tmp_path / "store"), pytest.raises(StoreInUseError, match="this process"):
        Store(tmp_path / "link", readonly=True)
    Store(tmp_path / "link").close()


def test_there_is_nothing_to_read_yet(tmp_path: Path) -> None:
    """Reading a store that no crawl created is an error that creates nothing."""
    with pytest.raises(StoreError, match=r"no page store in .* yet.*GP4C_STORE"):
        Store(tmp_path / "none", readonly=True)
    assert not (tmp_path / "none").exists()


def _foreign_file(path: Path) -> None:
    path.write_text("a file, not a directory")


def _foreign_directory(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def _foreign_lmdb(path: Path) -> None:
    with lmdb.open(str(path)) as environment, environment.begin(write=True) as txn:
        txn.put(b"somebody", b"else's")


def _garbage(path: Path) -> None:
    path.mkdir()
    (path / "data.mdb").write_bytes(b"hello world" * 5000)


def _newer_schema(path: Path) -> None:
    Store(path).close()
    with lmdb.open(str(path), max_dbs=32) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as txn:
            txn.put(b"schema", b'"gp4c-store/999"', db=meta)


def _truncated(size: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with Store(path) as store:
            store.add_pages(pages(3000))
        os.truncate(path / "data.mdb", size)

    return make


BAD = {
    "a file": (_foreign_file, "must be a directory; found a file"),
    "a directory of other files": (_foreign_directory, "holds no page store but other files.*thesis.tex"),
    "another program's LMDB": (_foreign_lmdb, "holds no page store. Set GP4C_STORE"),
    "garbage": (_garbage, "is not the file of a page store"),
    "a newer schema": (_newer_schema, 'has schema "gp4c-store/999"; this version reads'),
    "cut within its header": (_truncated(100), "ends after 100 bytes"),
    "cut behind its first page": (_truncated(4100), "ends after 4100 bytes"),
    "cut early": (_truncated(20_000), "is truncated"),
    "cut late": (_truncated(150_000), "is truncated"),
}


@pytest.mark.parametrize("readonly", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_sound_store_is_left_alone(tmp_path: Path, name: str, readonly: bool) -> None:
    """Foreign and damaged stores: StoreDamagedError with a remedy, and every byte as it was."""
    make, message = BAD[name]
    path = tmp_path / "store"
    make(path)
    before = tree(tmp_path)
    with pytest.raises(StoreDamagedError, match=message) as caught:
        Store(path, readonly=readonly)
    assert "GP4C_STORE" in str(caught.value) or "backup" in str(caught.value)
    after = tree(tmp_path)
    after.pop("store/writer.lock", None)
    before.pop("store/writer.lock", None)
    assert after == before


def test_a_store_killed_at_birth_is_a_new_store(tmp_path: Path) -> None:
    """An empty directory, an empty data file and an LMDB file without tables are stores to be created."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "data.mdb").touch()
    lmdb.open(str(tmp_path / "lmdb")).close()
    for name in ("directory", "file", "lmdb"):
        with pytest.raises(StoreError, match=r"no page store in .* yet.*run the spider"):
            Store(tmp_path / name, readonly=True)
        with Store(tmp_path / name) as store:
            assert store.pages == 0
            assert store.verify() == []


def test_no_access_is_one_clear_error(tmp_path: Path) -> None:
    """A path below a file cannot be opened: StoreError that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/store"):
        Store(tmp_path / "file" / "store")


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_a_store_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    """Whatever the umask: 0700 and 0600, of a crawl's store, of a reader's table and of an import."""
    path, imported, between = tmp_path / "store", tmp_path / "import", tmp_path / "between" / "store"
    between.parent.mkdir()
    old = os.umask(umask)
    try:
        for path_ in (path, between):
            Store(path_).close()
        (path / "lock.mdb").unlink()
        Store(path, readonly=True).close()
        import_history(imported, "history", iter([(1, "h\thttp://h/\t01")]), lambda request: (1, request))
    finally:
        os.umask(old)
    for path_ in (path, between, imported):
        assert stat.S_IMODE(path_.stat().st_mode) == 0o700
        for name in os.listdir(path_):
            assert stat.S_IMODE((path_ / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(between.parent.stat().st_mode) != 0o700


def test_the_modes_of_an_existing_store_stay(tmp_path: Path) -> None:
    """What its owner opened to others stays open to them, and can be used."""
    path = tmp_path / "store"
    Store(path).close()
    path.chmod(0o755)
    for name in os.listdir(path):
        (path / name).chmod(0o644)
    with Store(path) as store:
        store.add_pages(pages(3))
    with Store(path, readonly=True) as store:
        assert store.pages == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert {stat.S_IMODE((path / name).stat().st_mode) for name in os.listdir(path)} == {0o644}


def crawl_until_full(store: Store) -> int:
    """Visit new pages until the store is full; returns how many visits a commit confirmed."""
    store.begin_cycle({"started": 1.0})
    for number in range(100_000):
        confirmed = len(store.open_visits())
        page = store.add_page(number + 10**9, {"url": f"http://new/{number}/" + "x" * 300})
        try:
            store.record(NewVisit(page, "first", time=1.0, fingerprint=number))
        except StoreFullError:
            return confirmed - confirmed % 100
    raise AssertionError("the store never became full")


def test_a_full_map_loses_no_visit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room the commit says so; all visits are there once a later commit succeeds."""
    path = tmp_path / "store"
    monkeypatch.setattr(environment_module, "MAP_BYTES", 2**20)
    monkeypatch.setattr(environment_module, "_is_granted", lambda size: False)
    with Store(path) as store:
        store.add_pages(pages(10))
        confirmed = crawl_until_full(store)
        assert confirmed >= 100
        buffered = len(store.open_visits())
        assert buffered == confirmed + 100
        with pytest.raises(StoreFullError, match=r"no room to write.*still readable.*GP4C_STORE"):
            store.commit()
        assert store.request(0) == {"url": "http://h/0"}
        assert len(store.open_visits()) == buffered
        store.environment.lmdb.set_mapsize(2**24)
        store.commit()
    with Store(path) as store:
        assert len(store.open_visits()) == buffered
        assert store.verify() == []


def test_a_map_grows_with_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a store begins with little address space; a reader that was there before follows."""
    monkeypatch.setattr(environment_module, "MAP_BYTES", 2**20)
    monkeypatch.setattr(environment_module, "_HEADROOM_BYTES", 2**19)
    reading = "import sys\nfrom scrapy_gp4c.store.lmdb_store import environment\n"
    reading += "environment.MAP_BYTES = 2**20\nfrom scrapy_gp4c.store.lmdb_store.store import Store\n"
    reading += "with Store(sys.argv[1], readonly=True) as store:\n    print(flush=True)\n    input()\n"
    reading += "    print(store.find(1))\n"
    with Store(tmp_path / "store", sizes=Sizes(pages_per_transaction=1_000)) as store:
        store.add_pages(pages(10))
        command = [sys.executable, "-c", reading, str(tmp_path / "store")]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()
            store.add_pages(pages(20_000, padding="x" * 200))
            assert store.environment.lmdb.info()["map_size"] > 2**22
            assert reader.communicate("\n")[0] == "0\n"
        assert store.verify() == []


def limit_file_size(size: int) -> None:
    """Let no file of this process grow beyond `size` bytes: as on a full disk, writes come up short."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.fixture
def _file_size_limit() -> object:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.getsignal(signal.SIGXFSZ)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("_file_size_limit")
def test_a_full_disk_loses_no_visit(tmp_path: Path) -> None:
    """The same when writes really fail: what was committed stays, what was buffered follows later."""
    path = tmp_path / "store"
    with Store(path) as store:
        store.add_pages(pages(10))
        limit_file_size(2**20)
        confirmed = crawl_until_full(store)
        assert confirmed >= 100
        buffered = len(store.open_visits())
        copy = tmp_path / "copy"
        limit_file_size(2**30)  # a file at the limit cannot be copied by every Python
        shutil.copytree(path, copy)
        with Store(copy, readonly=True) as reader:
            assert len(reader.open_visits()) == confirmed
            assert reader.verify() == []
        store.commit()
        store.finish_cycle({"finished": 2.0})
        assert store.verify() == []
        assert sum(len(visits) for _, visits in store.visits()) == buffered


@pytest.mark.usefixtures("_file_size_limit")
def test_a_faulty_disk_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB says EIO of both: with room on the disk and below the limit it is a fault, else want of room."""
    path = tmp_path / "store"
    Store(path).close()
    error = lmdb.Error("mdb_txn_commit: Input/output error")
    assert type(store_error(path, error)) is StoreError
    assert "Check the disk" in str(store_error(path, error))
    room = os.statvfs(path)
    values = list(room)
    values[4] = 3  # blocks that are free for users
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))
        assert isinstance(store_error(path, error), StoreFullError)
    limit_file_size((path / "data.mdb").stat().st_size)
    full = store_error(path, error)
    limit_file_size(2**30)  # before the test is over: its result may go to a file
    assert isinstance(full, StoreFullError)


@pytest.mark.usefixtures("_file_size_limit")
def test_a_disk_full_in_the_fold_is_resumed(tmp_path: Path) -> None:
    """A fold that finds no room says so and goes on later: by the same call or at the next opening."""
    small = Sizes(block_rows=128, blocks_per_transaction=1)
    for again in ("call", "open"):
        path = tmp_path / again
        store = Store(path, sizes=small)
        store.add_pages(pages(2000))
        store.begin_cycle({"started": 1.0})
        for page in range(2000):
            store.record(NewVisit(page, "first", time=1.0))
        store.commit()
        limit_file_size((path / "data.mdb").stat().st_size)
        with pytest.raises(StoreFullError):
            store.finish_cycle({"finished": 2.0})
        with pytest.raises(StoreError, match="could not complete cycle 1: free disk space"):
            store.record(NewVisit(0, "first", time=1.0))
        if again == "open":
            store.close()
            with pytest.raises(StoreFullError):
                Store(path, sizes=small)
            with Store(path, readonly=True) as reader:
                assert len(reader.open_visits()) == 2000
                assert reader.requests([1999]) == [{"url": "http://h/1999"}]
                assert "not complete" in reader.verify()[0]
        limit_file_size(2**30)
        if again == "open":
            store = Store(path, sizes=small)
        else:
            store.finish_cycle({})
        assert store.cycles() == [{"cycle": 1, "started": 1.0, "finished": 2.0}]
        assert store.verify() == []
        store.close()


PAGE = os.sysconf("SC_PAGE_SIZE")
READ_ALL = """
import sys
from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.store.lmdb_store.store import Store
for path in sys.argv[2:]:
    try:
        with Store(path, readonly=sys.argv[1] == "reader") as store:
            store.verify()
            if sys.argv[1] == "writer":
                store.begin_cycle({})
                store.finish_cycle({})
        print("sound")
    except StoreDamagedError:
        print("damaged")
"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with large values, small ones, and a free list of several pages."""
    path = tmp_path_factory.mktemp("crawled") / "store"
    with Store(path) as store:
        store.add_pages(pages(6000))
        for _ in range(3):
            store.begin_cycle({})
            for page in range(0, 6000, 2):
                store.record(NewVisit(page, "first", time=1.0, fingerprint=page))
            store.finish_cycle({})
    return path


@pytest.mark.parametrize("who", ["reader", "writer"])
def test_a_truncated_store_ends_nobody_with_a_signal(tmp_path: Path, crawled: Path, who: str) -> None:
    """Cut by 1 to 32 pages and at random: an error, or nothing that was cut off was ever referred to."""
    pages = (crawled / "data.mdb").stat().st_size // PAGE
    lengths = {pages - cut for cut in (1, 2, 3, 5, 8, 13, 21, 32)}
    lengths |= {int(one) for one in np.random.default_rng(7).integers(2, pages, 12)}
    copies = []
    for length in sorted(lengths):
        copies.append(tmp_path / str(length))
        shutil.copytree(crawled, copies[-1])
        os.truncate(copies[-1] / "data.mdb", length * PAGE)
    command = [sys.executable, "-c", READ_ALL, who, *map(str, copies)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()[:12]) == {"damaged"}
    assert len(done.stdout.split()) == len(copies)


def test_a_large_value_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    """The end of a block of columns at the end of the file, which no tree page names."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(3000))
    data = tmp_path / "store" / "data.mdb"
    content = data.read_bytes()
    with Store(tmp_path / "store", readonly=True) as store:
        ((_, block),) = store.blocks()
        start = content.rindex(pack(block))
    os.truncate(data, (start // PAGE + 2) * PAGE)
    with pytest.raises(StoreDamagedError, match="is truncated"):
        Store(tmp_path / "store", readonly=True)


def test_a_file_shorter_than_its_header_says_may_be_sound(tmp_path: Path) -> None:
    """Pages at the end to which nothing refers need not be there."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(300))
    data = tmp_path / "store" / "data.mdb"
    content = bytearray(data.read_bytes())
    for meta in (0, PAGE):  # the number of the last page
        content[meta + 136 : meta + 144] = (len(content) // PAGE + 5).to_bytes(8, sys.byteorder)
    data.write_bytes(content)
    with Store(tmp_path / "store") as store:
        assert store.pages == 300


@pytest.mark.parametrize("commits", range(6))
def test_a_header_is_read_while_a_writer_commits(tmp_path: Path, commits: int) -> None:
    """What is committed between the reading of its first half and of its second is no damage."""

    class Overtaken(io.FileIO):
        """A file that is written as soon as its first meta page is read."""

        remaining = 2

        def seek(self, at: int, whence: int = 0, /) -> int:
            if at and self.remaining:
                self.remaining -= 1
                for _ in range(commits):
                    store.begin_cycle({})
                    store.finish_cycle({})
            return super().seek(at, whence)

    with Store(tmp_path / "store") as store:
        store.add_pages(pages(30))
        with Overtaken(tmp_path / "store" / "data.mdb") as file:
            actual = read_header(file)
            assert 0 <= read_header(file).transaction - actual.transaction <= 1


def test_halves_of_a_header_that_never_fit_are_damage(tmp_path: Path) -> None:
    """Read twice, to the same end: nobody is writing."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(30))
    data = tmp_path / "store" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[PAGE + 144 : PAGE + 152] = (10**6 + 1).to_bytes(8, sys.byteorder)
    data.write_bytes(content)
    with pytest.raises(StoreDamagedError, match="damaged header"):
        Store(tmp_path / "store", readonly=True)


PATH = Path("stores", "mine")


def lmdb_error(code: int) -> lmdb.Error:
    """Error of LMDB for one of the system."""
    return lmdb.Error(f"mdb_txn_commit: {os.strerror(code)}")


def test_failures_of_lmdb_are_our_errors_with_a_remedy() -> None:
    """No room, damage and all others are told apart; each names the store and what LMDB said."""
    no_room = [lmdb.MapFullError("MDB_MAP_FULL"), lmdb.DiskError("No space")]
    no_room += map(lmdb_error, (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
    damages = (
        lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError,
        lmdb.IncompatibleError, lmdb.NotFoundError,
    )  # fmt: skip
    for error, kind, remedy in (
        *((error, StoreFullError, "still readable: free disk space") for error in no_room),
        *(
            (kind("page 7"), StoreDamagedError, "`scrapy gp4c store restore SPIDER BACKUP`")
            for kind in damages
        ),
        *((kind("page 7"), StoreDamagedError, "--from-damaged") for kind in damages),
        (lmdb_error(errno.ENOMEM), StoreError, "Allow this process more address space (ulimit -v)"),
        (lmdb_error(errno.EACCES), StoreError, "Check its owner and GP4C_STORE"),
        (lmdb.ReadonlyError("x"), StoreError, "Check its owner"),
        (lmdb.PanicError("mdb_txn_begin"), StoreError, "Check the disk (dmesg)"),
    ):
        actual = store_error(PATH, error)
        assert type(actual) is kind, error
        assert str(PATH) in str(actual)
        assert str(error) in str(actual)
        assert remedy in str(actual)


def test_errors_of_lmdb_are_translated_and_no_others(tmp_path: Path) -> None:
    """A real one: its cause stays with it; a mistake of ours stays what it is."""
    with pytest.raises(StoreError, match="cannot be used") as caught, translated(tmp_path):
        lmdb.open(str(tmp_path / "no" / "such" / "place"), create=False)
    assert isinstance(caught.value.__cause__, lmdb.Error)
    for error in (KeyError("x"), damaged(PATH, "y")):
        with pytest.raises(type(error)) as raised, translated(tmp_path):
            raise error
        assert raised.value is error


CHECKED_TABLES = ("ids", "urls", "validators", "log", "new", "visits", "cycles", "plans", "columns", "groups")


@given(key=st.binary(min_size=1, max_size=12), value=st.binary(max_size=40), bit=st.integers(0, 10**6))
def test_any_flipped_bit_is_noticed(key: bytes, value: bytes, bit: int) -> None:
    """In the value, in its checksum, and in the key; and a value in another table."""
    checked = with_checksum(seed_of("urls", key), value)
    assert is_intact(seed_of("urls", key), checked)
    assert not is_intact(seed_of("urls", key), flipped(checked, bit))
    assert not is_intact(seed_of("urls", flipped(key, bit)), checked)
    assert not any(is_intact(seed_of(table, key), checked) for table in set(ALL_TABLES) - {"urls"})


def flipped(content: bytes, bit: int) -> bytes:
    """The same bytes but for one bit."""
    byte, bit_number = divmod(bit % (8 * len(content)), 8)
    return content[:byte] + bytes([content[byte] ^ 1 << bit_number]) + content[byte + 1 :]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@given(content=JSON, places=st.lists(st.integers(0, 10**6), max_size=3), byte=st.integers(0, 255))
def test_json_is_read_as_python_reads_it(content: object, places: list[int], byte: int) -> None:
    """Whatever a store may have written, NaN and lone surrogates too; and what is damaged gives its error."""
    raw = bytearray(encode(content))
    for place in places:
        raw[place % len(raw)] = byte
    assert what_comes_of(decode, bytes(raw)) == what_comes_of(json.loads, bytes(raw))


def what_comes_of(read: Callable[[bytes], Any], raw: bytes) -> tuple[type, str]:
    """Type and text of what a reader returns, to the sign of a zero, or raises."""
    try:
        result = read(raw)
    except ValueError as error:
        return type(error), str(error)
    return type(result), repr(result)


@given(
    numbers=st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=9),
    which=st.integers(0, 8),
    bit=st.integers(0, 31),
)
def test_a_value_that_lost_its_key_is_missed(numbers: set[int], which: int, bit: int) -> None:
    """A key that was altered, and still is in order, is noticed by whoever asks for the old or new one."""
    before = sorted(numbers)
    lost = before[which % len(before)]
    after = lost ^ 1 << bit
    if sorted(numbers - {lost} | {after}).index(after) != before.index(lost) or after in numbers:
        return  # LMDB finds nothing in a page out of order
    with TemporaryDirectory() as path, lmdb.open(path, max_dbs=1) as environment:
        table = Table(Path(path), "urls", environment.open_db(b"urls"))
        with environment.begin(write=True) as txn:
            for number in before:
                table.put(txn, U32.pack(number), b"%d" % number)
            txn.delete(U32.pack(lost), db=table.handle)
            txn.put(
                U32.pack(after), with_checksum(seed_of("urls", U32.pack(lost)), b"%d" % lost), db=table.handle
            )
            for number in (lost, after):
                with pytest.raises(StoreDamagedError, match=f"urls {after}: its checksum is another"):
                    table.get(txn, U32.pack(number))
            with pytest.raises(StoreDamagedError):
                list(table.items(txn, U32.pack(lost), U32.pack(lost + 1) if lost < 2**32 - 1 else None))


@pytest.fixture(scope="module")
def full_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something in every table, a cycle under way."""
    return varied(tmp_path_factory.mktemp("full_of_all") / "store")


def varied(path: Path) -> Path:
    build(path)
    with Store(path, sizes=SMALL) as store:
        crawl(store, lambda cycle, count: None)
        store.begin_cycle({})
        plan = np.zeros(3, PLAN)
        plan["page"] = [5, 3, 9]
        store.add_round(plan, 0)
        store.record(NewVisit(3, "changed", 1.0))
        store.add_page(99, {"url": "http://h/new/1"})
        store.set_validators(5, "etag", None)
        store.set_validators(9, "other", None)
    return path


def read_all(path: Path) -> Iterator[Any]:
    """All records of a store that a crawl and commands read."""
    with Store(path, readonly=True) as store:
        yield [store.find(key(number)) for number in range(100)]
        yield store.requests(range(store.pages))
        yield [store.validators(page) for page in range(store.pages)]
        yield [{name: column.tolist() for name, column in block.items()} for _, block in store.blocks()]
        yield [(cycle, visits.tobytes()) for cycle, visits in store.visits()]
        yield [store.group_visits(cycle).tobytes() for cycle in range(9)]
        yield store.open_visits().tobytes(), store.cycles(), store.directories().tobytes()
        yield store.plan().tobytes(), store.shadows(2).tobytes(), store.store_id


@pytest.mark.parametrize("table", CHECKED_TABLES)
def test_no_table_is_silently_different(tmp_path: Path, full_of_all: Path, table: str) -> None:
    """A flipped bit in any value of a table, or its key moved within its place: an error names the table."""
    sound = list(read_all(full_of_all))
    with lmdb.open(str(full_of_all), max_dbs=32, readonly=True) as environment:
        db = environment.open_db(table.encode(), create=False)
        with environment.begin() as txn:
            rows = list(txn.cursor(db))
    for number, (position, value) in list(enumerate(rows))[:: max(1, len(rows) // 4)]:
        path = tmp_path / str(number)
        shutil.copytree(full_of_all, path)
        with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
            db = environment.open_db(table.encode())
            with environment.begin(write=True) as txn:
                txn.put(position, flipped(value, 7 * number + 3), db=db)
        with pytest.raises(StoreDamagedError, match=f"is damaged: {table} "):
            assert list(read_all(path)) == sound


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flip", "zero"])
def test_no_damage_is_silent(tmp_path: Path, full_of_all: Path, how: str) -> None:
    """A flipped bit or a page of zeros: all rows that are read are as they were, or one error says so.

    LMDB may end the process with a signal where its own pages are damaged, which is not silent.
    """
    sound, content = list(read_all(full_of_all)), (full_of_all / "data.mdb").read_bytes()
    numbers, size = random.Random(3), os.sysconf("SC_PAGE_SIZE")

    def work(path: Path) -> None:
        try:
            assert list(read_all(path)) == sound
        except StoreDamagedError:
            os._exit(2)

    ends = []
    for number in range(60):
        path = tmp_path / str(number)
        path.mkdir()
        at = numbers.randrange(2, len(content) // size) * size
        damaged = content[:at] + bytes(size) + content[at + size :]
        if how == "flip":  # LMDB's own bytes are at the beginning of a page, its nodes at the end
            byte = numbers.choice((numbers.randrange(64), numbers.randrange(size - 500, size)))
            damaged = flipped(content, 8 * (at + byte) + numbers.randrange(8))
        (path / "data.mdb").write_bytes(damaged)
        ends.append(wait(in_child(partial(work, path))))
    assert 0 in ends
    assert 2 in ends
    assert 1 not in ends


URLS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["http://", "https://", "http://www.", "https://www.", "ftp://", ""]),
    st.text(),
    st.sampled_from(["", ".html", '","callback":"', '"}', '","callback":"parse_']),
)
PAGE_NUMBERS = st.integers(0, 2**32 - 1) | st.sampled_from([0, 2**32 - 6, 2**32 - 5, 2**32 - 1])
NESTED = st.dictionaries(st.sampled_from(["url", "callback", "x"]), URLS, max_size=3)
REQUESTS = st.fixed_dictionaries(
    {"url": URLS},
    optional={
        "callback": st.sampled_from(["parse", "parse_page", "item", "parse_", "\xff\u20ac"]),
        "cb_kwargs": NESTED,
        "meta": st.dictionaries(st.text(max_size=3), NESTED, max_size=2),
    },
)


@given(REQUESTS.map(encode) | st.text().map(str.encode))
@example(encode({"url": "https://www.h/", "callback": "parse_item"}))
@example(encode({"url": "http://h/", "meta": {"url": "http://h/", "callback": "parse"}}))
def test_a_request_comes_back_from_what_is_kept_of_it(text: bytes) -> None:
    """Byte by byte, whatever looks like a part of it within it; so does other text, as UTF-8 has no code."""
    assert in_full(shortened(text)) == text
    assert len(shortened(text)) <= len(text)


@pytest.mark.parametrize(
    ("request_", "stored"),
    [
        ({"url": "https://www.h/1"}, b"\xffh/1\xf9"),
        ({"url": "http://www.h/1"}, b"\xfeh/1\xf9"),
        ({"url": "https://h/1"}, b"\xfdh/1\xf9"),
        ({"url": "http://h/1", "callback": "parse_item"}, b"\xfch/1\xfbitem\xf9"),
        ({"url": "http://h/1", "callback": "parse"}, b"\xfch/1\xfaparse\xf9"),
        ({"url": "h"}, b'{"url":"h\xf9'),
        ({"url": "http://h/1", "priority": 3}, b'\xfch/1","priority":3}'),
    ],
)
def test_what_a_code_stands_for_is_never_another(request_: dict[str, Any], stored: bytes) -> None:
    """Stores have them."""
    assert shortened(encode(request_)) == stored
    assert json.loads(in_full(stored)) == request_


@given(st.dictionaries(PAGE_NUMBERS, REQUESTS, min_size=1, max_size=8), st.data())
def test_the_table_has_requests_in_full(requests: dict[int, dict[str, Any]], data: st.DataObject) -> None:
    """However they are written and read."""
    with TemporaryDirectory() as folder, lmdb.open(folder, max_dbs=1) as environment:
        table = RequestTable(Path(folder), "urls", environment.open_db(b"urls"))
        expected = {U32.pack(page): encode(request) for page, request in requests.items()}
        first = data.draw(st.sampled_from(sorted(expected)))
        with environment.begin(write=True) as txn:
            table.put(txn, first, expected[first])
            table.put_many(txn, iter(expected.items()), overwrite=False)
            assert {key: table.get(txn, key) for key in expected} == expected
            assert {key: bytes(value) for key, value in table.items(txn)} == expected
            pages = np.array(data.draw(st.lists(st.sampled_from(sorted(requests)), min_size=1)))
            values = [expected[U32.pack(page)] for page in pages.tolist()]
            assert table.joined(txn, pages, b",") == b",".join(values)
            missing = next(page for page in range(9) if page not in requests)
            assert table.joined(txn, np.array([*pages, missing]), b",") is None
            assert not list(table.wrong_keys(txn))
