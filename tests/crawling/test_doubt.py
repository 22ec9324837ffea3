"""Doubt before belief: answers that are not the page, by rules and by real crawls over many cycles."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from scrapy import Request, Spider
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling.doubt import RULES, Answer, reason_of
from tests.support.loopback import Site, crawl, html, outcomes

FULL = {"GP4C_BUDGET": 1.0, "RETRY_ENABLED": False, "CONCURRENT_REQUESTS": 1}
WALL = html("we value your privacy choose which partners may read what you do here accept all or reject")


class Pages(Spider):
    """Requests pages."""

    name = "pages"
    urls: tuple[str, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        """Request the pages."""
        for url in self.urls:
            yield Request(url)

    def parse(self, response: Any) -> None:
        """Take nothing."""


def text_of(number: int) -> str:
    """A text of its own, of a hundred words."""
    return " ".join(f"word{number * 7919 + place * 31}" for place in range(100))


@pytest.mark.parametrize(
    ("answer", "is_doubted"),
    [
        (Answer({"cf-mitigated": "challenge"}, 100, 100), True),
        (Answer({"x-amzn-waf-action": "captcha"}, 100, 0), True),
        (Answer({}, 9, 100), True),
        (Answer({}, 10, 100), False),
        (Answer({}, 0, 49), False),
        (Answer({}, 100, 100, 3, 30), True),
        (Answer({}, 100, 100, 3, 31), False),
        (Answer({}, 100, 100, 2, 2), False),
    ],
)
def test_rules(answer: Answer, is_doubted: bool) -> None:
    """Each rule holds from its border on; each names its source."""
    assert (reason_of(answer) is not None) == is_doubted
    assert all(rule.source for rule in RULES)


def challenge(request: ServerRequest) -> bytes:
    """A challenge of a bot manager, answered 200."""
    request.setHeader("cf-mitigated", "challenge")
    return html(f"checking your browser {request.path!r} " * 20).encode()


@pytest.mark.parametrize("block", [WALL, challenge, html(""), html("back soon")])
@pytest_twisted.ensureDeferred
async def test_a_site_that_blocks_for_some_cycles(
    site: Site,
    store_path: Path,
    block: str | Callable[[ServerRequest], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At most two false changes, few requests, and all is as before when the block ends."""
    pages: dict[str, Any] = {f"/{number}": html(text_of(number)) for number in range(20)}
    site.pages = dict(pages)
    urls = tuple(map(site.url, pages))
    for _ in range(3):
        await crawl(Pages, store_path, FULL, urls=urls)
    site.pages = dict.fromkeys(pages, block)
    false_changes = 0
    with caplog.at_level(logging.WARNING):
        for cycle in (4, 5, 6):
            site.log.clear()
            await crawl(Pages, store_path, FULL, urls=urls)
            found = [one for ends in outcomes(store_path, cycle).values() for one in ends]
            false_changes += found.count("changed")
            assert len(site.log) <= 10
    assert "is left alone for the rest of the cycle" in caplog.text
    assert false_changes <= 2
    site.pages = dict(pages)
    changes = 0
    for cycle in range(7, 15):
        await crawl(Pages, store_path, FULL, urls=urls)
        found = [one for ends in outcomes(store_path, cycle).values() for one in ends]
        changes += found.count("changed")
    assert changes == false_changes


@pytest_twisted.ensureDeferred
async def test_what_stays_doubtful_is_the_page_in_the_end(site: Site, store_path: Path) -> None:
    """After GP4C_BELIEVE_AFTER visits there is one change."""
    site.pages["/"] = html(text_of(1))
    given = {**FULL, "GP4C_BELIEVE_AFTER": 2}
    for _ in range(2):
        await crawl(Pages, store_path, given, urls=(site.url(),))
    site.pages["/"] = html("we have moved")
    found = []
    for cycle in range(3, 12):
        await crawl(Pages, store_path, given, urls=(site.url(),))
        found += outcomes(store_path, cycle).get("/", [])
    assert found[:3] == ["doubtful", "doubtful", "changed"]
    assert set(found[3:]) == {"unchanged"}


@pytest_twisted.ensureDeferred
async def test_a_server_that_always_says_not_modified_hides_no_change_for_ever(
    site: Site, store_path: Path
) -> None:
    """Every 8th visit goes without validators, and finds what changed."""
    text = {"now": text_of(1)}

    def page(request: ServerRequest) -> bytes:
        request.setHeader("ETag", '"always"')
        if request.getHeader("If-None-Match"):
            request.setResponseCode(304)
            return b""
        return html(text["now"]).encode()

    site.pages["/"] = page
    given = {**FULL, "GP4C_SKIP_UNCHANGED": True}
    found = []
    for cycle in range(1, 19):
        await crawl(Pages, store_path, given, urls=(site.url(),))
        text["now"] = text_of(2)
        found += outcomes(store_path, cycle).get("/", [])
    assert found.count("changed") == 1
    assert found.count("not_modified") >= 14
