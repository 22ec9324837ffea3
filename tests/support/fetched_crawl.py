"""Spiders and components for tests of crawls with fetchers; ``python -m tests.support.fetched_crawl JSON``
runs one of the spiders. JSON: an object with spider, port and settings."""

import asyncio
import dataclasses
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import CrawlerProcess
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK

from scrapy_gp4c import signals as page_signals
from scrapy_gp4c import visit

HOSTS = 3
PAGES = 20


class Pages(Spider):
    """Follows all links of all hosts, and yields an item for each page."""

    name = "pages"

    async def start(self) -> AsyncIterator[Any]:
        for host in range(1, HOSTS + 1):
            yield Request(f"http://127.0.0.{host}:{self.port}/")

    def parse(self, response: Response) -> Iterator[Any]:
        """Yield an item with the metadata of the visit, then requests for the links."""
        info = response.meta.get("gp4c") or {}
        seen = [info.get(name) for name in ("outcome", "changed", "n", "X", "cycle", "kind")]
        yield {"url": response.url, "text": response.css("p::text").get(), "info": seen}
        if response.url.endswith("/p3"):
            raise RuntimeError("the callback of page 3 fails")
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


class Curious(Pages):
    """Reads fields of `visit`, overrules the outcome of one page, and withdraws the visit of another."""

    name = "curious"

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request
            yield Request(request.url + "sitemap.xml", self.parse_sitemap)

    def parse_sitemap(self, response: Response) -> None:
        """Yield nothing: the add-on reads the sitemap."""

    def parse(self, response: Response) -> Iterator[Any]:
        judged = visit(response)
        if response.url.endswith("/p2"):
            judged.changed = False
        if response.url.endswith("/p4"):
            judged.withdraw("a captcha")
        cookie = (response.request.headers.get("Cookie") or b"").decode() if response.request else ""
        seen = [judged.outcome, judged.changed, judged.distance, judged.previous_text, judged.diff(), cookie]
        yield {"url": response.url, "text": response.css("p::text").get(), "info": seen}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


class Adding:
    """Spider middleware that adds a page to the spider's start requests."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> "Adding":
        self = cls()
        self.crawler = crawler
        return self

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for entry in start:
            yield entry
        yield Request(f"http://127.0.0.1:{self.crawler.spider.port}/added")


class Waiting(Pages):
    """Requests, when it is idle, the page whose path its callback has noted."""

    name = "waiting"
    noted = ""

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> "Waiting":
        self = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(self.ask, signals.spider_idle)
        return self

    def parse(self, response: Response) -> Iterator[Any]:
        self.noted = "" if response.url.endswith("/p0") else "/p0"
        yield {"url": response.url, "text": response.css("p::text").get(), "info": []}

    def ask(self) -> None:
        if path := self.noted:
            self.noted = ""
            self.crawler.engine.crawl(Request(f"http://127.0.0.1:{self.port}{path}"))
            raise DontCloseSpider


class Downloading(Pages):
    """Requests a page that never changes, whose callback downloads one that does."""

    name = "downloading"
    custom_settings: ClassVar[dict[str, Any]] = {
        "FEEDS": {os.environ.get("FEED_OF_TEST", "/dev/null"): {"format": "jsonlines", "overwrite": True}},
        "DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.stats.DownloaderStats": 850},
    }

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"http://127.0.0.1:{self.port}/p1")

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        """Download the other page by ``engine.download_async``, as page objects do, and yield its text."""
        assert self.crawler.engine is not None
        request = Request(f"http://127.0.0.1:{self.port}/p0", callback=NO_CALLBACK)
        other = await self.crawler.engine.download_async(request)
        yield {"url": response.url, "text": other.css("p::text").get(), "info": []}


def part_by_part(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the callback's ``yield request`` returns the response, as with scrapy-inline-requests."""

    def first(self: Spider, response: Response) -> Iterator[Any]:
        yield from following(callback(self, response), None)

    def following(entries: Any, response: Response | None) -> Iterator[Any]:
        with suppress(StopIteration):
            entry = entries.send(response)
            if isinstance(entry, Request):
                yield entry.replace(callback=partial(following, entries))
            else:
                yield entry
                yield from entries

    return first


class Closures(Pages):
    """Spider of callbacks that fetchers cannot run: lambdas, a generator, attributes that `start` sets."""

    name = "closures"

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        self.host = f"http://127.0.0.1:{int(port)}"

    async def start(self) -> AsyncIterator[Any]:
        """Yield an item, and request the home page of a host."""
        self.units = {"p2": "kilos"}
        yield {"url": self.host, "text": "start", "info": "start"}
        yield Request(f"{self.host}/", callback=lambda response: self.list_links(response))
        yield Request(f"{self.host}/p12", meta={"lock": threading.Lock()})
        parts: dict[str, str | None] = {}
        for path in ("/p17", "/p19"):
            yield Request(f"{self.host}{path}", self.add_part, cb_kwargs={"parts": parts})

    def list_links(self, response: Response) -> Iterator[Any]:
        """Request a page for a lambda, two for one item, one to retry, and one with data beyond pickling."""
        unit = self.units["p2"]
        parts: dict[str, str | None] = {}
        for link in ("/p16", "/p18"):
            yield response.follow(link, self.add_part, cb_kwargs={"parts": parts})
        yield response.follow("/p2", lambda page: self.item(page, unit, page))
        yield Request(f"{self.host}/p1", self.refused)
        yield response.follow("/p14", self.listed, meta={"list": response.selector})

    def refused(self, response: Response) -> Iterator[Any]:
        """Retry the page as often as Scrapy allows, then request the page of `both`."""
        yield get_retry_request(response.request, spider=self) or Request(f"{self.host}/p4", self.both)

    def add_part(self, response: Response, parts: dict[str, str | None]) -> Iterator[Any]:
        """Add a page to an item, and yield the item when it has both pages."""
        parts[response.url[-4:]] = response.css("p::text").get()
        if len(parts) == 2:
            yield from self.item(response, " ".join(sorted(parts)), response)

    def listed(self, response: Response) -> Iterator[Any]:
        """Yield an item by data in the request's meta that cannot be pickled."""
        yield from self.item(response, response.meta["list"].css("p::text").get(), response)

    def item(self, page: Response, unit: str, other: Response) -> Iterator[Any]:
        """Yield an item of two pages; note the URL in `noted`, and set stats."""
        self.noted = {*getattr(self, "noted", ()), page.url}
        assert self.crawler.stats is not None
        self.crawler.stats.set_value("noted", "something")
        self.crawler.stats.min_value("least", 3.5)
        yield {"url": page.url, "text": other.css("p::text").get(), "info": unit}

    @part_by_part
    def both(self, response: Response) -> Iterator[Any]:
        """Wait for another page, yield an item of it, and request the page that closes the spider."""
        other = yield response.follow("/p6")
        yield from self.item(response, "pieces", other)
        yield response.follow("/p8", self.close_at)

    def close_at(self, response: Response) -> Iterator[Any]:
        yield from self.item(response, "end", response)
        raise CloseSpider("enough")

    def closed(self, reason: str) -> None:
        """Write the number of noted URLs, and the stats that callbacks have set."""
        assert self.crawler.stats is not None
        notes = [len(self.noted), *map(self.crawler.stats.get_value, ("noted", "least"))]
        with open(self.crawler.settings["ITEMS"] + ".closed", "a") as file:
            file.write(json.dumps(notes) + "\n")


class Filling(Pages):
    """Fills one item from pages of all hosts, as soon as two fetchers are there."""

    name = "filling"

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> "Filling":
        """Write a line for each process in which the spider opens."""
        self = super().from_crawler(crawler, *args, **kwargs)
        self.opened = Path(crawler.settings["ITEMS"] + ".opened")
        with self.opened.open("a") as file:
            file.write("opened\n")
        return self

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"http://127.0.0.1:{self.port}/p1", self.share)

    async def share(self, response: Response) -> AsyncIterator[Any]:
        """Wait for the owner and two fetchers, then request a page of each host for one item."""
        while self.opened.read_text().count("opened") < 3:
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)  # until the owner knows
        parts: dict[str, str] = {}
        for host in range(1, HOSTS + 1):
            yield Request(f"http://127.0.0.{host}:{self.port}/p0", self.fill, cb_kwargs={"parts": parts})

    def fill(self, response: Response, parts: dict[str, str]) -> Iterator[Any]:
        """Add a host to the item, and yield the item when it has all hosts."""
        parts[response.url] = "read"
        if len(parts) == HOSTS:
            yield {"url": response.url, "text": "complete", "info": []}


class Closing(Closures):
    """Closes itself at its first page."""

    name = "closing"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"{self.host}/p8", self.close_at)


class Plain(Pages):
    """Yields an item for each of five pages, whatever its visit is."""

    name = "plain"

    async def start(self) -> AsyncIterator[Any]:
        for number in range(5):
            yield Request(f"http://127.0.0.1:{self.port}/p{number}")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "text": response.css("p::text").get()}


class Blocking(Closures):
    """Blocks its process for 3 s, then requests a page with data that cannot be pickled for the owner."""

    name = "blocking"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"{self.host}/", self.list_one)

    def list_one(self, response: Response) -> Iterator[Any]:
        assert self.crawler.stats is not None
        self.crawler.stats.inc_value("lists")
        time.sleep(3)
        yield response.follow("/p14", self.listed, meta={"list": response.selector})


class Stocked:
    """Pipeline that downloads a page for each item."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> "Stocked":
        self = cls()
        self.crawler = crawler
        return self

    async def process_item(self, item: Any) -> Any:
        stock = await self.crawler.engine.download_async(Request(f"{self.crawler.spider.host}/p10"))
        item["stock"] = stock.css("p::text").get().split()[0]
        return item


class OwnersAlone(Pages):
    """Spider that cannot be made in a fetcher, as with a licence for one process."""

    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        if multiprocessing.parent_process() is not None:
            raise RuntimeError("no licence")


class SignedIn(Pages):
    """Logs in two users, with a cookie jar each, and requests half of the pages as each user."""

    name = "signedin"

    async def start(self) -> AsyncIterator[Any]:
        for user in ("ada", "bob"):
            url, meta = f"http://127.0.0.1:{self.port}/login", {"cookiejar": user}
            yield Request(url, self.signed_in, method="POST", body=user, meta=meta, dont_filter=True)

    def signed_in(self, response: Response) -> Iterator[Any]:
        user = response.meta["cookiejar"]
        for number in range(user == "bob", PAGES, 2):
            yield response.follow(f"/p{number}", meta={"cookiejar": user})

    def parse(self, response: Response) -> Iterator[Any]:
        """Yield an item with the user and the cookie that was sent."""
        assert response.request is not None
        cookie = (response.request.headers.get("Cookie") or b"").decode()
        yield {"url": response.url, "text": response.meta["cookiejar"], "info": cookie}


def features(response: Response) -> list[str]:
    """Words of a page's first paragraph: a function for `GP4C_FEATURES`."""
    return (response.css("p::text").get() or "").split()


class Signalled(Pages):
    """Writes every page signal to a file, and yields the fields of every visit."""

    name = "signalled"

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> "Signalled":
        self = super().from_crawler(crawler, *args, **kwargs)
        for name in ("page_new", "page_changed", "page_gone", "page_back", "page_failing", "page_doubtful"):
            crawler.signals.connect(self._note, getattr(page_signals, name))
        return self

    def _note(self, event: Any) -> None:
        with open(self.crawler.settings["ITEMS"] + ".events", "a") as file:
            file.write(
                json.dumps([event.kind, event.url, event.outcome, event.distance, event.reason]) + "\n"
            )

    def parse(self, response: Response) -> Iterator[Any]:
        """Yield the visit; overrule, withdraw or fail at some pages; follow links with ``gp4c_`` meta."""
        judged, path = visit(response), response.url.rpartition("/")[2]
        if path == "p2":
            judged.changed = False
        if path == "p4":
            judged.withdraw("a captcha")
        if path == "p3" and b"x1x" in response.body:
            raise RuntimeError("the callback of page 3 fails on one day")
        fields = ("managed", "outcome", "changed", "distance", "n", "X", "cycle", "kind", "doubtful")
        seen = {name: judged.get(name) for name in fields}
        yield {
            "url": response.url,
            "text": response.css("p::text").get(),
            "info": seen,
            "diff": judged.diff(),
        }
        for number, link in enumerate(response.css("a::attr(href)").getall()):
            meta = {"gp4c_tag": "odd", "gp4c_weight": 2.0} if number % 2 else {}
            if number == 7:
                meta["gp4c_max_age"] = "1m"
            yield response.follow(link, meta=meta, errback=self.failed)

    def failed(self, failure: Any) -> Iterator[Any]:
        """Yield an item for a request without a response."""
        yield {"url": failure.request.url, "text": "failed"}


class Killing(Pages):
    """Kills its process at page 7 of the first host."""

    name = "killing"

    def parse(self, response: Response) -> Iterator[Any]:
        if response.url.startswith("http://127.0.0.1:") and response.url.endswith("/p7"):
            os.kill(os.getpid(), 9)
        yield from super().parse(response)


class Written:
    """Pipeline that appends every item to a file, a line each."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def from_crawler(cls, crawler: Any) -> "Written":
        return cls(crawler.settings["ITEMS"])

    def process_item(self, item: Any) -> Any:
        with open(self._path, "a") as file:
            file.write(json.dumps(item if isinstance(item, dict) else dataclasses.asdict(item)) + "\n")
        return item


class Noting(HTTP11DownloadHandler):
    """Writes a line with the time at which each request is sent; a busy server would note it late."""

    async def download_request(self, request: Request) -> Response:
        with open(self.crawler.settings["ITEMS"] + ".sent", "a") as file:
            host, _, path = request.url.removeprefix("http://").partition("/")
            file.write(json.dumps([time.monotonic(), host.partition(":")[0], "/" + path, os.getpid()]) + "\n")
        return await super().download_request(request)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    settings = {
        "ADDONS": {"scrapy_gp4c.Addon": 500},
        "ITEM_PIPELINES": {"tests.support.fetched_crawl.Written": 1},
        "TELNETCONSOLE_ENABLED": False,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "RETRY_ENABLED": False,
        "LOG_LEVEL": "INFO",
        "DOWNLOAD_HANDLERS": {"http": "tests.support.fetched_crawl.Noting"},
        "GP4C_WARMUP_VISITS": 1,
    }
    process = CrawlerProcess({**settings, **arguments["settings"]})
    # Fetchers import the class from the module by its name; here the module is `__main__`.
    from tests.support import fetched_crawl

    class LocalClosures(fetched_crawl.Closures):
        """`Closures` as a local class, which fetchers cannot import."""

        def close_at(self, response: Response) -> Iterator[Any]:
            yield from super().close_at(response)

    spider = arguments.get("spider", "Pages")
    local = spider == "LocalClosures"
    process.crawl(LocalClosures if local else getattr(fetched_crawl, spider), port=arguments["port"])
    process.start()
