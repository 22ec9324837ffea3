"""Download handler of a crawl's owner, the process with the store: sends pages to fetchers as its downloads.

Everything else of the owner's crawl is as on one machine: scheduler, store, item pipelines and feeds take the
results of callbacks as if the owner's own spider had yielded them.
"""

import logging
import pickle
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final, Self
from urllib.parse import urlsplit
from uuid import uuid4

from scrapy import Request, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotConfigured
from scrapy.http import Headers, Response, TextResponse
from scrapy.http.request import NO_CALLBACK
from scrapy.responsetypes import responsetypes
from scrapy.utils.asyncio import call_later
from scrapy.utils.conf import build_component_list
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from scrapy_gp4c.crawling.admission import log_first
from scrapy_gp4c.crawling.cycle import VisitInfo, is_of_page, visit
from scrapy_gp4c.crawling.fetched import FetchedResponse, News, PageResult, PageTask
from scrapy_gp4c.crawling.requests import FOUND_BY, META, SHARED, WEIGHT, Claim, finder_for
from scrapy_gp4c.crawling.run import Run, run_of
from scrapy_gp4c.crawling.scrapy_internals import is_closing, is_seen, observes_requests, wake
from scrapy_gp4c.crawling.store_owner import call_arguments, fail_exit_code
from scrapy_gp4c.crawling.visits import known_copy
from scrapy_gp4c.errors import CallbackError, FetcherError
from scrapy_gp4c.fetching.fetcher import FetcherConfig
from scrapy_gp4c.fetching.fleet import CONNECT_S, TURN_S, Fleet, PendingPage
from scrapy_gp4c.fetching.packing import ObjectTable, pack, pack_request, packed_or_none, unpack_request
from scrapy_gp4c.fetching.spider_state import OwnersState
from scrapy_gp4c.settings import Settings

FETCHER_SETTINGS: Final = "FETCHER_SETTINGS"
"""Setting in which the add-on leaves the project's own settings for the fetchers."""
_MARKS: Final = (META, FOUND_BY, WEIGHT, "download_slot", "download_timeout", "download_latency")
"""Keys of ``Request.meta`` that are not sent to fetchers."""


class StartMiddleware:
    """Spider middleware that passes the owner's start through the project's own spider middlewares.

    It lets the reactor work while the start yields requests: Scrapy takes requests until the downloader is
    full, and the owner's takes thousands. It also marks objects that several requests have.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Make the project's spider middlewares that have a ``process_start``."""
        of_project = crawler.settings.getdict(FETCHER_SETTINGS).get("SPIDER_MIDDLEWARES", {})
        classes = map(load_object, reversed(build_component_list(of_project)))
        self._project: list[Any] = []
        for middleware in classes:
            if hasattr(middleware, "process_start"):
                with suppress(NotConfigured):
                    self._project.append(build_from_crawler(middleware, crawler))
        self._objects = ObjectTable(uuid4().hex)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the start's requests as the project's middlewares pass them on, with turns of the reactor."""
        for middleware in self._project:
            start = middleware.process_start(start)
        end_s = time.perf_counter() + TURN_S
        async for entry in start:
            if isinstance(entry, Request):  # a start yields items, too
                identities = self._objects.identify({"cb_kwargs": entry.cb_kwargs, "meta": entry.meta})
                if identities:
                    entry.meta[SHARED] = identities
            yield entry
            if time.perf_counter() > end_s:
                turn: Deferred[None] = Deferred()
                call_later(0, turn.callback, None)
                await maybe_deferred_to_future(turn)
                end_s = time.perf_counter() + TURN_S


class FetcherHandler(BaseDownloadHandler):
    """Download handler that has each request fetched by a fetcher."""

    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._settings = Settings.load(crawler.settings)
        self._fleet: Fleet | None = None
        self._project: dict[str, Any] = crawler.settings[FETCHER_SETTINGS]

    async def download_request(self, request: Request) -> Response:
        """Return the response that a fetcher got; raises IgnoreRequest or FetcherError where it got none."""
        run = run_of(self.crawler)
        if run is None:
            raise FetcherError(
                "GP4C_FETCHERS is for crawls that plan: add -s GP4C_FETCHERS=None for scrapy shell"
            )
        self._fleet = self._fleet or self._start(run)
        deferred: Deferred[PageResult] = Deferred()
        is_download = META not in request.meta  # not from the scheduler
        self._fleet.add(PendingPage(request, partial(self._task, run, request), deferred, is_download))
        result = await maybe_deferred_to_future(deferred)
        if not is_download:
            yielded = partial(_yielded, result, self.crawler, run, self._may_skip)

            # It is no generator function: Scrapy would read and compile the source of each, 5 ms a page.
            def give_back(response: Any, **_: Any) -> Any:
                return yielded(response)

            request.callback = give_back
            if request.errback is not None:
                request.errback = give_back
        if result.excluded:
            raise IgnoreRequest(result.excluded)
        if result.failed:
            raise FetcherError(f"{request} failed: {result.failed}")
        if is_download:
            headers, body = Headers(result.headers), result.body
            kind = responsetypes.from_args(headers=headers, url=result.url, body=body)
            return kind(result.url, result.status, headers, body, list(result.flags))
        if self._leads_to_seen(run, request, result):
            result.items, result.requests = [], []  # without fetchers, Scrapy drops it before its callback
            raise IgnoreRequest("it redirects to a page that this cycle has found")
        request.meta.update(result.meta)
        return FetchedResponse.of(result)

    @cached_property
    def _may_skip(self) -> bool:
        """Whether repeated requests may be dropped early: no other code looks at them."""
        return not observes_requests(self.crawler, None, (signals.request_scheduled, signals.request_dropped))

    async def close(self) -> None:
        """End the connection, and the fetchers if they are the owner's own."""
        if self._fleet is not None:
            await maybe_deferred_to_future(deferToThread(self._fleet.close().result, 3 * CONNECT_S))

    def _task(self, run: Run, request: Request) -> PageTask:
        assert self.crawler.spider is not None
        if request.callback is NO_CALLBACK:
            request.callback = None
        stored = pack_request(request, self.crawler.spider)
        stored["meta"] = {name: value for name, value in request.meta.items() if name not in _MARKS}
        if (slot := request.meta.get("download_slot")) != urlparse_cached(request).hostname:
            stored["meta"]["download_slot"] = slot  # the spider's own
        claim = request.meta.get(META)
        if not isinstance(claim, Claim):
            return PageTask(stored, None, is_download=META not in request.meta)
        cycle, row = run.cycle, run.cycle.store.page(claim.page)
        delivered: tuple[str, int | None] | None = None
        before = cycle.deliveries.copy_of(claim.page, row)
        if before is None:
            delivered = "first" if cycle.deliveries.pages[claim.page].is_new else "changed", None
        elif before is not row:
            delivered = "", before.fingerprint
        return PageTask(
            stored,
            known_copy(cycle, claim),
            cycle.info_before(claim, row),
            None if cycle.archive is None or before is None else cycle.archive.previous(before)(),
            delivered,
            cycle.needs_callback(claim.page),
            cycle.follows(claim.page),
            cycle.hidden_data.parts(cycle.store.request(claim.page)) if cycle.settings.skip_unchanged else (),
        )

    def _leads_to_seen(self, run: Run, request: Request, result: PageResult) -> bool:
        """Whether a new page redirects to a URL that Scrapy's duplicate filter has seen, and would drop."""
        claim = request.meta.get(META)
        is_new = isinstance(claim, Claim) and claim.page >= run.cycle.store.merged_pages
        if not is_new or request.dont_filter:
            return False
        urls = [*result.meta.get("redirect_urls", ())[1:], result.url]
        has_moved = "redirect_urls" in result.meta
        return has_moved and any(is_seen(self.crawler, request.replace(url=url)) for url in urls)

    # --- fetchers

    def _start(self, run: Run) -> Fleet:
        assert self._settings.fetchers is not None
        assert self.crawler.spider is not None
        delay_s = getattr(self.crawler.spider, "download_delay", self._project.get("DOWNLOAD_DELAY", 0.0))
        spider_state = OwnersState(self.crawler.spider)
        return Fleet(
            self._settings.fetchers,
            self._config(run, spider_state.packed),
            spider_state,
            self._settings.revision,
            run.cycle.store.path,
            delay_s=float(delay_s),
            doubted=lambda: run.doubted(),
            on_news=partial(self._note_news, run),
            on_no_fetchers=self._give_up,
            is_left_alone=lambda request: urlsplit(request.url).netloc in run.cycle.patience.left_alone,
            is_closing=partial(is_closing, self.crawler),
        )

    def _give_up(self) -> None:
        """End the crawl, as there are no fetchers, as Ctrl-C would: the next run goes on."""
        assert self.crawler.engine is not None
        if not is_closing(self.crawler):
            fail_exit_code(self.crawler)
            deferred_from_coro(self.crawler.engine.close_spider_async(reason="shutdown"))

    def _note_news(self, run: Run, news: News) -> None:
        """Add a fetcher's statistics to those of the crawl, and read hints of its robots.txt files."""
        stats = self.crawler.stats
        assert stats is not None
        for (method, name), value in news.stats.items():
            getattr(stats, method)(name, value)
        for url, status, headers, body in news.answers:
            run.hints.read(TextResponse(url, status, headers, body), None)

    def _config(self, run: Run, attributes: dict[str, bytes]) -> FetcherConfig:
        spider, settings = self.crawler.spider, self._settings
        assert spider is not None
        spiders = [pack(type(spider))]
        if type(spider).__module__ == "__main__":
            with suppress(Exception):  # its globals may not be picklable
                spiders.append(pack(type(spider), by_value=True))
        arguments = call_arguments(self.crawler)
        return FetcherConfig(
            run.cycle.store.store_id,
            spiders,
            {name: one for name, one in arguments.items() if packed_or_none(one) is not None},
            attributes,
            self._project,
            settings.features,
            run.cycle.measuring is not None or run.cycle.archive is not None,
            settings.asks_for_clusters,
            settings.skip_unchanged,
            run.admission.rebuilder.link_params,
            settings.distance_bits,
            settings.items_at == "fetchers",
            isinstance(settings.fetchers, int),
        )


def _yielded(
    result: PageResult, crawler: Crawler, run: Run, may_skip: bool, response: Response | Failure
) -> Iterator[Any]:
    """Yield the items and requests of a callback that ran on a fetcher; raises CallbackError if it failed."""
    info: Any = None
    if isinstance(response, Failure):
        mark = response.request.meta.get(META)  # type: ignore[attr-defined] # Scrapy sets it
        info = mark if isinstance(mark, VisitInfo) else None
    if isinstance(response, FetchedResponse):
        info = visit(response)
        info.is_used = result.is_used
        if result.verdict is not None:
            info.changed = result.verdict
        if result.withdrawn is not None:
            info.withdraw(result.withdrawn)
        if result.failure is not None and info.held is not None:
            info.held.failure = result.failure
        if result.has_downloads:
            run.note_download(finder_for(response))
        if result.shared:
            run.note_shared(result.shared, response.url)
        # A callback that yields nothing may have queued links for the start.
        if result.requests or not result.items:
            run.admission.note_follower(finder_for(response))
    if result.not_sendable:
        line = (
            f"With GP4C_FETCHERS, {result.not_sendable}: the fetcher has asked for it at once, whatever the "
            "budget is. Let callbacks be methods of the spider and data picklable, or await downloads."
        )
        assert crawler.stats is not None
        log_first(crawler.stats, "gp4c/not_sendable", line, {"spider": crawler.spider}, logging.WARNING)
    yield from result.items
    spider = crawler.spider
    assert spider is not None
    for shared, urls in result.requests:
        for url in run.admission.unsettled(pickle.loads(shared), urls) if may_skip else urls:
            request = unpack_request({**pickle.loads(shared), "url": url}, spider, is_owner=True)
            if info is not None and info.managed and is_of_page(request.meta.get(META), info["page"]):
                request.meta[META] = info  # the spider copied it to ask for the page again
            yield request
    wake(crawler)  # as a dropped request does
    if result.close_reason:
        raise CloseSpider(result.close_reason)
    if result.callback_error:
        reason = result.callback_error.strip().rpartition("\n")[2]  # first: some lines cut an error short
        raise CallbackError(f"{reason}, in the callback of {response} on a fetcher:\n{result.callback_error}")
