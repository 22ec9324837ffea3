"""Visits of old cycles that are dropped: what they did to pages stays, and a store has its size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.page_state.columns import unpack
from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL
from tests.support.stores import pages

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
