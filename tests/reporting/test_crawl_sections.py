"""New pages in the report of a crawl: counts, delays and hubs are those of the visits, one by one."""

import math
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.page_state.outcomes import FAILED, KINDS, PLAN
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.growing import columns, crawl, random_web
from training.reporting.crawl import (
    UNKNOWN,
    NewPages,
    crawl_page,
    hints_section,
    new_pages_section,
    read_new_pages,
    read_weighted_visits,
    weighted_section,
)
from training.reporting.page import render

URLS = [f"http://site.example/{name}" for name in ("", "old", "list", "a", "b", "c")]


def growing_store(path: Path) -> Path:
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
            store.add_round(np.empty(0, PLAN), seen=0)
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
    with Store(growing_store(store_path), readonly=True) as store:
        result = read_new_pages(store)
    assert result is not None
    assert result.entered.tolist() == [2, 5, 5]
    assert result.by_hub.tolist() == [False, True, False]
    assert result.delay.tolist() == [0, 2, UNKNOWN]
    (best,) = result.bringers
    assert (best.url, best.brought, best.hub_visits, best.last_cycle) == (URLS[2], 2, 2, 5)


def test_the_section(store_path: Path) -> None:
    """The report says how many came by hubs and how late, and names the hub; its terms are explained."""
    text = render(crawl_page(growing_store(store_path)))
    assert "3 pages became known after the first cycle, 33.3% of them on visits to" in text
    assert "at most 1.00 cycles in the mean" in text
    assert ">http://site.example/list<" in text
    assert 'id="d-delay"' in text


def by_definition(store: Store) -> NewPages:
    """The same page by page, from the log of visits."""
    visits = [(cycle, *row) for cycle, rows in store.visits() for row in rows[["page", "kind", "outcome"]]]
    rows = columns(store, "entered", "found_by", "first_cycle")
    entered, by_hub, delay = [], [], []
    for page_key, found_by, first in rows:
        if page_key < 2:
            continue
        root = found_by
        while root and root != START and rows[root - 1][0] == page_key:
            root = rows[root - 1][1]
        before = [
            cycle
            for cycle, page, _, outcome in visits
            if page + 1 == root and cycle < page_key and outcome not in FAILED
        ]
        entered.append(page_key)
        by_hub.append(any((page_key, found_by - 1, "hub") == (c, p, KINDS[k]) for c, p, k, _ in visits))
        delay.append(first - max(before) - 1 if before and first else UNKNOWN)
    return NewPages(np.array(entered), np.array(by_hub), np.array(delay), [])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_crawls_of_growing_webs(seed: int, store_path: Path) -> None:
    """Of the pages that a planner's crawl has found, everything is as page by page from its log."""
    crawl(store_path, random_web(seed), {"GP4C_BUDGET": 0.2, "GP4C_WARMUP_VISITS": 1})
    with Store(store_path, readonly=True) as store:
        counts, wanted = read_new_pages(store), by_definition(store)
    assert counts is not None
    assert len(counts.entered) > 3
    for name in ("entered", "by_hub", "delay"):
        assert getattr(counts, name).tolist() == getattr(wanted, name).tolist(), name


def test_stores_that_tell_nothing(store_path: Path) -> None:
    """A store of one cycle has no section; one whose pages were all there at the start says so."""
    with Store(store_path) as store:
        for number in range(3):
            store.begin_cycle({"started": 1.0, "score_function": "age", "formula": "t"})
            if not number:
                store.add_page(1, {"url": URLS[0]})
            store.record(NewVisit(0, "unchanged" if number else "first", time=2.0))
            store.finish_cycle({"finished": 3.0})
            assert (read_new_pages(store) is None) == (number == 0)
    section = new_pages_section(store_path)
    assert section is not None
    assert "No page became known after the first cycle" in section.blocks[0]


PAGES, CYCLES = 12, 9
SITES = ("true.example", "now.example", "silent.example")


def hinted_store(path: Path, noted: bool = True) -> Path:
    """Three sites, one page of each changes in a cycle: they date it (but once), all pages, and none."""
    with Store(path) as store:
        for cycle in range(CYCLES):
            start = 1000.0 * cycle
            store.begin_cycle({"started": start, "score_function": "age", "formula": "t"})
            if not cycle:
                for number in range(PAGES * len(SITES)):
                    site, page = divmod(number, PAGES)
                    store.add_page(number + 1, {"url": f"http://{SITES[site]}/{page}"})
            changed = {site * PAGES + cycle % PAGES for site in range(len(SITES))}
            if noted:
                dated = [number for number in sorted(changed) if number < PAGES and cycle != 4] + [
                    *range(PAGES, 2 * PAGES)
                ]
                store.hints.note(dated, "sitemap", [start + 1.0] * len(dated))  # type: ignore[arg-type]
                store.hints.note([*range(PAGES)], "sitemap", [1.0] * PAGES)  # type: ignore[arg-type]
            for number in range(PAGES * len(SITES)):
                outcome = "first" if not cycle else "changed" if number in changed else "unchanged"
                store.record(NewVisit(number, outcome, time=start + 500.0, fingerprint=number))
            store.finish_cycle({"finished": start + 600.0})
    return path


def test_how_often_sites_were_right(store_path: Path) -> None:
    """Dates that are true hold and come first; what dates all pages is right as often as a page changes."""
    section = hints_section(hinted_store(store_path))
    assert section is not None
    text = render(crawl_page(store_path))
    rows = text[text.index("What sites say of their pages</h2>") :]
    assert "silent.example" not in rows[: rows.index("</section>")]
    true, now = rows.index("true.example"), rows.index("now.example")
    assert true < now
    assert rows[true:now].count(">yes<") == 1
    assert "100%" in rows[true:now]  # of the claims: one change was found without
    assert ">no<" in rows[now : rows.index("</section>")]
    assert "8.3%" in rows[now : rows.index("</section>")]
    assert 'id="d-right"' in text


def test_without_hints(store_path: Path) -> None:
    """Where no site said anything, there is no section."""
    assert hints_section(hinted_store(store_path, noted=False)) is None


OUTCOMES = (
    ["first"] * 4,
    ["changed", "unchanged", "changed", "error"],
    ["unchanged", "not_modified", "changed", "changed"],
    ["error"] * 4,
)


def weighted_store(path: Path, weights: list[float] | None) -> Path:
    with Store(path) as store:
        store.add_pages((number + 1, {"url": f"http://h/{number}"}) for number in range(4))
        if weights is not None:
            store.weights.put(np.arange(4), np.array(weights))
        for cycle, outcomes in enumerate(OUTCOMES):
            store.begin_cycle({"started": 1000.0 * cycle, "score_function": "age", "formula": "t"})
            for page, outcome in enumerate(outcomes):
                store.record(NewVisit(page, outcome, time=1000.0 * cycle + 5.0, fingerprint=page + 1))
            store.finish_cycle({"finished": 1000.0 * cycle + 9.0})
    return path


def test_what_visits_found_by_weight(store_path: Path) -> None:
    """By hand: three judged visits in cycle 2, four in cycle 3, none before or after."""
    weighted_store(store_path, [8.0, 1.0, 0.5, 2.5])
    with Store(store_path, readonly=True) as store:
        by_weight = read_weighted_visits(store)
    assert by_weight is not None
    assert by_weight.others == 3
    assert by_weight.judged.tolist() == [0.0, 3.0, 4.0, 0.0]
    assert by_weight.changed_weight.tolist() == [0.0, 8.5, 3.0, 0.0]
    assert by_weight.judged_weight.tolist() == [0.0, 9.5, 12.0, 0.0]
    assert by_weight.rate(1, weighted=True) == 8.5 / 3
    assert by_weight.rate(slice(None), weighted=False) == 4 / 7
    assert by_weight.share(2) == 3.0 / 12.0
    assert math.isnan(by_weight.share(0))
    assert math.isnan(by_weight.rate(3, weighted=True))
    text = render(crawl_page(store_path))
    section = text[text.index("By weight</h2>") :]
    section = section[: section.index("</section>")]
    assert "3 pages weigh other than 1" in section
    assert "53.5%" in section  # 11.5 of 21.5
    assert "57.1%" in section


@pytest.mark.parametrize("weights", [None, [1.0] * 4])
def test_pages_that_weigh_the_same_need_no_section(weights: list[float] | None, store_path: Path) -> None:
    """It would say the same twice."""
    assert weighted_section(weighted_store(store_path, weights)) is None
