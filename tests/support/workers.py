"""A web that grows and changes day by day, and workers that crawl it in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scrapy
from scrapy.crawler import AsyncCrawlerProcess

from scrapy_gp4c.crawling import run

HOSTS = 6


class Asked(NamedTuple):
    """A request as a host sees it."""

    time_s: float
    host: str
    path: str
    worker: str | None
    """Who sent it, where `NamedWorker` is used."""


class Answer(NamedTuple):
    """What is answered."""

    status: int
    headers: dict[str, str]
    text: str


class TreeWeb:
    """Pages on several hosts, each of which one other page links to; some come later, most change."""

    def __init__(self, pages: int = 60, days: int = 8, seed: int = 1) -> None:
        """Serve from loopback's addresses, at one port."""
        rng = np.random.default_rng(seed)
        self.day, self.delay_s = 1, 0.0
        self.born = np.where(rng.random(pages) < 0.6, 1, rng.integers(1, days, pages))
        self.parent = np.array([0, *(rng.integers(0, max(1, page // 2)) for page in range(1, pages))])
        for page in range(1, pages):
            self.born[page] = max(self.born[page], self.born[self.parent[page]])
        self.born[0] = 1
        self.host = rng.integers(1, HOSTS + 1, pages)
        self.change = rng.random(pages)
        self.version = np.cumsum(rng.random((days + 1, pages)) < self.change, axis=0)
        self.log: list[tuple[int, int]] = []
        self.asked: list[Asked] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                host = str(self.headers["Host"]).partition(":")[0]
                web.asked.append(Asked(time.monotonic(), host, self.path, self.headers["X-Worker"]))
                answer = web.answer(self.path, self.headers["If-None-Match"])
                body = answer.text.encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, page: int) -> str:
        """Where a page is."""
        return f"http://127.0.0.{self.host[page]}:{self.port}/{page}"

    def answer(self, path: str, known: str | None) -> Answer:
        """What is answered today; ``known``: the ETag that the request has."""
        text = self.page(path)
        return Answer(200 if text else 404, {}, text)

    def page(self, path: str) -> str:
        """Text of a page today; empty if there is none."""
        number = path.strip("/")
        if not number.isdigit() or self.born[int(number)] > self.day:
            return ""
        if self.delay_s:
            threading.Event().wait(self.delay_s)
        page = int(number)
        self.log.append((self.day, page))
        links = np.flatnonzero((self.parent == page) & (self.born <= self.day))
        rng = np.random.default_rng(1000 * page + int(self.version[self.day, page]))
        words = " ".join(f"w{word}" for word in rng.integers(0, 10**6, 60))
        return f"<p>{words}</p>" + "".join(
            f'<a href="{self.url(int(link))}">x</a>' for link in links if link != page
        )

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


class RedirectingWeb(TreeWeb):
    """Every third page redirects over other hosts, most of which are of other shards; some never arrive.

    Where a redirect leads to is no page that anybody links to, except from day 3 on: then the last redirect
    of some pages leads to other pages.
    """

    STATUSES = (301, 302, 303, 307, 308)

    def __init__(self, pages: int = 60, *, loops: bool = True) -> None:
        """``loops``: whether some redirects lead back to where they began."""
        super().__init__(pages)
        self.loops, self.slow_s = loops, 0.0

    def ends(self, page: int) -> bool:
        """Tell whether a page links to nothing new after day 2: else it is chance who finds that first."""
        return not np.any((self.parent == page) & (self.born > 2))

    def hops(self, page: int) -> int:
        """How often a page redirects before it is there; 0: it is there at once."""
        return 0 if page % 3 != 1 else 1 + page // 3 % 3

    def answer(self, path: str, known: str | None) -> Answer:
        """A redirect, or the text of the page that was asked for first."""
        parts = path.strip("/").split("/")
        if not all(part.isdigit() for part in parts):
            return Answer(404, {}, "")
        page, hop = int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
        if hop < self.hops(page) and self.born[page] <= self.day:
            number = page + hop
            host = (int(self.host[page]) + hop * (1 + page % 4)) % HOSTS + 1
            target = f"http://127.0.0.{host}:{self.port}/{page}/{hop + 1}"
            if self.loops and page % 15 == 1 and hop + 1 == self.hops(page):
                target = self.url(page)
            elif page % 5 == 2 and self.day >= 3 and hop + 1 == self.hops(page) and self.ends(page - 1):
                target = self.url(page - 1)
            return Answer(self.STATUSES[number % len(self.STATUSES)], {"Location": target}, "")
        if hop and self.slow_s:
            threading.Event().wait(self.slow_s)
        text = self.page(f"/{page}") if page % 7 != 3 or self.day != 2 else ""
        if not text:
            return Answer(404, {}, "")
        version = int(self.version[self.day, page])
        headers = {"ETag": f'"{page}-{version}"', "Cache-Control": "no-cache"}
        headers["Last-Modified"] = formatdate(1_600_000_000 + 3600 * version, usegmt=True)
        return Answer(304, headers, "") if known == headers["ETag"] else Answer(200, headers, text)


class TreeSpider(scrapy.Spider):
    """Follows all links."""

    name = "tree"

    def parse(self, response: Any) -> Iterator[Any]:
        """Follow the links of a page, and tell what its visit came to."""
        yield {"asked": response.meta.get("redirect_urls", [response.url])[0], **response.meta["gp4c"]}
        yield from response.follow_all(css="a")


class NamedWorker:
    """Downloader middleware: the last word of every request is who sends it."""

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def from_crawler(cls, crawler: Any) -> NamedWorker:
        """Take the name from the settings."""
        return cls(str(crawler.settings["GP4C_WORKER"]))

    def process_request(self, request: scrapy.Request) -> None:
        """Name the worker."""
        request.headers["X-Worker"] = self._name


def settings(web: TreeWeb, directory: Path, **given: Any) -> dict[str, Any]:
    """Settings of a crawl of this web."""
    return {
        "ADDONS": {"scrapy_gp4c.Addon": 500},
        "start": web.url(0),
        "GP4C_STORE": str(directory),
        "GP4C_PANEL": 0.2,
        "GP4C_BUDGET": 0.4,
        "GP4C_DISCOVERY": 0.3,
        "GP4C_WARMUP_VISITS": 1,
        "GP4C_POLICY": "rounds(rounds=3)",
        "LOG_LEVEL": "INFO",
        "MEMUSAGE_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
        "DOWNLOAD_DELAY": 0,
        **given,
    }


def crawl(given: dict[str, Any], log: Path) -> None:
    """Crawl once, in a process of its own; ends it.

    A round waits for all outcomes of the one before, so that two crawls come to the same.
    """
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    run.PATIENCE_S = 3600.0  # type: ignore[misc] # rounds see all outcomes: comparable
    process = AsyncCrawlerProcess(given)
    TreeSpider.start_urls = [given["start"]]
    process.crawl(TreeSpider)
    process.start()
    failed = process.bootstrap_failed or any(one.spider is None for one in process.crawlers)
    os._exit(int(failed))


def start(
    given: dict[str, Any], log: Path, target: Callable[[dict[str, Any], Path], None] = crawl
) -> BaseProcess:
    """Start a crawl; its log goes to a file. ``target``: what crawls, as `crawl` does."""
    process = _FORKING.Process(target=target, args=(given, log))
    process.start()
    return process


_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.support.workers", "scrapy_gp4c.distributed.opening"])
