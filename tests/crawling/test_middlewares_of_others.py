"""Middlewares, pipelines and callbacks of others: a visit counts as what came of it in the end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response
from twisted.internet import reactor
from twisted.internet.task import deferLater

from scrapy_gp4c import visit
from tests.support.loopback import Site, crawl, html, outcomes

ALL = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1, "RETRY_ENABLED": False}
PATHS = ["/1", "/2", "/3"]


class Reader(Spider):
    """Yields the text of pages that are new or changed."""

    name = "reader"
    site: Site
    bad = ""

    async def start(self) -> AsyncIterator[Any]:
        self.items: list[str] = []
        self.seen: list[tuple[str, Any]] = []
        for path in PATHS:
            yield Request(self.site.url(path))

    def parse(self, response: Any) -> Iterator[Any]:
        page = visit(response)
        self.seen.append((response.css("p::text").get(), page.outcome))
        if page.is_new or page.changed:
            yield {"text": response.css("p::text").get()}


class Keep:
    """Keeps items."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls(crawler)

    def process_item(self, item: Any) -> Any:
        self.crawler.spider.items.append(item["text"])
        return item


class OtherProxy(Keep):
    """Asks again by another proxy where one has failed, or a site has not let it in."""

    def process_request(self, request: Request) -> None:
        request.meta["proxy_number"] = request.meta.get("proxy_number", -1) + 1
        request.headers["X-Proxy"] = str(request.meta["proxy_number"])
        if request.meta["proxy_number"] == 0 and request.url.endswith("1"):
            raise OSError("the proxy is dead")

    def process_response(self, request: Request, response: Response) -> Any:
        if b"captcha" in response.body:
            return request.replace(dont_filter=True)
        return response

    def process_exception(self, request: Request, exception: Exception) -> Any:
        return request.replace(dont_filter=True) if isinstance(exception, OSError) else None


class Rendering(Keep):
    """Gives what a browser made of a page, as the middleware of Selenium does."""

    def process_request(self, request: Request) -> Response:
        body = html(f"rendered {request.url[-1]} of {self.crawler.spider.bad}").encode()
        return HtmlResponse(request.url, body=body, encoding="utf-8", request=request)


class Decoding(Keep):
    """Puts another body into a response."""

    def process_response(self, request: Request, response: Response) -> Response:
        return response.replace(
            body=response.body.replace(b"encoded", b"decoded " + request.url[-1].encode())
        )


class Banning(Keep):
    """Ends requests whose answers are none."""

    def process_response(self, request: Request, response: Response) -> Response:
        if b"banned" in response.body:
            raise IgnoreRequest("banned")
        return response


def with_middleware(kind: type[Any], position: int = 543) -> dict[str, Any]:
    """Settings with a middleware where Scrapy's template has it, or elsewhere."""
    return {**ALL, "ITEM_PIPELINES": {Keep: 1}, "DOWNLOADER_MIDDLEWARES": {kind: position}}


@pytest.mark.parametrize("position", [30, 543, 950])
async def test_a_page_that_is_asked_for_again_is_one_visit(
    position: int, site: Site, store_path: Path
) -> None:
    """Whatever the first proxy got: the page is compared with the page."""

    def page(request: Any) -> bytes:
        path = request.uri.decode()
        is_blocked = path == "/2" and request.getHeader("X-Proxy") == "0"
        return html("a captcha of this day" if is_blocked else f"version {site.version} of {path}").encode()

    site.pages = dict.fromkeys(PATHS, page)
    for day, version in enumerate((1, 1, 2, 2), 1):
        site.version = version
        crawler = await crawl(Reader, store_path, with_middleware(OtherProxy, position), site=site)
        changed = day in (1, 3)
        assert sorted(crawler.spider.items) == [
            f"version {version} of {path}" for path in PATHS if changed
        ], day
        outcome = {1: "first", 3: "changed"}.get(day, "unchanged")
        assert outcomes(store_path, day) == {path: [outcome] for path in PATHS}
        assert sorted(crawler.spider.seen) == [(f"version {version} of {path}", outcome) for path in PATHS]


@pytest.mark.parametrize("position", [30, 543, 950])
async def test_what_a_browser_made_of_a_page_is_the_page(position: int, site: Site, store_path: Path) -> None:
    """A response that a middleware has made is compared as any."""
    for day, version in enumerate("aabb", 1):
        crawler = await crawl(
            Reader, store_path, with_middleware(Rendering, position), site=site, bad=version * 9
        )
        assert len(crawler.spider.items) == (3 if day in (1, 3) else 0)
        assert outcomes(store_path, day) == {
            path: [{1: "first", 3: "changed"}.get(day, "unchanged")] for path in PATHS
        }


async def test_a_body_that_a_middleware_decodes_is_compared_decoded(site: Site, store_path: Path) -> None:
    """It is what the callback reads."""
    for day in range(1, 4):
        site.pages = {path: html("encoded", title="token") for path in PATHS}
        crawler = await crawl(Reader, store_path, with_middleware(Decoding), site=site)
        assert len(crawler.spider.items) == (3 if day == 1 else 0)
    assert crawler.spider.seen[0][0].startswith("decoded")


@pytest.mark.parametrize("position", [30, 543])
async def test_an_answer_that_a_middleware_refuses_is_no_copy(
    position: int, site: Site, store_path: Path
) -> None:
    """The page is as it was when it is let in again."""
    site.pages = {path: html(f"the page {path}") for path in PATHS}
    settings = with_middleware(Banning, position)
    await crawl(Reader, store_path, settings, site=site)
    site.pages["/1"] = html("you are banned here, all of you")
    crawler = await crawl(Reader, store_path, settings, site=site)
    assert crawler.spider.items == []
    site.pages["/1"] = html("the page /1")
    for _ in range(3):
        crawler = await crawl(Reader, store_path, settings, site=site)
        assert crawler.spider.items == []


class OtherCallback(Keep):
    """Gives a response another request, whose callback gets it."""

    def process_response(self, request: Request, response: Response) -> Response:
        return response.replace(
            request=request.replace(callback=self.crawler.spider.parse, meta={**request.meta})
        )


async def test_a_response_of_another_request_is_delivered_to_its_callback(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has its visit; else it would count as kept from the spider, and be an error after three times."""
    site.pages = {path: html(f"the page {path}") for path in PATHS}
    for day in range(1, 4):
        crawler = await crawl(Reader, store_path, with_middleware(OtherCallback), site=site)
        outcome = "first" if day == 1 else "unchanged"
        assert sorted(crawler.spider.seen) == [(f"the page {path}", outcome) for path in PATHS]
    assert "counts as delivered" not in caplog.text


class Swallowing:
    """A spider middleware that hides exceptions."""

    def process_spider_exception(self, response: Response, exception: Exception) -> list[Any]:
        return []


class Failing(Reader):
    """Fails in one of many ways."""

    name = "failing"

    async def parse(self, response: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        page = visit(response)
        text = response.css("p::text").get()
        self.seen.append((text, page.outcome))
        fails = response.url.endswith("1")
        if fails and self.bad == "inline":
            await self.crawler.engine.download_async(Request("http://127.0.0.1:1/"))
        await asyncio.sleep(0.01)
        if page.is_new or page.changed:
            yield {"text": text}
        if fails and self.bad in ("generator", "swallowed"):
            raise KeyError("price")


class LatePipeline(Keep):
    """Keeps items later, or fails then."""

    def process_item(self, item: Any) -> Any:
        fails = "1" in item["text"].split("/")[-1]
        spider = self.crawler.spider

        def done() -> Any:
            if fails and spider.bad == "deferred":
                raise OSError("the database is away")
            spider.items.append(item["text"])
            return item

        return deferLater(reactor, 0.02, done)


class AsyncPipeline(Keep):
    """Downloads something for each item."""

    async def process_item(self, item: Any) -> Any:
        fails = "1" in item["text"].split("/")[-1]
        if fails and self.crawler.spider.bad == "screenshot":
            await self.crawler.engine.download_async(Request("http://127.0.0.1:1/"))
        return item


@pytest.mark.parametrize("bad", ["generator", "inline", "deferred", "screenshot", "swallowed"])
async def test_what_failed_somewhere_is_delivered_again(bad: str, site: Site, store_path: Path) -> None:
    """In a generator, an inline download, a Deferred, or hidden by a middleware."""
    settings = {**ALL, "ITEM_PIPELINES": {AsyncPipeline: 1, LatePipeline: 2}}
    if bad == "swallowed":
        settings["SPIDER_MIDDLEWARES"] = {Swallowing: 543}
    for day, version in enumerate((1, 2, 2, 2), 1):
        site.pages = {path: html(f"version {version} of {path}") for path in PATHS}
        how = bad if day == 2 else ""
        crawler = await crawl(Failing, store_path, settings, site=site, bad=how)
        expected = {1: PATHS, 2: PATHS[1:], 3: PATHS[:1]}.get(day, [])
        got = sorted(crawler.spider.items)
        if day == 2 and bad in ("generator", "swallowed"):
            expected = PATHS  # before it failed
        assert got == [f"version {version} of {path}" for path in expected], day


class ByArguments(BaseDupeFilter):
    """A duplicate filter that tells requests for one page apart."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def request_seen(self, request: Request) -> bool:
        key = f"{request.url.partition('?')[0]} {request.cb_kwargs}"
        is_seen = key in self._seen
        self._seen.add(key)
        return is_seen


class ByText:
    """A fingerprinter whose fingerprints begin with the same bytes."""

    def fingerprint(self, request: Request) -> bytes:
        return request.url.encode()


async def test_fingerprints_that_begin_alike_are_different_pages(site: Site, store_path: Path) -> None:
    """As those of a project that takes the URL itself, or a name in front."""
    for day in range(1, 4):
        site.pages = {path: html(f"{path} of day {day}") for path in PATHS}
        settings = {**ALL, "REQUEST_FINGERPRINTER_CLASS": ByText}
        await crawl(Reader, store_path, settings, site=site)
        assert sorted(outcomes(store_path, day)) == PATHS


class Columns(Reader):
    """Asks for each page once for each of two columns, by two links."""

    name = "columns"

    async def start(self) -> AsyncIterator[Any]:
        self.items: list[str] = []
        yield Request(self.site.url("/"))

    def parse(self, response: Any) -> Iterator[Any]:
        for path in PATHS:
            for link in (path, path + "?from=menu"):
                for column in ("price", "stock"):
                    yield response.follow(link, self.parse_column, cb_kwargs={"column": column})

    def parse_column(self, response: Any, column: str) -> None:
        self.items.append(f"{response.url[-1]} {column}")


async def test_a_duplicate_filter_of_a_project_tells_what_is_a_duplicate(
    site: Site, store_path: Path
) -> None:
    """It takes two requests for one page for two, and two pages for one, in every cycle."""
    site.pages = dict.fromkeys(PATHS, html("a page"))
    for day in range(1, 4):
        site.pages["/"] = html(f"the list of day {day}")
        settings = {**ALL, "DUPEFILTER_CLASS": ByArguments}
        crawler = await crawl(Columns, store_path, settings, site=site)
        columns = sorted(f"{path[-1]} {column}" for path in PATHS for column in ("price", "stock"))
        assert sorted(crawler.spider.items) == columns, day


async def test_a_middleware_that_is_left_out_is_missed(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each names what is lost, and the remedy."""
    site.pages = dict.fromkeys(PATHS, html("a page"))
    names = [f"scrapy_gp4c.middleware.{name}Middleware" for name in ("Finder", "Callback")]
    await crawl(Reader, store_path, {**ALL, "SPIDER_MIDDLEWARES": dict.fromkeys(names)}, site=site)
    for name in names:
        assert caplog.text.count(f"SPIDER_MIDDLEWARES leaves out {name}") == 1
