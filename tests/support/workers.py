"""A web that grows and changes day by day, and workers that crawl it in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import scrapy
from scrapy.crawler import AsyncCrawlerProcess

from scrapy_gp4c.crawling import run

HOSTS = 6


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
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = web.page(self.path).encode()
                self.send_response(200 if body else 404)
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


class TreeSpider(scrapy.Spider):
    """Follows all links."""

    name = "tree"

    def parse(self, response: Any) -> Iterator[scrapy.Request]:
        """Follow the links of a page."""
        yield from response.follow_all(css="a")


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
    run.PATIENCE_S = 3600.0  # type: ignore[misc]
    process = AsyncCrawlerProcess(given)
    TreeSpider.start_urls = [given["start"]]
    process.crawl(TreeSpider)
    process.start()
    failed = process.bootstrap_failed or any(one.spider is None for one in process.crawlers)
    os._exit(int(failed))


def start(given: dict[str, Any], log: Path) -> BaseProcess:
    """Start a crawl; its log goes to a file."""
    process = _FORKING.Process(target=crawl, args=(given, log))
    process.start()
    return process


_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.support.workers", "scrapy_gp4c.distributed.opening"])
