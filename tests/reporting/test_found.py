"""New pages in the report of a crawl: counts, delays and hubs are those of the visits, one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.page_state.outcomes import FAILED, KINDS
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.growing import columns, crawl, random_web
from training.reporting.crawl import crawl_page
from training.reporting.found import UNKNOWN, Found, found_section, read_found
from training.reporting.page import render

URLS = [f"http://site.example/{name}" for name in ("", "old", "list", "a", "b", "c")]


def make_store(path: Path) -> Path:
    """A store of five cycles: the list is visited in cycles 1, 2 and 5, and brings a in 2, b and c in 5."""
    finders = {0: START, 1: 1, 2: 1, 3: 3, 4: 3, 5: 5}
    cycles = (
        {0: ("new", "first"), 1: ("new", "first"), 2: ("new", "first")},
        {2: ("warmup", "changed"), 3: ("new", "first"), 0: ("warmup", "unchanged")},
        {1: ("warmup", "unchanged")},
        {1: ("ranked", "changed"), 2: ("hub", "error")},
        {2: ("hub", "changed"), 4: ("new", "first"), 5: ("new", "error")},
    )
    with Store(path) as store:
        for number, visits in enumerate(cycles):
            store.begin_cycle({"started": 1000.0 * number, "score_function": "age", "formula": "t"})
            store.add_round([], seen=0)
            for page, (kind, outcome) in visits.items():
                if page == store.pages:
                    store.add_page(page + 1, {"url": URLS[page]})
                    store.note(page, "found_by", finders[page])
                store.record(
                    NewVisit(page, outcome, time=1000.0 * number + 1, kind=kind, fingerprint=page + number)
                )
            store.finish_cycle({"finished": 1000.0 * number + 60.0})
    return path


def test_new_pages_by_hand(store_path: Path) -> None:
    """The list was seen in cycle 2: what it lists in 5 may be there since 3. Page c has no copy."""
    with Store(make_store(store_path), readonly=True) as store:
        found = read_found(store)
    assert found is not None
    assert found.entered.tolist() == [2, 5, 5]
    assert found.by_hub.tolist() == [False, True, False]
    assert found.delay.tolist() == [0, 2, UNKNOWN]
    (best,) = found.bringers
    assert (best.url, best.brought, best.hub_visits, best.last_cycle) == (URLS[2], 2, 2, 5)


def test_the_section(store_path: Path) -> None:
    """The report says how many came by hubs and how late, and names the hub; its terms are explained."""
    text = render(crawl_page(make_store(store_path)))
    assert "3 pages became known after the first cycle, 33.3% of them on visits to" in text
    assert "at most 1.00 cycles in the mean" in text
    assert ">http://site.example/list<" in text
    assert 'id="d-delay"' in text


def by_definition(store: Store) -> Found:
    """The same page by page, from the log of visits."""
    visits = [(cycle, *row) for cycle, rows in store.visits() for row in rows[["page", "kind", "outcome"]]]
    rows = columns(store, "entered", "found_by", "first_cycle")
    entered, by_hub, delay = [], [], []
    for own, found_by, first in rows:
        if own < 2:
            continue
        root = found_by
        while root and root != START and rows[root - 1][0] == own:
            root = rows[root - 1][1]
        before = [
            cycle
            for cycle, page, _, outcome in visits
            if page + 1 == root and cycle < own and outcome not in FAILED
        ]
        entered.append(own)
        by_hub.append(any((own, found_by - 1, "hub") == (c, p, KINDS[k]) for c, p, k, _ in visits))
        delay.append(first - max(before) - 1 if before and first else UNKNOWN)
    return Found(np.array(entered), np.array(by_hub), np.array(delay), [])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_crawls_of_growing_webs(seed: int, store_path: Path) -> None:
    """Of the pages that a planner's crawl has found, everything is as page by page from its log."""
    crawl(store_path, random_web(seed), {"GP4C_BUDGET": 0.2, "GP4C_WARMUP_VISITS": 1})
    with Store(store_path, readonly=True) as store:
        found, wanted = read_found(store), by_definition(store)
    assert found is not None
    assert len(found.entered) > 3
    for name in ("entered", "by_hub", "delay"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist(), name


def test_stores_that_tell_nothing(store_path: Path) -> None:
    """A store of one cycle has no section; one whose pages were all there at the start says so."""
    with Store(store_path) as store:
        for number in range(3):
            store.begin_cycle({"started": 1.0, "score_function": "age", "formula": "t"})
            if not number:
                store.add_page(1, {"url": URLS[0]})
            store.record(NewVisit(0, "unchanged" if number else "first", time=2.0))
            store.finish_cycle({"finished": 3.0})
            assert (read_found(store) is None) == (number == 0)
    section = found_section(store_path)
    assert section is not None
    assert "No page became known after the first cycle" in section.blocks[0]
