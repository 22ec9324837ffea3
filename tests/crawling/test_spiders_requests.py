"""The spider's request of today: it is sent and stored, whatever the store had."""

import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import JsonRequest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from scrapy_gp4c.crawling import hidden_data
from scrapy_gp4c.store.opening import open_store
from tests.support.loopback import Site, crawl, html, outcomes

ALL = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1, "GP4C_DISCOVERY": 0.5, "CONCURRENT_REQUESTS": 4}
ITEMS = 5
LINKS = [f"/item/{number}" for number in range(ITEMS)]


class Shop(Spider):
    """A listing that hands today's price to the pages of its items."""

    name = "shop"
    day = 0
    site: Site

    async def start(self) -> AsyncIterator[Any]:
        self.seen: list[Any] = []
        yield Request(self.site.url("/"), self.parse_listing)

    def parse_listing(self, response: Any) -> Iterator[Any]:
        for path in LINKS:
            yield self.ask(response.urljoin(path))

    def ask(self, url: str) -> Request:
        return Request(url, self.parse_item, cb_kwargs={"price": self.day}, headers={"X-Day": str(self.day)})

    def parse_item(self, response: Any, price: int) -> None:
        """Note the price, and the day of the header."""
        self.seen.append((price, int(response.request.headers["X-Day"])))

    def failed(self, failure: Any) -> None:
        """Do nothing."""


def shop(site: Site) -> None:
    """Serve a listing and its items."""
    site.pages = {"/": html("all items", LINKS), **{path: html(f"the item {path}") for path in LINKS}}


@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=4)"])
async def test_items_have_the_data_of_the_listing_of_today(policy: str, site: Site, store_path: Path) -> None:
    """Not of the day on which they were found: the item waits for the listing, which is planned too."""
    shop(site)
    for day in range(1, 6):
        site.pages["/"] = html(f"all items of day {day}", LINKS)
        crawler = await crawl(Shop, store_path, {**ALL, "GP4C_POLICY": policy}, day=day, site=site)
        assert sorted(outcomes(store_path, day)) == sorted(["/", *LINKS])
        assert crawler.spider.seen == [(day, day)] * ITEMS
        with open_store(store_path, readonly=True) as store:
            stored = [store.request(page) for page in range(store.pages)]
        assert [request["cb_kwargs"] for request in stored if "cb_kwargs" in request] == [
            {"price": day}
        ] * ITEMS


async def test_an_item_that_the_listing_lost_goes_as_it_is_stored(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And so do all when the listing fails: nobody waits for ever, and a warning counts old prices."""
    shop(site)
    await crawl(Shop, store_path, ALL, day=1, site=site)
    site.pages["/"] = html("fewer items")
    crawler = await crawl(Less, store_path, ALL, day=2, site=site)
    assert sorted(crawler.spider.seen) == [(1, 1)] * 2 + [(2, 2)] * 3
    assert "Of 6 visited pages, 2 got data of an earlier run (cb_kwargs price, header X-Day)" in caplog.text
    caplog.clear()
    del site.pages["/"]
    crawler = await crawl(Less, store_path, ALL, day=3, site=site)
    assert sorted(crawler.spider.seen) == [(1, 1)] * 2 + [(2, 2)] * 3
    assert "Of 6 visited pages, 5 got data of an earlier run (cb_kwargs price, header X-Day)" in caplog.text


class Less(Shop):
    """A shop whose listing hands on three items only."""

    def parse_listing(self, response: Any) -> Iterator[Any]:
        for path in LINKS[:3]:
            yield self.ask(response.urljoin(path))


class Starting(Shop):
    """A spider that has all items from elsewhere in its start."""

    async def start(self) -> AsyncIterator[Any]:
        self.seen: list[Any] = []
        for path in LINKS:
            yield self.ask(self.site.url(path))


async def test_what_the_start_yields_today_is_sent(site: Site, store_path: Path) -> None:
    """As the next page of the plan may be sent before the start has come to it."""
    shop(site)
    for day in range(1, 5):
        crawler = await crawl(Starting, store_path, {**ALL, "CONCURRENT_REQUESTS": 1}, day=day, site=site)
        assert crawler.spider.seen == [(day, day)] * ITEMS


class Priced(Request):
    """A request of a project, which has the price that callbacks read."""

    attributes = (*Request.attributes, "price")

    def __init__(self, *args: Any, price: int = 0, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self.price = price


class PricedShop(Shop):
    """A shop with such requests."""

    def ask(self, url: str) -> Request:
        return Priced(url, self.parse_item, price=self.day)

    def parse_item(self, response: Any) -> None:
        self.seen.append(response.request.price)


async def test_attributes_of_requests_are_data(site: Site, store_path: Path) -> None:
    """Unchanged pages that get others, and the unchanged listing that hands them on, are read."""
    shop(site)
    for day in (1, 2, 3):
        settings = {**ALL, "GP4C_SKIP_UNCHANGED": True}
        crawler = await crawl(PricedShop, store_path, settings, day=day, site=site)
        assert crawler.spider.seen == [day] * ITEMS


class Fresh(Shop):
    """A spider whose requests differ in everything from day to day."""

    def ask(self, url: str) -> Request:
        """Ask for an item with what there is today."""
        kind: Any = (Request, JsonRequest)[self.day % 2]
        return kind(
            url,
            self.parse_item if self.day < 3 else self.parse_other,
            cb_kwargs={"price": self.day},
            headers={"X-Day": str(self.day)},
            meta={"proxy_of": f"day {self.day}", "download_timeout": 30 + self.day},
            flags=[f"day {self.day}"],
            priority=self.day,
            errback=self.failed,
        )

    def parse_item(self, response: Any, price: int) -> None:
        request = response.request
        self.seen.append(
            (price, request.meta["proxy_of"], request.meta["download_timeout"], request.flags, type(request))
        )

    def parse_other(self, response: Any, price: int) -> None:
        self.parse_item(response, -price)


@pytest.mark.parametrize("asks", [True, False])
async def test_all_of_a_request_is_that_of_today(asks: bool, site: Site, store_path: Path) -> None:
    """Class, flags, meta, callback; where the spider does not ask, that of the last time that it did."""
    shop(site)
    for day in range(1, 5):
        last = day if asks or day < 3 else 2
        kind = Fresh if asks or day < 3 else type("Silent", (Fresh,), {"parse_listing": lambda *_: []})
        crawler = await crawl(kind, store_path, ALL, day=day, site=site)
        price, request = (last if last < 3 else -last), (Request, JsonRequest)[last % 2]
        expected = (price, f"day {last}", 30 + last, [f"day {last}"], request)
        assert crawler.spider.seen == [expected] * ITEMS


def decorated(method: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that hides the name of what it decorates."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return wrapper


def made() -> Callable[..., Any]:
    """A callback that a function makes, as page-object libraries do."""

    def parse(self: Any, response: Any) -> None:
        self.seen.append("made")

    return parse


class Callbacks(Spider):
    """Callbacks that have no name of their own."""

    name = "callbacks"
    ask = True
    assigned = made()

    async def start(self) -> AsyncIterator[Any]:
        """Ask for pages in the first cycle alone."""
        self.seen: list[str] = []
        for number, callback in enumerate((self.parse_decorated, self.__private, self.assigned)):
            if self.ask:
                yield Request(self.site.url(f"/item/{number}"), callback)

    @decorated
    def parse_decorated(self, response: Any) -> None:
        self.seen.append("decorated")

    def __private(self, response: Any) -> None:
        self.seen.append("private")


async def test_callbacks_are_found_by_identity(site: Site, store_path: Path) -> None:
    """As Scrapy finds them when it writes requests to disk."""
    shop(site)
    for ask in (True, False):
        crawler = await crawl(Callbacks, store_path, ALL, ask=ask, site=site)
        assert sorted(crawler.spider.seen) == ["decorated", "made", "private"]


class Rules(CrawlSpider):
    """A spider with one rule."""

    name = "rules"
    rules: Any = (Rule(LinkExtractor(allow="/item/"), callback="parse_item"),)

    def parse_item(self, response: Any) -> None:
        self.seen.append("item")

    def parse_start_url(self, response: Any, **kwargs: Any) -> list[Any]:
        return []

    def parse_news(self, response: Any) -> None:
        self.seen.append("news")


class MoreRules(Rules):
    """The same spider with a rule before the other."""

    rules = (Rule(LinkExtractor(allow="/news/"), callback="parse_news"), *Rules.rules)


@pytest.mark.parametrize("linked", [True, False])
async def test_a_rule_is_stored_by_what_it_is(linked: bool, site: Site, store_path: Path) -> None:
    """A rule put before it takes nobody's callback, whether the listing still links to the pages or not."""
    shop(site)
    Rules.start_urls = [site.url("/")]
    for kind in (Rules, MoreRules, MoreRules, Rules):
        crawler = await crawl(kind, store_path, ALL, seen=[])
        assert crawler.spider.seen == ["item"] * ITEMS
        if not linked:
            site.pages["/"] = html("nothing any more")


class Before(Shop):
    """A spider before the callback of its items is renamed."""

    def ask(self, url: str) -> Request:
        """Ask for an item without data."""
        return Request(url, self.callback())

    def callback(self) -> Any:
        return self.parse_old

    def parse_old(self, response: Any) -> None:
        self.seen.append(response.url)


class Renamed(Before):
    """The same spider afterwards."""

    parse_old: Any = property()

    def callback(self) -> Any:
        return self.parse_new

    def parse_new(self, response: Any) -> None:
        self.seen.append(response.url)


@pytest.mark.parametrize("is_compared", [True, False])
async def test_pages_of_a_renamed_callback_get_the_new_one(
    is_compared: bool, site: Site, store_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """At once, as the spider's code is another; where that cannot be read, a warning tells what waits."""
    if not is_compared:
        monkeypatch.setattr(hidden_data, "_code_sum", lambda spider: 0)
    shop(site)
    skip = {**ALL, "GP4C_SKIP_UNCHANGED": True}
    seen, warnings = [], []
    for kind in (Before, Before, Renamed, Renamed, Renamed):
        caplog.clear()
        seen.append(len((await crawl(kind, store_path, skip, site=site)).spider.seen))
        warnings.append(sum(record.levelno >= logging.WARNING for record in caplog.records))
        assert "error" not in str(outcomes(store_path, len(seen)))
    assert seen == ([ITEMS, 0, ITEMS, 0, 0] if is_compared else [ITEMS, 0, 0, ITEMS, 0])
    assert warnings == ([0, 0, 0, 0, 0] if is_compared else [0, 0, 1, 0, 0])


class Unstorable(Shop):
    """A spider whose requests JSON cannot hold."""

    how = "set"

    def ask(self, url: str) -> Request:
        if self.how == "set":
            return Request(url, self.parse_item, meta={"tags": {1, 2}})
        return Request(
            url, functools.partial(self.parse_item) if self.how == "partial" else lambda r: self.parse_item(r)
        )

    def parse_item(self, response: Any) -> None:  # type: ignore[override]
        self.seen.append(response.meta["gp4c"]["outcome"])


@pytest.mark.parametrize("how", ["set", "partial", "lambda"])
async def test_pages_that_cannot_be_stored_are_pages(
    how: str, site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are planned, fingerprinted and visited when the spider asks; otherwise a warning counts them."""
    shop(site)
    for cycle, outcome in ((1, "first"), (2, "unchanged"), (3, "changed")):
        if cycle == 3:
            site.pages |= {path: html(f"another thing than {path} was") for path in LINKS}
        crawler = await crawl(Unstorable, store_path, ALL, how=how, site=site)
        assert crawler.spider.seen == [outcome] * ITEMS
    caplog.clear()
    site.log.clear()
    crawler = await crawl(
        type("Silent", (Unstorable,), {"parse_listing": lambda *_: []}), store_path, ALL, site=site
    )
    assert crawler.spider.seen == []
    assert site.fetched() == {"/"}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in warnings if line.startswith("Planned but not visited: 5 of 6 known pages,")]
    assert sorted(outcomes(store_path, 4)) == ["/"]
    crawler = await crawl(Unstorable, store_path, ALL, how=how, site=site)
    assert crawler.spider.seen == ["unchanged"] * ITEMS
    rules = {"GP4C_BUDGET": 1, "GP4C_RULES": [{"match": "*/", "max_age": 1}]}
    await crawl(Unstorable, store_path, rules, how=how, site=site)
    name = "meta tags" if how == "set" else "callback"
    assert f"{ITEMS} known pages got new data ({name}) and no visit" in caplog.text


class Locked(Shop):
    """Hands on what cannot be stored over three levels."""

    async def start(self) -> AsyncIterator[Any]:
        self.seen: list[Any] = []
        yield Request(self.site.url("/"), meta={"lock": threading.Lock()})

    def parse(self, response: Any) -> Iterator[Any]:
        yield response.follow("/list", self.parse_listing, meta={"lock": response.meta["lock"]})

    def parse_listing(self, response: Any) -> Iterator[Any]:
        for path in LINKS:
            yield response.follow(path, self.parse_item, meta={"lock": response.meta["lock"]})

    def parse_item(self, response: Any) -> None:  # type: ignore[override]
        self.seen.append(response.url)


async def test_what_leads_to_a_planned_page_is_asked_for_though_no_plan_has_it(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a plan of pages that only the spider can request would be visited by nobody, cycle after cycle."""
    shop(site)
    site.pages["/list"] = html("the list")
    for _ in range(5):
        crawler = await crawl(Locked, store_path, {**ALL, "GP4C_BUDGET": 1}, site=site)
        assert site.log
        site.log.clear()
    assert crawler.spider.seen
    assert "Planned but not visited" not in caplog.text


class Helped(Unstorable):
    """The same with a method that makes what cannot be stored."""

    def gp4c_request(self, request: Request) -> Request:
        return request.replace(meta={**request.meta, "tags": {1, 2}}) if "/item/" in request.url else request

    def parse_listing(self, response: Any) -> list[Any]:
        return []


async def test_a_method_of_the_spider_rebuilds_the_rest(site: Site, store_path: Path) -> None:
    """Then the spider need not ask."""
    shop(site)
    await crawl(Unstorable, store_path, ALL, site=site)
    crawler = await crawl(Helped, store_path, ALL, site=site)
    assert crawler.spider.seen == ["unchanged"] * ITEMS


class Countries(Shop):
    """A session for each country, which its first page sets up; their numbers differ from day to day."""

    async def start(self) -> AsyncIterator[Any]:
        self.seen: list[Any] = []
        for number in range(3):
            country = "abc"[(number + self.day) % 3]
            yield Request(self.site.url(f"/set?country={country}"), meta={"cookiejar": number})

    def parse(self, response: Any) -> Iterator[Any]:
        for link in response.css("a::attr(href)").getall():
            callback = self.parse_item if "item" in link else self.parse
            yield response.follow(link, callback, meta={"cookiejar": response.meta["cookiejar"]})

    def parse_item(self, response: Any) -> None:  # type: ignore[override]
        """Note the country that was asked for, and that of the session."""
        self.seen.append((response.url[-1], response.css("p::text").get()))


@pytest.mark.slow
async def test_pages_of_a_session_are_visited_with_it(site: Site, store_path: Path) -> None:
    """Pages that lead to it are visited before, though no plan has them."""

    def start(request: Any) -> bytes:
        country = request.args[b"country"][0].decode()
        request.addCookie("country", country)
        return html("the country is set", [f"/list?of={country}"]).encode()

    def listing(request: Any) -> bytes:
        return html("a list", [f"/item/{n}?of={request.uri[-1:].decode()}" for n in range(3)]).encode()

    def item(request: Any) -> bytes:
        return html(str((request.getCookie(b"country") or b"none").decode())).encode()

    site.pages = {"/set": start, "/list": listing, **dict.fromkeys(LINKS, item)}
    for day in (1, 2, 3, 4):
        crawler = await crawl(Countries, store_path, {**ALL, "GP4C_BUDGET": 7}, day=day, site=site)
        assert crawler.spider.seen
        assert all(asked == answered for asked, answered in crawler.spider.seen), day


class Endless(Shop):
    """A start that never ends."""

    async def start(self) -> AsyncIterator[Any]:
        import asyncio

        self.seen: list[Any] = []
        if self.day == 1:
            for path in LINKS:
                yield self.ask(self.site.url(path))
        else:
            await asyncio.sleep(3_600)
            yield None


async def test_a_start_that_never_ends_holds_up_nobody(
    site: Site, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that it found before are sent as they are stored, after a while."""
    monkeypatch.setattr("scrapy_gp4c.crawling.run.START_PATIENCE_S", 0.5)
    shop(site)
    await crawl(Endless, store_path, ALL, day=1, site=site)
    await crawl(Endless, store_path, {**ALL, "CLOSESPIDER_PAGECOUNT": ITEMS}, day=2, site=site)
    assert sorted(outcomes(store_path, 2)) == sorted(LINKS)


class Unrepeatable(Spider):
    """Follows links with callbacks that no store can keep, or with a secret in the URL."""

    name = "unrepeatable"
    start_urls: tuple[str, ...] = ()

    def parse(self, response: Any) -> Iterator[Any]:
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, None if "list" in link or "?" in link else lambda answer: None)


@pytest.mark.parametrize("secret", ["", "?token=5eCr3t"])
async def test_pages_that_cannot_be_requested_cost_no_budget(
    site: Site, store_path: Path, secret: str
) -> None:
    """The page that links to them is visited instead, and others have what is left of their places."""
    links = [f"/{number}{secret}" for number in range(12)]
    site.pages = {f"/{number}": html(f"the text of page {number}") for number in range(12)}
    site.pages |= {"/list": html("a list", links), "/": html("the front page", ["/list"])}
    crawl_settings = {"GP4C_BUDGET": 4, "GP4C_DISCOVERY": 0.0}
    visited = []
    for cycle in range(1, 11):
        await crawl(Unrepeatable, store_path, crawl_settings, start_urls=(site.url(),))
        ends = [one for ends in outcomes(store_path, cycle).values() for one in ends]
        visited.append(len(ends) - ends.count("error"))
    assert min(visited[2:]) >= 4
