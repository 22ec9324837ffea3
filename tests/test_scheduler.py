"""Spiders of strangers, run as they are: what a cycle fetches, and that nothing else is different."""

import gc
import json
import struct
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from scrapy import FormRequest, Request, Spider, pqueues
from scrapy.crawler import Crawler
from scrapy.http import JsonRequest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider
from twisted.internet import reactor, task
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.scheduler import FULL_COLLECTION_AFTER, RecrawlScheduler
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Listed, Pages, Site, crawl, html, outcomes, path_of, stats, stock_crawl

WORDS = "a quiet page with a text of more than a few words on nothing in particular that rarely changes"


class Watched(RecrawlScheduler):
    """The scheduler; keeps weak references to run and cycle."""

    seen: ClassVar[list[weakref.ref[Any]]] = []

    def open(self, spider: Spider) -> Any:
        """Open, and note what was made."""
        opened = super().open(spider)
        assert self._run is not None
        self.seen += [weakref.ref(self._run), weakref.ref(self._run.cycle)]
        return opened


class Collect:
    """An item pipeline: keeps what reaches it."""

    def __init__(self, crawler: Crawler) -> None:
        self.items = crawler.spider.collected = []

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Begin an empty list of items and give it to the spider."""
        return cls(crawler)

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        self.items.append(item)
        return item


PIPELINE = {"ITEM_PIPELINES": {Collect: 100}}
OWN_PAST = {"GP4C_SCORE_FUNCTION": "t * (X + 0.5)"}
"""A score that is easily told in advance."""


def item(response: Any, **more: Any) -> dict[str, Any]:
    """All that a callback can see of its request, as an item."""
    meta = {key: value for key, value in response.meta.items() if key not in VOLATILE_META}
    return {
        "url": response.url,
        "text": response.text,
        "kwargs": dict(response.cb_kwargs),
        "meta": meta,
        "flags": list(response.flags),
        "referer": response.request.headers.get("Referer"),
        **more,
    }


VOLATILE_META = {"download_latency", "gp4c", "is_start_request"}


class Quotes(Spider):
    """The tutorial's first spider: items of a listing, next page, author pages with several callbacks."""

    name = "quotes"

    def parse(self, response: Any) -> Iterator[Any]:
        yield item(response, callback="parse")
        for number, link in enumerate(response.css("a.author::attr(href)").getall()):
            yield response.follow(
                link,
                self.parse_author,
                cb_kwargs={"number": number, "from_page": response.url},
                meta={"kind": "author"},
                errback=self.failed,
            )
        yield from response.follow_all(css="a.next", callback=self.parse)

    def parse_author(self, response: Any, number: int, from_page: str) -> Iterator[Any]:
        yield item(response, callback="parse_author", number=number, from_page=from_page)

    async def failed(self, failure: Any) -> AsyncIterator[Any]:
        response = failure.value.response
        yield {"url": response.url, "status": response.status, "kwargs": failure.request.cb_kwargs}


def quotes_site(site: Site) -> type[Spider]:
    """Three listings of four authors each; one author is missing."""
    for number in range(3):
        authors = "".join(f'<a class="author" href="/author/{number}-{i}">x</a>' for i in range(4))
        following = f'<a class="next" href="/list/{number + 1}">next</a>' if number < 2 else ""
        site.pages[f"/list/{number}"] = f"<html><body><p>{WORDS}</p>{authors}{following}</body></html>"
        for i in range(4):
            site.pages[f"/author/{number}-{i}"] = html(f"{WORDS} {number} {i}")
    del site.pages["/author/1-3"]

    class Local(Quotes):
        start_urls = (site.url("/list/0"),)

    return Local


class Rules(CrawlSpider):
    """The documentation's CrawlSpider: follow categories, parse products, a callback given by name."""

    name = "rules"
    rules = (
        Rule(LinkExtractor(allow="/category/"), callback="parse_category", follow=True),
        Rule(LinkExtractor(allow="/product/"), callback="parse_product", cb_kwargs={"kind": "product"}),
    )

    def parse_start_url(self, response: Any, **kwargs: Any) -> Iterator[Any]:
        yield item(response, callback="parse_start_url")

    def parse_category(self, response: Any) -> Iterator[Any]:
        yield item(response, callback="parse_category")

    def parse_product(self, response: Any, kind: str) -> Iterator[Any]:
        yield item(response, callback="parse_product", kind=kind)


def rules_site(site: Site) -> type[Spider]:
    """A shop: home, three categories linked in a ring, four products each."""
    site.pages["/"] = html(WORDS, [f"/category/{i}" for i in range(3)])
    for i in range(3):
        links = [f"/category/{(i + 1) % 3}", *(f"/product/{i}-{j}" for j in range(4))]
        site.pages[f"/category/{i}"] = html(f"{WORDS} category {i}", links)
        for j in range(4):
            site.pages[f"/product/{i}-{j}"] = html(f"{WORDS} product {i} {j}", ["/"])

    class Local(Rules):
        start_urls = (site.url("/"),)

    return Local


class Map(SitemapSpider):
    name = "sitemap"
    sitemap_rules = (("/news/", "parse_news"), ("/shop/", "parse_shop"))

    def parse_news(self, response: Any) -> Iterator[Any]:
        yield item(response, callback="parse_news")

    def parse_shop(self, response: Any) -> Iterator[Any]:
        yield item(response, callback="parse_shop")


def sitemap_site(site: Site) -> type[Spider]:
    """A sitemap index with two sitemaps of six pages each."""
    xml = '<?xml version="1.0"?><{0} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{1}</{0}>'
    parts = "".join(
        f"<sitemap><loc>{site.url(f'/map-{name}.xml')}</loc></sitemap>" for name in ("news", "shop")
    )
    site.pages["/sitemap.xml"] = xml.format("sitemapindex", parts)
    for name in ("news", "shop"):
        urls = [f"/{name}/{i}" for i in range(6)]
        site.pages.update({url: html(f"{WORDS} {url}") for url in urls})
        locs = "".join(f"<url><loc>{site.url(url)}</loc></url>" for url in urls)
        site.pages[f"/map-{name}.xml"] = xml.format("urlset", locs)

    class Local(Map):
        sitemap_urls = (site.url("/sitemap.xml"),)

    return Local


class Api(Spider):
    """A JSON API read page by page, with meta copied from response to request as many do."""

    name = "api"
    url = ""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.url + "?page=1", meta={"source": "api"}, headers={"X-Token": "secret"})

    def parse(self, response: Any) -> Iterator[Any]:
        """Yield the records and ask for the next page."""
        content = json.loads(response.text)
        yield item(response, callback="parse", token=response.request.headers.get("X-Token"))
        for record in content["records"]:
            yield Request(
                f"{self.url}/{record}",
                self.parse_record,
                meta={**response.meta, "record": record},
                dont_filter=True,
                cookies={"seen": str(record)},
                priority=record,
            )
        if content["next"]:
            yield response.request.replace(url=f"{self.url}?page={content['next']}")

    async def parse_record(self, response: Any) -> AsyncIterator[Any]:
        yield item(response, callback="parse_record", priority_set=response.meta["record"])

    def gp4c_request(self, request: Request) -> Request:
        """Give planned requests what the store does not keep."""
        if "record" in request.meta:
            return request.replace(cookies={"seen": str(request.meta["record"])})
        request.headers["X-Token"] = "secret"
        return request


def api_site(site: Site) -> type[Spider]:
    """Two pages of four records."""
    for number in (1, 2):
        records = [number * 10 + i for i in range(4)]
        content = json.dumps({"records": records, "next": 2 if number == 1 else None})
        site.pages[f"/api?page={number}"] = content
        for record in records:
            site.pages[f"/api/{record}"] = lambda request, record=record: json.dumps(
                {"id": record, "cookie": (request.getCookie(b"seen") or b"").decode()}
            ).encode()

    class Local(Api):
        url = site.url("/api")

    return Local


STRANGERS = [quotes_site, rules_site, sitemap_site, api_site]


def by_url(spider: Any) -> dict[str, list[dict[str, Any]]]:
    """Items of a finished crawl by the URL that they came from."""
    results: dict[str, list[dict[str, Any]]] = {}
    for collected in map(dict, spider.collected):
        # Of several links to a page the first in a run counts: which one depends on the order of visits.
        collected.pop("referer", None)
        if "meta" in collected:
            collected["meta"] = {name: value for name, value in collected["meta"].items() if name != "depth"}
        results.setdefault(collected["url"], []).append(collected)
    return results


@pytest.mark.parametrize("make", STRANGERS)
async def test_strangers_spiders_behave_as_without_us(
    make: Callable[[Site], type[Spider]], site: Site, store_path: Path
) -> None:
    """For every page visited, in six cycles, callbacks and items equal stock Scrapy's; no page twice."""
    spider = make(site)
    expected = by_url((await stock_crawl(spider, PIPELINE)).spider)
    stock_fetched = site.fetched()
    for cycle in range(1, 7):
        site.log.clear()
        crawler = await crawl(spider, store_path, {**PIPELINE, "GP4C_BUDGET": 3})
        items = by_url(crawler.spider)
        fetched = site.fetched()
        assert items == {url: expected[url] for url in items}
        assert max(site.hits.values(), default=0) <= 1
        if cycle <= 3:  # first visit and two warm-up visits of every page
            missing = {"/author/1-3"} if cycle == 3 else set()  # after two failures it waits two cycles
            assert fetched == stock_fetched - missing
            assert items == {url: expected[url] for url in expected if path_of(url) not in missing}
        else:
            assert len(fetched) <= 3 + 1  # the missing page is new until it is gone for good
            assert items.keys() == {site.url(path) for path in fetched} & expected.keys()
        assert {path: ends for path, ends in outcomes(store_path, cycle).items() if len(ends) > 1} == {}
        assert set(outcomes(store_path, cycle)) == fetched
    with Store(store_path, readonly=True) as store:
        assert store.verify() == []
        assert store.last_cycle == 6


async def test_ranked_cycles_find_the_pages_that_change(site: Site, store_path: Path) -> None:
    """After warm-up, the budget goes to the pages that change; their callbacks and arguments come along."""
    served = {"day": 0}

    def changing(request: ServerRequest) -> bytes:
        return html(f"{WORDS} today it is {served['day'] * 977} and all is new " * 3).encode()

    spider = quotes_site(site)
    for name in ("/author/0-1", "/author/2-2"):
        site.pages[name] = changing
    for cycle in range(1, 9):
        served["day"] = cycle
        site.log.clear()
        crawler = await crawl(spider, store_path, {**PIPELINE, **OWN_PAST, "GP4C_BUDGET": 2})
        if cycle > 3:
            fetched = site.fetched() - {"/author/1-3"}
            assert fetched == {"/author/0-1", "/author/2-2"}
            numbers = {path_of(item["url"]): item.get("number") for item in crawler.spider.collected}
            assert {path: numbers[path] for path in fetched} == {"/author/0-1": 1, "/author/2-2": 2}
            assert stats(crawler)["change_rate"] == 1.0


class Login(Spider):
    """The documentation's login, then pages that need its cookie; the login itself is opted out."""

    name = "login"
    url = ""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.url + "/login", self.sign_in, meta={"gp4c": False}, dont_filter=True)

    def sign_in(self, response: Any) -> Request:
        token = response.css("input[name=token]::attr(value)").get()
        form = {"user": "me", "password": "x", "token": token}
        return FormRequest(response.url, formdata=form, callback=self.signed_in)

    def signed_in(self, response: Any) -> Iterator[Any]:
        """Go on to the members' pages."""
        assert b"welcome" in response.body
        yield {"url": response.url, "callback": "signed_in", "meta": dict(response.meta)}
        for number in range(6):
            yield response.follow(f"/member/{number}", self.parse_member)

    def parse_member(self, response: Any) -> Iterator[Any]:
        yield item(response, callback="parse_member")


def login_site(site: Site, redirect: bool) -> type[Spider]:
    """A site whose pages need the session that a POST opens."""

    def login(request: ServerRequest) -> bytes:
        if request.method == b"POST":
            assert request.args[b"user"] == [b"me"]
            assert request.args[b"token"] == [b"t1"]
            request.addCookie("session", "s1", path="/")
            if redirect:
                request.redirect(b"/home")
                return b""
            return b"welcome"
        return (
            b'<form method="post" action="/login"><input name="user"><input name="password">'
            b'<input type="hidden" name="token" value="t1"></form>'
        )

    def member(request: ServerRequest) -> bytes:
        if request.getCookie(b"session") != b"s1":
            request.setResponseCode(403)
        return html(f"{WORDS} {request.uri.decode()}").encode()

    site.pages["/login"] = login
    site.pages["/home"] = b"welcome home"
    site.pages.update({f"/member/{number}": member for number in range(6)})

    class Local(Login):
        url = site.url("")

    return Local


@pytest.mark.parametrize(("redirect", "jobdir"), [(False, False), (True, True)])
async def test_planned_pages_wait_for_the_login(
    redirect: bool, jobdir: bool, site: Site, store_path: Path, tmp_path: Path
) -> None:
    """Every cycle logs in first, POST and its redirect untouched, so that no planned page is refused."""
    spider = login_site(site, redirect)
    for cycle in range(1, 6):
        site.log.clear()
        settings = {**PIPELINE, "GP4C_BUDGET": 2}
        if jobdir:
            settings["JOBDIR"] = str(tmp_path / f"job{cycle}")
        crawler = await crawl(spider, store_path, settings)
        setup = [("GET", "/login"), ("POST", "/login")] + [("GET", "/home")] * redirect
        assert site.log[: len(setup)] == setup
        members = [path for _, path in site.log[len(setup) :]]
        assert len(members) == len(set(members)) == (6 if cycle <= 3 else 2)
        ends = [end for path in members for end in outcomes(store_path, cycle)[path]]
        assert ends == ["first" if cycle == 1 else "unchanged"] * len(members)
        signed_in = [item for item in crawler.spider.collected if item["callback"] == "signed_in"]
        assert len(signed_in) == 1
        assert not signed_in[0]["meta"]["gp4c"]["managed"]


async def test_what_is_no_page_passes_untouched(site: Site, store_path: Path) -> None:
    """POST, JSON POST, HEAD and opted-out GETs are fetched in every cycle."""
    site.pages.update({f"/{name}": html(name) for name in ("post", "json", "head", "out", "moved")})

    def moves(request: ServerRequest) -> bytes:
        request.redirect(b"/moved")
        return b""

    site.pages["/out-moves"] = moves
    seen: list[tuple[str, Any]] = []

    class Mixed(Spider):
        name = "mixed"

        async def start(self) -> AsyncIterator[Any]:
            for request in (
                FormRequest(site.url("/post"), formdata={"a": "1"}),
                JsonRequest(site.url("/json"), data={"a": 1}),
                Request(site.url("/head"), method="HEAD"),
                Request(site.url("/out"), meta={"gp4c": False}),
                Request(site.url("/out-moves"), meta={"gp4c": False}),
            ):
                yield request

        def parse(self, response: Any) -> None:
            seen.append((path_of(response.url), response.meta.get("gp4c")))

    for _ in range(3):
        site.log.clear()
        seen.clear()
        await crawl(Mixed, store_path)
        assert sorted(site.log) == [
            ("GET", "/moved"),
            ("GET", "/out"),
            ("GET", "/out-moves"),
            ("HEAD", "/head"),
            ("POST", "/json"),
            ("POST", "/post"),
        ]
        assert len(seen) == 5
        assert dict(seen)["/post"] == {"managed": False}
        assert dict(seen)["/out"] == {"managed": False, "opted_out": True}
    with Store(store_path, readonly=True) as store:
        assert store.pages == 0


async def test_a_page_asked_for_twice_on_purpose_is_fetched_twice(site: Site, store_path: Path) -> None:
    """``dont_filter=True`` from a callback means once more: the same requests as stock, one visit."""
    site.pages["/"] = html(WORDS)
    called: list[str] = []

    class Twice(Spider):
        name = "twice"
        start_urls = (site.url("/"),)

        def parse(self, response: Any) -> Request:
            """Ask for the same page with another callback."""
            called.append("parse")
            return Request(response.url, self.parse_again, dont_filter=True)

        def parse_again(self, response: Any) -> Request | None:
            """Ask once more, as one does after a captcha."""
            called.append("parse_again")
            return response.request.replace(dont_filter=True) if called.count("parse_again") < 2 else None

    await stock_crawl(Twice)
    expected = (called[:], site.log[:])
    for cycle in (1, 2):
        called.clear()
        site.log.clear()
        await crawl(Twice, store_path)
        assert (called, site.log) == expected
        assert len(outcomes(store_path, cycle)["/"]) == 1


async def test_a_page_without_a_copy_is_asked_for_again_beside_a_jobdir(
    site: Site, store_path: Path, tmp_path: Path
) -> None:
    """The JOBDIR of a finished run has seen the request of a page that failed; its next visit goes on."""
    site.pages["/fails"] = lambda request: request.setResponseCode(404) or b""
    for cycle in (1, 2, 3):
        await crawl(Pages, store_path, {"JOBDIR": str(tmp_path / "job"), "GP4C_BUDGET": 1.0}, site=site)
        assert outcomes(store_path, cycle)["/fails"] == ["gone"], cycle


async def test_a_copy_of_a_request_on_its_way_is_a_page_of_its_own(site: Site, store_path: Path) -> None:
    """``request.replace(url=...)`` of a request that the spider has yielded ends no visit of the other."""

    class Copying(Spider):
        name = "copying"

        async def start(self) -> AsyncIterator[Any]:
            """Yield two pages, the second as a copy of the first when that is on its way."""
            request = Request(self.site.url("/a"))
            yield request
            yield request.replace(url=self.site.url("/b"))

        def parse(self, response: Any) -> Any:
            yield {"path": path_of(response.url), "outcome": response.meta["gp4c"]["outcome"]}

    for path in ("/a", "/b"):
        site.pages[path] = html(f"{path} {WORDS}")
    for outcome in ("first", "unchanged"):
        crawler = await crawl(Copying, store_path, {**PIPELINE, "GP4C_BUDGET": 1.0}, site=site)
        result = sorted((one["path"], one["outcome"]) for one in crawler.spider.collected)
        assert result == [("/a", outcome), ("/b", outcome)]


async def test_meta_tells_the_callback_about_the_visit(site: Site, store_path: Path) -> None:
    """``response.meta["gp4c"]`` has outcome, change, distance, counts, cycle, kind and score."""
    site.pages["/"] = html(WORDS)
    results: list[dict[str, Any]] = []

    class One(Spider):
        name = "one"
        start_urls = (site.url("/"),)

        def parse(self, response: Any) -> None:
            results.append(response.meta["gp4c"])

    for cycle in range(1, 5):
        if cycle == 3:
            site.pages["/"] = html("something quite different from what had been there all the time before")
        await crawl(One, store_path, {**OWN_PAST, "GP4C_BUDGET": 1})
    assert [visit["outcome"] for visit in results] == ["first", "unchanged", "changed", "unchanged"]
    assert [visit["changed"] for visit in results] == [None, False, True, False]
    assert [visit["kind"] for visit in results] == ["new", "warmup", "warmup", "ranked"]
    assert [(visit["n"], visit["X"]) for visit in results] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [visit["cycle"] for visit in results] == [1, 2, 3, 4]
    assert [visit["score"] for visit in results] == [None, None, None, 1.5]
    assert results[0]["distance"] is None
    assert results[1]["distance"] == 0
    assert results[2]["distance"] >= 3


async def test_off_site_pages_are_not_fetched_any_more(site: Site, store_path: Path) -> None:
    """A page outside ``allowed_domains`` as they are now is excluded, planned or not."""
    site.pages["/"] = html(WORDS)
    await crawl(Pages, store_path, site=site)
    site.log.clear()
    await crawl(Pages, store_path, allowed_domains=["example.invalid"])
    assert site.log == []
    assert outcomes(store_path, 2) == {"/": ["excluded"]}
    await crawl(Pages, store_path)
    assert outcomes(store_path, 3) == {"/": ["unchanged"]}


BAD_REQUESTS: list[Any] = [
    {"callback": 7},
    {"callback": "name"},
    {"priority": "x"},
    {"meta": "x"},
    {"cb_kwargs": [1]},
    {"headers": ["x"]},
    {"headers": {"Accept": [7]}},
    {"headers": {"Accept": ["\u20ac"]}},
    {"cookies": "x"},
    {"url": 7},
    {"url": "http://[h/"},
    {"url": "nothing"},
    {"url": "file:///etc/hostname"},
]


async def test_a_bad_stored_request_fails_its_own_page_alone(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Written by another version or a hand: an error of that page, and one line; the others are visited."""

    good = [f"/{number}" for number in range(40)]
    with Store(store_path) as store:
        requests: list[Any] = [{"url": site.url(path)} for path in good]
        for number, bad in enumerate(BAD_REQUESTS):
            requests.insert(number * 2, {"url": site.url("/bad"), **bad})
        store.add_pages(enumerate(requests, 1))
    site.pages.update(dict.fromkeys(good, html(WORDS)))
    crawler = await crawl(Listed, store_path)
    assert site.fetched() == set(good)
    assert stats(crawler)["outcome/error"] == len(BAD_REQUESTS)
    assert stats(crawler)["outcome/first"] == len(good)
    assert caplog.text.count("Cannot revisit") == 1
    assert stats(crawler)["not_rebuilt"] == len(BAD_REQUESTS)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_finished_crawl_leaves_nothing_in_memory(site: Site, store_path: Path) -> None:
    """Crawl after crawl in one process: run, cycle and crawler are freed."""
    spider = quotes_site(site)
    seen: list[weakref.ref[Any]] = []
    for _ in range(5):
        crawler = await crawl(spider, store_path, {"SCHEDULER": Watched})
        seen += [weakref.ref(crawler), *Watched.seen]
        Watched.seen.clear()
        del crawler
    await task.deferLater(reactor, 0.2, int)
    gc.collect()
    assert len(seen) == 15
    assert [reference() for reference in seen if reference() is not None][
        3:
    ] == []  # Scrapy may keep the last


class Torn(RecrawlScheduler):
    """The scheduler; tears its disk queue after five requests."""

    served = 0
    how = "file"

    def next_request(self) -> Request | None:
        self.served += 1
        if self.served == 5 and self.dqs is not None and self.how == "push":
            self.dqs.push = struct.unpack  # type: ignore[method-assign, assignment]
        elif self.served == 5 and self.dqs is not None:
            queues: Any = self.dqs
            for slot in queues.pqueues.values():
                for queue in slot.queues.values():
                    if self.how == "file":
                        queue.f.truncate(4)
                    else:
                        queue.f.seek(-6, 2)
                        queue.f.write(b"xx")
                        queue.f.seek(0, 2)
        return super().next_request()


@pytest.mark.parametrize("how", ["file", "entry", "push", "list", "leftover"])
async def test_a_torn_queue_in_a_jobdir_ends_no_crawl_and_loses_no_page(
    site: Site, store_path: Path, tmp_path: Path, how: str
) -> None:
    """Whatever Scrapy's disk queue raises: every planned page gets its outcome, and the run ends."""

    paths = [f"/{number}" for number in range(60)]
    site.pages.update(dict.fromkeys(paths, html(WORDS)))
    with Store(store_path) as store:
        store.add_pages((number, {"url": site.url(path)}) for number, path in enumerate(paths))
    queue = tmp_path / "job" / "requests.queue"
    queue.mkdir(parents=True)
    if how == "list":
        (queue / "active.json").write_text('{"127.0.0.1": [0')
    if how == "leftover":  # of a run that was killed while it made these files
        slot = queue / pqueues._path_safe("127.0.0.1")
        slot.mkdir()
        for priority in range(-200, 200):
            (slot / str(priority)).write_bytes(b"\0\0")
    scheduler = type("Torn_", (Torn,), {"how": how})
    crawl_settings = {"SCHEDULER": scheduler, "JOBDIR": str(tmp_path / "job"), "CLOSESPIDER_TIMEOUT": 10}
    crawler = await crawl(Listed, store_path, crawl_settings)
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert (how == "list") == ("skipped/unreadable" not in stats(crawler))
    assert outcomes(store_path, 1) == {path: ["first"] for path in paths}


async def test_redirects_and_retries_end_the_visit_of_the_page_asked_for(
    site: Site, store_path: Path
) -> None:
    """A redirected page's outcome is its own, also onto a page just visited; a retry costs nothing."""
    failures = {"left": 1}

    def moves(request: ServerRequest) -> bytes:
        request.redirect(b"/target")
        return b""

    def fails_once(request: ServerRequest) -> bytes:
        failures["left"] -= 1
        if failures["left"] >= 0:
            request.setResponseCode(503)
        return html(WORDS).encode()

    site.pages.update({"/moves": moves, "/target": html(WORDS), "/fails-once": fails_once})

    class All(Spider):
        name = "all"
        start_urls = tuple(site.url(path) for path in ("/target", "/moves", "/fails-once"))

        def parse(self, response: Any) -> Iterator[Any]:
            yield {"url": response.url, "asked": response.meta.get("redirect_urls", [response.url])[0]}

    for cycle in (1, 2, 3):
        failures["left"] = 1
        crawler = await crawl(All, store_path, PIPELINE)
        asked = sorted(path_of(item["asked"]) for item in crawler.spider.collected)
        assert asked == ["/fails-once", "/moves", "/target"]
        end = ["first" if cycle == 1 else "unchanged"]
        assert outcomes(store_path, cycle) == {"/target": end, "/moves": end, "/fails-once": end}


class Watching(Spider):
    """Notes how many objects are left out while it crawls, and what it has made itself."""

    name = "watching"
    left_out = 0

    def parse(self, response: Any) -> None:
        Watching.left_out = gc.get_freeze_count()
        response.meta["gp4c"]["cycle"] = marker = [response]
        assert any(one is marker for one in gc.get_objects()), "a collection walks what a crawl makes"


@pytest.fixture
def _nothing_left_out() -> Iterator[None]:
    gc.unfreeze()  # what `tests.conftest` has left out
    yield
    gc.freeze()


@pytest.mark.usefixtures("_nothing_left_out")
async def test_collections_of_a_crawl_leave_out_what_was_there(site: Site, store_path: Path) -> None:
    """The modules, for one; when it is over, all is collected again, as often as before."""
    site.pages["/"] = html("a page")
    Watching.start_urls = [site.url("/")]
    thresholds = gc.get_threshold()
    await crawl(Watching, store_path, {"GP4C_FREEZE_GC": True})
    assert Watching.left_out > 10_000
    assert not gc.get_freeze_count()
    assert gc.get_threshold() == thresholds


@pytest.mark.usefixtures("_nothing_left_out")
async def test_full_collections_of_an_owner_of_fetchers_are_rare(store_path: Path) -> None:
    """Each stops its reactor for as long as it has requests under way; when it is over, all is as before."""
    pytest.importorskip("distributed")
    seen, before = list[tuple[int, int, int]](), gc.get_threshold()

    class Owner(Spider):
        name = "owner"

        async def start(self) -> AsyncIterator[Any]:
            seen.append(gc.get_threshold())
            return
            yield

    await crawl(Owner, store_path, {"GP4C_FETCHERS": 1})
    assert seen == [(*before[:2], FULL_COLLECTION_AFTER)]
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("_nothing_left_out")
async def test_what_a_program_has_left_out_stays_so(site: Site, store_path: Path) -> None:
    """A crawl in such a program neither leaves out more nor takes it in again."""
    site.pages["/"] = html("a page")
    Watching.start_urls = [site.url("/")]
    gc.freeze()
    try:
        left_out = gc.get_freeze_count()
        await crawl(Watching, store_path, {"GP4C_FREEZE_GC": True})
        assert 10_000 < Watching.left_out <= left_out
        assert 10_000 < gc.get_freeze_count() <= left_out
    finally:
        gc.unfreeze()
