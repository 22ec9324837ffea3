"""Admission of requests: links of settled pages, weights, limits and traps."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling import admission
from scrapy_gp4c.crawling.admission import TOO_MANY, Admission
from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Follower, Site, crawl, html, outcomes, path_of, stats

PAGES = 5


class OwnFingerprinter(RequestFingerprinter):
    """A fingerprinter of the user's, who knows what it looks at."""


@pytest.mark.parametrize("has_own", [False, True])
async def test_links_that_stand_on_every_page_are_dropped(
    site: Site, store_path: Path, has_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their URLs alone where Scrapy tells pages apart so; another fingerprinter is asked every time."""
    names = [f"/{number}" for number in range(PAGES)]
    site.pages.update(dict.fromkeys(names, html("a menu of " + " ".join(names))))

    class Menu(Spider):
        name = "menu"
        start_urls = (site.url("/0"),)

        def parse(self, response: Any) -> Iterator[Any]:
            """Follow the menu, once with other writing of the same URL."""
            for name in names:
                yield response.follow(name)
                yield response.follow(f"{name}?#part")

    calls: Counter[str] = Counter()
    plain = RequestFingerprinter.fingerprint

    def counted(self: RequestFingerprinter, request: Request) -> bytes:
        calls[request.url] += 1
        return plain(self, request)

    monkeypatch.setattr(RequestFingerprinter, "fingerprint", counted)
    settings = {"REQUEST_FINGERPRINTER_CLASS": OwnFingerprinter} if has_own else {}
    crawler = await crawl(Menu, store_path, settings)
    assert outcomes(store_path, 1) == {name: ["first"] for name in names}
    assert stats(crawler)["skipped/duplicate"] == 2 * PAGES * PAGES - (PAGES - 1)
    usual = max(calls[site.url(name)] for name in names)
    assert usual >= PAGES if has_own else usual <= 3


@pytest.mark.parametrize(
    ("shared", "is_skipped"),
    [
        ({"meta": {"depth": 1}}, True),
        ({"meta": {"gp4c_weight": 2.0}}, False),
        ({"meta": {"gp4c_max_age": "1d"}}, False),
        ({"method": "POST"}, False),
        ({"dont_filter": True}, False),
    ],
    ids=str,
)
def test_a_link_of_a_fetcher_is_skipped_unless_it_says_something_of_its_page(
    shared: dict[str, Any], is_skipped: bool
) -> None:
    """A promise in the meta of a known link was lost with fetchers."""
    settled: Any = SimpleNamespace(_by_url_alone=True, _is_known=lambda url: url.endswith("/known"))
    urls = ["http://h/known", "http://h/new"]
    assert list(Admission.unsettled(settled, shared, urls)) == urls[is_skipped:]


async def test_links_stay_settled_over_the_rounds_of_a_cycle(
    site: Site, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked once for a page without a visit, once for one with it; each link is counted."""
    names = [f"/{number}" for number in range(12)]
    site.pages.update(dict.fromkeys(names, html("a menu of " + " ".join(names))))

    class Menu(Spider):
        name = "menu"
        start_urls = (site.url("/0"),)

        def parse(self, response: Any) -> Iterator[Any]:
            yield from map(response.follow, names)

    settings = {"GP4C_POLICY": "rounds(rounds=4)", "GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 0}
    await crawl(Menu, store_path, settings)
    asked: Counter[int] = Counter()
    find = Store.find

    def counted(self: Store, key: int) -> int | None:
        asked[key] += 1
        return find(self, key)

    monkeypatch.setattr(Store, "find", counted)
    crawler = await crawl(Menu, store_path, settings)
    assert len(asked) == len(names)
    assert max(asked.values()) <= 2
    counts = stats(crawler)
    assert counts["visited"] == len(names)
    dropped = counts["skipped/duplicate"] + counts.get("skipped/not_planned", 0)
    assert dropped in range(len(names) * (len(names) - 1), len(names) ** 2 + 1)


@pytest.mark.parametrize("last", range(2, 6))
async def test_a_page_without_a_visit_keeps_how_it_was_asked_for_first_in_the_last_run(
    site: Site, store_path: Path, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Scrapy itself would send it; whoever asked before, by whatever writing of the URL."""
    site.pages.update({"/": html("home"), "/a": html("a")})
    order = [("/a", "parse"), ("/a", "other"), ("/a#x", "parse"), ("/a", "other"), ("/a#x", "other")]

    class Links(Spider):
        name = "links"
        start_urls = (site.url("/"),)
        asked = order[:1]

        def parse(self, response: Any) -> Iterator[Any]:
            if response.url.endswith("/"):
                for url, callback in self.asked:
                    yield response.follow(url, callback=getattr(self, callback), priority=-len(url))

        def other(self, response: Any) -> None:
            """Another callback."""

    settings = {"GP4C_WARMUP_VISITS": 0}
    await crawl(Links, store_path, settings)
    monkeypatch.setattr(Admission, "_is_settled", lambda *_: False)
    monkeypatch.setattr(Links, "asked", order[last - 1 :] + order[:last])
    crawler = await crawl(Links, store_path, {**settings, "GP4C_BUDGET": 1})
    assert stats(crawler)["skipped/not_planned"] == len(order) + 1
    with Store(store_path, readonly=True) as store:
        page = next(page for page in range(store.pages) if store.request(page)["url"] != site.url("/"))
        assert store.request(page).get("callback", "parse") == order[last - 1][1]


class Weighing(Spider):
    """Asks for pages with what the test puts in their meta; the start page links to the others."""

    name = "weighing"
    site: Site
    said_at_start: ClassVar[dict[str, Any]] = {}
    said_in_links: ClassVar[dict[str, Any]] = {}

    async def start(self) -> AsyncIterator[Any]:
        for path, said in Weighing.said_at_start.items():
            yield Request(Weighing.site.url(path), meta={"gp4c_weight": said} if said is not None else {})

    def parse(self, response: Any) -> Iterator[Request]:
        """Follow the links of the start page, each three times; what a visit came to is no weight."""
        assert response.meta["gp4c"]["outcome"]
        if response.url.endswith("/0"):
            for path, said in Weighing.said_in_links.items():
                meta = {"gp4c_weight": said} if said is not None else dict(response.meta)
                for _ in range(3):
                    yield Request(Weighing.site.url(path), meta=meta)


def weights(path: Path) -> dict[str, float]:
    """Path of each page -> its weight."""
    with Store(path, readonly=True) as store:
        assert store.verify() == []
        results = {}
        for first, block in store.blocks():
            for row, weight in enumerate(block["weight"].tolist()):
                results["/" + store.request(first + row)["url"].rpartition("/")[2]] = weight
        return results


async def weighed(site: Site, path: Path, start: dict[str, Any], links: dict[str, Any]) -> Any:
    """Crawl once, with every page changed by a tenth visit only; the crawler."""
    Weighing.site, Weighing.said_at_start, Weighing.said_in_links = site, start, links
    site.pages = {f"/{number}": html(f"page {number} of some") for number in range(6)}
    settings = {"GP4C_SCORE_FUNCTION": "w", "GP4C_BUDGET": 1, "GP4C_WARMUP_VISITS": 0, "GP4C_DISCOVERY": 0.0}
    return await crawl(Weighing, path, settings)


async def test_the_newest_request_that_says_a_weight_wins(site: Site, store_path: Path) -> None:
    """Whether it is sent or dropped; a page keeps its weight when nobody says one; `w` ranks by it."""
    said = {"/1": 3.0, "/2": 2, "/3": None}
    await weighed(site, store_path, {"/0": 0.5, "/1": None}, said)
    assert weights(store_path) == {"/0": 0.5, "/1": 3.0, "/2": 2.0, "/3": 1.0}
    await weighed(site, store_path, {"/0": None, "/3": 9.0, "/1": None, "/4": None}, {})
    assert weights(store_path) == {"/0": 0.5, "/1": 3.0, "/2": 2.0, "/3": 9.0, "/4": 1.0}
    assert sorted(outcomes(store_path, 2)) == ["/1", "/4"]  # ranked by the weights before; the new page
    await weighed(site, store_path, {"/3": 0, "/1": None}, {})
    assert sorted(outcomes(store_path, 3)) == ["/3"]
    assert weights(store_path) == {"/0": 0.5, "/1": 3.0, "/2": 2.0, "/3": 0.0, "/4": 1.0}


async def test_what_is_no_weight_is_counted_and_costs_nothing(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, which names the first; pages are fetched, and keep the weights that they have."""
    await weighed(site, store_path, {"/0": 4.0}, {"/1": 5.0})
    wrong = {"/1": "3", "/2": -1, "/3": float("nan"), "/4": 1e308, "/5": True}
    start = {"/0": "none", **wrong}
    crawler = await weighed(site, store_path, start, {})
    assert stats(crawler)["no_weight"] == 6
    (line,) = [record.getMessage() for record in caplog.records if "keeps the weight" in record.getMessage()]
    assert "/0 keeps the weight that it has: expected a number from 0 to 1,000,000 as weight" in line
    assert "found 'none'" in line
    assert weights(store_path) == {"/0": 4.0, "/1": 5.0, "/2": 1.0, "/3": 1.0, "/4": 1.0, "/5": 1.0}
    assert [outcomes(store_path, 2)[f"/{number}"] for number in (2, 3, 4, 5)] == [["first"]] * 4


def trap(site: Site) -> None:
    """A site with three pages and a calendar that never ends, 20 links a page."""

    def calendar(request: ServerRequest) -> bytes:
        first = int(request.args.get(b"day", [b"0"])[0])
        return html(f"day {first}", [f"/calendar/?day={first * 20 + day}" for day in range(1, 21)]).encode()

    site.pages["/"] = html("start", ["/a", "/b", "/calendar/"])
    site.pages["/a"] = site.pages["/b"] = html("an article")
    site.pages["/calendar/"] = calendar


async def test_a_trap_fills_no_store(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages stay bounded, cycle after cycle; one warning a run names the calendar."""
    trap(site)
    monkeypatch.setattr(admission, "MAX_PAGES", 40)
    crawler = await crawl(Follower, store_path, urls=[site.url()])
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    (line,) = [line for line in warnings if "the limit of 40 pages" in line]
    assert f"mostly in 127.0.0.1:{site.port}/calendar/" in line
    assert len(outcomes(store_path, 1)) == 40
    assert stats(crawler)["new_pages"] == 40
    crawler = await crawl(Follower, store_path, urls=[site.url()])
    with Store(store_path) as store:
        assert store.pages == 40
        assert store.verify() == []
    assert crawler.stats is not None
    assert crawler.stats.get_value(TOO_MANY) > 0


HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  # the first has the calendar
PAGES, CYCLES, WARM = 10, 9, 4
NEW_PAGES = 12  # per cycle


@pytest.mark.slow
@pytest.mark.parametrize("turning", [False, True])
async def test_a_calendar_delays_what_other_hosts_bring_by_one_cycle_at_most(
    turning: bool, store_path: Path
) -> None:
    """Its pages wait by the hundred, also where every visit shows others and it is the best of all hubs."""
    site, now = Site(hosts=HOSTS), 0

    def calendar(request: Any) -> bytes:
        day = int(request.args[b"day"][0])
        first = 20 * day + 1 + (7_000 * now if turning else 0)
        return html(f"day {day}", [f"/calendar?day={n}" for n in range(first, first + 20)]).encode()

    try:
        site.pages["/calendar"] = calendar
        urls = [site.url("/calendar?day=0"), *(site.url("/", host) for host in HOSTS[1:])]
        for now in range(1, CYCLES + 1):
            paths = [f"/page/{number}" for number in range(PAGES + now - 1)]
            site.pages["/"] = html("all pages", paths[::-1], title=f"{len(paths)} pages")
            site.pages |= {path: html(f"the story of {path}") for path in paths}
            await crawl(Follower, store_path, {"GP4C_BUDGET": 8, "GP4C_NEW_PAGES": NEW_PAGES}, urls=urls)
    finally:
        await site.close()
    with Store(store_path) as store:
        assert store.verify() == []
        page_of = {request["url"]: page for page, request in enumerate(store.requests(range(store.pages)))}
        first: dict[int, int] = {}
        hubs = set()
        for cycle, visits in store.visits():
            for page in visits["page"].tolist():
                first.setdefault(page, cycle)
            hubs.update(visits["page"][visits["kind"] == KINDS.index("hub")].tolist())
        assert all(list(first.values()).count(cycle) <= NEW_PAGES for cycle in range(1, CYCLES + 1))
        waiting = [page for url, page in page_of.items() if "calendar" in url and page not in first]
        assert len(waiting) > 30 * NEW_PAGES
        # The calendar has enough waiting; of the others, draws may let one hub be the best in every cycle.
        assert hubs
        assert hubs <= {page_of[site.url("/", host)] for host in HOSTS[1:]}
    for born in range(WARM + 1, CYCLES):
        for host in HOSTS[1:]:
            page = page_of[site.url(f"/page/{PAGES + born - 2}", host)]
            assert first[page] - born <= 1, (born, host)


async def test_links_with_new_campaigns_and_sessions_are_the_known_pages(
    site: Site, store_path: Path
) -> None:
    """A list whose links get a new campaign and session each day stays two pages, which later runs visit."""

    class Daily(Spider):
        name = "daily"
        day = 0

        async def start(self) -> Any:
            yield Request(site.url("/list"))

        def parse(self, response: Any) -> Any:
            for link in response.css("a"):
                yield response.follow(link, self.parse)

    for day in range(1, 5):
        links = f"<a href='/a?utm_campaign={day}&id=1'>a</a>"
        links += f"<a href='/b;jsessionid={day:032x}?PHPSESSID={day}'>b</a>"
        site.pages["/list"] = f"<html><body>a list of day {day}{links}</body></html>"
        site.pages |= {
            "/a": html("page a"),
            f"/b;jsessionid={day:032x}": html("page b"),
            "/b": html("page b"),
        }
        site.log.clear()
        await crawl(Daily, store_path, {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1})
        assert len(site.log) == 3
    with Store(store_path, readonly=True) as store:
        assert store.pages == 3
        assert sorted(path_of(store.request(page)["url"]) for page in range(3)) == [
            "/a?utm_campaign=4&id=1", "/b", "/list",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "links", "settings", "pages"),
    [
        ("sid", 4, {}, 1),
        ("spm", 4, {}, 1),
        ("spm", 3, {}, 1),
        ("sid", 4, {"GP4C_URL_PARAMS_IGNORED": []}, 4),
    ],
)
async def test_links_that_may_be_other_pages_though_they_are_taken_for_one_are_one_warning(
    name: str, links: int, settings: dict[str, Any], pages: int, site: Site, store_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A list links to many values of an ignored parameter; three links are usual for one page of a site."""
    site.pages["/item"] = html("an item")
    site.pages["/"] = html("a list", (f"/item?{name}={number:032x}" for number in range(links)))
    crawler = await crawl(Follower, store_path, settings, urls=[site.url("/")])
    assert stats(crawler)["new_pages"] == 1 + pages
    is_warned = f"are one page, whatever {name} may be" in caplog.text
    assert is_warned == (stats(crawler).get("ignored_params_differ") == 1) == (links > 3 and pages == 1)


async def test_a_page_with_a_post_is_visited_once_though_its_link_has_moved(
    site: Site, store_path: Path
) -> None:
    """It may lead to a login; its visit as stored, before the link was found on another page, is enough."""

    class Posting(Spider):
        name = "posting"
        start_urls = (site.url("/a"), site.url("/b"))

        def parse(self, response: Any) -> Iterator[Any]:
            yield from response.follow_all(css="a", callback=self.parse_item)

        def parse_item(self, response: Any) -> Request:
            return Request(site.url("/search"), self.end, method="POST", dont_filter=True)

        def end(self, response: Any) -> Request:
            return Request(site.url(f"/after/{len(site.log)}"), self.nothing)

        def nothing(self, response: Any) -> None:
            """Yield nothing."""

    def end_list(request: ServerRequest) -> bytes:
        while waiting:
            late = waiting.pop()
            late.write(html("the second list", ["/item"]).encode())
            late.finish()
        return b"done"

    waiting: list[ServerRequest] = []
    settings = {"GP4C_BUDGET": 1.0, "GP4C_POLICY": "top_k", "GP4C_WARMUP_VISITS": 0}
    site.pages.update({"/item": html("an item"), "/search": html("results")})
    site.pages.update({"/a": html("the first list", ["/item"]), "/b": html("the second list")})
    await crawl(Posting, store_path, settings)
    site.log.clear()
    site.pages.update({"/a": html("the first list, empty"), "/b": waiting.append})
    site.pages |= {f"/after/{number}": end_list for number in range(9)}
    await crawl(Posting, store_path, settings)
    assert site.hits["GET", "/item"] == 1
    assert outcomes(store_path, 2)["/item"] == ["unchanged"]
