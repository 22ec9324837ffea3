"""Spiders as people write them: data of today, whatever the way of a request to its callback."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.http import JsonRequest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider
from scrapy.utils.defer import deferred_from_coro

from scrapy_gp4c import visit
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Site, crawl, html, outcomes, stats, stock_crawl

ALL = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1, "GP4C_DISCOVERY": 0.5, "CONCURRENT_REQUESTS": 4}
ITEMS = [f"/item/{number}" for number in range(4)]


class Daily(Spider):
    """A spider whose requests carry the day, which its items have."""

    day = 0
    site: Site

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        """Build it with an empty list of items."""
        self = super().from_crawler(crawler, *args, **kwargs)
        self.items = []
        return self

    def parse_item(self, response: Any, day: int) -> Iterator[Any]:
        self.items.append(("/" + response.url.split("/", 3)[3], day))
        yield {"url": response.url, "day": day}


def pages(site: Site, day: int) -> None:
    """Serve a shop of three levels."""
    site.pages = {
        "/": html(f"all of day {day}", ["/list/1", "/list/2"]),
        "/list/1": html(f"first of day {day}", [*ITEMS[:2], "/list/2"]),
        "/list/2": html(f"second of day {day}", ITEMS[2:]),
        **{path: html(f"the item {path}") for path in ITEMS},
    }


class Levels(Daily):
    """Arguments handed on over three levels."""

    name = "levels"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/"), self.parse_home, cb_kwargs={"day": self.day})

    def parse_home(self, response: Any, day: int) -> Iterator[Any]:
        yield from response.follow_all(css="a", callback=self.parse_list, cb_kwargs={"day": day})

    async def parse_list(self, response: Any, day: int) -> AsyncIterator[Any]:
        for link in response.css("a::attr(href)").getall():
            if "item" in link:
                yield response.follow(link, self.parse_item, cb_kwargs={"day": day}, priority=day)
            else:
                yield response.request.replace(url=response.urljoin(link))


class Old(Levels):
    """The old way to start."""

    name = "old"

    def start_requests(self) -> Iterator[Any]:
        yield Request(self.site.url("/"), self.parse_home, meta={"day": self.day})

    async def start(self) -> AsyncIterator[Any]:
        for request in self.start_requests():
            yield request

    def parse_home(self, response: Any) -> Iterator[Any]:  # type: ignore[override]
        for link in response.css("a"):
            yield response.follow(link, self.parse_list, meta=response.meta)

    def parse_list(self, response: Any) -> Iterator[Any]:  # type: ignore[override]
        for link in response.css("a::attr(href)").re(".*item.*"):
            yield Request(response.urljoin(link), self.parse_item, meta=response.meta.copy())

    def parse_item(self, response: Any) -> Iterator[Any]:  # type: ignore[override]
        yield from super().parse_item(response, response.meta["day"])


class Ruled(Daily, CrawlSpider):
    """Rules that change requests."""

    name = "ruled"
    rules = (
        Rule(LinkExtractor(allow="/list/")),
        Rule(
            LinkExtractor(allow="/item/"), callback="parse_ruled", process_request="with_day",
            process_links="some", cb_kwargs={"fixed": 1},
        ),
    )  # fmt: skip

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/"))

    def some(self, links: Any) -> Any:
        return list(reversed(links))

    def with_day(self, request: Request, response: Any) -> Request:
        return request.replace(cb_kwargs={**request.cb_kwargs, "day": self.day})

    def parse_ruled(self, response: Any, day: int, fixed: int) -> Iterator[Any]:
        assert fixed == 1
        yield from self.parse_item(response, day)


class Paged(Daily):
    """A start page that is read as a list first, and then as the first of its items."""

    name = "paged"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url(ITEMS[0]), self.parse_first, dont_filter=True)

    def parse_first(self, response: Any) -> Iterator[Any]:
        for path in (*ITEMS, ITEMS[0]):
            yield response.follow(path, self.parse_item, cb_kwargs={"day": self.day})


class Mapped(Daily, SitemapSpider):
    """A sitemap whose requests are changed on the way out."""

    name = "mapped"
    sitemap_rules = [("/item/", "parse_mapped")]

    async def start(self) -> AsyncIterator[Any]:
        paths = [f"<url><loc>{self.site.url(path)}</loc></url>" for path in ITEMS]
        xml = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">' + "".join(paths) + "</urlset>"

        def sitemap(request: Any) -> bytes:
            request.setHeader("Content-Type", "application/xml")
            return xml.encode()

        self.site.pages["/sitemap.xml"] = sitemap
        yield Request(self.site.url("/sitemap.xml"), self.parse_map)

    def parse_map(self, response: Any) -> Iterator[Any]:
        for request in self._parse_sitemap(response):
            yield request.replace(meta={"day": self.day})

    def parse_mapped(self, response: Any) -> Iterator[Any]:
        yield from self.parse_item(response, response.meta["day"])


class Feed(Daily, XMLFeedSpider):
    """A feed of XML, whose nodes lead to pages."""

    name = "feed"
    itertag = "entry"

    async def start(self) -> AsyncIterator[Any]:
        entries = "".join(f'<entry day="{self.day}">{path}</entry>' for path in ITEMS)
        self.site.pages["/feed.xml"] = f"<feed>{entries}</feed>"
        yield Request(self.site.url("/feed.xml"))

    def parse_node(self, response: Any, selector: Any) -> Any:
        day, path = int(selector.attrib["day"]), selector.xpath("text()").get()
        return Request(response.urljoin(path), self.parse_item, cb_kwargs={"day": day})


class Table(Daily, CSVFeedSpider):
    """The same with CSV."""

    name = "table"

    async def start(self) -> AsyncIterator[Any]:
        self.site.pages["/table.csv"] = "\n".join(["path,day", *(f"{path},{self.day}" for path in ITEMS)])
        yield Request(self.site.url("/table.csv"))

    def parse_row(self, response: Any, row: Any) -> Any:
        return Request(response.urljoin(row["path"]), self.parse_item, cb_kwargs={"day": int(row["day"])})


class Fallback(Daily):
    """An errback asks another server."""

    name = "fallback"

    async def start(self) -> AsyncIterator[Any]:
        for path in ITEMS:
            yield Request(self.site.url("/dead" + path), self.parse_item, errback=self.failed)

    def failed(self, failure: Any) -> Iterator[Any]:
        path = failure.request.url.partition("/dead")[2]
        yield Request(self.site.url(path), self.parse_item, cb_kwargs={"day": self.day})


class Idle(Daily):
    """Pages from a queue, which is looked at when nothing is left to do."""

    name = "idle"
    batch = 3

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        self = super().from_crawler(crawler, *args, **kwargs)
        self.queue = list(ITEMS)
        crawler.signals.connect(self.idle, signals.spider_idle)
        return self

    async def start(self) -> AsyncIterator[Any]:
        for path in self.take():
            yield self.ask(path)

    def take(self) -> list[str]:
        taken, self.queue = self.queue[: self.batch], self.queue[self.batch :]
        return taken

    def ask(self, path: str) -> Request:
        return Request(self.site.url(path), self.parse_item, cb_kwargs={"day": self.day}, dont_filter=True)

    def idle(self) -> None:
        taken = self.take()
        for path in taken:
            self.crawler.engine.crawl(self.ask(path))
        if taken:
            raise DontCloseSpider


class LateIdle(Idle):
    """The same without a start."""

    name = "lateidle"
    batch = 1

    async def start(self) -> AsyncIterator[Any]:
        return
        yield


class Summary(Levels):
    """Items that the callback of a last page makes of what others have kept."""

    name = "summary"

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        self = super().from_crawler(crawler, *args, **kwargs)
        self.rows = []
        crawler.signals.connect(self.idle, signals.spider_idle)
        return self

    def parse_item(self, response: Any, day: int) -> Iterator[Any]:
        self.rows.append(("/" + response.url.split("/", 3)[3], day))
        return iter(())

    def idle(self) -> None:
        if self.rows and not self.items:
            self.crawler.engine.crawl(Request(self.site.url("/list/1?rows"), self.parse_rows))
            raise DontCloseSpider

    def parse_rows(self, response: Any) -> None:
        self.items, self.rows = [*self.items, *self.rows], []


class Form(Daily):
    """A search form that is sent by GET."""

    name = "form"

    async def start(self) -> AsyncIterator[Any]:
        self.site.pages["/form"] = (
            '<html><body><form action="/search" method="get"><input name="q" value="">'
            f'<input type="hidden" name="page" value="1"></form>{self.day}</body></html>'
        )
        self.site.pages["/search"] = html("found", ITEMS)
        yield Request(self.site.url("/form"), self.parse_form)

    def parse_form(self, response: Any) -> Any:
        day = {"day": self.day}
        yield FormRequest.from_response(response, formdata={"q": "x"}, callback=self.parse_found, meta=day)

    def parse_found(self, response: Any) -> Iterator[Any]:
        for link in response.css("a::attr(href)").getall():
            yield JsonRequest(
                response.urljoin(link), callback=self.parse_item, cb_kwargs={"day": response.meta["day"]}
            )


class Inline(Daily):
    """A callback that downloads other pages itself."""

    name = "inline"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/list/1"))

    async def parse(self, response: Any) -> AsyncIterator[Any]:
        other = await self.crawler.engine.download_async(
            Request(response.urljoin("/list/2"), meta={"day": self.day})
        )
        assert not visit(other).managed
        links = response.css("a::attr(href)").re(".*item.*") + other.css("a::attr(href)").getall()
        for link in links:
            yield Request(response.urljoin(link), self.parse_item, cb_kwargs={"day": other.meta["day"]})


class Pages(Daily):
    """One URL, asked for several times on purpose."""

    name = "pages"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/list/1"), cb_kwargs={"number": 1}, dont_filter=True)

    def parse(self, response: Any, number: int) -> Iterator[Any]:
        self.items.append((ITEMS[number - 1], self.day))
        if number < len(ITEMS):
            yield response.request.replace(cb_kwargs={"number": number + 1})


SPIDERS = [
    Levels, Old, Paged, Ruled, Mapped, Feed, Table, Fallback, Idle, LateIdle, Summary, Form, Inline, Pages,
]  # fmt: skip


BREADTH = {"DEPTH_PRIORITY": 1, "CONCURRENT_REQUESTS": 1}


@pytest.mark.parametrize(
    ("spider", "settings"),
    [*((spider, {}) for spider in SPIDERS), *((spider, BREADTH) for spider in (Levels, Ruled, Idle, Inline))],
)
async def test_items_have_the_data_of_today(
    spider: type[Spider], settings: dict[str, Any], site: Site, store_path: Path
) -> None:
    """Each item once."""
    for day in range(1, 5):
        pages(site, day)
        crawler = await crawl(spider, store_path, {**ALL, **settings}, day=day, site=site)
        assert sorted(crawler.spider.items) == [(path, day) for path in ITEMS], day


class WholePages(Daily):
    """A listing and its items, by callbacks that keep what they read on the spider."""

    token = ""
    first_status = 200
    """Of the first answer of each item, which is a captcha; 0: there is none."""

    async def start(self) -> AsyncIterator[Any]:
        self.asked: set[str] = set()
        for path in ITEMS:
            self.site.pages[path] = self.answer
        yield Request(self.site.url("/list"))

    def answer(self, request: Any) -> bytes:
        """The first answer of each item is none from day 3 on."""
        path = request.uri.decode()
        if self.first_status and self.day > 2 and path not in self.asked:
            self.asked.add(path)
            request.setResponseCode(self.first_status)
            return b"<html><body><p>a captcha</p></body></html>"
        return html(f"{path} of day {self.day}").encode()

    def parse(self, response: Any) -> Iterator[Any]:
        self.token = response.css("p::text").get()
        yield from response.follow_all(response.css("a"), self.parse_page, errback=self.failed)

    def parse_page(self, response: Any, number: int = 0) -> Iterator[Any]:
        if b"captcha" in response.body:
            yield Request(response.url, self.parse_page, dont_filter=True)
        else:
            self.items.append((response.css("p::text").get(), self.token, number))

    def failed(self, failure: Any) -> Iterator[Any]:
        yield Request(failure.request.url, self.parse_page, dont_filter=True)


class Failing(WholePages):
    """Errors instead of captchas."""

    name, first_status = "failing", 500


class Asking(WholePages):
    """Captchas."""

    name = "asking"


class Twice(WholePages):
    """Two callbacks for each page."""

    name, first_status = "twice", 0

    def parse(self, response: Any) -> Iterator[Any]:
        for request in super().parse(response):
            yield request
            yield request.replace(cb_kwargs={"number": 2}, dont_filter=True)


class LateStart(WholePages):
    """A start that waits for a database."""

    name = "latestart"

    async def start(self) -> AsyncIterator[Any]:
        await asyncio.sleep(0.1)
        self.token = f"of {self.day}"
        async for request in super().start():
            yield request.replace(callback=self.parse_links)

    def parse_links(self, response: Any) -> Iterator[Any]:
        yield from response.follow_all(response.css("a"), self.parse_page)


@pytest.mark.slow
@pytest.mark.parametrize("spider", [Failing, Asking, Twice, LateStart])
async def test_with_a_full_budget_items_are_those_of_a_full_crawl(
    spider: type[Spider], site: Site, store_path: Path
) -> None:
    """What the callbacks of a run keep on the spider is there, and what they ask for again is fetched."""
    for day in range(1, 6):
        site.pages["/list"] = html(f"the list of day {day}", ITEMS)
        settings = {"RETRY_ENABLED": False}
        expected = (await stock_crawl(spider, settings, day=day, site=site)).spider.items
        crawler = await crawl(spider, store_path, {**ALL, **settings}, day=day, site=site)
        assert sorted(crawler.spider.items) == sorted(expected), day


@pytest.mark.slow
async def test_a_page_of_a_later_round_has_all_that_the_spider_asked_of_it(
    site: Site, store_path: Path
) -> None:
    """A further request for it came before anybody knew that it would be visited."""
    for day in range(1, 7):
        site.pages["/list"] = html(f"the list of day {day}", ITEMS)
        crawler = await crawl(Twice, store_path, {**ALL, "GP4C_BUDGET": 4}, day=day, site=site)
        asked = [number for _, token, number in crawler.spider.items if token]
        assert asked.count(0) == asked.count(2), day


class SignedIn(Daily):
    """A form that is fetched like any page, sent, and the pages behind it."""

    name = "signedin"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/form"), self.sign_in)

    def sign_in(self, response: Any) -> Any:
        return FormRequest(self.site.url("/login"), formdata={"user": "me"}, callback=self.signed_in)

    def signed_in(self, response: Any) -> Iterator[Any]:
        for path in ITEMS:
            yield Request(self.site.url(path), self.parse_page)

    def parse_page(self, response: Any) -> None:
        self.items.append(response.css("p::text").get())
        if self.day == 4:
            deferred_from_coro(self.crawler.stop_async())


async def test_a_login_form_is_visited_before_the_plan_in_every_run(site: Site, store_path: Path) -> None:
    """Though it is a page that the budget leaves out, and the run before was interrupted."""

    def login(request: Any) -> bytes:
        request.addCookie("session", "1")
        return b"welcome"

    def page(request: Any) -> bytes:
        return html(f"{request.uri.decode()} of user {request.getCookie(b'session')!r}").encode()

    site.pages = {"/form": html("sign in, day by day"), "/login": login, **dict.fromkeys(ITEMS, page)}
    for day in range(1, 7):
        settings = {**ALL, "GP4C_BUDGET": 3, "CONCURRENT_REQUESTS": 1}
        crawler = await crawl(SignedIn, store_path, settings, day=day, site=site)
        assert set(crawler.spider.items) <= {f"{path} of user b'1'" for path in ITEMS}
        assert crawler.spider.items
        assert stats(crawler)["cycle"] == (day if day < 5 else day - 1)


class Api(Daily):
    """An interface that answers POSTs, and a page that a cache may answer."""

    name = "api"

    async def start(self) -> AsyncIterator[Any]:
        yield JsonRequest(self.site.url("/api"), data={}) if self.day < 3 else Request(self.site.url("/page"))

    def parse(self, response: Any) -> None:
        """Read it."""


async def test_a_run_without_a_visit_has_one_warning(
    site: Site, store_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the cause; a second one that guesses at another is not to be read."""
    site.pages = {"/api": "{}", "/page": html("a page")}
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    for day in range(1, 5):
        caplog.clear()
        await crawl(Api, store_path, {**ALL, **cache}, day=day, site=site)
        lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        causes = ("no page is known", "found nothing to do", None, "comes from Scrapy's HTTP cache")
        if (cause := causes[day - 1]) is None:
            assert not lines
        else:
            assert len(lines) == 1
            assert cause in lines[0]


class Quiet(Daily):
    """Pages whose texts stay, while what their callbacks hand on is another."""

    name = "quiet"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/form"), self.parse_form)
        yield Request(self.site.url("/list"), self.parse_list)

    def parse_form(self, response: Any) -> Any:
        return FormRequest(self.site.url("/api"), formdata={"q": "all"}, callback=self.parse_api)

    def parse_api(self, response: Any) -> None:
        self.items.append(response.text)

    def parse_list(self, response: Any) -> Iterator[Any]:
        day = response.css("i::attr(data-day)").get()
        yield from response.follow_all(response.css("a"), self.parse_item, cb_kwargs={"day": day})


async def test_an_unchanged_page_takes_nothing_with_it_that_no_plan_has(site: Site, store_path: Path) -> None:
    """Its callback still sends the POST, and hands on today's data; a page without new data is skipped."""
    for day, has_new_data in ((1, True), (2, True), (2, False), (3, True)):
        site.pages = {"/form": html("the form"), "/api": f"of day {day}", ITEMS[0]: html("an item")}
        site.pages["/list"] = html("the list", ITEMS[:1]).replace("<p>", f'<p><i data-day="{day}"></i>')
        crawler = await crawl(Quiet, store_path, {**ALL, "GP4C_SKIP_UNCHANGED": True}, site=site)
        expected = [f"of day {day}", (ITEMS[0], str(day))]
        assert sorted(crawler.spider.items, key=str) == sorted(expected[: 1 + has_new_data], key=str)


class Copying(Daily):
    """Callbacks that hand the whole ``meta`` of their response on, and ask again with it."""

    name = "copying"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/list"))

    def parse(self, response: Any) -> Iterator[Any]:
        for path in ITEMS:
            yield Request(self.site.url(path), self.parse_page, meta=response.meta)

    def parse_page(self, response: Any) -> Iterator[Any]:
        if visit(response).doubtful:
            yield response.request.replace(dont_filter=True)
            return
        self.items.append(response.url)


async def test_a_copy_of_the_meta_of_a_visit_makes_no_request_a_part_of_it(
    site: Site, store_path: Path
) -> None:
    """Neither a retry nor a redirect of the list is one of its items; a doubted item is asked for again."""
    answers: Counter[str] = Counter()

    def busy(request: Any) -> bytes:
        answers["list"] += 1
        if answers["list"] == 1:
            request.setResponseCode(503)
            return b"busy"
        request.setResponseCode(301)
        request.setHeader("Location", "/moved")
        return b""

    def blocked(request: Any) -> bytes:
        answers["item"] += 1
        blocks = "<html><p>One moment</p><script>window._cf_chl_opt = {}</script></html>"
        return (blocks if answers["item"] == 1 else html("the first item")).encode()

    site.pages = {"/list": busy, "/moved": html("the list"), **{path: html(path) for path in ITEMS}}
    site.pages[ITEMS[0]] = blocked
    crawler = await crawl(Copying, store_path, ALL, site=site)
    assert sorted(crawler.spider.items) == [site.url(path) for path in ITEMS]
    assert outcomes(store_path, 1) == {path: ["first"] for path in ("/list", *ITEMS)}
    assert answers["item"] == 2
    with Store(store_path, readonly=True) as store:
        final_urls = [store.answer(page).final_url for page in range(store.pages)]
    assert final_urls == [site.url("/moved"), *[None] * len(ITEMS)]


class Filled(Daily):
    """An item that the callbacks of two pages fill; the last of them yields it."""

    name = "filled"

    async def start(self) -> AsyncIterator[Any]:
        item: dict[str, str] = {}
        for path in ITEMS[:2]:
            yield Request(self.site.url(path), self.fill, cb_kwargs={"item": item})

    def fill(self, response: Any, item: dict[str, str]) -> Iterator[Any]:
        item[response.url] = response.css("p::text").get()
        if len(item) == 2:
            self.items.append(tuple(item.values()))
            yield item


class Rated(Daily):
    """Items that depend on a rate, which the start fetches."""

    name = "rated"
    rate = ""

    async def start(self) -> AsyncIterator[Any]:
        assert self.crawler.engine is not None
        self.rate = (await self.crawler.engine.download_async(Request(self.site.url("/rate")))).text
        yield Request(self.site.url(ITEMS[0]), self.price)

    def price(self, response: Any) -> Iterator[Any]:
        self.items.append(self.rate)
        yield {"rate": self.rate}


class Labelled(Daily, CrawlSpider):
    """Items that have the text of their link."""

    name = "labelled"
    rules = (Rule(LinkExtractor(allow="/item/"), callback="label"),)

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/"))

    def label(self, response: Any) -> Iterator[Any]:
        self.items.append(response.meta["link_text"])
        yield {"text": response.meta["link_text"]}


@pytest.mark.parametrize("spider", [Filled, Rated, Labelled])
async def test_an_unchanged_page_whose_item_is_another_is_read(
    spider: type[Daily], site: Site, store_path: Path
) -> None:
    """The item depends on another page, on the spider or on the link; without news the page is skipped."""
    for day, news in enumerate(("one", "one", "two", "two", "three")):
        site.pages = {path: html(f"the item {path}") for path in ITEMS}
        site.pages |= {"/rate": f"rate {news}", ITEMS[1]: html(f"item {news}")}
        site.pages["/"] = html("the list", ITEMS[:1]).replace(">link<", f">link {news}<")
        crawler = await crawl(spider, store_path, {**ALL, "GP4C_SKIP_UNCHANGED": True}, site=site)
        if spider is not Filled and day == 1:
            assert not crawler.spider.items
        elif day != 3:
            assert [news in str(item) for item in crawler.spider.items] == [True]


async def test_an_edited_spider_reads_unchanged_pages_once(site: Site, store_path: Path) -> None:
    """So does one that may follow further links, to other hosts or deeper ones."""

    class Edited(Rated):
        """The same spider, edited."""

    class Wider(Edited):
        """The spider with a further host."""

    site.pages = {ITEMS[0]: html("an item"), "/rate": "rate"}
    for spider, depth, is_read in (
        (Rated, 3, True), (Rated, 3, False), (Edited, 3, True), (Edited, 3, False), (Edited, 4, True),
        (Wider, 4, True), (Wider, 4, False),
    ):  # fmt: skip
        Wider.__qualname__, Wider.allowed_domains = Edited.__qualname__, ["127.0.0.1", "other.example"]
        settings = {**ALL, "GP4C_SKIP_UNCHANGED": True, "DEPTH_LIMIT": depth}
        crawler = await crawl(spider, store_path, settings, site=site)
        assert len(crawler.spider.items) == is_read, (spider, depth)
