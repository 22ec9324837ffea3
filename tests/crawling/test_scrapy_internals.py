"""What a run asks of Scrapy's engine."""

from __future__ import annotations

import pytest_twisted
import scrapy
from scrapy.http import Response

from scrapy_gp4c.crawling.scrapy_internals import _engine_slot, has_started, under_way, wake
from tests.support.loopback import Site, html, stock_crawl


class Asking(scrapy.Spider):
    """Notes what is under way while its callback is called."""

    name = "asking"

    def parse(self, response: Response) -> None:
        """Note it, and that the engine may be woken."""
        wake(self.crawler)
        self.found = list(under_way(self.crawler)), has_started(self.crawler), _engine_slot(self.crawler)


@pytest_twisted.ensureDeferred
async def test_a_request_is_under_way_until_its_callback_has_ended() -> None:
    """The one whose callback asks is; by then the spider's start is through."""
    site = Site({"/": html("a page")})
    crawler = await stock_crawl(Asking, start_urls=[site.url()])
    await site.close()
    requests, started, slot = crawler.spider.found  # type: ignore[union-attr] # of `Asking`
    assert [one.url for one in requests] == [site.url()]
    assert started
    assert slot is not None
    assert _engine_slot(crawler) is None
