"""Verification of stores: what is wrong, in words, with the place of the damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import pack
from scrapy_gp4c.page_state.groups import GROUP, GROUP_VISITS
from scrapy_gp4c.page_state.outcomes import PLAN, VISIT
from scrapy_gp4c.store.lmdb_store.environment import DATA, TABLES, U32, Table
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.lmdb_store.verify import MEANING, check, verify
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL, build, crawl, in_child, kill_at, wait
from tests.support.stores import pages

SIZES = Sizes(block_rows=8)
COUNT = 30


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty pages in blocks of eight after two cycles, and a third under way."""
    path = tmp_path_factory.mktemp("checked") / "store"
    with Store(path, sizes=SIZES) as store:
        store.add_pages(pages(COUNT))
        for outcome in ("first", "changed"):
            store.begin_cycle({})
            for page in range(COUNT):
                store.record(NewVisit(page, outcome, time=1.0))
            store.finish_cycle({})
        store.begin_cycle({})
        store.record(NewVisit(4, "unchanged", time=2.0))
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    """A copy of its own."""
    return Path(shutil.copytree(sound, tmp_path / "store"))


def spoil(path: Path, name: str, keys: list[bytes] | None = None) -> int:
    """Flip a bit in values of a table, past its checksum; returns how many."""
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        db = environment.open_db(name.encode())
        with environment.begin(write=True) as txn:
            rows = [(key, bytes(value)) for key, value in txn.cursor(db) if keys is None or key in keys]
            for key, value in rows:
                txn.put(key, bytes([value[0] ^ 1]) + value[1:], db=db)
    return len(rows)


Change = Callable[[lmdb.Transaction, Table], object]


def change_table(path: Path, name: str, change: Change) -> None:
    """Change a table as a mistake in our code would: what it writes has the right checksum."""
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        table = Table(path, name, environment.open_db(name.encode()))
        with environment.begin(write=True) as txn:
            change(txn, table)


def rewrite(path: Path, name: str, key: bytes, value: bytes | None) -> None:
    """Write a value; None: delete it."""
    change_table(
        path, name, lambda txn, db: db.delete(txn, key) if value is None else db.put(txn, key, value)
    )


def test_nothing_is_wrong_with_a_sound_store(sound: Path) -> None:
    """Deep or not; and it is not written to."""
    before = (sound / DATA).read_bytes()
    assert check(sound) == check(sound, deep=True) == []
    assert (sound / DATA).read_bytes() == before


@pytest.mark.parametrize(
    ("table", "key", "folder"),
    [
        ("urls", U32.pack(7), "urls: page 7"),
        ("columns", U32.pack(1), "columns: pages 8 to 15"),
        ("columns", U32.pack(3), "columns: pages 24 to 29"),
        ("cycles", U32.pack(2), "cycles: cycle 2"),
        ("groups", U32.pack(0), "groups: block 0"),
        ("visits", U32.pack(2) + U32.pack(0), "visits: cycle 2, part 0"),
        ("log", U32.pack(3) + U32.pack(0), "log: cycle 3, part 0"),
    ],
)
def test_damage_is_told_by_its_place(path: Path, table: str, key: bytes, folder: str) -> None:
    """One sentence: which pages, which cycle, and what they lost."""
    assert spoil(path, table, [key]) == 1
    assert check(path) == [f"{folder}: {MEANING[table]} is damaged"]


def test_every_damaged_value_is_named(path: Path) -> None:
    """However many there are; other tables are checked all the same."""
    assert spoil(path, "urls") == COUNT
    spoil(path, "cycles", [U32.pack(1)])
    expected = [f"urls: page {page}: {MEANING['urls']} is damaged" for page in range(COUNT)]
    assert check(path) == [*expected, f"cycles: cycle 1: {MEANING['cycles']} is damaged"]


@pytest.mark.parametrize("content", [b"", b"no store at all" * 1_000, bytes(4096)])
def test_a_file_that_is_no_store_is_one_error(path: Path, content: bytes) -> None:
    """Its opening raises; never a crash of the process."""
    (path / DATA).write_bytes(content)
    with pytest.raises(StoreError):
        check(path)


def test_every_table_has_words() -> None:
    """Whoever adds a table says what its values are."""
    # `ids` has no checksums: it is held against the columns.
    assert set(MEANING) == set(TABLES) - {"ids"}


@pytest.mark.parametrize(
    ("table", "key", "folder"),
    [
        ("urls", U32.pack(29), "urls: there should be 30 values or more; found 29"),
        ("columns", U32.pack(3), "columns: there should be 4 values; found 3"),
    ],
)
def test_missing_values_are_counted(path: Path, table: str, key: bytes, folder: str) -> None:
    """What is not there has no checksum that could be wrong."""
    rewrite(path, table, key, None)
    assert check(path) == [folder]


def test_ids_are_held_against_the_keys_of_pages(path: Path) -> None:
    """A missing one is counted, a wrong one too: a page of that key would be found as another, or not."""
    key = pages(COUNT)[5][0].to_bytes(8, "big")
    rewrite(path, "ids", key, U32.pack(6))
    assert check(path) == ["ids: of 30 pages, 1 cannot be found by their keys"]
    rewrite(path, "ids", key, U32.pack(2**32 - 1))
    assert check(path) == ["ids: of 30 pages, 1 cannot be found by their keys"]
    rewrite(path, "ids", key, None)
    assert check(path) == ["ids: there should be 30 values; found 29"]


def test_only_a_deep_look_finds_what_is_wrong_in_itself(path: Path) -> None:
    """A count that its visits do not give, with the right checksum."""
    with Store(path, readonly=True, sizes=SIZES) as store:
        _, block = next(iter(store.blocks()))
        changed = {name: np.array(values) for name, values in block.items()}
    changed["X"][3] += 5
    rewrite(path, "columns", U32.pack(0), pack(changed))
    assert check(path) == []
    (problem,) = check(path, deep=True)
    assert "page 3 has X" in problem


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (b"store_id", "meta store_id: its checksum"),
        (b"groups", "meta groups: its checksum"),
        (b"block_rows", "meta block_rows: its checksum"),
    ],
)
def test_what_a_store_cannot_be_opened_without_is_an_error(path: Path, key: bytes, what: str) -> None:
    """Its own name and its counters."""
    assert spoil(path, "meta", [key]) == 1
    with pytest.raises(StoreDamagedError, match=what) as caught:
        check(path)
    assert what in caught.value.what


def test_where_there_is_no_store_there_is_nothing_to_check(tmp_path: Path) -> None:
    """An error, and no file that was not there before."""
    with pytest.raises(StoreError):
        check(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_fold_that_was_killed_is_no_damage(tmp_path: Path) -> None:
    """Killed in any of its transactions: the store is sound, and it is said what is under way."""
    said = set()
    for transactions in range(12, 40, 7):
        path = tmp_path / str(transactions)
        build(path)

        def work(path: Path = path, transactions: int = transactions) -> None:
            with kill_at(transactions, transactions % 2 == 0), Store(path, sizes=SMALL) as store:
                crawl(store, lambda cycle, count: None)

        wait(in_child(work))
        for deep in (False, True):
            verification = verify(path, deep=deep)
            assert verification.problems == []
            said.add(verification.under_way.partition(":")[0])
    assert said == {"", "the fold of cycle 1 is under way"}


def _change(name: str) -> Change:
    """Alter one column of page 2."""

    def change(txn: lmdb.Transaction, db: Table) -> None:
        block = columns.unpack(db.view(txn, b"\0\0\0\0"))
        block[name] = block[name] + (np.arange(len(block[name])) == 2)
        db.put(txn, b"\0\0\0\0", columns.pack(block))

    return change


def _other_key(txn: lmdb.Transaction, db: Table) -> None:
    value = bytearray(db.view(txn, b"\0\0\0\0"))
    value[GROUP.itemsize] ^= 1
    db.put(txn, b"\0\0\0\0", bytes(value))


def _no_directory(txn: lmdb.Transaction, db: Table) -> None:
    value = bytes(db.view(txn, b"\0\0\0\0"))
    db.put(txn, b"\0\0\0\0", value[: -GROUP.itemsize])


def _find_more(txn: lmdb.Transaction, db: Table) -> None:
    key, value = list(db.items(txn))[1]
    visits = np.frombuffer(value, GROUP_VISITS).copy()
    visits["changes"][1] += 1
    db.put(txn, key, visits.tobytes())


def _double_visit(txn: lmdb.Transaction, db: Table) -> None:
    key, value = next(db.items(txn))
    db.put(txn, key, bytes(value) + bytes(value[: VISIT.itemsize]))


BREAKS: dict[str, tuple[str, Change]] = {
    "has X": ("columns", _change("X")),
    "no request": ("urls", lambda txn, db: db.delete(txn, b"\0\0\0\2")),
    "two visits of one page": ("visits", _double_visit),
    "the plan should have 2 pages; found 0": ("plans", lambda txn, db: db.drop(txn)),
    "the cycles should be": ("cycles", lambda txn, db: db.delete(txn, b"\0\0\0\1")),
    "page 2 has E 2.05": ("columns", _change("E")),
    "page 2 has T 3, but 2 by its visits": ("columns", _change("T")),
    "page 2 has found_cycle 3, but 2 by its visits": ("columns", _change("found_cycle")),
    "page 2 is in directory 3, but in 2 by its URL": ("columns", _change("group")),
    "directory 1 has other keys than by its URLs": ("groups", _other_key),
    "there should be 3 directories by the URLs; found 2": ("groups", _no_directory),
    "of cycle 2, the sums by directory are not those of its visits": ("group_visits", _find_more),
    "those of the last 8 cycles; found [(1, 0), (2, 0)]": (
        "group_visits",
        lambda txn, db: db.delete(txn, b"\0\0\0\3\0\0\0\0"),
    ),
    "found [(1, 0), (1, 7), ": (
        "group_visits",
        lambda txn, db: db.put(txn, b"\0\0\0\1\0\0\0\7", b""),
    ),
    "has no URL": ("urls", lambda txn, db: db.put(txn, b"\0\0\0\2", b"[]")),
}


@pytest.mark.parametrize("expected", BREAKS)
def test_verify_finds_what_does_not_fit(tmp_path: Path, expected: str) -> None:
    """Each table broken in turn: verify names the problem."""
    path = tmp_path / "store"
    with Store(path) as store:
        store.add_pages((key, {"url": f"http://h/{row % 3}/x"}) for row, (key, _) in enumerate(pages(5)))
        for outcome in ("first", "changed", "unchanged"):
            store.begin_cycle({})
            for page in range(5):
                store.record(NewVisit(page, outcome, time=1.0))
            store.finish_cycle({})
        store.begin_cycle({})
        plan = np.zeros(2, PLAN)
        plan["page"] = [3, 1]
        store.add_round(plan, seen=0)
        assert store.verify() == []
    change_table(path, *BREAKS[expected])
    with Store(path, readonly=True) as store:
        assert any(expected in problem for problem in store.verify())
