"""Spiders whose pages need each other: sessions, items of several pages, answers that the spider handles."""

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import CloseSpider
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredQueue, inlineCallbacks

from scrapy_gp4c import Unchanged, visit
from scrapy_gp4c.crawling.hidden_data import TRIALS
from scrapy_gp4c.foreign_text import counted
from tests.support.loopback import Site, crawl, html, outcomes, stats

ALL = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1, "CONCURRENT_REQUESTS": 4}
SMALL = {**ALL, "GP4C_BUDGET": 4, "GP4C_WARMUP_VISITS": 0}
SKIP = {**ALL, "GP4C_SKIP_UNCHANGED": True}
LINKS = [f"/item/{number}" for number in range(6)]


class Catalogue(Spider):
    """Follows the links of a list, and notes what its items say."""

    name = "catalogue"
    site: Site
    handle_httpstatus_list: tuple[int, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        self.seen: list[Any] = []
        yield Request(self.site.url("/"))

    def parse(self, response: Any) -> Iterator[Any]:
        yield from response.follow_all(css="a", callback=self.parse_item, errback=self.failed)

    def parse_item(self, response: Any) -> Any:
        self.seen.append((response.status, response.css("p::text").get()))

    def failed(self, failure: Any) -> None:
        self.seen.append((type(failure.value).__name__, failure.value.response.status))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings since the last call."""
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return lines


def catalogue(site: Site, item: Callable[[Any, int], str]) -> None:
    """Serve a list and its items; ``item(request, number)``: text of an item."""

    def made(number: int) -> Callable[[Any], bytes]:
        return lambda request: html(item(request, number)).encode()

    site.pages = {"/": html("the list", LINKS), **{path: made(at) for at, path in enumerate(LINKS)}}


async def test_a_redirect_that_the_spider_reads_is_compared(site: Site, store_path: Path) -> None:
    """By its status and address; one that the spider does not read stays an error."""
    targets = {path: f"/to{path}" for path in LINKS}

    def redirect(request: Any) -> bytes:
        request.setResponseCode(302)
        request.setHeader("Location", targets[request.path.decode()])
        return b""

    class Reading(Catalogue):
        def parse(self, response: Any) -> Iterator[Any]:
            yield from response.follow_all(css="a", callback=self.parse_item, meta={"dont_redirect": True})

        def parse_item(self, response: Any) -> None:
            self.seen.append((response.headers["Location"].decode(), visit(response).outcome))

    site.pages = {"/": html("the list", LINKS), **dict.fromkeys(LINKS, redirect)}
    for outcome in ("first", "unchanged", "changed"):
        if outcome == "changed":
            targets |= {path: f"/elsewhere{path}" for path in LINKS}
        crawler = await crawl(Reading, store_path, ALL, site=site, handle_httpstatus_list=(302,))
        assert sorted(crawler.spider.seen) == sorted((targets[path], outcome) for path in LINKS)
    await crawl(Reading, store_path, ALL, site=site)
    # After five errors in a row the site is left alone: the sixth page is visited if it is under way by then.
    visited = outcomes(store_path, 4)
    errors = [visited[path] for path in LINKS if path in visited]
    assert len(errors) >= 5
    assert errors == [["error"]] * len(errors)


@pytest.mark.parametrize("handled", [(404, 500), ()])
async def test_a_page_that_is_back_after_a_failure_is_not_skipped(
    handled: tuple[int, ...], site: Site, store_path: Path
) -> None:
    """The spider has heard of the failure; an errback finds a response with what was skipped."""
    status = 200

    def item(request: Any, number: int) -> str:
        request.setHeader("ETag", f'"{number}"')
        if number < 2:
            request.setResponseCode((404, status)[number] if status != 200 else 200)
        return f"item {number}"

    catalogue(site, item)
    seen = []
    for status in (200, 500, 200, 200):  # noqa: B007, the site reads it
        settings = {**SKIP, "RETRY_ENABLED": False, "GP4C_GONE_AFTER": 9}
        crawler = await crawl(Catalogue, store_path, settings, site=site, handle_httpstatus_list=handled)
        seen.append(Counter(what for what, _ in crawler.spider.seen))
    failures = {404: 1, 500: 1} if handled else {"HttpError": 2}
    assert seen == [{200: 6}, {**failures, "Unchanged": 4}, {200: 2, "Unchanged": 4}, {"Unchanged": 6}]


class Downloading(Catalogue):
    """A callback that asks for the stock by itself."""

    async def parse_item(self, response: Any) -> None:
        assert self.crawler.engine is not None
        stock = await self.crawler.engine.download_async(Request(response.url.replace("item", "stock")))
        self.seen.append(stock.text)


class DownloadingByDeferreds(Catalogue):
    """The same with Deferreds."""

    @inlineCallbacks
    def parse_item(self, response: Any) -> Any:
        assert self.crawler.engine is not None
        stock = yield self.crawler.engine.download(Request(response.url.replace("item", "stock")))
        self.seen.append(stock.text)
        return []


class DownloadingForObjects(Downloading):
    """The same as the clients of page objects do it."""

    async def parse_item(self, response: Any) -> None:
        assert self.crawler.engine is not None
        request = Request(response.url.replace("item", "stock"), callback=NO_CALLBACK)
        self.seen.append((await self.crawler.engine.download_async(request)).text)


class Provider:
    """Middleware that downloads what a page object needs, before anybody judges the page."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        self = cls()
        self.crawler = crawler
        return self

    async def process_response(self, request: Request, response: Any) -> Any:
        if "/item/" in request.url:
            stock = Request(request.url.replace("item", "stock"), callback=NO_CALLBACK)
            request.meta["stock"] = (await self.crawler.engine.download_async(stock)).text
        return response


class Provided(Catalogue):
    """A callback that gets what a middleware has downloaded."""

    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Provider: 543}}

    def parse_item(self, response: Any) -> None:
        self.seen.append(response.meta["stock"])


class Pictured(Catalogue):
    """Items with files, whose pages are skipped as others are."""

    custom_settings = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}}

    def parse_item(self, response: Any) -> Any:
        self.seen.append("1 left")
        yield {"file_urls": [response.url.replace("item", "stock")]}

    def failed(self, failure: Any) -> None:
        assert failure.check(Unchanged)


@pytest.mark.parametrize(
    "kind", [Downloading, DownloadingByDeferreds, DownloadingForObjects, Provided, Pictured]
)
async def test_a_callback_that_downloads_by_itself_is_not_skipped(
    kind: type[Spider], site: Site, store_path: Path, tmp_path: Path
) -> None:
    """A download of the callback may have changed, though the page did not; so may a file that failed."""
    for day in (1, 2, 3):
        catalogue(site, lambda request, number: f"item {number}")
        is_read = day == 1 or kind is not Pictured
        failed = 1 - is_read if day < 3 else 0
        site.pages |= {path.replace("item", "stock"): f"{day} left" for path in LINKS}
        if kind is Pictured and day == 1:
            del site.pages[LINKS[0].replace("item", "stock")]
        crawler = await crawl(kind, store_path, {**SKIP, "FILES_STORE": str(tmp_path / "files")}, site=site)
        text = "1 left" if kind is Pictured else f"{day} left"
        assert crawler.spider.seen == [text] * (len(LINKS) * is_read + failed)


@pytest.mark.parametrize("query", ["", "?day={}"])
async def test_links_that_alone_change_are_followed(query: str, site: Site, store_path: Path) -> None:
    """A list whose text is as before is read where its body is not; the same body is skipped."""
    for day in (1, 2, 3, 3):
        catalogue(site, lambda request, number: f"item {number} {request.args.get(b'day')}")
        links = [path + query.format(day) for path in LINKS]
        site.pages["/"] = html("the list", [*links, f"/item/0{day}"])
        site.pages[f"/item/0{day}"] = html("a new item")
        settings = {**SKIP, "GP4C_URL_PARAMS_IGNORED": ["day"]}
        site.log.clear()
        await crawl(Catalogue, store_path, settings, site=site)
        # A parameter that the project has named makes no page, and the page is asked for with that of today.
        assert {path for path in site.fetched() if len(path) < 8 or "?" in path} == {"/", *links}
        assert f"/item/0{day}" in site.fetched()


class Queued(Catalogue):
    """Reads links of handlers of clicks, and puts them into a queue from which its start takes them."""

    async def start(self) -> AsyncIterator[Any]:
        self.paths: DeferredQueue[str | None] = DeferredQueue()
        yield Request(self.site.url("/"), errback=self.failed)
        while path := await maybe_deferred_to_future(self.paths.get()):
            yield Request(self.site.url(path), self.parse_item)

    def parse(self, response: Any) -> None:
        for handler in response.css("a::attr(onclick)").getall():
            self.paths.put(handler.split("'")[1])
        self.paths.put(None)

    def parse_item(self, response: Any) -> None:
        """Want nothing."""

    def failed(self, failure: Any) -> None:
        self.paths.put(None)


async def test_links_for_the_queue_of_a_start_are_followed(site: Site, store_path: Path) -> None:
    """A callback that yields nothing may follow links all the same."""
    for day in (1, 2, 3):
        catalogue(site, lambda request, number: f"item {number}")
        links = "".join(f"<a onclick=\"go('{path}')\">show</a>" for path in [*LINKS, f"/item/0{day}"])
        site.pages |= {
            "/": html("the list").replace("<p>", f"{links}<p>"),
            f"/item/0{day}": html("a new item"),
        }
        site.log.clear()
        await crawl(Queued, store_path, SKIP, site=site)
        assert f"/item/0{day}" in site.fetched()


class Keyed(Catalogue):
    """Hands on a secret of today, which no store keeps."""

    day = 0

    def parse(self, response: Any) -> Iterator[Any]:
        yield from response.follow_all(
            css="a", callback=self.parse_item, headers={"X-Api-Key": str(self.day)}
        )


async def test_an_unchanged_list_that_hands_on_a_secret_is_read(site: Site, store_path: Path) -> None:
    """Only its callback can ask for the pages that need the secret."""

    def item(request: Any, number: int) -> str:
        return f"item {number} of {request.getHeader('X-Api-Key')}"

    for day in (1, 2, 3):
        catalogue(site, item)
        crawler = await crawl(Keyed, store_path, SKIP, site=site, day=day)
        assert sorted(crawler.spider.seen) == [(200, f"item {at} of {day}") for at in range(len(LINKS))]


class Patient(Catalogue):
    """Reports whatever fails, and asks for it again."""

    def failed(self, failure: Any) -> Iterator[Any]:
        yield {"failed": failure.request.url}
        yield failure.request.replace(dont_filter=True)
        yield Request(failure.request.url, self.parse_item, dont_filter=True)


class PatientByCoroutines(Patient):
    """The same by a coroutine that returns a list."""

    async def failed(self, failure: Any) -> Any:
        return list(super().failed(failure))


@pytest.mark.parametrize("spider", [Patient, PatientByCoroutines])
async def test_what_an_errback_yields_of_an_unchanged_page_is_dropped(
    spider: type[Patient], site: Site, store_path: Path
) -> None:
    """Pages that fail are reported and asked for again, as without the add-on; those skipped are not."""
    for day in (1, 2, 3):
        catalogue(site, lambda request, number: f"item {number}")
        broken = site.pages["/item/3"]

        def item(request: Any, broken: Any = broken) -> bytes:
            request.setResponseCode(500 if site.hits["GET", "/item/3"] == 1 else 200)
            return bytes(broken(request))

        site.pages["/item/3"] = item
        site.log.clear()
        crawler = await crawl(spider, store_path, {**SKIP, "RETRY_ENABLED": False}, site=site)
        assert crawler.stats.get_value("item_scraped_count") == 1
        assert all(site.hits["GET", path] == (3 if path == "/item/3" else 1) for path in LINKS), day


async def test_pages_of_an_earlier_start_are_counted(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of URLs may have lost some; linked pages are none, and a start that is silent leaves none."""

    class Starting(Catalogue):
        paths: list[str]

        async def start(self) -> AsyncIterator[Any]:
            self.seen: list[Any] = []
            for path in self.paths:
                yield Request(self.site.url(path), self.parse if path == "/" else self.parse_item)

    all_ = ["/", "/a", "/b", "/c"]
    for paths, left in ((all_[:3], 0), (all_[:2], 1), (["/c"], 3), ([], 0), (["/", "/b"], 2), (all_, 0)):
        catalogue(site, lambda request, number: f"item {number}")
        site.pages |= {path: html(f"the start {path}") for path in ("/a", "/b", "/c")}
        budget = {"GP4C_BUDGET": 2, "GP4C_WARMUP_VISITS": 0} if paths is all_ else {}
        await crawl(Starting, store_path, {**ALL, **budget}, site=site, paths=paths)
        lines = [line for line in warnings(caplog) if "the start of an earlier run" in line]
        assert len(lines) == (left > 0), paths
        assert all(f" pages, {left} {'is' if left == 1 else 'are'} of the start of" in line for line in lines)


class Listing(Catalogue):
    """Says when its list is read; a day's callback fails after the first link."""

    fails = False

    def parse(self, response: Any) -> Iterator[Any]:
        self.seen.append("list")
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.parse_item)
            if self.fails:
                raise ValueError("no such link")


async def test_a_list_is_read_where_its_links_are_not_as_before(site: Site, store_path: Path) -> None:
    """Neither a token in its markup, nor the order and campaigns of links, are a reason to read it."""
    days = [(LINKS, 1), (LINKS, 0), (["/?utm_source=a", *LINKS[1:]], 1), ([*LINKS[1:], "/?utm_source=b"], 0)]
    days += [([*LINKS[1:], "/item/9"], 1), (LINKS, 1), (LINKS, 0)]
    for day, (links, is_read) in enumerate(days):
        catalogue(site, lambda request, number: f"item {number}")
        page = html("the list", links).replace("<p>", f'<input type=hidden name=csrf value="{day}x"><p>')
        site.pages |= {"/": page, "/item/9": html("a new item")}
        crawler = await crawl(Listing, store_path, SKIP, site=site)
        assert crawler.spider.seen.count("list") == is_read, day


async def test_links_that_a_failed_callback_did_not_follow_are_followed_by_the_next(
    site: Site, store_path: Path
) -> None:
    """The text of the list is as before on the next day, and so are its links."""
    for day, links in enumerate([LINKS[:3], LINKS[3:], LINKS[3:], LINKS[3:]]):
        catalogue(site, lambda request, number: f"item {number}")
        site.pages["/"] = html("the list", links)
        crawler = await crawl(Listing, store_path, SKIP, site=site, fails=day == 1)
        assert crawler.spider.seen.count("list") == (day < 3)
        assert len(site.fetched() - {"/robots.txt"}) == 1 + (3, 4, 6, 6)[day]


async def test_pages_that_bring_the_session_are_visited_first(site: Site, store_path: Path) -> None:
    """A cookie of a second page serves all others, as after a POST, whatever the budget."""
    day = 0

    def session(request: Any) -> bytes:
        request.addCookie("session", str(day))
        return html("welcome", ["/list"]).encode()

    def guarded(request: Any, number: int) -> str:
        return f"item {number}" if request.getCookie(b"session") == str(day).encode() else "please log in"

    class Member(Catalogue):
        def parse(self, response: Any) -> Iterator[Any]:
            for link in response.css("a::attr(href)").getall():
                yield response.follow(link, self.parse_item if "item" in link else self.parse)

    catalogue(site, guarded)
    site.pages |= {"/list": site.pages["/"], "/": html("home", ["/session"]), "/session": session}
    for day in (1, 2, 3, 4):
        crawler = await crawl(Member, store_path, SMALL, site=site)
        assert crawler.spider.seen
        assert "please log in" not in str(crawler.spider.seen)
        assert ("beyond_budget" in stats(crawler)) == (day > 1), day


class Chain(Catalogue):
    """An item of two pages: the second gets what the first says."""

    def parse_item(self, response: Any) -> Iterator[Any]:
        text = response.css("p::text").get()
        yield response.follow(response.url.replace("item", "stock"), self.parse_stock, meta={"item": text})

    def parse_stock(self, response: Any) -> None:
        self.seen.append(response.meta["item"])


async def test_items_of_several_pages_that_a_cycle_has_not_are_counted(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Second pages with data of an earlier run, or with new data that is not delivered, are one line each."""
    for day in range(1, 6):
        catalogue(site, lambda request, number, day=day: f"item {number} of day {day}")
        site.pages |= {path.replace("item", "stock"): html(f"the stock {path}") for path in LINKS}
        warnings(caplog)
        crawler = await crawl(Chain, store_path, SMALL, site=site)
        lines = " ".join(warnings(caplog))
        old = sum(not text.endswith(str(day)) for text in crawler.spider.seen)
        ends = outcomes(store_path, day)
        handed = {path.replace("item", "stock") for path in LINKS if path in ends}
        waiting = handed - ends.keys()
        is_said = (
            f"Of {counted(len(ends), 'visited page')}, {old} got data of an earlier run (meta item)" in lines
        )
        assert is_said == (old > 0)
        # What all pages get is no page's data: a page that alone got any is not told from that.
        is_said = f"{counted(len(waiting), 'known page')} got new data (meta item)" in lines
        assert is_said == (len(waiting) > 0 and len(handed) > 1)


class Loaded(Catalogue):
    """An item of two pages: the first has data of today, the second an object that no store keeps."""

    def parse(self, response: Any) -> Iterator[Any]:
        day = response.css("p::text").get()
        yield from response.follow_all(css="a", callback=self.parse_item, cb_kwargs={"day": day})

    def parse_item(self, response: Any, day: str) -> Iterator[Any]:  # type: ignore[override] # by cb_kwargs
        url = response.url.replace("item", "stock")
        yield Request(url, self.parse_stock, meta={"loader": object(), "day": day})

    def parse_stock(self, response: Any) -> None:
        self.seen.append(response.meta["day"])


async def test_a_second_page_waits_for_a_first_one_that_is_late(site: Site, store_path: Path) -> None:
    """Else other pages got its place in the plan, and it was visited all the same."""
    for day in range(1, 6):
        catalogue(site, lambda request, number: f"item {number}")
        site.pages["/"] = html(f"day {day}", LINKS)
        site.pages |= {path.replace("item", "stock"): html(f"the stock {path} of {day}") for path in LINKS}
        site.log.clear()
        await crawl(Loaded, store_path, SMALL if day > 3 else ALL, site=site)
        assert day <= 3 or len(site.log) <= 2 * SMALL["GP4C_BUDGET"], day


async def test_data_that_does_not_vary_is_not_doubted(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once pages have got the same again, there is no warning of it."""
    catalogue(site, lambda request, number: f"item {number}")
    site.pages |= {path.replace("item", "stock"): html(f"the stock {path}") for path in LINKS}
    for settings in (ALL, ALL, SMALL, SMALL, SMALL):
        warnings(caplog)
        await crawl(Chain, store_path, settings, site=site)
        assert not warnings(caplog)


@pytest.mark.parametrize("refusal", ["shared answer", 403, "no answer"])
async def test_a_site_is_not_left_alone_where_the_spider_asks_again(
    refusal: str | int, site: Site, store_path: Path
) -> None:
    """Whether its callback or its errback does so: it gets its items, and the last answer is the page."""
    hits: Counter[int] = Counter()

    def item(request: Any, number: int) -> str:
        hits[number] += 1
        if hits[number] > 2:
            return f"item {number}"
        if refusal == "no answer":
            request.transport.abortConnection()
        elif refusal == 403:
            request.setResponseCode(403)
        return "your request is being processed"

    class Patient(Catalogue):
        def parse_item(self, response: Any) -> Any:
            if "processed" in response.text:
                return get_retry_request(response.request, spider=self, reason="not yet")
            return super().parse_item(response)

        def failed(self, failure: Any) -> Iterator[Any]:
            yield failure.request.replace(dont_filter=True, meta={**failure.request.meta, "proxy": None})

    for _ in range(3):
        hits.clear()
        catalogue(site, item)
        settings = {**ALL, "CONCURRENT_REQUESTS": 16, "RETRY_ENABLED": False}
        crawler = await crawl(Patient, store_path, settings, site=site)
        assert sorted(crawler.spider.seen) == [(200, f"item {number}") for number in range(len(LINKS))]
    assert outcomes(store_path, 3)["/item/1"] == ["unchanged"]


@pytest.mark.parametrize("budget", [ALL, SKIP])
async def test_a_page_at_which_the_spider_closes_itself_comes_last(
    budget: dict[str, Any], site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All pages before it are visited and read, new ones too; no line calls for a mend."""

    class UntilEmpty(Spider):
        name = "untilempty"
        site: Site

        async def start(self) -> AsyncIterator[Any]:
            self.seen: list[str] = []
            yield Request(self.site.url("/1"))

        def parse(self, response: Any) -> Iterator[Any]:
            number = int(response.url.rpartition("/")[2])
            if "empty" in response.text:
                raise CloseSpider("no further page")
            self.seen.append(response.css("p::text").get())
            yield response.follow(f"/{number + 1}")

    for day in range(1, 5):
        texts = {f"/{number}": f"page {number} of day {day}" for number in range(1, 6 + day)}
        site.pages = {**{path: html(text) for path, text in texts.items()}, f"/{6 + day}": html("empty")}
        crawler = await crawl(UntilEmpty, store_path, {**budget, "CONCURRENT_REQUESTS": 1}, site=site)
        assert crawler.stats.get_value("finish_reason") == "no further page"
        assert sorted(crawler.spider.seen) == sorted(texts.values()), day
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


UNSEEN = {
    "class": '<li class="product {}-stock">', "rating": '<p class="star-rating stars-{}"></p>',
    "data": "<button data-product-price={}>buy</button>", "script": "<script>var price = {}; f()</script>",
    "field": '<input type="hidden" name="price" value="{}">', "comment": "<!-- in-stock: {} -->",
    "picture": f'<meta property="og:image" content="https://h/{"a" * 40}{{}}.jpg?v=1">',
}  # fmt: skip
"""Name -> markup with a value of today, which no text of the page shows."""


async def test_data_that_no_text_shows_is_delivered(site: Site, store_path: Path) -> None:
    """Prices, stocks and ratings in the markup; tokens, and classes of the layout, make no callback run."""

    class Reading(Catalogue):
        def parse_item(self, response: Any) -> Any:
            self.seen.append(response.url.rpartition("/")[2])

        def failed(self, failure: Any) -> None:
            """Want no page that is skipped."""

    for day, expected in enumerate([{*UNSEEN, "token"}, set(), {*UNSEEN}, set()]):
        token = f'<body class="nav-{day}" data-request="{day}"><script nonce="{day}">t = "{day}"</script>'
        paths = [f"/item/{name}" for name in (*UNSEEN, "token")]
        site.pages = {"/": html("the list", paths)}
        for path, markup in zip(paths, (*UNSEEN.values(), ""), strict=True):
            page = html(f"all about {path}").replace("<body>", token + markup.format(day // 2))
            site.pages[path] = page
        crawler = await crawl(Reading, store_path, SKIP, site=site)
        assert sorted(crawler.spider.seen) == sorted(expected), day


HIDDEN = {
    "attribute": "<img src='/{}.png'>", "script": "<script type='application/ld+json'>[{}]</script>",
    "comment": "<!-- build {} -->", "hidden": "<div style='display:none'>{}</div>", "header": "",
    "moving": "",
}  # fmt: skip
"""Name -> markup with a value of today, which is no change of the compared text."""


async def test_items_of_what_no_text_shows_are_delivered(site: Site, store_path: Path) -> None:
    """A callback runs for a token, too, until it has made the same items often enough."""

    class Reading(Catalogue):
        def parse(self, response: Any) -> Iterator[Any]:
            for link in response.css("a::attr(href)").getall():
                yield response.follow(link, self.parse_text if "token" in link else self.parse_item)

        def parse_item(self, response: Any) -> Iterator[Any]:
            self.seen.append(response.url.partition("?")[0].rpartition("/")[2])
            answer = response.url, response.headers.get("X-Build"), response.text
            yield {"answer": answer, "at": datetime.now(UTC)}

        def parse_text(self, response: Any) -> Iterator[Any]:
            self.seen.append("token")
            yield {"text": response.css("p::text").get(), "at": time.time(), "made": f"{datetime.now(UTC)}"}

    def page(name: str, markup: str, build: int) -> Callable[[Any], bytes]:
        def made(request: Any) -> bytes:
            if name == "header":
                request.setHeader("X-Build", str(build))
            if name == "moving" and b"?" not in request.uri:
                request.redirect(f"/moving?offer={build}".encode())
            return html(f"all about {name}").replace("</p>", f"</p>{markup}").encode()

        return made

    pages = TRIALS + 8
    for day, build in enumerate((0, 0, 1, 1)):
        site.pages = {f"/{name}": page(name, HIDDEN[name].format(build), build) for name in HIDDEN}
        names = [f"token{number}" for number in range(pages)]
        site.pages |= {f"/{name}": page(name, f"<i id={day}></i>", 0) for name in names}
        site.pages["/"] = html("the list", list(site.pages))
        seen = Counter((await crawl(Reading, store_path, SKIP, site=site)).spider.seen)
        tokens = seen.pop("token", 0)
        assert seen == (dict.fromkeys(HIDDEN, 1) if day in (0, 2) else {}), day
        assert tokens == pages if day == 0 else 0 < tokens < pages
