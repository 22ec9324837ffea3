"""Splitting a store and joining its shards: nothing is lost, whatever it holds and whenever a kill comes."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreInUseError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.store.history_text import lines
from scrapy_gp4c.store.lmdb_store.environment import WriterLock
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import (
    ARCHIVE,
    check,
    compact,
    forget,
    join,
    open_sharded,
    open_store,
    repair,
    shards_in,
    split,
)
from scrapy_gp4c.store.records import SHADOW, NewVisit, StoredGroups
from scrapy_gp4c.store.shards.directory import SHARDS_FILE
from scrapy_gp4c.store.shards.placing import shard_of_url
from tests.store.test_store_kill import SMALL, crawl, in_child, key, kill_at, wait
from tests.support.by_key import content
from training.histories.from_store import read_with_report


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all that there is: eleven cycles, claims, gains, weights, shadows, an archive."""
    path = tmp_path_factory.mktemp("crawled") / "store"
    with Store(path, sizes=SMALL) as store:
        store.add_pages(
            (key(number), {"url": f"http://h{number % 20}.org/{number % 3}/{number}"}) for number in range(60)
        )
        crawl(store, lambda cycle, count: None)
        store.gains.begin("a log")
        for cycle in range(store.last_cycle + 1, 12):
            store.begin_cycle({"started": 100.0 * cycle})
            for page in range(cycle % 3, store.pages, 3):
                store.set_validators(page, f'"{page}"', None)
                store.set_description(page, bytes(page))
                outcome = ("unchanged", "changed", "gone")[(page + cycle) % 3]
                store.record(NewVisit(page, outcome, 100.0 * cycle + page, fingerprint=page, bytes=9))
            pages = np.arange(0, store.pages, 4, dtype=np.uint32)
            store.hints.note(pages, "modified", pages * 10.0)
            store.hints.note(pages, "changefreq", pages * 100.0)
            for number in range(5):
                new = store.add_page(2**60 + 100 * cycle + number, {"url": f"http://new{number}.org/{cycle}"})
                store.note(new, "found_by", START if number == 0 else 7 * number)
            gains = np.zeros(6, GAIN)
            gains["page"], gains["ppm"], gains["gap_cycles"] = range(0, 60, 10), 0.3 * cycle, 1
            store.gains.keep(gains)
            shadows = np.zeros(10, SHADOW)
            shadows["page"] = range(0, 50, 5)
            shadows["X"] = cycle
            store.keep_shadows(cycle, shadows)
            store.finish_cycle({"visited": len(range(cycle % 3, store.pages - 5, 3)), "panel": None})
        store.set_request(7, {"url": "http://moved.example/elsewhere/1"})
        store.hints.tell(np.arange(3, 9, dtype=np.uint32), 1.0)
        assert store.verify() == []
    with sqlite3.connect(path / ARCHIVE) as archive:
        archive.execute("CREATE TABLE texts (key)")
    return path


def history(path: Path) -> list[str]:
    """The lines of an export."""
    with open_store(path, readonly=True, sizes=SMALL) as store:
        return list(lines(store))


@pytest.mark.parametrize("kept_cycles", [None, 3])
@pytest.mark.parametrize("shards", [1, 2, 7, 64])
def test_split_and_joined_a_store_is_what_it_was(
    tmp_path: Path, crawled: Path, shards: int, kept_cycles: int | None
) -> None:
    """Line by line of its export, and all that can be asked of it; each shard is a sound store."""
    path = tmp_path / "store"
    shutil.copytree(crawled, path)
    with Store(path, sizes=SMALL) as store:
        if kept_cycles is not None:
            store.keep_visits(kept_cycles)
        before = content(store)
        gains = [(cycle, rows.tolist()) for cycle, rows in store.gains.of_cycles()]
        store_id = store.store_id
    text, data = history(path), (path / "data.mdb").read_bytes()
    steps: list[tuple[str, int, int]] = []
    done = split(path, tmp_path / "shards", shards, SMALL, lambda *step: steps.append(step))
    assert done == (len(before["pages"]), 11, shards, ())
    assert {what for what, _, _ in steps} == {"pages", "cycles", "shards"}
    assert steps[-1] == ("shards", shards, shards)
    assert (path / "data.mdb").read_bytes() == data
    for place in shards_in(tmp_path / "shards"):
        assert check(place, SMALL, deep=True) == []
    with open_store(tmp_path / "shards", readonly=True, sizes=SMALL) as sharded:
        assert sharded.verify() == []
        assert sharded.store_id == store_id
        assert content(sharded) == before
        assert sum(len(rows) for _, rows in sharded.gains.of_cycles()) == sum(len(rows) for _, rows in gains)
    assert join(shards_in(tmp_path / "shards"), tmp_path / "joined", SMALL) == done[:2]
    assert history(tmp_path / "joined") == text
    assert (tmp_path / "joined" / ARCHIVE).exists()
    with Store(tmp_path / "joined", sizes=SMALL) as store:
        assert store.verify() == []
        assert store.store_id == store_id
        assert content(store) == before
        assert [(cycle, rows.tolist()) for cycle, rows in store.gains.of_cycles()] == gains


def test_learning_reads_the_same_history(tmp_path: Path, crawled: Path) -> None:
    """Of the joined store, array by array, so that the same is learned; of the shards page by page."""
    split(crawled, tmp_path / "shards", 5, SMALL)
    join(shards_in(tmp_path / "shards"), tmp_path / "joined", SMALL)
    one, many, joined = (
        read_with_report(path, max_errors=99, partial=True)[0]
        for path in (crawled, tmp_path / "shards", tmp_path / "joined")
    )
    for name in ("changed", "site", "weight", "observed", "key"):
        assert np.array_equal(getattr(one, name), getattr(joined, name))
    assert one.sha256 == joined.sha256
    assert one.page_names is not None
    assert joined.page_names is not None
    assert list(one.page_names) == list(joined.page_names)
    assert one.key is not None
    assert many.key is not None
    assert np.array_equal(one.changed[:, np.argsort(one.key)], many.changed[:, np.argsort(many.key)])


def test_pages_are_where_their_hosts_are(tmp_path: Path, crawled: Path) -> None:
    """By the URL that they were found by, whatever they are requested by now; no site is in two shards."""
    split(crawled, tmp_path / "shards", 16, SMALL)
    sites: list[set[int]] = []
    for number, place in enumerate(shards_in(tmp_path / "shards")):
        with Store(place, readonly=True, sizes=SMALL) as shard:
            sites.append(set(shard.directories()["site"].tolist()))
            for request in shard.requests(range(shard.pages)):
                if "moved" in request["url"]:
                    assert number == shard_of_url("http://h7.org/", 16)
                else:
                    assert number == shard_of_url(request["url"], 16)
            for record in shard.cycles():
                visits = sum(len(rows) for _, rows in shard.visits(record["cycle"], record["cycle"]))
                assert record["shard"]["visited"] == visits
    assert sum(map(len, sites)) == len(set.union(*sites))


def test_a_kill_leaves_nothing_that_is_taken_for_a_store(tmp_path: Path, crawled: Path) -> None:
    """Of a split what says that it is incomplete, and is split into anew; of a join nothing."""
    shards, joined = tmp_path / "shards", tmp_path / "joined"
    path = tmp_path / "store"
    shutil.copytree(crawled, path)

    def work(transactions: int) -> None:
        with kill_at(transactions, after_commit=transactions % 2 == 0):
            if not shards.exists() or not json.loads((shards / SHARDS_FILE).read_text())["complete"]:
                split(path, shards, 5, SMALL)
            else:
                join(shards_in(shards), joined, SMALL)

    for transactions in (1, 2, 7, 20, 40, 80):
        assert wait(in_child(partial(work, transactions))) == -signal.SIGKILL
        for call in (partial(open_store, shards, readonly=True), partial(open_sharded, shards)):
            with pytest.raises(StoreError, match="not complete: what made them was interrupted"):
                call()
    assert wait(in_child(partial(work, 10**9))) == 0
    for transactions in (1, 2, 7, 20, 40):
        assert wait(in_child(partial(work, transactions))) == -signal.SIGKILL
        with pytest.raises(StoreError, match="there is no page store"):
            open_store(joined, readonly=True)
    assert wait(in_child(partial(work, 10**9))) == 0
    assert history(joined) == history(path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["joined", "shards", "store"]


def test_what_cannot_be_split_is_one_error(tmp_path: Path, crawled: Path) -> None:
    """A cycle under way, a crawl that has the store, a shard, other files, too many shards."""
    path, shards = tmp_path / "store", tmp_path / "shards"
    shutil.copytree(crawled, path)
    shards.mkdir()
    (shards / "notes.txt").touch()
    with pytest.raises(StoreError, match=r"to be empty, or not there; found 'notes.txt'"):
        split(path, shards, 2, SMALL)
    (shards / "notes.txt").unlink()
    with pytest.raises(StoreError, match="expected 1 to 1,024 shards; found 2,000"):
        split(path, shards, 2000, SMALL)
    lock = WriterLock(path)
    with pytest.raises(StoreInUseError):
        split(path, shards, 2, SMALL)
    lock.release()
    with Store(path, sizes=SMALL) as store:
        store.begin_cycle({})
    with pytest.raises(StoreError, match=r"cycle 12 of the store .* is not finished: run the spider"):
        split(path, shards, 2, SMALL)
    assert list(shards.iterdir()) == []
    with Store(path, sizes=SMALL) as store:
        store.finish_cycle({})
    split(path, shards, 2, SMALL)
    with pytest.raises(StoreError, match="found '0000'"):
        split(path, shards, 2, SMALL)
    with pytest.raises(StoreError, match="is shard 0 of 2"):
        split(shards / "0000", tmp_path / "more", 2, SMALL)
    with pytest.raises(StoreError, match="is shard 0 of 2"):
        open_store(shards / "0000", readonly=True)
    with pytest.raises(StoreError, match="is shard 0 of 2"):
        forget(shards / "0000", SMALL, lambda store: np.ones(store.merged_pages, np.bool_))
    with pytest.raises(StoreError, match="is shard 0 of 2"):
        repair(shards / "0000", SMALL, lambda request: 0)
    compact(shards / "0000", SMALL)
    with open_sharded(shards, sizes=SMALL) as sharded:
        assert sharded.verify() == []


def test_what_cannot_be_joined_is_one_error(tmp_path: Path, crawled: Path) -> None:
    """Shards that are missing, twice there or of another store; a cycle under way; a place that is taken."""
    split(crawled, tmp_path / "shards", 3, SMALL)
    Store(tmp_path / "other").close()
    split(tmp_path / "other", tmp_path / "others", 3, SMALL)
    own, others = shards_in(tmp_path / "shards"), shards_in(tmp_path / "others")
    for given, message in (
        (own[:2], "expected all 3 shards; of 1 there is none, the first is shard 2"),
        ([*own[:2], others[2]], "expected shards of one store"),
        ([tmp_path / "other"], "to be a shard; found a store of its own"),
    ):
        with pytest.raises(StoreError, match=message):
            join(given, tmp_path / "joined", SMALL)
    with pytest.raises(StoreError, match="a history is restored into a new store only"):
        join(own, crawled, SMALL)
    with open_sharded(tmp_path / "shards", sizes=SMALL) as sharded:
        sharded.begin_cycle({})
    with pytest.raises(StoreError, match=r"cycle 12 of the shard .* is not finished"):
        join(own, tmp_path / "joined", SMALL)
    with pytest.raises(StoreError, match="no shards in"):
        shards_in(tmp_path)
    (tmp_path / "shards" / SHARDS_FILE).write_text("[]")
    with pytest.raises(StoreDamagedError, match="to be of the format gp4c-shards/1"):
        open_store(tmp_path / "shards")
    assert not (tmp_path / "joined").exists()


def test_clusters_are_left_out_and_that_is_said(tmp_path: Path, crawled: Path) -> None:
    """They lead from shard to shard; neither can shards be given any, nor gains of searches."""
    path = tmp_path / "store"
    shutil.copytree(crawled, path)
    with Store(path, sizes=SMALL) as store:
        nothing = np.empty(0, np.intp)
        links = Links(nothing, nothing, store.pages)
        clusters = PageGroups(np.zeros(store.pages, np.int32), np.zeros((1, 1), np.int32), links, "id")
        stored = StoredGroups(clusters, np.zeros(store.pages, np.uint8), {})
        store.put_clusters(stored)
    assert split(path, tmp_path / "shards", 2, SMALL).left_out == (
        "clusters and links of pages: make them anew",
    )
    with open_sharded(tmp_path / "shards", sizes=SMALL) as sharded:
        assert sharded.clusters() is None
        with pytest.raises(StoreError, match="expected one store to keep clusters"):
            sharded.put_clusters(stored)
        with pytest.raises(StoreError, match="without GP4C_QUERY_LOG"):
            sharded.gains.begin("another log")
        with pytest.raises(StoreError, match="without GP4C_QUERY_LOG"):
            sharded.gains.keep(np.empty(0, GAIN))
