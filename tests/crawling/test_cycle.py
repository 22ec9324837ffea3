"""Settings over several cycles, in real crawls of a loopback site; the plan of a cycle by page."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.http import HtmlResponse
from simhash import Simhash
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling.cycle import PlannedPages
from scrapy_gp4c.crawling.visits import Unchanged
from scrapy_gp4c.fingerprint import simhash_words
from scrapy_gp4c.page_state.outcomes import KINDS, PLAN
from scrapy_gp4c.store.export import lines
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Site, crawl, html, outcomes, stats

WORDS = "a page with a text of more than a few words on nothing in particular that rarely changes at all"
PAGES = 40


class Pages(Spider):
    """Requests the pages that it is given; keeps the results of their visits."""

    name = "pages"
    urls: tuple[str, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        self.visits: dict[str, dict[str, Any]] = {}
        self.failures: list[Any] = []
        for url in self.urls:
            yield Request(url, errback=self.failed)

    def parse(self, response: Any) -> None:
        self.visits[response.url] = response.meta["gp4c"]

    def failed(self, failure: Any) -> None:
        self.failures.append(failure)


@pytest.fixture
def urls(site: Site) -> tuple[str, ...]:
    """URLs of a site with `PAGES` quiet pages."""
    site.pages = {f"/{number}": html(f"{WORDS} {number}") for number in range(PAGES)}
    return tuple(site.url(path) for path in site.pages)


def kinds(path: Path, cycle: int) -> Counter[str]:
    """Count the visits of a finished cycle by why they were made."""
    with Store(path, readonly=True) as store:
        numbers = [kind for number, visits in store.visits() if number == cycle for kind in visits["kind"]]
    return Counter(KINDS[kind] for kind in numbers)


@pytest.mark.parametrize("warmup_visits", [0, 2])
async def test_warmup_visits(warmup_visits: int, urls: tuple[str, ...], store_path: Path) -> None:
    """Each page gets its first visit and so many judged ones; only then the budget decides."""
    crawl_settings = {"GP4C_WARMUP_VISITS": warmup_visits, "GP4C_BUDGET": 7, "GP4C_DISCOVERY": 0.0}
    for cycle in range(1, warmup_visits + 4):
        await crawl(Pages, store_path, crawl_settings, urls=urls)
        if cycle == 1:
            assert kinds(store_path, cycle) == {"new": PAGES}
        elif cycle <= warmup_visits + 1:
            assert kinds(store_path, cycle) == {"warmup": PAGES}
        else:
            assert kinds(store_path, cycle) == {"ranked": 7}


async def test_budget(urls: tuple[str, ...], store_path: Path) -> None:
    """A share is of the known pages, rounded down; a count is a count, at most all of them."""
    crawl_settings = {"GP4C_WARMUP_VISITS": 0, "GP4C_DISCOVERY": 0.0}
    await crawl(Pages, store_path, crawl_settings, urls=urls)
    budgets = {0.1: 4, 0.29: 11, 1.0: PAGES, "5%": 2, "1": 1, 13: 13, 999: PAGES}
    for cycle, (budget, revisits) in enumerate(budgets.items(), 2):
        await crawl(Pages, store_path, {**crawl_settings, "GP4C_BUDGET": budget}, urls=urls)
        assert kinds(store_path, cycle) == {"ranked": revisits}


async def test_new_pages_cap(urls: tuple[str, ...], site: Site, store_path: Path) -> None:
    """No cycle fetches more new pages than the cap; the others wait their turn, and none is forgotten."""
    crawl_settings = {"GP4C_WARMUP_VISITS": 0, "GP4C_BUDGET": 1}
    for cap, fetched in ((0, 0), (15, 15), (15, 30), (15, PAGES), (15, PAGES)):
        crawler = await crawl(Pages, store_path, {**crawl_settings, "GP4C_NEW_PAGES": cap}, urls=urls)
        assert len(site.fetched()) == fetched
        if not cap:
            assert stats(crawler)["skipped/new_page_postponed"] == PAGES
    assert site.hits.keys() == {("GET", path) for path in site.pages}
    with Store(store_path, readonly=True) as store:
        assert store.pages == PAGES


async def test_panel(urls: tuple[str, ...], store_path: Path) -> None:
    """The panel is visited in every cycle, is always the same, and counts within the budget."""
    crawl_settings = {"GP4C_PANEL": 0.25, "GP4C_BUDGET": 0.5, "GP4C_WARMUP_VISITS": 0}
    panels = []
    for cycle in range(1, 6):
        await crawl(Pages, store_path, crawl_settings, urls=urls)
        with Store(store_path, readonly=True) as store:
            visits = np.concatenate([rows for number, rows in store.visits() if number == cycle])
        panels.append(frozenset(visits["page"][visits["kind"] == KINDS.index("panel")].tolist()))
        if cycle > 1:
            assert len(visits) == PAGES // 2
    assert len(set(panels[1:])) == 1
    assert 0 < len(panels[1]) < PAGES // 2


@pytest.mark.parametrize(("distance", "outcome"), [(1, "changed"), (64, "unchanged")])
async def test_distance(distance: int, outcome: str, site: Site, store_path: Path) -> None:
    """The same small change counts or not, as GP4C_DISTANCE says."""
    site.pages["/"] = html(WORDS)
    crawl_settings = {"GP4C_DISTANCE": distance}
    await crawl(Pages, store_path, crawl_settings, urls=(site.url(),))
    site.pages["/"] = html(WORDS.replace("rarely", "seldom"))
    crawler = await crawl(Pages, store_path, crawl_settings)
    visit = crawler.spider.visits[site.url()]
    assert visit["outcome"] == outcome
    assert 1 <= visit["distance"] < 64


async def test_simhash(site: Site, store_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """GP4C_FINGERPRINT = "simhash" keeps the package's SimHash of the words, also in records and exports.

    It misses a word of a long page, and counts a masked date; a store is not compared by both.
    """
    crawl_settings = {"GP4C_FINGERPRINT": "simhash", "GP4C_BUDGET": 1}
    long = " ".join(f"word{number}" for number in range(2000))
    for text, outcome in ((long, "first"), (f"{long} another", "unchanged"), (WORDS, "changed"),
                          (f"{WORDS} 2026-11-26", "changed")):  # fmt: skip
        site.pages["/"] = html(text)
        crawler = await crawl(Pages, store_path, crawl_settings, urls=(site.url(),))
        assert crawler.spider.visits[site.url()]["outcome"] == outcome
    words = simhash_words(HtmlResponse(site.url(), body=site.pages["/"].encode(), encoding="utf-8"))
    assert words[-1] == "2026-11-26"
    with Store(store_path, readonly=True) as store:
        (_, block) = next(iter(store.blocks()))
        assert block["fingerprint"][0] == Simhash(words).value
        assert '"fingerprint": "simhash"' in next(line for line in lines(store) if '"cycle"' in line)
    await crawl(Pages, store_path, {"GP4C_BUDGET": 1}, urls=(site.url(),))
    assert "GP4C_FINGERPRINT is 'sketch', and the copies in this store" in caplog.text


class Validated:
    """A page with ETag and Last-Modified that answers conditional requests; logs what was asked."""

    def __init__(self) -> None:
        self.version = 1
        self.text = WORDS
        self.asked: list[tuple[bytes | None, bytes | None]] = []

    def __call__(self, request: ServerRequest) -> bytes:
        self.asked.append((request.getHeader(b"If-None-Match"), request.getHeader(b"If-Modified-Since")))
        etag = f'"v{self.version}"'.encode()
        request.setHeader(b"ETag", etag)
        request.setHeader(b"Last-Modified", b"Sat, 01 Feb 2014 10:00:00 GMT")
        if self.asked[-1][0] == etag:
            request.setResponseCode(304)
            return b""
        return html(self.text).encode()


@pytest.mark.parametrize("skip", [True, False])
async def test_skip_unchanged(skip: bool, site: Site, store_path: Path) -> None:
    """Validators are sent, and of unchanged pages the errback hears alone, by `Unchanged`: if so set."""
    with_validators = Validated()
    site.pages = {"/validated": with_validators, "/plain": html(WORDS)}
    urls = tuple(site.url(path) for path in site.pages)
    called, ends = [], []
    for cycle in range(1, 6):
        if cycle == 3:  # a new version with the same text: the server says changed, the text does not
            with_validators.version = 2
        if cycle == 5:
            with_validators.version = 3
            with_validators.text = "quite another text that has nothing to do with what was here " * 3
        crawler = await crawl(Pages, store_path, {"GP4C_SKIP_UNCHANGED": skip, "GP4C_BUDGET": 1.0}, urls=urls)
        called.append({url.rpartition("/")[2] for url in crawler.spider.visits})
        assert all(isinstance(failure.value, Unchanged) for failure in crawler.spider.failures)
        ends.append(outcomes(store_path, cycle))
    assert [end["/plain"] for end in ends] == [["first"], *[["unchanged"]] * 4]
    if skip:
        assert called == [{"plain", "validated"}, set(), set(), set(), {"validated"}]
        expected = ["first", "not_modified", "unchanged", "not_modified", "changed"]
        date = b"Sat, 01 Feb 2014 10:00:00 GMT"
        tags = [b'"v1"', b'"v1"', b'"v2"', b'"v2"']
        assert with_validators.asked == [(None, None), *((tag, date) for tag in tags)]
    else:
        assert called == [{"plain", "validated"}] * 5
        expected = ["first", "unchanged", "unchanged", "unchanged", "changed"]
        assert with_validators.asked == [(None, None)] * 5
    assert [end["/validated"] for end in ends] == [[outcome] for outcome in expected]


async def test_cycle_records_tell_what_was_done(urls: tuple[str, ...], store_path: Path) -> None:
    """Every cycle's record has its settings and its counts; the stats of the crawl agree."""
    crawl_settings = {
        "GP4C_BUDGET": 10,
        "GP4C_WARMUP_VISITS": 1,
        "GP4C_SCORE_FUNCTION": "age",
        "GP4C_SEED": 7,
    }
    for _ in range(3):
        crawler = await crawl(Pages, store_path, crawl_settings, urls=urls)
    with Store(store_path, readonly=True) as store:
        records = store.cycles()
    assert [record["cycle"] for record in records] == [1, 2, 3]
    assert [record["visited"] for record in records] == [PAGES, PAGES, 10]
    assert [record["planned"] for record in records] == [0, PAGES, 10]
    for record in records:
        assert record["started"] <= record["finished"]
        assert (record["budget"], record["seed"]) == (10, 7)
        assert (record["score_function"], record["formula"]) == ("age", "t")
        assert sum(record["outcomes"].values()) == record["visited"]
    assert stats(crawler)["visited"] == stats(crawler)["planned"] == 10
    assert records[-1]["change_rate"] == stats(crawler)["change_rate"] == 0.0


async def test_a_jobdir_kept_between_cycles(urls: tuple[str, ...], store_path: Path, tmp_path: Path) -> None:
    """What a JOBDIR remembers as seen does not keep planned pages from being visited."""
    crawl_settings = {"JOBDIR": str(tmp_path / "job"), "GP4C_BUDGET": 1.0}
    for cycle in range(1, 4):
        await crawl(Pages, store_path, crawl_settings, urls=urls)
        assert sum(kinds(store_path, cycle).values()) == PAGES
        assert {end for ends in outcomes(store_path, cycle).values() for end in ends} == {
            "first" if cycle == 1 else "unchanged"
        }


async def test_kills_in_the_first_second_leave_no_empty_cycles(
    urls: tuple[str, ...], store_path: Path
) -> None:
    """Cycles begun, planned and never crawled, one after the other: the first crawl is cycle 1."""
    planned: Any = {"known": 0, "due": 0, "copies": 0, "rankable": 0, "cut": None}
    planned |= {"panel": 0, "ranked": 0, "warmup": 0, "new": 0}
    with Store(store_path) as store:  # as a run leaves it that is killed at once
        store.begin_cycle({"started": 1.0, "budget": 0.05, "seed": 0})
        store.add_round(np.empty(0, PLAN), seen=0, plan=planned)
    await crawl(Pages, store_path, urls=urls)
    with Store(store_path) as store:
        assert store.last_cycle == 1
        assert store.cycles()[0]["visited"] == len(urls)
        assert store.verify() == []


async def test_a_clock_that_steps_back_within_a_cycle_costs_nothing(
    urls: tuple[str, ...], store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year back between two visits: every page has its outcome, and the cycle is finished."""
    now = time.time
    year_s = iter([0.0] * 10)
    monkeypatch.setattr(time, "time", lambda: now() - next(year_s, 3.2e7))
    for cycle in (1, 2):
        await crawl(Pages, store_path, {"GP4C_BUDGET": 1.0}, urls=urls)
        ends = outcomes(store_path, cycle)
        assert {tuple(end) for end in ends.values()} == {("first",) if cycle == 1 else ("unchanged",)}
        assert len(ends) == len(urls)
    with Store(store_path) as store:
        assert store.verify() == []


PLANNED = st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=40)


@given(PLANNED, st.lists(st.integers(0, 2**32 - 1), max_size=5))
def test_every_page_is_found_where_it_is(pages: list[int], others: list[int]) -> None:
    """In the order of the plan, whatever the order of numbers; others nowhere."""
    plan = np.zeros(len(pages), PLAN)
    plan["page"], plan["kind"] = pages, np.arange(len(pages)) % len(KINDS)
    plan["score"] = np.arange(len(pages)) / 2
    planned = PlannedPages(plan)
    assert planned.pages.tolist() == pages
    for position, page in enumerate(pages):
        assert planned.kind_and_score(page) == (KINDS[position % len(KINDS)], position / 2)
    assert not any(page in planned for page in set(others) - set(pages))
