"""A worker's shards: nothing is written that the ledger lacks, and what it has can be written again."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.distributed.segments import Segment, unpack
from scrapy_gp4c.distributed.shared_store import FLUSH_VISITS, SharedStore
from scrapy_gp4c.scoring.growth import ELSEWHERE
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import LmdbShard, Sealed, open_shard, shards_in, split
from scrapy_gp4c.store.records import NewVisit
from scrapy_gp4c.store.shards.part import Finder
from scrapy_gp4c.store.shards.placing import shard_of_url
from tests.store.test_store_kill import SMALL, key
from tests.support.by_key import content

SHARDS, PAGES = 4, 40
LAZY = SMALL._replace(commit_visits=2**31 - 1)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards with the pages of ten hosts, in cycle 1."""
    folder = tmp_path_factory.mktemp("begun")
    with Store(folder / "whole", sizes=SMALL) as store:
        store.add_pages((key(page), {"url": url(page)}) for page in range(PAGES))
    split(folder / "whole", folder / "shards", SHARDS, SMALL)
    for path in shards_in(folder / "shards"):
        with open_shard(path, SHARDS, LAZY) as one:
            one.begin_cycle({"started": 1.0})
    return folder / "shards"


def url(page: int) -> str:
    """Where a page is."""
    return f"http://h{page % 10}.org/{page}"


def opened(stack: ExitStack, folder: Path) -> list[LmdbShard]:
    """All shards of a folder."""
    return [stack.enter_context(open_shard(path, SHARDS, LAZY)) for path in shards_in(folder)]


def visit(store: SharedStore, page: int) -> None:
    """Visit a page; what comes of it follows from its number, a new page now and then."""
    found = store.find(key(page))
    assert found is not None
    store.record(NewVisit(found, "first", 100.0 + page, "new", 7 * page, bytes=page))
    store.note(found, "weight", page / 2)
    if page % 4 == 0:
        new = store.add_page(key(1000 + page), {"url": url(page) + "/new"})
        store.note(new, "found_by", found + 1)


def test_nothing_is_written_before_it_is_acknowledged(begun: Path, tmp_path: Path) -> None:
    """A kill loses what the ledger does not have, and no more; numbers of segments go on after it."""
    shutil.copytree(begun, tmp_path / "own")
    with ExitStack() as stack:
        store = SharedStore(tmp_path / "own", opened(stack, tmp_path / "own"))
        for page in range(20):
            visit(store, page)
        assert (store.waiting, len(store.open_visits())) == (20, 20)
        first = store.sealed()
        assert sum(one.visits for one in first) == 20
        assert store.sealed() == ()
        for page in range(20, 30):
            visit(store, page)
        second = store.sealed()
        assert store.waiting == 30
        assert sum(one.acknowledged_visits for one in store.shards) == 0
        store.write(first)
        assert store.waiting == 10
        assert sum(one.acknowledged_visits for one in store.shards) == 20
        assert {(one.shard, one.seq) for one in first} == {(one.shard, 0) for one in first}
        assert all(one.seq == (one.shard in {other.shard for other in first}) for one in second)
        applied = {number: int(number in {one.shard for one in first}) for number in range(SHARDS)}
        assert {one.shard_of.number: one.applied for one in store.shards} == applied
    with ExitStack() as stack:
        again = SharedStore(tmp_path / "own", opened(stack, tmp_path / "own"))
        assert (again.waiting, len(again.open_visits())) == (0, 20)
        assert {one.shard_of.number: one.applied for one in again.shards} == applied


@settings(max_examples=15)
@given(
    pages=st.lists(st.integers(0, PAGES - 1), unique=True), cuts=st.sets(st.integers(1, PAGES), max_size=5)
)
def test_segments_rebuild_what_was_written(begun: Path, pages: list[int], cuts: set[int]) -> None:
    """However visits are divided into flushes: segments applied to shards as they were give the same."""
    folder = begun.parent / "rebuilt"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("own", "again"):
        shutil.copytree(begun, folder / name)
    log: list[Segment] = []
    with ExitStack() as stack:
        store = SharedStore(folder / "own", opened(stack, folder / "own"))
        for number, page in enumerate(pages, 1):
            visit(store, page)
            if number in cuts or number == len(pages):
                sealed = store.sealed()
                log += sealed
                store.write(sealed)
        rebuilt = opened(stack, folder / "again")
        for one in log:
            rebuilt[one.shard].apply(Sealed(*unpack(one.body)), one.seq)
        for own, again in zip(store.shards, rebuilt, strict=True):
            assert content(again) == content(own)
            assert again.applied == own.applied


def test_a_flush_is_asked_for_when_enough_waits(begun: Path, tmp_path: Path) -> None:
    """After so many visits; a commit is left to the flushes that follow."""
    shutil.copytree(begun, tmp_path / "own")
    asked: list[int] = []
    with ExitStack() as stack:
        store = SharedStore(tmp_path / "own", opened(stack, tmp_path / "own"))
        store.on_full = lambda: asked.append(store.waiting)
        for number in range(FLUSH_VISITS + 1):
            page = store.add_page(key(5000 + number), {"url": f"http://h{number % 10}.org/more/{number}"})
            store.record(NewVisit(page, "first", 1.0, "new", 1))
        assert asked == [FLUSH_VISITS, FLUSH_VISITS + 1]
        store.sealed()
        store.commit()
        assert len(asked) == 2


def test_pages_of_others_are_known_by_key_and_shard(begun: Path, tmp_path: Path) -> None:
    """Who of another worker's shard found a page is kept beside it; of an own one, its page."""
    shutil.copytree(begun, tmp_path / "own")
    with ExitStack() as stack:
        own = opened(stack, tmp_path / "own")[:2]
        store = SharedStore(tmp_path / "own", own)
        mine = [page for page in range(PAGES) if shard_of_url(url(page), SHARDS) in (0, 1)]
        assert store.numbers == [0, 1]
        assert [page for page in range(PAGES) if store.has(url(page))] == mine
        host = url(mine[0])
        new = [store.add_page(key(7000 + number), {"url": f"{host}/{number}"}) for number in range(2)]
        finder = store.find(key(mine[-1]))
        assert finder is not None
        told = store.key_and_shard(finder)
        assert told == Finder(key(mine[-1]), shard_of_url(url(mine[-1]), SHARDS))
        assert store.shard_number(finder) == told.shard
        store.find_elsewhere(new[0], told)
        store.find_elsewhere(new[1], Finder(99, 3))
        notes = {(row["page"].item(), row["value"].item()) for row in store.notes()}
        assert notes == {(new[0], finder + 1), (new[1], 0)}, "that of others has no number here"
        shard = next(one for one in own if one.find(key(7001)) is not None)
        local = shard.find(key(7001))
        assert local is not None
        assert shard.finder_of(local) == Finder(99, 3)
        assert ELSEWHERE in shard.notes()["value"].tolist()
