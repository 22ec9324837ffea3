"""First visits of a cycle: the sites by turns, caps in all and by site."""

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling.reports import count_new_pages
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.first_visits import (
    FirstVisits,
    WaitingPages,
    best_first,
    bit_of,
    by_turns,
    columns_of_links,
    counted_bits,
    counted_links,
)
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.loopback import Follower, LinkFollower, Site, crawl, html, stats

CYCLE = 9
CAPS = st.none() | st.integers(0, 12)
WAITING = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, CYCLE), st.integers(0, 2**64 - 1), st.integers(0, 2)),
    max_size=30,
    unique_by=lambda page: page[2],
)
"""Site of each page, cycle in which it became known, what it draws, and its finder."""


def in_turn(pages: list[tuple[int, int, int, int]]) -> list[int]:
    """Positions of the pages in the order of their first visits."""
    site, entered, drawn, finder = (np.array([page[n] for page in pages], "u8") for n in range(4))
    numbers = np.arange(10, 10 + len(pages), dtype=np.uint32)
    chosen = by_turns(WaitingPages(numbers, site, finder, entered, drawn), CYCLE)
    return [page - 10 for page in chosen.tolist()]


@given(WAITING)
def test_waiting_pages_are_taken_by_turns(pages: list[tuple[int, int, int, int]]) -> None:
    """A site gets its n-th page only when all others have n, a finder likewise; then age and draw decide."""
    turns = []
    for site in range(4):
        order = []
        for finder in range(3):
            of_both = (number for number, page in enumerate(pages) if page[::3] == (site, finder))
            result = [(*pages[number][1:3], number) for number in of_both]
            order += [(turn, *one) for turn, one in enumerate(sorted(result))]
        turns += [(turn, *one[1:]) for turn, one in enumerate(sorted(order))]
    assert in_turn(pages) == [number for *_, number in sorted(turns)]


def two_sites(pages: Sequence[int]) -> list[int]:
    """Site of each page: even or odd."""
    return [page % 2 for page in pages]


def test_caps_count_what_is_planned_and_what_was_visited() -> None:
    """Without a cap every page is taken; a cap of none lets none through."""
    free, none, counted = (FirstVisits(two_sites, most) for most in (None, 0, 5))
    counted.count([0, 2])
    assert [page for page in range(4, 20) if counted.takes(page)] == [4, 5, 6]
    assert [free.takes(page) for page in range(4)] == [True] * 4
    assert [none.takes(page) for page in range(4)] == [False] * 4


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
        assert count_new_pages(store) == (6, 2)
        store.finish_cycle({"finished": 2.0})
        store.begin_cycle({"started": 3.0})
        assert count_new_pages(store) == (0, 0)


def test_columns_of_links_by_hand() -> None:
    """On a tree: page 0 is a start page that found 1 and 2, and page 1 found 3, 4 and 5."""
    found_by = np.array([START, 1, 1, 2, 2, 2, 0], np.uint32)
    finders = {"E": [0.0, 0.9], "T": [3, 0], "brought_sum": [0.0, 2.5], "brought_cycles": [1.0, 2.0]}
    asked: list[list[int]] = []

    def state(ids: np.ndarray) -> dict[str, np.ndarray]:
        asked.append(ids.tolist())
        return {name: np.array(column) for name, column in finders.items()}

    linked = {"link_bits": np.array([0b1011, 2**63, 0], np.uint64), "anchor": np.zeros(3)}
    linked["link_site_bits"] = linked["link_bits"] & np.uint64(1)
    link_columns = columns_of_links(np.array([2, 4, 6]), found_by, np.array([3, 5, 9]), CYCLE, state)
    link_columns |= counted_links(linked)
    assert asked == [[0, 1]]
    assert link_columns["link_depth"].tolist() == [1, 2, 0]
    assert link_columns["cash"].tolist() == [1 / 2, 1 / 2 / 3, 1]
    assert link_columns["waited"].tolist() == [6, 4, 0]
    assert link_columns["inlinks"].tolist() == [3, 1, 1]
    assert link_columns["inlink_sites"].tolist() == [1, 1, 1]
    assert link_columns["finder_rate"] == pytest.approx([0.1 / 4, 1.0, 0.1])
    assert link_columns["finder_brought"] == pytest.approx([0.25, 1.0, 0.5])


@given(WAITING, CAPS)
def test_the_best_come_first_and_a_site_leaves_the_others_half(
    pages: list[tuple[int, int, int, int]], most: int | None
) -> None:
    """By score, then draw; what a site has beyond half of the cap comes after all others."""
    site, score, drawn, _ = (np.array([page[n] for page in pages], "u8") for n in range(4))
    order = sorted(range(len(pages)), key=lambda page: (-int(score[page]), int(drawn[page])))
    turn = {page: sum(site[other] == site[page] for other in order[:at]) for at, page in enumerate(order)}
    if most is not None:
        order.sort(key=lambda page: turn[page] >= math.ceil(most / 2))
    assert best_first(score.astype(float), site, drawn, most).tolist() == order[:most]


async def test_new_pages_are_ranked_where_they_are_capped(site: Site, store_path: Path) -> None:
    """By what is known before the first visit: links of short lists before those of long ones."""
    long, short = [f"/long/{n}" for n in range(12)], [f"/short/{n}" for n in range(4)]
    site.pages = {"/": html("front", ["/a", "/b"]), "/a": html("long", long), "/b": html("short", short)}
    site.pages |= {path: html(f"page {path} of this site") for path in (*long, *short)}
    settings = {"GP4C_NEW_PAGES": 4, "GP4C_NEW_PAGE_FUNCTION": "cash", "GP4C_BUDGET": 1}
    for _ in range(2):
        await crawl(Follower, store_path, settings, urls=(site.url(),))
    assert set(short) <= set(site.fetched())
    with Store(store_path, readonly=True) as store:
        assert store.cycles()[-1]["new_page_function"] == "cash"


def test_bits_count_distinct_links() -> None:
    """Near enough up to 100 pages, however often each of them links."""
    rng = np.random.default_rng(1)
    for pages in (1, 2, 5, 20, 100):
        keys = rng.integers(0, 2**64, (50, pages), np.uint64)
        bits = np.bitwise_or.reduce(np.uint64(1) << bit_of(np.tile(keys, 3)).astype(np.uint64), axis=1)
        assert counted_bits(bits).mean() == pytest.approx(pages, rel=0.1)


class Ruled(CrawlSpider):
    """Follows all links by a rule, which passes the text of each on."""

    name = "ruled"
    rules = (Rule(LinkExtractor(), follow=True),)
    urls: tuple[str, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls:
            yield Request(url)


@pytest.mark.slow
async def test_pages_of_more_links_and_better_words_come_first(
    site: Site, store_path: Path, tmp_path: Path
) -> None:
    """Links are counted while a page waits, once a linking page; so are the words of their texts."""
    targets = [f"/t{n}" for n in range(6)]
    links = {"/a": targets, "/b": targets[4:], "/c": targets[5:]}
    (tmp_path / "log.tsv").write_text("bread\t3\nstars\t1\n")
    settings = {"GP4C_BUDGET": 1, "GP4C_QUERY_LOG": str(tmp_path / "log.tsv")}
    settings["GP4C_NEW_PAGE_FUNCTION"] = "inlinks + 10 * anchor"
    site.pages = {"/": html("front", [*links]), **{path: html(f"page {path}") for path in (*links, *targets)}}
    await crawl(Ruled, store_path, settings, urls=(site.url(),))
    site.pages |= {path: html(f"page {path}", of_page) for path, of_page in links.items()}
    front = html("of bread", ["/t5"])
    site.pages["/c"] = front.replace("</body>", '<a href="/t1">bread of the day</a></body>')
    for cap in (0, 0, 3):
        site.log.clear()
        await crawl(Ruled, store_path, {**settings, "GP4C_NEW_PAGES": cap}, urls=(site.url(),))
    assert site.fetched() & {*targets} == {"/t1", "/t4", "/t5"}
    with Store(store_path, readonly=True) as store:
        bits = store.columns_of(np.arange(store.pages, dtype=np.uint32))["link_bits"].tolist()
        links_of = {store.request(page)["url"][-3:]: bits[page].bit_count() for page in range(store.pages)}
    assert [links_of[path] for path in ("/t0", "/t1", "/t5")] == [1, 0, 0]


async def test_a_page_with_many_links_leaves_the_others_their_new_pages(site: Site, store_path: Path) -> None:
    """Half of what is left while links come in, and by turns of those who found them in the end."""
    many, few = [f"/many/{n}" for n in range(800)], [f"/few/{n}" for n in range(20)]
    half_of_many = 18  # of the 37 that the front page and its two links leave
    waiting: list[ServerRequest] = []  # the request of /b, until the links of /a have taken their half

    def of_many(request: ServerRequest) -> bytes:
        if sum(path in pages_of_many for _, path in site.log) == half_of_many:
            waiting[0].write(html("few", few).encode())
            waiting[0].finish()
        return html("a page of this site").encode()

    pages_of_many = dict.fromkeys(many, of_many)
    site.pages = {"/": html("the front page", ["/a", "/b"]), "/a": html("many", many), "/b": waiting.append}
    site.pages |= pages_of_many | {path: html(f"page {path} of this site") for path in few}
    crawled = await crawl(Follower, store_path, {"GP4C_NEW_PAGES": 40}, urls=(site.url(),))
    fetched = Counter(path.split("/")[1] for path in site.fetched())
    assert fetched == {"": 1, "a": 1, "b": 1, "few": 9 + 5, "many": half_of_many + 5}
    assert stats(crawled)["skipped/new_page_postponed"] == 823 - 40


async def test_a_full_store_takes_no_further_pages(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning names the directory of most pages; those that are dropped are counted."""
    monkeypatch.setattr("scrapy_gp4c.crawling.admission.MAX_PAGES", 4)
    pages = [f"/calendar/{number}" for number in range(8)]
    site.pages = {"/": html("the days", pages)} | {path: html(f"day {path}") for path in pages}
    crawler = await crawl(LinkFollower, store_path, url=site.url())
    assert stats(crawler)["skipped/too_many_pages"] == 5
    (line,) = (one.getMessage() for one in caplog.records if "No further page" in one.getMessage())
    assert re.search(r"limit of 4 pages, the last ones mostly in [\d.:]+/calendar/\.", line)


async def test_depths_do_not_grow_from_run_to_run(site: Site, store_path: Path) -> None:
    """A list that a cycle comes to by a link back keeps its depth: its new pages would meet DEPTH_LIMIT."""
    settings = {"GP4C_BUDGET": 1.0, "GP4C_SKIP_UNCHANGED": True, "DEPTH_LIMIT": 3}
    for day in range(5):
        items = [f"/{number}" for number in range(day + 1)]
        site.pages = {"/": html("home", ["/list"]), "/list": html(f"list of day {day}", items)}
        site.pages |= {path: html(f"item {path} of day {day}", ["/list"]) for path in items}
        await crawl(LinkFollower, store_path, settings, url=site.url("/"))
    with Store(store_path, readonly=True) as store:
        depths = {
            request["url"].rpartition("/")[2]: request["meta"]["depth"]
            for request in store.requests(range(store.pages))
            if "depth" in request.get("meta", {})
        }
    assert depths == {"list": 1, **{str(number): 2 for number in range(5)}}
