"""Stores without some of their pages: the others have what they had, whatever moment a kill comes at."""

import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreInUseError
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.environment import WriterLock
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import check, forget
from scrapy_gp4c.store.records import SHADOW, NewVisit
from tests.crawling.test_damaged_store import damage
from tests.store.test_store_kill import SMALL, build, crawl, in_child, kill_at, wait


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of five cycles, with validators, finders, shadows, claims, and a page that has moved."""
    path = tmp_path_factory.mktemp("crawled") / "store"
    build(path)
    with Store(path, sizes=SMALL) as store:
        crawl(store, lambda cycle, count: None)
        store.begin_cycle({"started": 5.0})
        for page in range(0, store.pages, 3):
            store.set_validators(page, f'"{page}"', None)
        finders = {}
        for number in range(20):
            page = store.add_page(2**60 + number, {"url": f"http://late/{number % 3}/{number}"})
            finders[page] = START if number % 4 == 0 else number + 1
            store.note(page, "found_by", finders[page])
            store.record(NewVisit(page, "first", 5.0, fingerprint=page, bytes=9))
        store.set_request(min(finders), {"url": "http://moved/elsewhere/1"})
        store.note_many(np.arange(0, 60, 2), "sitemap", np.full(30, 4.5))
        shadows = np.zeros(10, SHADOW)
        shadows["page"] = range(0, 50, 5)
        store.put_shadows(5, shadows)
        store.finish_cycle({"visited": 20})
        store.begin_cycle({"started": 6.0})
        for page in range(0, 60, 4):
            outcome = "changed" if page % 3 else "unchanged"
            store.record(NewVisit(page, outcome, 6.0, fingerprint=page + 7, distance=9, bytes=9))
        store.note_many(np.arange(1, 40, 3), "modified", np.full(13, 5.5))
        store.finish_cycle({"visited": 15})
        store.claim_changes(np.arange(5, 25, dtype=np.uint32), 7.0)
        assert store.trust()["counts"].any()
        assert store.verify() == []
    return path


def state_of(path: Path) -> dict[str, dict[str, Any]]:
    """All that a store has of each page, by URL; finders by URL too."""
    with Store(path, readonly=True, sizes=SMALL) as store:
        urls = [request["url"] for request in store.requests(range(store.pages))]
        visits: dict[str, list[Any]] = {url: [] for url in urls}
        for cycle, result in store.visits():
            for visit in result:
                visits[urls[visit["page"]]].append(
                    (cycle, [visit[name].item() for name in ("time", "outcome")])
                )
        directories = store.directories()
        shadows = {urls[page] for page in store.shadows(5)["page"]}
        claims: dict[str, list[Any]] = {url: [] for url in urls}
        for cycle, claimed in store.claims_of_cycles():
            for claim in claimed:
                claims[urls[claim["page"]]].append((cycle, claim["kind"].item(), claim["value"].item()))
        extras = [
            np.concatenate([np.empty(0), *(block[name] for _, block in store.blocks())]).tolist()
            for name in hints.COLUMNS
        ]
        content = {}
        for page, url in enumerate(urls):
            row: PageRow = store.page(page)
            assert store.find(row.key) == page
            finder = row.found_by if row.found_by in (0, START) else urls[row.found_by - 1]
            content[url] = {
                "row": row._replace(group=0, found_by=0),
                "finder": finder,
                "directory": directories[row.group].tolist(),
                "visits": visits[url],
                "validators": store.validators(page),
                "copy": store.value("copies", page),
                "shadow": url in shadows,
                "claims": claims[url],
                "claimed": [values[page] for values in extras],
            }
        return content


def every(step: int, store: Store) -> Any:
    return np.arange(store.merged_pages) % step == 0


@pytest.mark.parametrize(("step", "kept_cycles"), [(1, None), (2, None), (3, 2), (7, None), (50, 2)])
def test_the_other_pages_have_what_they_had(
    tmp_path: Path, crawled: Path, step: int, kept_cycles: int | None
) -> None:
    """Columns, visits, directories, finders, validators, sums, shadows and claims, under new numbers."""
    path = tmp_path / "store"
    shutil.copytree(crawled, path)
    if kept_cycles is not None:
        with Store(path, sizes=SMALL) as store:
            store.keep_visits(kept_cycles)
            store_id, records = store.store_id, store.cycles()
    with Store(path, sizes=SMALL) as store:
        store_id, records = store.store_id, store.cycles()
    before = state_of(path)
    gone = {url for number, url in enumerate(before) if number % step == 0}
    assert forget(path, SMALL, partial(every, step)) == len(gone)
    after = state_of(path)
    expected = {url: content for url, content in before.items() if url not in gone}
    for content in expected.values():
        content["finder"] = 0 if content["finder"] in gone else content["finder"]
    assert after == expected
    assert check(path, deep=True) == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store"]
    with Store(path, sizes=SMALL) as store:
        assert store.store_id == store_id
        for record, old in zip(store.cycles(), records, strict=True):
            lost = sum(cycle == old["cycle"] for url in gone for cycle, _ in before[url]["visits"])
            assert record.pop("forgotten", 0) == lost
            assert record == old
        store.begin_cycle({})
        store.record(NewVisit(store.add_page(3**30, {"url": "http://late/0/new"}), "first", 1.0))
        store.finish_cycle({})
        assert store.verify() == []


def test_killed_in_any_transaction_there_is_the_old_store_or_the_new(tmp_path: Path, crawled: Path) -> None:
    """Killed in one of its transactions or another; what is left of the building does not stay."""
    before, transactions, status = state_of(crawled), 0, -signal.SIGKILL
    path = tmp_path / "store"
    shutil.copytree(crawled, path)

    def work(transactions: int) -> None:
        with kill_at(transactions, after_commit=True):
            forget(path, SMALL, partial(every, 3))

    while status == -signal.SIGKILL:
        assert state_of(path) == before
        transactions += 11
        status = wait(in_child(partial(work, transactions)))
    assert status == 0
    assert transactions > 30
    assert len(state_of(path)) == len(before) - -(-len(before) // 3)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store"]


def test_forgetting_twice_adds_up_and_a_repair_misses_nothing(tmp_path: Path, crawled: Path) -> None:
    """A cycle says how many of its visits are forgotten, so that these do not count as lost."""
    path = tmp_path / "store"
    shutil.copytree(crawled, path)
    for _ in range(2):
        forget(path, SMALL, partial(every, 4))
    state = state_of(path)
    damage(path, "copies", 1)
    assert check(path) != []
    repaired = recover(path, SMALL, lambda request: 0)
    assert [lost.partition(" of copies: ")[2] for lost in repaired.lost] == ["the notes of a page's copy"]
    after = state_of(path)
    assert [one["visits"] for one in after.values()] == [one["visits"] for one in state.values()]


def test_nothing_chosen_writes_nothing(tmp_path: Path, crawled: Path) -> None:
    """The file stays the one that it was."""
    path = tmp_path / "store"
    shutil.copytree(crawled, path)
    before = (path / "data.mdb").stat().st_ino
    assert forget(path, SMALL, lambda store: np.zeros(store.merged_pages, bool)) == 0
    assert (path / "data.mdb").stat().st_ino == before


def test_a_store_that_is_busy_or_damaged_is_left_alone(tmp_path: Path, crawled: Path) -> None:
    """In use, in a cycle, damaged: one error each, and the file stays."""
    path = tmp_path / "store"
    shutil.copytree(crawled, path)
    lock = WriterLock(path)
    with pytest.raises(StoreInUseError, match="process"):
        forget(path, SMALL, partial(every, 2))
    lock.release()
    with Store(path, sizes=SMALL) as store:
        store.begin_cycle({})
    with pytest.raises(StoreError, match=r"cycle 7 .* is not finished: run the spider"):
        forget(path, SMALL, partial(every, 2))
    with Store(path, sizes=SMALL) as store:
        store.finish_cycle({})
    damage(path, "urls", 1)
    with pytest.raises(StoreDamagedError, match="urls"):
        forget(path, SMALL, partial(every, 2))
    with Store(path, readonly=True) as store:
        assert store.pages == len(state_of(crawled))
