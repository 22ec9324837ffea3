"""First visits of a cycle: the sites by turns, caps in all and by site."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.crawling.new_pages import NewCounts, NewPages, Waiting, by_turns, found_by_hubs
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit

CYCLE = 9
CAPS = st.none() | st.integers(0, 12)
WAITING = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, CYCLE), st.integers(0, 2**64 - 1)),
    max_size=30,
    unique_by=lambda page: page[2],
)
"""Site of each page, cycle in which it became known, and what it draws."""


def in_turn(pages: list[tuple[int, int, int]], of_site: int | None) -> list[int]:
    """Positions of the pages in the order of their first visits."""
    site, entered, drawn = (np.array([page[n] for page in pages], "u8") for n in range(3))
    numbers = np.arange(10, 10 + len(pages), dtype=np.uint32)
    chosen = by_turns(Waiting(numbers, site, entered, drawn), CYCLE, of_site)
    return [page - 10 for page in chosen.tolist()]


@given(WAITING, CAPS)
def test_waiting_pages_are_taken_by_turns(pages: list[tuple[int, int, int]], of_site: int | None) -> None:
    """A site gets its n-th page only when all others have n, or no more; the oldest first, then by draw."""
    left = [
        sorted((entered, drawn, page) for page, (own, entered, drawn) in enumerate(pages) if own == site)
        for site in range(4)
    ]
    expected = sorted((turn, *page) for own in left for turn, page in enumerate(own[:of_site]))
    assert in_turn(pages, of_site) == [page for *_, page in expected]


def test_caps_count_what_is_planned_and_what_was_visited(tmp_path: Path) -> None:
    """A site that has reached its cap leaves the others theirs, until the cap of all is reached."""
    with Store(tmp_path / "store") as store:
        store.add_pages((n + 1, {"url": f"http://{'ab'[n % 2]}/{n}"}) for n in range(20))
        counted = NewPages(store, 5, 3)
        counted.count([0, 2])
        taken = [page for page in range(4, 20) if counted.takes(page)]
        assert taken == [4, 5, 7]
        assert Counter("ab"[page % 2] for page in taken) == {"a": 1, "b": 2}


def test_without_caps_every_page_is_taken(tmp_path: Path) -> None:
    """A cap of none lets none through, and what was counted before goes towards that of a site."""
    with Store(tmp_path / "store") as store:
        store.add_pages((n + 1, {"url": f"http://a/{n}"}) for n in range(4))
        free, none, one = NewPages(store, None, None), NewPages(store, 0, None), NewPages(store, None, 2)
        one.count([3])
        assert [free.takes(page) for page in range(4)] == [True] * 4
        assert [none.takes(page) for page in range(4)] == [False] * 4
        assert [one.takes(page) for page in range(3)] == [True, False, False]


def test_pages_that_hubs_found_are_counted_apart(tmp_path: Path) -> None:
    """By the kind of the visit that found them, in this cycle alone."""
    with Store(tmp_path / "store") as store:
        store.begin_cycle({"started": 1.0})
        for key in range(1, 7):
            store.add_page(key, {"url": f"http://h/{key}"})
        store.record(NewVisit(0, "first", 1.0, kind="hub"))
        store.record(NewVisit(1, "first", 1.0, kind="ranked"))
        for page, finder in ((2, 1), (3, 1), (4, 2), (0, START)):
            store.note(page, "found_by", finder)
        assert found_by_hubs(store) == NewCounts(6, 2)
        store.finish_cycle({"finished": 2.0})
        store.begin_cycle({"started": 3.0})
        assert found_by_hubs(store) == NewCounts(0, 0)
