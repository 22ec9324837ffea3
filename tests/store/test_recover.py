"""Recovery of damaged stores: the result is sound, and what is lost is said."""

import random
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import lmdb
import numpy as np
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreInUseError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.recover import Recovered, recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL, in_child, key, kill_at, wait

PAGE = 4096
PAGES = 200
CYCLES = 6
SIZES = SMALL._replace(block_rows=32, visits_per_chunk=40)


def build(path: Path) -> None:
    """Make a store of several file pages for each table, whose last cycle is under way."""
    with Store(path, sizes=SIZES) as store:
        store.add_pages((key(n), {"url": f"http://h{n % 3}/{n % 17}/{n}{'x' * 60}"}) for n in range(PAGES))
        for cycle in range(1, CYCLES + 1):
            store.begin_cycle({"started": 1.0})
            visited = range(cycle % 4, PAGES, 4)
            store.add_round(np.array([(0.0, page, 0) for page in visited], PLAN), 0)
            for page in visited:
                outcome = OUTCOMES[(page * 7 + cycle * 3) % len(OUTCOMES)]
                store.record(NewVisit(page, outcome, float(cycle), "other", page * 1000 + cycle))
                if page % 5 == 0:
                    store.set_validators(page, f"e{cycle}", None)
            new = store.add_page(2**60 + cycle, {"url": f"http://new/{cycle}"})
            store.record(NewVisit(new, "first", float(cycle)))
            if cycle < CYCLES:
                store.finish_cycle({"finished": 2.0, "visited": len(visited) + 1})


class Content(NamedTuple):
    """What a store holds, by URL."""

    pages: dict[str, PageRow]
    visits: dict[tuple[int, str], tuple[Any, ...]]

    @classmethod
    def of(cls, path: Path) -> Self:
        with Store(path, readonly=True) as store:
            urls = [request["url"] for request in store.requests(range(store.pages))]
            pages = {url: store.page(page)._replace(group=0) for page, url in enumerate(urls)}
            chunks = [*store.visits(), (store.last_cycle + 1, store.open_visits())]
            visits = {
                (cycle, urls[row["page"]]): tuple(row[[name for name in row.dtype.names if name != "page"]])
                for cycle, rows in chunks
                for row in rows
            }
        return cls(pages, visits)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Content]:
    """The file of a sound store, and what is in it."""
    path = tmp_path_factory.mktemp("sound") / "store"
    build(path)
    return (path / "data.mdb").read_bytes(), Content.of(path)


def recovered(path: Path, data: bytes, before: Content) -> Recovered:
    """Recover a store that has this file."""
    path.mkdir()
    (path / "data.mdb").write_bytes(data)
    done = recover(path, SIZES, lambda request: before.pages[request["url"]].key)
    assert (done.aside / "data.mdb").read_bytes() == data
    assert check(path, deep=True) == []
    assert [one for one in path.parent.iterdir() if "rewrite" in one.name] == []
    return done


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_silently(tmp_path: Path, sound: tuple[bytes, Content], seed: int) -> None:
    """Flipped bits, pages of zeros, lost ends: what is there is as it was, or one error changes nothing."""
    numbers, (data, before) = random.Random(seed), sound
    damaged = bytearray(data)
    for _ in range(numbers.choice((1, 2, 5))):
        at = numbers.randrange(2, len(data) // PAGE) * PAGE
        if numbers.random() < 0.5:
            damaged[at : at + PAGE] = bytes(PAGE)
        for _ in range(30):
            damaged[at + numbers.randrange(PAGE)] ^= 1 << numbers.randrange(8)
    if seed % 4 == 3:
        del damaged[numbers.randrange(len(data) // 2, len(data)) :]
    try:
        done = recovered(tmp_path / "store", bytes(damaged), before)
    except StoreDamagedError:
        assert (tmp_path / "store" / "data.mdb").read_bytes() == damaged
        return
    now = Content.of(tmp_path / "store")
    assert now.pages.keys() <= before.pages.keys()
    assert now.visits.items() <= before.visits.items()
    if now.pages.keys() != before.pages.keys() or now.visits != before.visits:
        assert done.lost
    if not any(
        word in "; ".join(done.lost) for word in ("visits", "columns", "brought", "notes", "new", "log")
    ):
        assert now.pages == {url: before.pages[url] for url in now.pages}


def spoiled(path: Path, data: bytes, values: dict[str, slice]) -> bytes:
    """File of a store in which these values of some tables are damaged."""
    path.mkdir()
    (path / "data.mdb").write_bytes(data)
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        for name, chosen in values.items():
            table = environment.open_db(name.encode())
            with environment.begin(write=True) as txn:
                for key, value in list(txn.cursor(table))[chosen]:
                    txn.put(key, bytes([value[0] ^ 1]) + value[1:], db=table)
    return (path / "data.mdb").read_bytes()


@pytest.mark.parametrize("table", ["validators", "urls"])
def test_a_table_that_cannot_be_found_is_told(
    tmp_path: Path, sound: tuple[bytes, Content], table: str
) -> None:
    """The page that lists the tables is damaged: a store without pages, and nothing lost, was made of it."""
    (tmp_path / "data.mdb").write_bytes(sound[0])
    with lmdb.open(str(tmp_path), max_dbs=32, map_size=2**30) as environment:
        handle = environment.open_db(table.encode())
        with environment.begin(write=True) as txn:
            txn.drop(handle)
    data = (tmp_path / "data.mdb").read_bytes()
    if table == "urls":
        with pytest.raises(StoreDamagedError, match="requests of its pages cannot be found"):
            recovered(tmp_path / "store", data, sound[1])
        assert (tmp_path / "store" / "data.mdb").read_bytes() == data
    else:
        assert f"all values of {table}" in "; ".join(recovered(tmp_path / "store", data, sound[1]).lost)


EVERY = slice(None)


@pytest.mark.parametrize(
    ("values", "pages", "visits"),
    [
        ({"urls": slice(7, 9)}, 2, True),
        ({"columns": slice(1, 2)}, 0, False),
        ({"columns": EVERY}, 0, False),
        ({"groups": EVERY, "group_visits": EVERY}, 0, False),
        ({"visits": slice(3, 4)}, 0, True),
        ({"cycles": slice(0, 2)}, 0, False),
        ({"cycles": EVERY}, 0, False),
        ({"log": slice(2, 3), "plans": EVERY}, 0, True),
        ({"new": EVERY}, 1, True),
    ],
)
def test_only_what_is_damaged_is_lost(
    tmp_path: Path, sound: tuple[bytes, Content], values: dict[str, slice], pages: int, visits: bool
) -> None:
    """Whatever table has damaged values: they are named, and all others are as they were."""
    data, before = sound
    done = recovered(tmp_path / "store", spoiled(tmp_path / "spoiled", data, values), before)
    now = Content.of(tmp_path / "store")
    assert all(any(f"values of {name}: " in sentence for sentence in done.lost) for name in values)
    assert len(before.pages) - len(now.pages) == pages
    assert now.visits.items() <= before.visits.items()
    assert (now.visits == before.visits) != visits
    if "columns" not in values and "visits" not in values:
        now_pages = {url: row for url, row in now.pages.items() if row.last_attempt < CYCLES}
        # The cycle under way is ended where pages are lost.
        assert now_pages.items() <= before.pages.items()


def test_a_sound_store_loses_nothing(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """All is as it was, the plan and the validators too, and the cycle goes on."""
    data, before = sound
    done = recovered(tmp_path / "store", data, before)
    assert done.lost == []
    assert Content.of(tmp_path / "store") == before
    with Store(tmp_path / "store", sizes=SIZES) as store, Store(done.aside, sizes=SIZES) as old:
        assert store.plan().tolist() == old.plan().tolist()
        every = range(store.pages)
        assert [store.validators(page) for page in every] == [old.validators(page) for page in every]
        assert (store.cycles(), store.store_id) == (old.cycles(), old.store_id)
        store.finish_cycle({})
        assert store.verify() == []


def test_a_recovery_that_was_killed_does_not_stop_the_next(
    tmp_path: Path, sound: tuple[bytes, Content]
) -> None:
    """Killed while it builds one store or the other; what is left of the building does not stay."""
    data = spoiled(tmp_path / "spoiled", sound[0], {"urls": slice(3, 9)})
    path = tmp_path / "place" / "store"
    path.mkdir(parents=True)
    (path / "data.mdb").write_bytes(data)

    def work(transactions: int) -> None:
        with kill_at(transactions, after_commit=True):
            recover(path, SIZES, lambda request: sound[1].pages[request["url"]].key)

    for transactions in (1, 180):
        assert wait(in_child(partial(work, transactions))) == -signal.SIGKILL
        assert (path / "data.mdb").read_bytes() == data
    assert wait(in_child(partial(work, 10**6))) == 0
    assert check(path, deep=True) == []
    assert [one for one in path.parent.iterdir() if "rewrite" in one.name] == []


def test_a_fold_that_was_killed_is_ended(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """The columns are those of the whole fold, though some blocks had it behind them and others not."""
    data, before = sound
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.mdb").write_bytes(data)
    with Store(tmp_path / "whole", sizes=SIZES) as store:
        store.finish_cycle({"finished": 2.0})
    apply, calls = columns.apply_visits, []

    def work() -> None:
        def killing(*arguments: Any) -> None:
            calls.append(1)
            assert len(calls) < 7
            apply(*arguments)

        columns.apply_visits = killing
        assert fold.columns is columns
        with Store(tmp_path / "killed", sizes=SIZES) as store:
            store.finish_cycle({"finished": 2.0})

    assert wait(in_child(work)) != 0
    done = recover(tmp_path / "killed", SIZES, lambda request: before.pages[request["url"]].key)
    assert done.lost == []
    assert Content.of(tmp_path / "killed") == Content.of(tmp_path / "whole")


def test_what_is_no_store_is_left_alone(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """One error, and nothing is changed; so it is while a crawl has the store."""
    path = tmp_path / "store"
    path.mkdir()
    (path / "data.mdb").write_bytes(b"no store at all" * 1000)
    with pytest.raises(StoreDamagedError, match=r"nothing of data\.mdb can be read"):
        recover(path, SIZES, lambda request: 1)
    assert (path / "data.mdb").read_bytes() == b"no store at all" * 1000
    shutil.rmtree(path)
    path.mkdir()
    (path / "data.mdb").write_bytes(sound[0])
    with Store(path, sizes=SIZES), pytest.raises(StoreInUseError):
        recover(path, SIZES, lambda request: 1)
