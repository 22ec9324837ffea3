"""Damaged stores built anew: they are sound then, and what is said to be lost is what is lost."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreInUseError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store import repair as module
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.repair import Repaired, repair
from scrapy_gp4c.store.lmdb_store.salvage import Salvaged, salvage
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL, in_child, key, wait

PAGE = 4096
PAGES = 400
CYCLES = 6
SIZES = SMALL._replace(block_rows=32, visits_per_chunk=40)


def build(path: Path) -> None:
    """Make a store of several file pages for each table, whose last cycle is under way."""
    with Store(path, sizes=SIZES) as store:
        store.add_pages((key(n), {"url": f"http://h{n % 3}/{n % 17}/{n}{'x' * 60}"}) for n in range(PAGES))
        for cycle in range(1, CYCLES + 1):
            store.begin_cycle({"started": 1.0})
            visited = range(cycle % 4, PAGES, 4)
            store.add_round([np.array([(0.0, page, 0) for page in visited], PLAN)], 0)
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
    def of(cls, path: Path) -> Content:
        """Read a store."""
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


def repaired(path: Path, data: bytes, before: Content) -> Repaired:
    """Repair a store that has this file."""
    path.mkdir()
    (path / "data.mdb").write_bytes(data)
    done = repair(path, SIZES, lambda request: before.pages[request["url"]].key)
    assert (done.aside / "data.mdb").read_bytes() == data
    assert check(path, SIZES, deep=True) == []
    return done


def said(done: Repaired, *words: str) -> int:
    """How many of something are said to be lost."""
    return sum(lost.number for lost in done.lost if any(word in lost.what for word in words))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_lost_is_what_is_said(tmp_path: Path, sound: tuple[bytes, Content], seed: int) -> None:
    """Flipped bits, pages of zeros and lost ends: the result is sound, and all that is there is as it was."""
    numbers, (data, before) = random.Random(seed), sound
    damaged = bytearray(data)
    for _ in range(numbers.choice((1, 2, 5))):
        at = numbers.randrange(2, len(data) // PAGE) * PAGE
        if numbers.random() < 0.5:
            damaged[at : at + PAGE] = bytes(PAGE)
        for _ in range(30):
            damaged[at + numbers.randrange(PAGE)] ^= 1 << numbers.randrange(8)
    if seed % 6 == 5:
        del damaged[numbers.randrange(len(data) // 2, len(data)) :]
    done = repaired(tmp_path / "store", bytes(damaged), before)
    now = Content.of(tmp_path / "store")
    lost_pages = before.pages.keys() - now.pages.keys()
    assert now.pages.keys() <= before.pages.keys()
    if not said(done, "cannot be told"):
        assert len(lost_pages) == said(done, "pages, with", "pages found in the cycle")
    assert now.visits.items() <= before.visits.items()
    of_others = {visit for visit in before.visits.keys() - now.visits.keys() if visit[1] not in lost_pages}
    if not said(done, "commits of visits", "can be told", "cannot be told"):
        assert len(of_others) <= said(done, "visits of cycle")
    if not said(done, "visits", "states", "brought"):
        assert now.pages == {url: before.pages[url] for url in now.pages}


def test_a_sound_store_loses_nothing(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """All is as it was, the plan and the validators too, and the cycle goes on."""
    data, before = sound
    done = repaired(tmp_path / "store", data, before)
    assert done.lost == []
    assert Content.of(tmp_path / "store") == before
    with Store(tmp_path / "store", sizes=SIZES) as store, Store(done.aside, sizes=SIZES) as old:
        assert [chunk["page"].tolist() for chunk in store.plan()] == [
            np.concatenate([chunk["page"] for chunk in old.plan()]).tolist()
        ]
        every = range(store.pages)
        assert [store.validators(page) for page in every] == [old.validators(page) for page in every]
        assert (store.cycles(), store.store_id) == (old.cycles(), old.store_id)
        store.finish_cycle({})
        assert store.verify() == []


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
    done = repair(tmp_path / "killed", SIZES, lambda request: before.pages[request["url"]].key)
    assert done.lost == []
    assert Content.of(tmp_path / "killed") == Content.of(tmp_path / "whole")


def test_what_is_no_store_is_left_alone(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """One error, and nothing is changed; so it is while a crawl has the store."""
    path = tmp_path / "store"
    path.mkdir()
    (path / "data.mdb").write_bytes(b"no store at all" * 1000)
    with pytest.raises(StoreDamagedError, match=r"nothing of data\.mdb can be read"):
        repair(path, SIZES, lambda request: 1)
    assert (path / "data.mdb").read_bytes() == b"no store at all" * 1000
    shutil.rmtree(path)
    path.mkdir()
    (path / "data.mdb").write_bytes(sound[0])
    with Store(path, sizes=SIZES), pytest.raises(StoreInUseError):
        repair(path, SIZES, lambda request: 1)


def repaired_without(path: Path, sound: tuple[bytes, Content], gone: dict[str, Any]) -> Repaired:
    """Repair a store of which all values of some tables are gone whose key fits, or None: all."""
    data, before = sound

    def some(file: Path) -> Salvaged:
        found = salvage(file)
        for table, fits in gone.items():
            for one in [one for one in found.values[table] if fits is None or fits(one)]:
                del found.values[table][one]
        return found

    with patch.object(module, "salvage", some):
        return repaired(path, data, before)


def test_a_cycle_under_way_of_which_all_is_gone(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """The tables still count what they had: its new page and its commits are said to be lost."""
    gone = dict.fromkeys(("cycles", "log", "new", "plans", "notes"))
    done = repaired_without(tmp_path / "store", sound, gone)
    assert said(done, "pages found in the cycle") == 1
    assert said(done, "commits of visits") > 1
    assert len(sound[1].pages) - len(Content.of(tmp_path / "store").pages) == 1


def test_visits_that_only_the_columns_know(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """Of a cycle whose record is lost with its visits; some of them judged nothing."""
    gone = {"cycles": None, "visits": lambda one: U32_PAIR.unpack(one)[0] == 4}
    done = repaired_without(tmp_path / "store", sound, gone)
    assert said(done, "of no cycle that can be told") == 1
    assert not said(done, "visits of cycle")


def test_a_table_that_nothing_counts(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """What is missing of it cannot be told, and that is said."""
    data, before = sound

    def uncounted(file: Path) -> Salvaged:
        found = salvage(file)
        del found.entries["new"]
        return found

    with patch.object(module, "salvage", uncounted):
        done = repaired(tmp_path / "store", data, before)
    assert [str(lost) for lost in done.lost] == [
        "1 table of tables: whether single values are missing besides, cannot be told"
    ]
    assert Content.of(tmp_path / "store") == before


def test_a_wrong_id_gives_no_page_the_key_of_another(tmp_path: Path, sound: tuple[bytes, Content]) -> None:
    """Ids have no checksum: where the columns of a page are gone too, its request tells its key."""
    data, before = sound

    def crossed(file: Path) -> Salvaged:
        found = salvage(file)
        del found.values["columns"][U32.pack(0)]
        ids = found.values["ids"]
        (one, other) = (
            next(one for one, page in ids.items() if page == number) for number in (b"\0\0\0\1", b"\0\0\1\0")
        )
        ids[one] = ids[other]
        return found

    with patch.object(module, "salvage", crossed):
        repaired(tmp_path / "store", data, before)
    now = Content.of(tmp_path / "store")
    assert {url: page.key for url, page in now.pages.items()} == {
        url: page.key for url, page in before.pages.items()
    }
