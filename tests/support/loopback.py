"""A small web site on loopback for crawl tests, in the reactor of the test; and crawls of it.

(Not named `site`: that is a module of the standard library.)

`Site` serves a table path -> page; a page is bytes, a text, or a callable ``page(request) -> bytes | None``
(None: the page finishes the request itself). Every request is logged.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import scrapy
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.utils.defer import deferred_from_coro
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IListeningPort
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from twisted.web.server import Site as TwistedSite

from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.store.lmdb_store.store import Store

Page = bytes | str | Callable[[Request], "bytes | None"]


class Site(Resource):
    """The pages of all its hosts (127.0.0.x), by path; `hits` counts requests per (method, path)."""

    isLeaf = True  # noqa: N815

    def __init__(self, pages: dict[str, Page] | None = None, hosts: Iterable[str] = ("127.0.0.1",)) -> None:
        super().__init__()
        self.pages: dict[str, Page] = dict(pages or {})
        self.log: list[tuple[str, str]] = []
        self._ports: list[IListeningPort] = []
        self.port = 0
        for host in hosts:
            self._ports.append(reactor.listenTCP(self.port, TwistedSite(self), interface=host))
            self.port = self._ports[0].getHost().port

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """Absolute URL of a path on a loopback host."""
        return f"http://{host}:{self.port}{path}"

    @property
    def hits(self) -> Counter[tuple[str, str]]:
        """Requests per (method, path with query)."""
        return Counter(self.log)

    def fetched(self) -> set[str]:
        """Paths fetched with GET since the log was cleared."""
        return {path for method, path in self.log if method == "GET"}

    def close(self) -> Deferred[object]:
        return DeferredList([port.stopListening() for port in self._ports])

    def render(self, request: Request) -> bytes | int:
        path = request.uri.decode("latin-1")
        self.log.append((request.method.decode(), path))
        page = self.pages.get(path, self.pages.get(path.partition("?")[0]))
        if callable(page):
            page = page(request)
            if page is None:
                return NOT_DONE_YET
        elif page is None:
            request.setResponseCode(404)
            page = "<html><body>not here</body></html>"
        body = page if isinstance(page, bytes) else page.encode()
        if not request.responseHeaders.hasHeader("Content-Type"):
            request.setHeader("Content-Type", "text/html; charset=utf-8")
        return body


def html(text: str, links: Iterable[str] = (), title: str = "A page") -> str:
    """Return a plain HTML page with a text and links."""
    anchors = "".join(f'<a href="{link}">link</a> ' for link in links)
    return (
        f"<html><head><title>{title}</title></head><body><h1>{title}</h1><p>{text}</p>{anchors}</body></html>"
    )


ADDONS = {"scrapy_gp4c.Addon": 500}
QUIET = {"TELNETCONSOLE_ENABLED": False, "LOGSTATS_INTERVAL": 0, "CONCURRENT_ITEMS": 4}
"""Settings of small crawls. Scrapy starts CONCURRENT_ITEMS tasks for each response, by default a hundred."""


class Listed(Spider):
    """Visits its start pages, and yields nothing."""

    name = "listed"

    def parse(self, response: object) -> None:
        """Yield nothing."""


class Pages(Spider):
    """Requests all pages of its `site`, if it has one, else `urls`; yields nothing."""

    name = "pages"
    urls: Iterable[str] = ()
    site: Site | None = None

    async def start(self) -> AsyncIterator[Any]:
        for url in map(self.site.url, self.site.pages) if self.site else self.urls:
            yield scrapy.Request(url, errback=self.failed)

    def parse(self, response: Any) -> Any:
        """Yield nothing."""

    def failed(self, failure: Any) -> None:
        """Yield nothing for a failed request."""


class Follower(Pages):
    """Requests the pages of `Pages`, and follows all links."""

    name = "follower"

    def parse(self, response: Any) -> Iterator[Any]:
        yield from response.follow_all(css="a")


class LinkFollower(Spider):
    """Requests the page `url`, and follows all links of HTML pages."""

    name = "linked"
    url = ""

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(self.url)

    def parse(self, response: Any) -> Iterator[Any]:
        if "html" in str(response.headers.get("Content-Type")):
            yield from response.follow_all(css="a")


class UnsharedSettings(Settings):
    """Settings of one crawler alone, which may keep them: Scrapy's deep copy is a fifth of a small crawl."""

    def copy(self) -> Self:
        return self


async def stock_crawl(
    spider: type[Spider], settings: dict[str, Any] | None = None, **arguments: Any
) -> Crawler:
    """Run a spider without the add-on; returns the finished crawler."""
    crawler = Crawler(spider, UnsharedSettings({**QUIET, **(settings or {})}))
    await deferred_from_coro(crawler.crawl_async(**arguments))
    return crawler


async def crawl(
    spider: type[Spider], store: Path, settings: dict[str, Any] | None = None, **arguments: Any
) -> Crawler:
    """Run one cycle of a spider with the add-on; returns the finished crawler."""
    ours = {"ADDONS": ADDONS, "GP4C_STORE": str(store), **(settings or {})}
    return await stock_crawl(spider, ours, **arguments)


def stats(crawler: Crawler) -> dict[str, Any]:
    """Stats of the add-on after a crawl, without the prefix ``gp4c/``."""
    assert crawler.stats is not None
    collected = crawler.stats.get_stats()
    return {key.removeprefix("gp4c/"): value for key, value in collected.items() if key.startswith("gp4c/")}


def outcomes(path: Path, cycle: int) -> dict[str, list[str]]:
    """URL's path -> outcomes of its visits in a finished cycle; more than one shows a double visit."""
    with Store(path, readonly=True) as store:
        visits = [visits for number, visits in store.visits() if number == cycle]
        merged = np.concatenate(visits) if visits else np.empty(0, [("page", "u4"), ("outcome", "u1")])
        urls = [request["url"] for request in store.requests(merged["page"])]
    by_path: dict[str, list[str]] = {}
    for url, outcome in zip(urls, merged["outcome"].tolist(), strict=True):
        by_path.setdefault(path_of(url), []).append(OUTCOMES[outcome])
    return by_path


def path_of(url: str) -> str:
    """Path (with query) of an absolute URL."""
    return "/" + url.split("/", 3)[3]
