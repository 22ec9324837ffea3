"""Crawler traps: a store takes so many pages of a site and no more, and a warning names the directory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from scrapy import Spider
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling.limits import TOO_MANY, Limits
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Site, crawl, html, outcomes, stats


class Follower(Spider):
    """Follows every link."""

    name = "follower"

    def parse(self, response: Any) -> Iterator[Any]:
        """Follow the links."""
        yield from response.follow_all(css="a")


def trap(site: Site) -> None:
    """A site with three pages and a calendar that never ends, 50 links a page."""

    def calendar(request: ServerRequest) -> bytes:
        first = int(request.args.get(b"day", [b"0"])[0])
        return html(f"day {first}", [f"/calendar/?day={first * 50 + day}" for day in range(1, 51)]).encode()

    site.pages["/"] = html("start", ["/a", "/b", "/calendar/"])
    site.pages["/a"] = site.pages["/b"] = html("an article")
    site.pages["/calendar/"] = calendar


@pytest_twisted.ensureDeferred
async def test_a_trap_fills_no_store(site: Site, store_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The pages of the site stay bounded, cycle after cycle; one warning a run names the calendar."""
    trap(site)
    Follower.start_urls = [site.url("/")]
    given = {"GP4C_MAX_PAGES_PER_SITE": 60, "GP4C_NEW_PAGES": 10}
    for cycle in range(1, 5):
        caplog.clear()
        crawler = await crawl(Follower, store_path, given)
        assert {"/a", "/b"} <= outcomes(store_path, 1).keys()
        with Store(store_path) as store:
            assert store.pages <= 2 * 60
            assert store.verify() == []
            assert store.last_cycle == cycle
    assert stats(crawler)["skipped/too_many_pages"] > 0
    with Store(store_path) as store:
        before = store.pages
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    (line,) = [line for line in warnings if "GP4C_MAX_PAGES_PER_SITE = 60" in line]
    assert f"127.0.0.1:{site.port}" in line
    await crawl(Follower, store_path, given)
    with Store(store_path) as store:
        assert store.pages == before


@pytest_twisted.ensureDeferred
async def test_the_first_warning_names_the_traps_directory(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Most of the pages that were found last are in it; links to pages that are known are no new pages."""
    trap(site)
    Follower.start_urls = [site.url("/")]
    crawler = await crawl(Follower, store_path, {"GP4C_MAX_PAGES": 40})
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    (line,) = [line for line in warnings if "GP4C_MAX_PAGES = 40" in line]
    assert f"mostly in 127.0.0.1:{site.port}/calendar/" in line
    with Store(store_path) as store:
        assert store.pages == 40
    assert len(outcomes(store_path, 1)) == 40
    assert stats(crawler)["new_pages"] == 40
    assert crawler.stats is not None
    assert crawler.stats.get_value(TOO_MANY) > 0


def test_sites_are_counted_anew_when_a_store_is_large(tmp_path: Path) -> None:
    """What is stored counts, whatever the blocks, and new pages of an open cycle; others are not affected."""
    with Store(tmp_path / "store", sizes=Sizes(block_rows=3)) as store:
        store.add_pages((n + 1, {"url": f"http://{'ab'[n % 2]}/{n % 3}/{n}"}) for n in range(9))
        store.begin_cycle({})
        store.add_page(99, {"url": "http://b/new"})
        counted = Limits(store, 100, 6, {})
        assert [counted.takes({"url": f"http://a/x{n}"}) for n in range(3)] == [True, False, False]
        assert counted.takes({"url": "http://user@b/x"})
        assert not counted.takes({"url": "http://b/y"})
        assert counted.takes({"url": "http://c/"})
