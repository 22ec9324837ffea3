"""Middlewares: one ends every visit with one outcome, one tells requests who found them, if they go on.

The first is a downloader middleware. At position 545, on the engine side of Retry (550), HttpCompression
(590) and Redirect (600), it sees each page once, decoded and final.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import TextResponse
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet.threads import deferToThread

from scrapy_gp4c.crawling.claims import Claim
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.engine import wake
from scrapy_gp4c.crawling.finders import Skips, mark, passing, take_off, who_finds
from scrapy_gp4c.crawling.run import Run, hear, run_of
from scrapy_gp4c.crawling.stored_requests import META, unmark
from scrapy_gp4c.crawling.validators import keep_validators, kept_validators
from scrapy_gp4c.crawling.witnesses import has_witnesses
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.fingerprint import PageReading, read
from scrapy_gp4c.fingerprint.body_sums import body_sum
from scrapy_gp4c.fingerprint.description import description
from scrapy_gp4c.fingerprint.worker_process import FingerprintProcess, is_large

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)
LATENCY: Final = "download_latency"  # other download handlers than Scrapy's may not measure it
GONE_STATUS: Final = (404, 410)
CONDITIONS: Final = ("If-None-Match", "If-Modified-Since")
"""Headers that ask for a 304; without them it says nothing of the page."""
CUT_OFF: Final = "dataloss"  # ``partial`` says only that no length was told: RFC 9112, section 6.3


class FinderMiddleware(BaseSpiderMiddleware):
    """Spider middleware: lets every request of the spider carry who found it, at position 30."""

    def process_spider_input(self, response: Response) -> None:
        """Take the mark off the request of a response: its callback sees what it would see without us."""
        take_off(response)

    def get_processed_request(self, request: Request, response: Response | None) -> Request:
        """Mark a request that the spider's start has yielded."""
        mark(request, who_finds(response))
        return request

    def process_spider_output(
        self, response: Response | None, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterable[Any]:
        """Mark what a callback yields; links that would be dropped, as most of a site are, end here."""
        return filter(passing(response, self._skips()), result)

    async def process_spider_output_async(
        self, response: Response | None, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        """Do the same as `process_spider_output`."""
        passes = passing(response, self._skips())
        async for one in result:
            if passes(one):
                yield one

    def _skips(self) -> Skips | None:
        """What tells links that end here; None where somebody after us is to see, or to hear of, each."""
        run, of_each = run_of(self.crawler), (signals.request_scheduled, signals.request_dropped)
        if run is None or has_witnesses(self.crawler, self, of_each):
            return None
        return partial(self._ends_here, run)

    def _ends_here(self, run: Run, request: Request) -> bool:
        """Tell whether a link is skipped; the engine goes on as after any: so the order of requests stays."""
        if skipped := run.skips(request):
            wake(self.crawler)
        return skipped


class FingerprintMiddleware:
    """Fingerprints every visited page and records whether it changed."""

    def __init__(self, crawler: Crawler) -> None:
        """Take the crawler; its cycle is found when the first request passes."""
        self._crawler = crawler
        self._process = FingerprintProcess()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware of a crawler."""
        self = cls(crawler)
        crawler.signals.connect(self._process.close, signals.spider_closed)
        return self

    def process_request(self, request: Request) -> None:
        """Add the page's validators when unchanged pages are to be skipped (RFC 9110, section 13)."""
        cycle, visit = self._visit(request)
        if cycle is None or visit is None or not cycle.settings.skip_unchanged or _lacks_text(cycle, visit):
            return
        etag, last_modified = kept_validators(cycle, visit.page)
        if etag:
            request.headers.setdefault("If-None-Match", etag.encode("latin-1"))
        if last_modified:
            request.headers.setdefault("If-Modified-Since", last_modified.encode("latin-1"))

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Coroutine[Any, Any, Response]:
        """Record the visit; raises IgnoreRequest for an unchanged page that is to be skipped."""
        cycle, visit = self._visit(request)
        if cycle is None or visit is None:
            unmark(request)
            hear(self._crawler, response, None)
            return response
        features = cycle.settings.features
        if response.status == 304:
            hear(self._crawler, response, visit)
        if (outcome := _outcome(request, response)) is not None:
            # What comes from a cache says nothing of the server.
            latency_s = 0.0 if outcome == "excluded" else request.meta.get(LATENCY, 0.0)
            result = _ended(cycle, lambda: cycle.end(visit, outcome, len(response.body), latency_s))
        elif (same := _same(cycle, visit, response)) is not None:
            hear(self._crawler, response, visit)
            result = _judge(cycle, visit, request, response, PageReading(same))
        elif is_large(response, features):
            return self._judge_later(cycle, visit, request, response)
        else:
            hear(self._crawler, response, visit)
            try:
                made: PageReading | Exception = read(response, features, with_text=_with_text(cycle))
            except Exception as error:
                made = error
            _keep_sum(cycle, visit, response, made)
            result = _judge(cycle, visit, request, response, made)
        return self._end(cycle, visit, request, response, result)

    async def _judge_later(
        self, cycle: Cycle, visit: Claim, request: Request, response: Response
    ) -> Response:
        # The fingerprint is made in a process of its own; until it is there, the visit is under way.
        assert isinstance(response, TextResponse)
        features = cycle.settings.features
        try:
            future = self._process.read(response, features, with_text=_with_text(cycle))
            made: PageReading | Exception = await _result(future)
        except Exception as error:
            made = error
        if not cycle.is_under_way(visit):
            return response
        hear(self._crawler, response, visit)
        _keep_sum(cycle, visit, response, made)
        result = _judge(cycle, visit, request, response, made)
        return self._end(cycle, visit, request, response, result)

    def _end(
        self,
        cycle: Cycle,
        visit: Claim,
        request: Request,
        response: Response,
        result: Mapping[str, object] | None,
    ) -> Response:
        """Pass the response on with what the visit came to, or skip it."""
        if result is None:
            return response
        request.meta[META] = result
        if cycle.settings.asks_for_clusters:
            _describe(cycle, visit, response, str(result["outcome"]))
        if cycle.settings.skip_unchanged:
            if result["outcome"] in ("first", "changed", "unchanged"):
                keep_validators(cycle, visit.page, response)
            if result["outcome"] in ("unchanged", "not_modified"):
                request.errback = None  # nothing went wrong: the spider is not to hear of it
                raise IgnoreRequest("unchanged since the last visit")
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Record the failure: excluded for what a rule forbids (robots.txt, off-site), else an error."""
        cycle, visit = self._visit(request)
        if cycle is not None and visit is not None:
            outcome = "excluded" if isinstance(exception, IgnoreRequest) else "error"
            result = _ended(cycle, lambda: cycle.end(visit, outcome))
            if result is not None:
                request.meta[META] = result
        else:
            unmark(request)

    def _visit(self, request: Request) -> tuple[Cycle | None, Claim | None]:
        visit = request.meta.get(META)
        if isinstance(visit, Claim):
            run = run_of(self._crawler)
            if run is not None and run.cycle.is_under_way(visit):
                return run.cycle, visit
        return None, None


def _lacks_text(cycle: Cycle, visit: Claim) -> bool:
    """Tell whether the search index needs the page's text, changed or not."""
    if cycle.measuring is None:
        return False
    try:
        return cycle.measuring.lacks(visit.page, cycle.store.page(visit.page))
    except StoreError as error:
        cycle.failure = error
        return True


def _result(future: Future[PageReading]) -> Awaitable[PageReading]:
    """Make a thread's result awaitable for Scrapy, with asyncio or without."""
    if is_asyncio_available():
        return asyncio.wrap_future(future)
    deferred: Awaitable[PageReading] = deferToThread(future.result)
    return deferred


def _outcome(request: Request, response: Response) -> str | None:
    """What a visit came to whatever the page's text; None: that decides."""
    if "cached" in response.flags:  # not the page as it is now
        return "excluded"
    if response.status == 304 and any(name in request.headers for name in CONDITIONS):
        return "not_modified"
    if response.status in GONE_STATUS:
        return "gone"
    broken = not 200 <= response.status < 300 or CUT_OFF in response.flags
    return "error" if broken else None


def _judge(
    cycle: Cycle, visit: Claim, request: Request, response: Response, made: PageReading | Exception
) -> Mapping[str, object] | None:
    """End a visit by the page's fingerprint; an error if there is none, and the spider gets its response."""
    size_bytes, latency_s = len(response.body), request.meta.get(LATENCY, 0.0)
    if isinstance(made, Exception):
        whose = "its text cannot be read" if cycle.settings.features is None else "GP4C_FEATURES failed"
        logger.error("No fingerprint of %s: %s", response, whose, exc_info=made)
        return _ended(cycle, lambda: cycle.end(visit, "error", size_bytes, latency_s))
    return _ended(cycle, lambda: cycle.judge(visit, made, size_bytes, latency_s))


def _ended(cycle: Cycle, end: Callable[[], Mapping[str, object]]) -> Mapping[str, object] | None:
    """What a visit came to; None where the store cannot be read any more, which ends the crawl."""
    try:
        return end()
    except StoreError as error:
        cycle.failure = error
        return None


def _keep_sum(cycle: Cycle, visit: Claim, response: Response, made: PageReading | Exception) -> None:
    """Remember the body that a fingerprint was made of."""
    if cycle.failure is None and not isinstance(made, Exception):
        total = body_sum(response, cycle.settings.features, made.fingerprint)
        if total is not None:
            cycle.store.set_body_sum(visit.page, total)


def _with_text(cycle: Cycle) -> bool:
    """Tell whether anybody wants the texts of pages."""
    return cycle.measuring is not None or cycle.archive is not None


def _same(cycle: Cycle, visit: Claim, response: Response) -> int | None:
    """The fingerprint of a page whose body is the one that its copy was made of; None where it may not be."""
    if _lacks_text(cycle, visit):
        return None
    try:
        row = cycle.store.page(visit.page)
        kept = cycle.store.body_sum(visit.page) if row.has_copy else None
    except StoreError as error:
        cycle.failure = error
        return None
    if kept is None or kept != body_sum(response, cycle.settings.features, row.fingerprint):
        return None
    return None if cycle.archive is not None and cycle.archive.lacks(row) else row.fingerprint


def _describe(cycle: Cycle, visit: Claim, response: Response, outcome: str) -> None:
    """Keep what a new copy is like, and that of one that was made when nobody asked."""
    try:
        known = outcome not in ("first", "changed") and (
            outcome != "unchanged" or cycle.store.has_description(visit.page)
        )
        if not known and cycle.failure is None:
            cycle.store.set_description(visit.page, description(response))
    except StoreError as error:
        cycle.failure = error
