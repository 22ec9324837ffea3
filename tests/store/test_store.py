"""The store as a whole: calls that it refuses, and what it makes of its arguments."""

import signal
import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import unpack
from scrapy_gp4c.page_state.groups import add_up
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.scoring import first_visits, hints
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import (
    USUAL,
    Sizes,
)
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.records import SHADOW, CycleRecord, NewVisit
from tests.store.test_store_kill import SMALL, in_child, kill_at, wait
from tests.support.stores import pages


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    """Calls that would break the store's rules raise ValueError and leave it as it was."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(3))
        for call in (
            lambda: store.record(NewVisit(0, "first", time=0.0)),
            lambda: store.finish_cycle({}),
            lambda: store.add_page(1, {}),
            lambda: store.add_round(np.empty(0, PLAN), seen=0),
        ):
            with pytest.raises(ValueError, match="no cycle is open"):
                call()
        store.begin_cycle({})
        with pytest.raises(ValueError, match="not finished"):
            store.begin_cycle({})
        for page in (-1, 3):
            with pytest.raises(ValueError, match="there is no page"):
                store.record(NewVisit(page, "first", time=0.0))
            with pytest.raises(ValueError, match="there is no page"):
                store.request(page)
        with pytest.raises(ValueError, match="not in"):
            store.record(NewVisit(0, "perhaps", time=0.0))
        with pytest.raises(struct.error):
            store.record(NewVisit(0, "first", time=0.0, bytes=2**32))
        with pytest.raises(TypeError):
            store.set_request(0, {"url": object()})
        assert not store.visited(0)
        assert len(store.open_visits()) == 0
        assert store.verify() == []


def test_an_import_that_fails_keeps_what_it_added(tmp_path: Path) -> None:
    """When the source of pages raises, whole batches before it stay, and the store is sound."""

    def failing() -> object:
        yield from pages(USUAL.pages_per_transaction + 10)
        raise RuntimeError("the source broke")

    with Store(tmp_path / "store") as store:
        with pytest.raises(RuntimeError, match="the source broke"):
            store.add_pages(failing())
        assert store.pages == USUAL.pages_per_transaction
        assert store.find(1) == 0


def test_latency_is_kept_in_milliseconds(tmp_path: Path) -> None:
    """Rounded up, so that 0 means not measured; more than the field holds saturates."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(4))
        store.begin_cycle({"started": 1.0})
        for page, latency_s in enumerate((0.0, 0.0001, 0.25, 120.0)):
            store.record(NewVisit(page, "first", time=1.0, latency_s=latency_s))
        assert store.open_visits()["latency_ms"].tolist() == [0, 1, 250, 65_535]


@given(st.sets(st.integers(0, 49)), st.integers(1, 60))
def test_columns_of_some_pages(chosen: set[int], block_rows: int) -> None:
    """As in the blocks, whatever these hold; of no pages, no rows."""
    with TemporaryDirectory() as directory, Store(directory, sizes=Sizes(block_rows=block_rows)) as store:
        store.add_pages(pages(50))
        ids = np.array(sorted(chosen), np.uint32)
        result = store.columns_of(ids)
        assert result["key"].tolist() == [store.page(page).key for page in ids.tolist()]
        assert result.keys() == {*columns.COLUMNS, *hints.COLUMNS, *first_visits.COLUMNS, "weight"}
        few = store.columns_of(ids, ("group", "key"))
        assert few.keys() == {"group", "key"}
        assert few["key"].tolist() == result["key"].tolist()
        assert few["key"].dtype == result["key"].dtype


def test_a_record_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    """Keys of another version, and the order of all, as they were written."""
    with Store(tmp_path / "store") as store:
        store.begin_cycle({"started": 1.0, "later": {"b": 1, "a": None}, "budget": 0.5})
        store.amend_record(seed=3, started=2.0)
        store.finish_cycle({"reason": "finished", "finished": 4.0})
    with Store(tmp_path / "store") as store:
        (record,) = store.cycles()
    expected = {"cycle": 1, "started": 2.0, "later": {"b": 1, "a": None}, "budget": 0.5, "seed": 3}
    assert list(record.items()) == [*expected.items(), ("finished", 4.0), ("reason", "finished")]


class Watched:
    """LMDB's environment with a note of what was called."""

    def __init__(self, environment: Any, calls: list[str]) -> None:
        self._environment, self._calls = environment, calls

    def __getattr__(self, name: str) -> Any:
        if name in ("sync", "close", "begin"):
            self._calls.append(name)
        return getattr(self._environment, name)


def test_the_last_commit_is_synced_when_a_cycle_and_the_store_close(tmp_path: Path) -> None:
    """Header and all: nothing is written between it and the return of `finish_cycle`, or the close."""
    calls: list[str] = []
    store = Store(tmp_path / "store")
    store.environment.lmdb = Watched(store.environment.lmdb, calls)
    store.begin_cycle({})
    store.finish_cycle({})
    assert calls[-1] == "sync"
    store.begin_cycle({})
    store.close()
    assert calls[-2:] == ["sync", "close"]
    with Store(tmp_path / "store", readonly=True) as reader:
        reader.environment.lmdb = Watched(reader.environment.lmdb, calls)
    assert calls[-2:] == ["sync", "close"] or calls[-1] == "close"
    assert calls.count("sync") == 2


def test_a_cycle_does_not_import_masked_arrays(tmp_path: Path) -> None:
    """NumPy does so for some calls, which takes longer than opening and closing a store."""
    lines = """
import sys
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
for cycle in range(2):
    with Store(sys.argv[1]) as store:
        store.check_sample()
        store.begin_cycle({})
        page = store.add_page(cycle + 1, {"url": f"http://h.example/{cycle}"})
        store.record(NewVisit(page, "first", time=0.0))
        store.finish_cycle({})
assert "numpy.ma" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", lines, str(tmp_path / "store")], check=True)


def some(dtype: np.dtype) -> np.ndarray:
    """Two shadows: the last visit of the first found a change, that of the second did not."""
    shadows = np.zeros(2, dtype)
    for number, name in enumerate(dtype.names or ()):
        shadows[name] = number + 1
    shadows["page"], shadows["X"] = (4, 9), (2, 3)
    shadows["first_cycle"], shadows["last_cycle"], shadows["last"] = (1, 2), (7, 6), (1, 0)
    return shadows


def test_shadows_are_kept_for_two_cycles(tmp_path: Path) -> None:
    """Shadows of the cycle before stay; older ones, and those of other cycles, are gone."""
    with Store(tmp_path) as store:
        for cycle in (1, 2, 3):
            store.put_shadows(cycle, some(SHADOW)[: 3 - cycle])
        assert [len(store.shadows(cycle)) for cycle in range(5)] == [0, 0, 1, 0, 0]
        assert store.shadows(2).tolist() == some(SHADOW)[:1].tolist()
        store.put_shadows(3, some(SHADOW))
    with Store(tmp_path, readonly=True) as store:
        assert store.shadows(3).tolist() == some(SHADOW).tolist()
        assert store.shadows(3).dtype == SHADOW


def test_a_page_stays_in_the_directory_in_which_it_was_found(tmp_path: Path) -> None:
    """A request that is replaced by one to another URL moves nothing that was found there."""
    with Store(tmp_path) as store:
        store.add_pages(pages(3))
        store.begin_cycle({})
        new = store.add_page(50, {"url": "http://h/new/1"})
        for url in ("http://h/other/0", "http://h/third/0"):
            store.set_request(0, {"url": url})
            store.set_request(new, {"url": url})
            store.commit()
        store.set_request(1, {"url": "http://h/other-page-of-the-same"})
        store.record(NewVisit(0, "first", 1.0))
        store.finish_cycle({})
        assert [store.page(page).group for page in range(4)] == [0, 0, 0, 1]
        assert store.request(new)["url"] == "http://h/third/0"
        assert store.verify() == []
        first = list(store.first_urls().values())
    assert first == ["http://h/0", "http://h/new/1"]


def test_the_last_eight_cycles_are_kept(tmp_path: Path) -> None:
    """Each as one value, with the visits that can be judged; older ones and the open one are empty."""
    with Store(tmp_path) as store:
        store.add_pages((number + 1, {"url": f"http://h/{number % 2}/x"}) for number in range(4))
        for cycle in range(1, 13):
            assert store.begin_cycle({}) == cycle
            for page, outcome in enumerate(("changed", "unchanged", "error", "not_modified")):
                store.record(NewVisit(page, "first" if cycle == 1 else outcome, 1.0))
            if cycle < 12:
                store.finish_cycle({})
        store.commit()
        sums = [store.group_visits(cycle) for cycle in range(14)]
        assert [len(visits) for visits in sums] == [*[0] * 4, *[2] * 8, 0, 0]
        assert sums[5][["group", "visits", "changes"]].tolist() == [(0, 1, 1), (1, 2, 0)]
        full = add_up(sums)
        assert full[["group", "visits", "changes"]].tolist() == [(0, 8, 8), (1, 16, 0)]
        assert store.verify() == []


PAGES = 40


def crawl(path: Path, cycles: int, keep: int | None) -> None:
    """Run cycles that visit half of the pages, and find a new page each."""
    with Store(path, sizes=SMALL) as store:
        if not store.pages:
            store.add_pages(pages(PAGES))
        for _ in range(cycles):
            cycle = store.begin_cycle({"started": 1.0})
            for page in range(cycle % 2, PAGES, 2):
                outcome = OUTCOMES[(page * 5 + cycle) % len(OUTCOMES)] if cycle > 2 else "first"
                store.record(NewVisit(page, outcome, 1.0, fingerprint=cycle))
            new = store.add_page(2**60 + cycle, {"url": f"http://h/new/{cycle}"})
            store.record(NewVisit(new, "first", 1.0))
            store.finish_cycle({})
            if keep is not None:
                store.keep_visits(keep)


def columns_of(path: Path) -> list[Any]:
    with Store(path, readonly=True) as store:
        return [{name: column.tobytes() for name, column in block.items()} for _, block in store.blocks()]


def test_what_visits_did_stays(tmp_path: Path) -> None:
    """The columns are those of a store that keeps all; the last cycles' visits are there, and it is sound."""
    crawl(tmp_path / "all", 15, None)
    crawl(tmp_path / "some", 15, 4)
    assert columns_of(tmp_path / "some") == columns_of(tmp_path / "all")
    with Store(tmp_path / "all") as store, Store(tmp_path / "some") as trimmed:
        expected = [(cycle, visits.tobytes()) for cycle, visits in store.visits() if cycle > 11]
        assert [(cycle, visits.tobytes()) for cycle, visits in trimmed.visits()] == expected
        assert np.array_equal(trimmed.group_visits(15), store.group_visits(15))
        assert len(trimmed.cycles()) == 15
    assert check(tmp_path / "some", deep=True) == []


def test_damage_is_found_by_the_visits_that_are_left(tmp_path: Path) -> None:
    """A page that was found since, and whenever a page was visited last, can be told by them."""
    path = tmp_path / "store"
    crawl(path, 15, 4)
    for page, name in ((PAGES + 13, "n"), (3, "last_attempt")):
        with Store(path, sizes=SMALL) as store:
            block, row = divmod(page, SMALL.block_rows)
            with store.transaction(write=True) as txn:
                state = dict(unpack(store.block(txn, block)))
                state[name] = state[name].copy()
                state[name][row] += 1
                store.put_block(txn, block, state)
            assert any(f"page {page} has {name}" in problem for problem in store.verify())


@pytest.mark.slow
def test_a_store_that_drops_visits_stays_as_large_as_it_is(tmp_path: Path) -> None:
    """Its file grows until LMDB has room to reuse, and then no more but for records and new pages."""
    crawl(tmp_path / "some", 60, 4)
    size = (tmp_path / "some" / "data.mdb").stat().st_size
    crawl(tmp_path / "some", 60, 4)
    crawl(tmp_path / "all", 120, None)
    grown = (tmp_path / "some" / "data.mdb").stat().st_size - size
    assert grown < 0.5 * size
    assert (tmp_path / "all" / "data.mdb").stat().st_size > 1.3 * (size + grown)


def test_more_cycles_than_there_are_drop_nothing(tmp_path: Path) -> None:
    """So does a second time."""
    crawl(tmp_path / "store", 3, 5)
    with Store(tmp_path / "store", sizes=SMALL) as store:
        assert {cycle for cycle, _ in store.visits()} == {1, 2, 3}
        for _ in range(2):
            store.keep_visits(1)
            assert {cycle for cycle, _ in store.visits()} == {3}
            assert store.verify() == []


PLAN_SIZES = Sizes(plan_rows=4, commit_visits=100)


def rows(*ids: int) -> Any:
    """A part of a plan."""
    plan = np.zeros(len(ids), PLAN)
    plan["page"] = ids
    return plan


def planned(store: Store) -> list[int]:
    """Pages of the open cycle's plan."""
    return store.plan()["page"].tolist()


def begun_store(path: Path) -> Store:
    """A store of 100 pages with an open cycle, whose first round has 10 pages."""
    store = Store(path, sizes=PLAN_SIZES)
    store.add_pages(pages(100))
    store.begin_cycle({"started": 1.0})
    store.add_round(rows(*range(10)), 0, plan={"known": 100})
    return store


def test_rounds_follow_each_other(tmp_path: Path) -> None:
    """A further round is appended; the record counts all pages, and each round with what it saw."""
    with begun_store(tmp_path / "store") as store:
        for page in range(7):
            store.record(NewVisit(page, "first", time=1.0))
        store.add_round(rows(50, 51, 52), 7, plan={"known": 100, "ranked": 13})
        store.add_round(rows(), 7)
        assert planned(store) == [*range(10), 50, 51, 52]
        assert store.planned() == 13
        assert store.cycles()[0] == {
            "cycle": 1,
            "started": 1.0,
            "planned": 13,
            "plan": {"known": 100, "ranked": 13},
            "rounds": [{"planned": 10, "seen": 0}, {"planned": 3, "seen": 7}, {"planned": 0, "seen": 7}],
        }
        assert store.rounds() == store.cycles()[0]["rounds"]
        assert store.verify() == []
        store.finish_cycle({"finished": 2.0})
        assert store.rounds() == []
        assert store.planned() is None
        assert planned(store) == []


def test_what_a_round_saw_is_in_the_log(tmp_path: Path) -> None:
    """Visits that are still buffered are committed before the round is written; unknown ones are refused."""
    with begun_store(tmp_path / "store") as store:
        for page in range(3):
            store.record(NewVisit(page, "first", time=1.0))
        with pytest.raises(ValueError, match="the cycle has 3 visits; found seen = 4"):
            store.add_round(rows(20), 4)

        store.add_round(rows(20), 3)
        with store.transaction() as txn:
            assert store.db["log"].entries(txn) == 1


@pytest.mark.parametrize("after_commit", [False, True])
def test_an_unfinished_round_is_none(tmp_path: Path, after_commit: bool) -> None:
    """Killed before its commit, a round is none; the rounds before it are there, and so are those behind."""
    path = tmp_path / "store"
    begun_store(path).close()

    def work() -> None:
        with kill_at(1, after_commit), Store(path, sizes=PLAN_SIZES) as store:
            store.add_round(rows(*range(60, 90)), 0, plan={"known": 5})

    assert wait(in_child(work)) == -signal.SIGKILL
    expected = [*range(10), *(range(60, 90) if after_commit else ())]
    with Store(path, sizes=PLAN_SIZES) as store:
        assert store.verify() == []
        assert planned(store) == expected
        assert len(store.rounds()) == 1 + after_commit
        assert store.cycles()[-1]["plan"] == {"known": 5 if after_commit else 100}
        store.add_round(rows(99), 0)
        store.add_round(rows(98, 97), 0)
        assert planned(store) == [*expected, 99, 98, 97]
        assert store.verify() == []


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([{"planned": 9, "seen": 0}], "the rounds should have 10 pages; found \\[9\\]"),
        ([{"planned": 10, "seen": 5}], "the last round saw 5 visits; found 0"),
    ],
)
def test_verify_finds_rounds_that_do_not_fit(tmp_path: Path, rounds: Any, expected: str) -> None:
    """Their pages must be the plan's, and what they saw must be in the log."""
    with begun_store(tmp_path / "store") as store:
        store.amend_record(rounds=rounds)
        (problem,) = store.verify()
        assert problem == expected.replace("\\", "")


def test_the_newest_value_of_a_name_is_found_and_records_are_read_from_a_cycle_on(tmp_path: Path) -> None:
    """A name that stands elsewhere in a record is no value of it; the open cycle counts."""
    records: list[CycleRecord] = [{"doubted": [7]}, {"policy": "doubted"}, {"doubted": [8]}, {}]
    with Store(tmp_path / "store", sizes=PLAN_SIZES) as store:
        for started, record in enumerate(records):
            store.begin_cycle(record)
            if started < 3:
                store.finish_cycle({})
            assert store.newest_value("doubted", None) == ([7] if started < 2 else [8])
        assert store.newest_value("lies", {}) == {}
        assert [one["cycle"] for one in store.cycles(store.last_cycle)] == [3, 4]
