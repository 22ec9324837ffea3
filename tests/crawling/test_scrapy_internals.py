"""Scrapy's private API: each use of it, in one crawl without the add-on, so that a change is seen."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerRunner
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.defer import deferred_from_coro

from scrapy_gp4c.crawling.scrapy_internals import (
    _engine_slot,
    crawl_call,
    downloader,
    guard_downloads,
    has_receivers,
    has_started,
    is_closing,
    is_command,
    is_scraping,
    is_shell,
    item_done,
    observes_requests,
    queued_slots,
    under_way,
    wake,
)
from tests.support.loopback import QUIET, Site, html


class Asking:
    """A spider middleware that asks whatever the add-on asks, and keeps the answers by function."""

    def __init__(self, crawler: Any) -> None:
        self.crawler, self.sent = crawler, list[tuple[Request, bool]]()
        self.call = crawl_call(crawler)
        crawler.signals.connect(self.opened, signals.spider_opened)
        crawler.signals.connect(self.closed, signals.spider_closed)
        crawler.asking = self

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls(crawler)

    def opened(self) -> None:
        guard_downloads(self.crawler, self.guard)

    def closed(self) -> None:
        self.at_end = is_closing(self.crawler), is_scraping(self.crawler)

    def guard(self, request: Request) -> None:
        self.sent.append((request, request in downloader(self.crawler).active))
        if request.url.endswith("/refused"):
            raise IgnoreRequest("refused")

    async def process_spider_output(self, response: Response, result: Any) -> AsyncIterator[Any]:
        async for entry in result:
            yield entry


class Behind:
    """A spider middleware nearer to the engine."""


class Spider(scrapy.Spider):
    """Asks for two pages, one of which is refused."""

    name = "asking"
    url = ""
    failures = 0

    async def start(self) -> AsyncIterator[Any]:
        self.had_started = has_started(self.crawler)
        for path in ("/", "/refused"):
            yield Request(self.url + path, errback=self.failed)

    def failed(self, failure: Any) -> None:
        self.failures += not isinstance(failure, Response)

    def parse(self, response: Response) -> Iterator[Any]:
        crawler: Any = self.crawler
        asking, slot = crawler.asking, _engine_slot(crawler)
        other = self.url.replace("127.0.0.1", "127.0.0.2") + "/other"
        slot.scheduler.enqueue_request(Request(other, self.failed))
        of_each = (signals.request_dropped,)
        self.answers = {
            "is_shell": is_shell(crawler),
            "under_way": response.request in under_way(crawler),
            "is_scraping": is_scraping(crawler),
            "is_closing": is_closing(crawler),
            "has_receivers": [
                has_receivers(crawler, one) for one in (signals.spider_opened, signals.item_error)
            ],
            "observes_requests": [
                observes_requests(crawler, one, of_each)
                for one in (asking, crawler.get_spider_middleware(Behind), None)
            ],
            "queued_slots": queued_slots(slot.scheduler),
            "by_name": {
                name: (one.concurrency, one.delay, one.lastseen > 0, len(one.transferring) < 2)
                for name, one in downloader(asking.crawler).slots.items()
            },
            "get_slot_key": downloader(asking.crawler).get_slot_key(Request(self.url)),
        }
        wake(crawler)
        item_done(crawler)
        yield {"url": response.url}


async def test_scrapy_answers_what_it_is_asked_by_its_private_api() -> None:
    """Where this fails with a new version, one function of `scrapy_internals` has to change."""
    site = Site({"/": html("a page"), "/other": html("another page")}, ["127.0.0.1", "127.0.0.2"])
    runner = AsyncCrawlerRunner(
        {**QUIET, "SPIDER_MIDDLEWARES": {Asking: 950, Behind: 543}, "CONCURRENT_REQUESTS": 1}
    )
    crawler: Any = runner.create_crawler(Spider)
    url = site.url("")
    await deferred_from_coro(runner.crawl(crawler, url=url))
    await site.close()
    asking, spider = crawler.asking, crawler.spider
    assert asking.call == ({"url": url}, runner)
    assert [(request.url, is_active) for request, is_active in asking.sent[:2]] == [
        (url + "/", True), (url + "/refused", True)
    ]  # fmt: skip
    assert spider.failures == 1
    assert spider.answers == {
        "is_shell": False,
        "under_way": True,
        "is_scraping": True,
        "is_closing": False,
        "has_receivers": [True, False],
        "observes_requests": [True, False, False],
        "queued_slots": {"127.0.0.2"},
        "by_name": {"127.0.0.1": (8, 0, True, True)},
        "get_slot_key": "127.0.0.1",
    }
    assert (spider.had_started, has_started(crawler)) == (False, True)
    assert asking.at_end == (True, False)
    assert _engine_slot(crawler) is None


def test_a_projects_command_with_a_default_of_the_shell_is_a_crawl() -> None:
    """A command that logs statistics at another interval plans its crawl; a shell sets the filter, too."""
    settings = Settings({"LOGSTATS_INTERVAL": 0}, "command")
    assert not is_command(scrapy.Spider, settings)
    settings.set("DUPEFILTER_CLASS", "scrapy.dupefilters.BaseDupeFilter", "command")
    assert is_command(scrapy.Spider, settings)
