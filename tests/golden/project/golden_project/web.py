"""The web of the golden crawls: what a page answers is a fixed rule of (page, cycle) and of the settings.

``GOLDEN_CYCLE`` tells the cycle, ``GOLDEN_RULES`` which pages fail (``errors``) or have validators
(``etags``), ``GOLDEN_STOP_AT`` and ``GOLDEN_KILL_AT`` after how many requests the run is interrupted or its
process killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.error import ConnectionRefusedError as Refused

from scrapy_gp4c.fingerprint import main_features

HOST = "http://golden.test"
VOCABULARY = (
    "amber basin cedar delta ember fjord grove harbor island juniper kettle lantern meadow nectar orchard "
    "pebble quarry river saddle timber upland valley willow yarrow zephyr anchor beacon copper dapple engine"
)
WORDS = VOCABULARY.split()
LENGTH_WORDS = 90


def mixed(*numbers: int) -> int:
    """A well-mixed number below 2**32 that follows from the given ones."""
    value = 0x9E3779B9
    for number in numbers:
        value = (value ^ number) * 0x85EBCA6B % 2**32
        value = (value ^ value >> 13) * 0xC2B2AE35 % 2**32
        value ^= value >> 16
    return value


def version(page: int, cycle: int) -> int:
    """How often a page has changed up to a cycle: never, always, at every second or third, or at random."""
    rule = page % 5
    if rule == 4:
        return sum(mixed(page, past) % 4 == 0 for past in range(1, cycle + 1))
    return (0, cycle, cycle // 2, cycle // 3)[rule]


def text(page: int, cycle: int) -> str:
    """The words of a page: a version replaces a run of them, and some pages also vary by a single word."""
    words = [WORDS[mixed(page, place) % len(WORDS)] for place in range(LENGTH_WORDS)]
    for change in range(1, version(page, cycle) + 1):
        start = mixed(page, change, 1) % LENGTH_WORDS
        for place in range(start, min(LENGTH_WORDS, start + 3 + 4 * change)):
            words[place] = WORDS[mixed(page, change, place) % len(WORDS)]
    if page % 6 == 2:
        words[mixed(page) % LENGTH_WORDS] = WORDS[cycle % len(WORDS)]
    return " ".join(words)


def links(page: int, pages: int) -> list[int]:
    """The pages that a page links to."""
    return sorted({(page * 3 + 1) % pages, (page * 3 + 2) % pages, mixed(page) % pages} - {page})


class Answers:
    """Downloader middleware that answers every request itself."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        settings = crawler.settings
        self.cycle = settings.getint("GOLDEN_CYCLE")
        self.rules = settings.get("GOLDEN_RULES", "")
        self.pages = settings.getint("GOLDEN_PAGES", 40) + settings.getint("GOLDEN_GROWTH", 3) * self.cycle
        self.stop_at = settings.getint("GOLDEN_STOP_AT")
        self.kill_at = settings.getint("GOLDEN_KILL_AT")
        self.log: list[str] = []
        crawler.golden_log = self.log  # type: ignore[attr-defined]

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Answers:
        """Build the middleware of a crawler."""
        return cls(crawler)

    def process_request(self, request: Request) -> Response:
        """Answer, or raise what a refused connection raises; interrupt or kill the run where it is due."""
        path = request.url.removeprefix(HOST)
        line = f"{request.method} {path}"
        for name in ("If-None-Match", "If-Modified-Since"):
            if name in request.headers:
                line += f" {name}: {request.headers[name].decode()}"
        self.log.append(line)
        if len(self.log) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(self.log) == self.stop_at:
            assert self.crawler.engine is not None
            deferred_from_coro(self.crawler.engine.close_spider_async(reason="shutdown"))
        if path == "/robots.txt":
            return self._answer(
                request, 200, "User-agent: *\nDisallow: /p/9\n", {"Content-Type": "text/plain"}
            )
        if path == "/":
            anchors = "".join(f'<li><a href="/p/{page}">{page}</a>' for page in range(0, self.pages, 2))
            return self._answer(request, 200, f"<html><body><ul>{anchors}</ul></body></html>")
        return self._page(request, int(path.removeprefix("/p/")))

    def _page(self, request: Request, page: int) -> Response:
        headers: dict[str, str] = {}
        if "errors" in self.rules:
            if page % 11 == 3 and self.cycle % 2:
                return self._answer(request, 500, "<html><body>broken</body></html>")
            if page % 11 == 5 and self.cycle % 3 == 0:
                raise Refused(f"page {page} in cycle {self.cycle}")
            if (page % 11 == 7 and self.cycle > 1) or page >= self.pages:
                return self._answer(request, 404, "<html><body>not here</body></html>")
            if page % 11 == 8 and self.cycle == 2:
                return self._answer(request, 410, "<html><body>gone</body></html>")
            if page % 13 == 4:
                return self._answer(request, 302, "", {"Location": f"/p/{page + 1}"})
        if "etags" in self.rules:
            if page % 4 < 2:
                headers["ETag"] = f'"{page}-{version(page, self.cycle)}"'
            if page % 4 == 2:
                headers["Last-Modified"] = f"Mon, 0{1 + version(page, self.cycle)} Jan 2024 00:00:00 GMT"
            known = (request.headers.get("If-None-Match"), request.headers.get("If-Modified-Since"))
            if any(value and value.decode() in headers.values() for value in known):
                return self._answer(request, 304, "", headers)
        anchors = "".join(f'<li><a href="/p/{to}">{to}</a>' for to in links(page, self.pages))
        body = f"<html><head><title>Page {page}</title></head><body><article><p>{text(page, self.cycle)}</p>"
        return self._answer(
            request, 200, f"{body}</article><nav><ul>{anchors}</ul></nav></body></html>", headers
        )

    def _answer(
        self, request: Request, status: int, body: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        self.log[-1] += f" -> {status}"
        given: dict[str, Any] = {"Content-Type": "text/html; charset=utf-8", **(headers or {})}
        return HtmlResponse(request.url, status=status, headers=given, body=body.encode(), request=request)


def score(terminals: Mapping[str, Any]) -> Any:
    """A score function given by its dotted path."""
    return terminals["t"] * (terminals["X"] + 1.0) / (terminals["n"] + 1.0)


def features(response: Response) -> list[str]:
    """Features given by their dotted path: the first half of those of the main text."""
    found = list(main_features(response))
    return found[: len(found) // 2]
