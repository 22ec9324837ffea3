"""Stores of schemas 3 to 7: converted when opened, whatever state they are in, killed at any moment."""

from __future__ import annotations

import os
import random
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import lmdb
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError, StoreInUseError
from scrapy_gp4c.scoring import discovery
from scrapy_gp4c.store.lmdb_store.environment import WriterLock
from scrapy_gp4c.store.lmdb_store.schema import SCHEMA, OlderStoreError
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import join, open_sharded, open_store, restore, shards_in, split
from scrapy_gp4c.store.records import NewVisit
from tests.store import test_store_kill
from tests.store.test_store_kill import (
    CYCLES,
    SMALL,
    build,
    crawl,
    in_child,
    kill_at,
    wait,
)
from tests.support.older_stores import make_older, schema


def content(path: Path) -> dict[str, Any]:
    """What a store has but for growth and bodies, of which an older one knows nothing."""
    return without_growth(test_store_kill.content(path))


def without_growth(told: dict[str, Any]) -> dict[str, Any]:
    """The same content without the columns of growth, and without bodies and weights."""
    blocks = [
        (first, {name: column for name, column in block.items() if name not in discovery.COLUMNS})
        for first, block in told["blocks"]
    ]
    return {**told, "blocks": blocks, "bodies": [], "weights": []}


def uninterrupted(path: Path) -> dict[str, Any]:
    """Crawl without a kill; returns the content."""
    return without_growth(test_store_kill.uninterrupted(path))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store whose crawl is over, and its content."""
    path = tmp_path_factory.mktemp("closed") / "store"
    return path, uninterrupted(path)


def older(source: Path, target: Path, version: int = 3) -> Path:
    """A copy of a store, as an older version had it."""
    shutil.copytree(source, target)
    make_older(target, version)
    return target


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
def test_a_converted_store_has_all_that_it_would_have(
    tmp_path: Path, closed: tuple[Path, dict[str, Any]], version: int
) -> None:
    """Rates, directories and what the last cycles found there come out of URLs and visits, bit for bit."""
    path = older(closed[0], tmp_path / "store", version)
    (path / "data.mdb").chmod(0o640)
    assert content(path) == closed[1]
    assert schema(path) == SCHEMA
    assert content(path) == closed[1]
    assert (path / "data.mdb").stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize("version", [3, 4, 7])
@pytest.mark.parametrize("after_commit", [False, True])
def test_a_conversion_killed_in_any_transaction_begins_anew(
    tmp_path: Path, closed: tuple[Path, dict[str, Any]], after_commit: bool, version: int
) -> None:
    """Killed in its n-th transaction for every n, it has the old or the new schema, and ends the same."""

    def work(path: Path, transactions: int) -> None:
        with kill_at(transactions, after_commit), Store(path, sizes=SMALL):
            pass

    schemas, transactions, status = set(), 0, -signal.SIGKILL
    path = older(closed[0], tmp_path / "again and again", version)
    while status == -signal.SIGKILL:
        transactions += 1
        single = older(closed[0], tmp_path / f"killed-{transactions}", version)
        for place in (single, path):
            status = wait(in_child(partial(work, place, transactions)))
            schemas.add(schema(place))
        with Store(single, sizes=SMALL) as kept:
            assert kept.verify() == []
        shutil.rmtree(single)
    assert status == 0
    assert transactions > 13
    assert schemas == {f"gp4c-store/{version}", SCHEMA}
    assert content(path) == closed[1]


def test_a_killed_crawl_of_the_version_before_goes_on(tmp_path: Path) -> None:
    """Whatever moment of a cycle or of its fold a store is in: converted, it ends as it would have."""
    expected = uninterrupted(tmp_path / "whole")
    killed = tmp_path / "killed"
    build(killed)

    def work(transactions: int) -> None:
        with kill_at(transactions, after_commit=True), Store(killed, sizes=SMALL) as kept:
            crawl(kept, lambda cycle, count: None)

    numbers, kills, folds = random.Random(5), 0, 0
    while wait(in_child(partial(work, numbers.choice((1, 2, 3, 5, 8, 13))))) != 0:
        kills += 1
        make_older(killed, numbers.choice((3, 4, 5, 6, 7)))
        with open_store(killed, readonly=True, sizes=SMALL) as kept:
            assert isinstance(kept, Store)
            folds += kept.is_folding
        assert schema(killed) == SCHEMA
    assert kills > 30
    assert folds > 10
    assert content(killed) == expected


@pytest.mark.parametrize("version", [5, 6, 7])
def test_what_schemas_with_growth_knew_stays(
    tmp_path: Path, closed: tuple[Path, dict[str, Any]], version: int
) -> None:
    """All columns are divided as they were; tables that were not there are empty, and take what comes."""
    path = older(closed[0], tmp_path / "store", version)
    lacks: dict[str, Any] = {5: {"bodies": ANY, "weights": ANY}, 6: {"weights": ANY}}.get(version, {})
    assert test_store_kill.content(path) == {**test_store_kill.content(closed[0]), **lacks}
    with Store(path, sizes=SMALL) as store:
        assert ({store.body_sum(page) for page in range(store.pages)} == {None}) == (version == 5)
        store.set_body_sum(3, 2**64 - 1)
    with Store(path, readonly=True, sizes=SMALL) as store:
        assert store.body_sum(3) == 2**64 - 1


def test_shards_are_converted_as_well(tmp_path: Path, closed: tuple[Path, dict[str, Any]]) -> None:
    """Those of schema 7, with what shards alone have: joined again, they are the store that they were."""
    whole, shards, again = tmp_path / "whole", tmp_path / "shards", tmp_path / "again"
    shutil.copytree(closed[0], whole)
    split(whole, shards, 3, SMALL)
    for shard in sorted(shards.glob("0*")):
        make_older(shard, 7)
    with open_sharded(shards, sizes=SMALL) as store:
        assert store.verify() == []
    assert {schema(shard) for shard in shards.glob("0*")} == {SCHEMA}
    join(shards_in(shards), again, SMALL)
    assert test_store_kill.content(again)["blocks"] == test_store_kill.content(whole)["blocks"]


def test_reading_converts_and_does_nothing_else(tmp_path: Path) -> None:
    """A store that is read first stays in its cycle, with the log, the plan and the new pages that it had."""
    path = tmp_path / "store"
    with Store(path, sizes=SMALL) as store:
        store.add_pages((number + 1, {"url": f"http://h/{number}/x"}) for number in range(9))
        store.begin_cycle({})
        store.record(NewVisit(store.add_page(77, {"url": "http://h/new/1"}), "first", 1.0))
        store.commit()
        store.set_request(9, {"url": "http://h/moved/1"})
    make_older(path)
    with pytest.raises(OlderStoreError, match=r"gp4c-store/3.*converted.*opened for writing"):
        Store(path, readonly=True)
    for _ in range(2):
        with open_store(path, readonly=True) as kept:
            assert (kept.open_cycle, kept.last_cycle, kept.pages, kept.merged_pages) == (1, 0, 10, 9)
            assert (kept.open_visits()["page"].tolist(), list(kept.new_pages())) == ([9], [9])
            assert len(kept.directories()) == 9
            assert kept.verify() == []
    with Store(path, sizes=SMALL) as store:
        store.finish_cycle({})
        assert store.verify() == []
        assert len(store.directories()) == 10
        assert store.request(9)["url"] == "http://h/moved/1"


def test_a_store_in_use_is_not_converted(tmp_path: Path) -> None:
    """The error names who has it, and why it is not enough to read."""
    path = tmp_path / "store"
    build(path)
    make_older(path)
    lock = WriterLock(path)
    with pytest.raises(StoreInUseError, match=f"process {os.getpid()}.*older version.*converted"):
        open_store(path, readonly=True)
    lock.release()
    assert schema(path) == "gp4c-store/3"


def test_a_conversion_without_room_leaves_the_store(
    tmp_path: Path, closed: tuple[Path, dict[str, Any]]
) -> None:
    """Where there is no room, it stays one of schema 3, and is converted when there is."""
    path = tmp_path / "store"
    path.mkdir()
    loose = older(closed[0], tmp_path / "loose")
    with lmdb.open(str(loose), max_dbs=32, map_size=2**30) as environment:
        environment.copy(str(path), compact=True)
    size = (path / "data.mdb").stat().st_size
    with pytest.raises(StoreFullError, match="no room"):
        open_store(path, sizes=SMALL._replace(map_size=size))
    assert schema(path) == "gp4c-store/3"
    assert content(path) == closed[1]


@pytest.mark.parametrize(
    ("table", "key", "value", "said"),
    [
        (b"urls", b"\0\0\0\2", None, "of the pages 0 to 2, some have no request"),
        (b"urls", b"\0\0\0\2", b"{", "the requests of the pages 0 to 2"),
        (b"visits", b"\0\0\0\1\0\0\0\0", b"\xff" * 29, "cycle 1 has a visit of page 4294967295 of"),
    ],
)
def test_a_damaged_store_is_not_converted(
    tmp_path: Path, closed: tuple[Path, dict[str, Any]], table: bytes, key: bytes, value: bytes, said: str
) -> None:
    """What cannot be computed is one error that says what is wrong; nothing is dropped."""
    path = older(closed[0], tmp_path / "store")
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        db = environment.open_db(table)
        with environment.begin(write=True) as txn:
            txn.delete(key, db=db)
            if value is not None:
                txn.put(key, value, db=db)
    with pytest.raises(StoreDamagedError, match=said):
        Store(path, sizes=SMALL)
    assert schema(path) == "gp4c-store/3"


def test_a_history_is_not_restored_over_a_store_of_the_version_before(
    tmp_path: Path, closed: tuple[Path, dict[str, Any]]
) -> None:
    """It has content too; an empty one is replaced."""
    path = older(closed[0], tmp_path / "store")
    line = iter([(1, "h\thttp://h/1\t01\t{}")])
    with pytest.raises(StoreError, match=f"has 88 pages and {CYCLES} cycles"):
        restore(path, "history", line, lambda request: (1, request))
    empty = tmp_path / "empty"
    Store(empty).close()
    make_older(empty)
    line = iter([(1, 'h\thttp://h/1\t01\t{"first_cycle": 1}')])
    assert restore(empty, "history", line, lambda request: (1, request)) == (1, 3)
    with Store(empty) as store:
        assert store.verify() == []
