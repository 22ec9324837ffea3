"""The order in which the pages of a plan go into Scrapy's queue, and out of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_twisted
from scrapy import Request, Spider

from tests.support.loopback import Site, crawl, html

PAGES = 6


class Once(Spider):
    """Asks for every page in its first run only."""

    name = "once"
    runs = 0

    async def start(self) -> AsyncIterator[Any]:
        """Ask for them."""
        Once.runs += 1
        for page in range(PAGES if Once.runs == 1 else 0):
            yield Request(self.site.url(f"/{page}"))

    def parse(self, response: Any) -> None:
        """Read a page."""


@pytest_twisted.ensureDeferred
async def test_a_small_plan_is_visited_best_first(site: Site, store_path: Path) -> None:
    """Though all of it is read at once, and Scrapy's queue gives what came last first."""
    Once.runs = 0
    settings = {
        "GP4C_SCORE_FUNCTION": "X",
        "GP4C_BUDGET": 1.0,
        "GP4C_WARMUP_VISITS": 1,
        "GP4C_DISCOVERY": 0,
        "CONCURRENT_REQUESTS": 1,
    }
    for cycle in range(PAGES + 1):
        for page in range(PAGES):
            version = f"version {min(cycle, page)} " * 30  # it has changed in as many cycles as its number
            site.pages[f"/{page}"] = html(f"a page about {page} with {version}")
        site.log.clear()
        await crawl(Once, store_path, settings, site=site)
    assert [path for _, path in site.log if path[1:].isdigit()] == [
        f"/{page}" for page in reversed(range(PAGES))
    ]
