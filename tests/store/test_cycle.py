"""The plan of a cycle, round by round: complete or not there, whenever the process ends."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.records import CycleRecord, NewVisit
from tests.store.test_store_kill import in_child, kill_at, wait
from tests.support.stores import pages

SMALL = Sizes(plan_rows=4, commit_visits=100)


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
    store = Store(path, sizes=SMALL)
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
        with kill_at(1, after_commit), Store(path, sizes=SMALL) as store:
            store.add_round(rows(*range(60, 90)), 0, plan={"known": 5})

    assert wait(in_child(work)) == -signal.SIGKILL
    expected = [*range(10), *(range(60, 90) if after_commit else ())]
    with Store(path, sizes=SMALL) as store:
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


def test_the_newest_record_with_a_value_is_found_and_records_are_read_from_a_cycle_on(tmp_path: Path) -> None:
    """A name that stands elsewhere in a record is no value of it; the open cycle counts."""
    records: list[CycleRecord] = [{"doubted": [7]}, {"policy": "doubted"}, {"doubted": [8]}, {}]
    with Store(tmp_path / "store", sizes=SMALL) as store:
        for started, record in enumerate(records):
            store.begin_cycle(record)
            if started < 3:
                store.finish_cycle({})
            newest = store.newest_record("doubted")
            assert newest.get("doubted") == ([7] if started < 2 else [8])
        assert store.newest_record("lies") == {}
        assert [one["cycle"] for one in store.cycles(store.last_cycle)] == [3, 4]
