"""Real ``kill -9`` between two shards: opened again they are one store, which has lost nothing committed."""

from __future__ import annotations

import random
import signal
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreError, StoreFullError
from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.store.lmdb_store import fold as lmdb_fold
from scrapy_gp4c.store.lmdb_store.shard import LmdbShard
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import open_sharded, open_store, shards_in, split
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import SHADOW, CycleRecord, NewVisit
from tests.store.test_store_kill import SMALL, in_child, key, kill_at, outcome, wait
from tests.support.by_key import content

PAGES, CYCLES, ROUNDS, NEW = 40, 3, 2, 6


def url_of(number: int) -> str:
    """On one of eleven hosts."""
    return f"http://h{number % 11}.org/{number % 2}/{number}"


def crawl(store: PageStore) -> None:
    """Run, or go on with, cycles 1..CYCLES: by keys alone, so that it is the same for any order of pages."""
    while store.last_cycle < CYCLES:
        cycle = store.open_cycle or store.begin_cycle({"started": 100.0})
        for number in range(len(store.rounds()), ROUNDS + 1):
            pages = [page for chunk in list(store.plan()) for page in chunk["page"].tolist()]
            assert len(pages) == len(set(pages))
            for page in pages:
                own = store.page(page).key
                if not store.visited(page):
                    store.set_body_sum(page, own // 2)
                    store.record(NewVisit(page, outcome(own, cycle), float(cycle), "other", own // 3))
            if number < ROUNDS:
                store.commit()
                known = [store.find(key(one)) for one in range(number, PAGES + (cycle - 1) * NEW, ROUNDS)]
                rows = np.zeros(len(known), PLAN)
                rows["page"], rows["score"] = known, range(len(known))
                seen = len(store.open_visits())
                store.add_round(iter([rows]), seen=seen, plan={"known": len(known), "ranked": number})
        for number in range(NEW):
            one = PAGES + (cycle - 1) * NEW + number
            page = store.find(key(one))
            if page is None:
                page = store.add_page(key(one), {"url": url_of(one)})
                finder = store.find(key(one // 3))
                assert finder is not None
                store.note(page, "found_by", finder + 1)
            if not store.visited(page):
                store.record(NewVisit(page, "first", float(cycle), fingerprint=one))
        shadows = np.zeros(4, SHADOW)
        shadows["page"] = [store.find(key(one)) for one in range(0, 40, 10)]
        shadows["key"], shadows["n"] = [key(one) for one in range(0, 40, 10)], cycle
        store.keep_shadows(cycle, shadows)
        store.finish_cycle({"finished": 200.0, "visited": len(store.open_visits())})


def told(path: Path) -> dict[str, Any]:
    """All that a store has, but for the visits that rounds have seen, which a kill may take."""
    with open_store(path, sizes=SMALL) as store:
        assert store.verify() == []
        found = content(store)
    for record in found["cycles"]:
        for one in record["rounds"]:
            one.pop("seen")
    return found


def made(directory: Path, shards: int) -> Path:
    """A store with PAGES pages, ``one``, and the shards that it is split into."""
    with Store(directory / "one", sizes=SMALL) as store:
        store.add_pages((key(number), {"url": url_of(number)}) for number in range(PAGES))
    split(directory / "one", directory / "shards", shards, SMALL)
    return directory / "shards"


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_kill_in_any_transaction_of_any_shard_changes_nothing(tmp_path: Path, after_commit: bool) -> None:
    """Begins, rounds, commits and folds of three shards are broken off anywhere; the crawl ends as one of one
    store that was never killed."""
    shards = made(tmp_path, 3)
    with Store(tmp_path / "one", sizes=SMALL) as store:
        crawl(store)

    def work(transactions: int) -> None:
        with kill_at(transactions, after_commit), open_sharded(shards, sizes=SMALL) as store:
            crawl(store)

    numbers, kills, torn = random.Random(3), 0, 0
    while (status := wait(in_child(partial(work, numbers.choice((1, 2, 3, 5, 8, 13)))))) != 0:
        assert status == -signal.SIGKILL
        kills += 1
        assert kills < 1000
        with open_sharded(shards, readonly=True, sizes=SMALL) as store:
            assert store.last_cycle <= CYCLES
            assert len(store.open_visits()) <= store.pages
        states = []
        for place in shards_in(shards):
            with LmdbShard(place, readonly=True, sizes=SMALL) as shard:
                states.append((shard.last_cycle, shard.open_cycle, len(shard.rounds())))
        torn += len(set(states)) > 1
    assert kills > 25
    assert torn > 10, "of the kills, some came between two shards"
    assert told(shards) == told(tmp_path / "one")


@pytest.mark.parametrize("fold", [0, 1, 2])
@pytest.mark.parametrize("reopen", [False, True])
def test_a_full_disk_in_the_fold_of_a_shard_holds_up_the_cycle_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fold: int, reopen: bool
) -> None:
    """The same call goes on once there is room, and so does the next opening."""
    shards = made(tmp_path, 3)
    with Store(tmp_path / "one", sizes=SMALL) as one:
        crawl(one)
    folds = 0

    def failing(*arguments: Any) -> None:
        nonlocal folds
        folds += 1
        if folds == fold + 1:
            raise StoreFullError("no room")
        put_visits(*arguments)

    put_visits = lmdb_fold.put_visits
    monkeypatch.setattr(lmdb_fold, "put_visits", failing)
    store = open_sharded(shards, sizes=SMALL)
    finish = store.finish_cycle

    def again(record: CycleRecord) -> None:
        try:
            finish(record)
        except StoreFullError:
            assert store.open_cycle == 1
            if reopen:
                raise
            finish(record)

    monkeypatch.setattr(store, "finish_cycle", again)
    with pytest.raises(StoreFullError) if reopen else nullcontext():
        crawl(store)
    store.close()
    with open_sharded(shards, sizes=SMALL) as store:
        crawl(store)
    assert folds > fold
    assert told(shards) == told(tmp_path / "one")


def test_shards_of_different_times_are_one_error(tmp_path: Path) -> None:
    """One that was brought back from an old backup does not belong to the others."""
    shards = made(tmp_path, 3)
    with LmdbShard(shards_in(shards)[1], sizes=SMALL) as shard:
        for _ in range(2):
            shard.begin_cycle({"started": 1.0})
            shard.finish_cycle({"finished": 2.0})
    with pytest.raises(StoreError, match=r"0001, which has ended cycle 2, and .*0000, which is in cycle 1"):
        open_sharded(shards, sizes=SMALL)


def test_some_shards_are_opened_without_the_others(tmp_path: Path) -> None:
    """As a worker does that holds some: pages of the others are not known, and cannot be added."""
    shards = made(tmp_path, 3)
    with open_sharded(shards, sizes=SMALL) as store:
        crawl(store)
        everything = content(store)["pages"]
    places = shards_in(shards)
    with open_sharded(shards, places[1:], sizes=SMALL) as store:
        assert store.verify() == []
        found = content(store)["pages"]
        assert 0 < len(found) < len(everything)
        for one, page in found.items():
            finder = page.pop("finder")
            expected = dict(everything[one])
            assert finder in (0, expected.pop("finder"))
            assert page == expected
        store.begin_cycle({})
        missing = next(page["request"] for one, page in everything.items() if one not in found)
        with pytest.raises(ValueError, match="is of shard 0, which is not among those that are open"):
            store.add_page(12345, missing)
    with pytest.raises(StoreError, match="expected each shard once, by number"):
        open_sharded(shards, [places[1], places[0]], sizes=SMALL)
