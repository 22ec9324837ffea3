"""Middlewares of a crawl: they end visits with an outcome, and note which page's callback yielded a request.

`FingerprintMiddleware` is at position 5, nearer to the engine than the middlewares of Scrapy and of projects.
So it sees each page once, decoded and after all retries and redirects.
"""

import logging
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Final, Self

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import HtmlResponse, Response
from scrapy.http.request import NO_CALLBACK
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from scrapy.utils.response import get_meta_refresh
from twisted.internet.threads import deferToThread

from scrapy_gp4c.crawling.admission import log_first
from scrapy_gp4c.crawling.cycle import VisitInfo
from scrapy_gp4c.crawling.requests import (
    META,
    UNKNOWN_FINDER,
    WISHES,
    Claim,
    finder_for,
    finder_of,
    hide_finder,
    is_opted_out,
    mark_finder,
    unmark,
)
from scrapy_gp4c.crawling.run import Run, run_of
from scrapy_gp4c.crawling.scrapy_internals import observes_requests, wake
from scrapy_gp4c.crawling.store_owner import note_call
from scrapy_gp4c.crawling.visits import CUT_OFF, Visit, Visits
from scrapy_gp4c.fingerprint.worker_process import FingerprintProcess
from scrapy_gp4c.foreign_text import foreign_safe_logger

try:
    import brotli
except ImportError:
    brotli = None
try:
    from compression import zstd  # type: ignore[import-not-found] # Python 3.14
except ImportError:
    try:
        from backports import zstd
    except ImportError:
        zstd = None

logger = foreign_safe_logger(__name__)


REFRESHES: Final = "gp4c_refreshes"
"""Key in ``Request.meta`` by which `RefreshMiddleware` notes that Scrapy is not to follow a refresh."""
MAX_REFRESHES: Final = 2
"""Most refreshes that a visit follows: those of a ring of pages have no end."""
_reader: ContextVar[int] = ContextVar("reader", default=UNKNOWN_FINDER)
"""Page whose response is processed in the current coroutine, as by `finder_for`."""


class FinderMiddleware(BaseSpiderMiddleware):
    """Spider middleware at position 30: notes in every request of the spider which page found it."""

    def process_spider_input(self, response: Response) -> None:
        """Hide the page's finder, which callbacks may copy, and make ``meta["gp4c"]`` a `VisitInfo`."""
        hide_finder(response)
        _reader.set(finder_for(response))
        request = response.request
        if request is None:
            return
        for name in WISHES & request.meta.keys():  # else copies of the meta would have them
            del request.meta[name]
        info = request.meta.get(META)
        if not isinstance(info, VisitInfo):
            request.meta[META] = VisitInfo({"opted_out": True} if is_opted_out(request) else ())
        elif (run := run_of(self.crawler)) is not None:
            run.note_reached(info)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """Note in the run that CloseSpider was raised, for which Scrapy sends no signal ``spider_error``."""
        if isinstance(exception, CloseSpider) and (run := run_of(self.crawler)) is not None:
            run.note_failure(response, exception)

    def get_processed_request(self, request: Request, response: Response | None) -> Request:
        """Note in a request's meta its finder, the page of `response`."""
        mark_finder(request, finder_for(response))
        return request


class CallbackMiddleware(BaseSpiderMiddleware):
    """Spider middleware at position 990: notes that a callback failed, before other middlewares hide it.

    It also drops requests for pages that the cycle does not visit again, which most links of a site lead to.
    They pass if another middleware or a signal handler is to see each request.
    """

    def process_spider_output(
        self, response: Response | None, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterable[Any]:
        """Pass the output on, without requests equal to one that this cycle skipped (`Admission.skips`)."""
        run, is_silent = self._skipping_run(response), True
        for entry in result:
            is_silent = False
            if not isinstance(entry, Request):
                self._note_item(entry, response)
            elif run is not None and self._skips(run, entry, response):
                continue
            yield entry
        if is_silent:
            self._note_silent(response)

    async def process_spider_output_async(
        self, response: Response | None, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        """Do the same as `process_spider_output`."""
        run, is_silent = self._skipping_run(response), True
        async for entry in result:
            is_silent = False
            if not isinstance(entry, Request):
                self._note_item(entry, response)
            elif run is not None and self._skips(run, entry, response):
                continue
            yield entry
        if is_silent:
            self._note_silent(response)

    def _note_silent(self, response: Response | None) -> None:
        """Note that a callback that yielded nothing may follow links, by ``engine.crawl``."""
        if (run := run_of(self.crawler)) is not None:
            run.admission.note_follower(finder_for(response))

    def _note_item(self, item: Any, response: Response | None) -> None:
        if (run := run_of(self.crawler)) is not None and run.cycle.settings.skip_unchanged:
            run.note_item(item, response)

    def _skipping_run(self, response: Response | None) -> Run | None:
        """Return the run if this middleware may drop requests; None if other code sees or counts them all."""
        run = run_of(self.crawler)
        if run is None or response is None or self._is_observed:
            return None
        # DepthMiddleware has its statistics of all links.
        is_deepest = response.meta.get("depth", 0) >= run.stats.get_value("request_depth_max", 0)
        return None if is_deepest or self.crawler.settings.getbool("DEPTH_STATS_VERBOSE") else run

    @cached_property
    def _is_observed(self) -> bool:
        """Whether another spider middleware or a signal handler is to see each request."""
        return observes_requests(self.crawler, self, (signals.request_scheduled, signals.request_dropped))

    def _skips(self, run: Run, entry: Request, response: Response | None) -> bool:
        is_skipped = run.admission.skips(entry)
        if is_skipped:
            run.admission.note_follower(finder_for(response))
            wake(self.crawler)  # as after any request, so that their order stays
        return is_skipped

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """Note that the callback failed; a later middleware may handle the exception."""
        request = response.request
        if (run := run_of(self.crawler)) is not None:
            run.note_failure(response, exception)
        elif isinstance(exception, CloseSpider):
            return  # the owner raises it again
        elif request is not None and (held := getattr(request.meta.get(META), "held", None)) is not None:
            held.failure = repr(exception)[:200]  # on a fetcher


def _is_of_pipeline(request: Request) -> bool:
    """Whether a request is one of Scrapy's media pipeline, by a key in its meta."""
    keys = ("handle_httpstatus_all", "handle_httpstatus_list")
    return request.callback is NO_CALLBACK and not request.meta.keys().isdisjoint(keys)


class FingerprintMiddleware:
    """Downloader middleware: fingerprints every visited page and records whether it changed."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._worker_process = FingerprintProcess()
        self._visits: Visits | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = cls(crawler)
        note_call(crawler)
        crawler.signals.connect(self._close, signals.spider_closed)
        return self

    def process_request(self, request: Request) -> None:
        """Add If-None-Match and If-Modified-Since to the request of a visit, by the page's copy."""
        visit = self._visit(request)
        if visit is not None:
            visit.add_validators()
        if META in request.meta:
            _reader.set(UNKNOWN_FINDER)  # from the queue: the context is of any page
        elif not _is_of_pipeline(request) and (run := run_of(self._crawler)) is not None:
            run.note_download(_reader.get())

    async def process_response(self, request: Request, response: Response) -> Response:
        """End the visit of a response with an outcome; returns the response for the callback.

        Raises IgnoreRequest for an unchanged page that is to be skipped.
        """
        if request.meta.pop(REFRESHES, False):
            del request.meta["dont_redirect"]
        visit = self._visit(request)
        if visit is not None:
            return await visit.respond(response)
        unmark(request)
        if response.status != 200 and _is_of_pipeline(request) and (run := run_of(self._crawler)) is not None:
            run.note_lost_file(_reader.get())
        return response if self._visits is None else await self._visits.pass_by(response)

    def process_exception(self, request: Request, exception: Exception) -> None:
        """End the visit of a failed request: outcome excluded after IgnoreRequest, else error."""
        visit = self._visit(request)
        if visit is not None:
            visit.fail(exception)
            return
        unmark(request)
        if _is_of_pipeline(request) and (run := run_of(self._crawler)) is not None:
            run.note_lost_file(_reader.get())
        if self._visits is not None and request.errback is None and not isinstance(exception, IgnoreRequest):
            cycle = self._visits.cycle
            if request.url.startswith(("http:", "https:")):
                cycle.note_child_failure(finder_of(request, cycle.store) - 1, exception)
                return
            line = f"{request.url} is not fetched ({exception}): not being http, it fails no visit."
            log_first(cycle.stats, "gp4c/failed_other_schemes", line, {}, logging.WARNING)

    def _close(self) -> None:
        if self._visits is not None:
            self._visits.close()
            return
        scheduler = load_object(self._crawler.settings["SCHEDULER"])
        start = getattr(type(self._crawler.spider), "start", None)
        is_command = getattr(start, "__module__", "").startswith("scrapy.commands.")
        if not is_command and all(kind.__name__ != "RecrawlScheduler" for kind in scheduler.__mro__):
            logger.warning(
                "scrapy-gp4c did nothing in this run, because SCHEDULER is %s.%s. Remove that setting, or "
                "derive the scheduler from scrapy_gp4c.scheduler.RecrawlScheduler.",
                scheduler.__module__,
                scheduler.__qualname__,
                extra={"spider": self._crawler.spider},
            )

    def _visit(self, request: Request) -> Visit | None:
        if self._visits is None and (run := run_of(self._crawler)) is not None:
            self._visits = Visits(run, self._worker_process)
            for kind, position, loss in _LOSSES:
                if self._crawler.get_spider_middleware(kind) is None:
                    name = f"{kind.__module__}.{kind.__qualname__}"
                    line = "SPIDER_MIDDLEWARES leaves out %s: %s. Set it to %d, or remove the entry."
                    logger.warning(line, name, loss, position, extra={"spider": self._crawler.spider})
        return None if self._visits is None else self._visits.of(request)


class RefreshMiddleware:
    """Downloader middleware: limits meta refreshes in a row to `MAX_REFRESHES`; Scrapy follows 20."""

    def __init__(self, ignored_tags: list[str]) -> None:
        """``ignored_tags``: tags within which a refresh does not count, ``METAREFRESH_IGNORE_TAGS``."""
        self._ignored_tags = ignored_tags

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings.getlist("METAREFRESH_IGNORE_TAGS"))

    def process_response(self, request: Request, response: Response) -> Request | Response:
        """Keep Scrapy from following a page's refresh to itself, and a chain beyond `MAX_REFRESHES`.

        At the end of such a chain, its first page is requested again, so that the visit is of that page.
        """
        if isinstance(response, HtmlResponse) and "dont_redirect" not in request.meta:
            # What is found is kept for Scrapy's own middleware, which looks next.
            try:
                _, url = get_meta_refresh(response, ignore_tags=self._ignored_tags)
            except LookupError:  # a page that names a charset which is none of text
                return response
            if url is None:
                return response
            is_last = request.meta.get("redirect_reasons", []).count("meta refresh") >= MAX_REFRESHES
            if is_last or url.partition("#")[0] == response.url.partition("#")[0]:
                request.meta["dont_redirect"] = request.meta[REFRESHES] = True
            if is_last and response.url != request.meta["redirect_urls"][0]:
                return request.replace(url=request.meta["redirect_urls"][0])
        return response


class TruncationMiddleware:
    """Downloader middleware: marks compressed bodies that lack their end, so that the visit is an error."""

    async def process_response(self, request: Request, response: Response) -> Response:
        """Add the flag `CUT_OFF` to the response, as Scrapy does to a plain body that was cut short."""
        if isinstance(claim := request.meta.get(META), Claim):
            _reader.set(claim.page + 1)  # for middlewares that download what page objects need
        encodings = response.headers.getlist(b"Content-Encoding")
        if not encodings or request.method == "HEAD":
            return response
        is_cut = lacks_end(response.body, encodings, MAX_BYTES_AT_ONCE)
        if is_cut is None:
            is_cut = await maybe_deferred_to_future(deferToThread(lacks_end, response.body, encodings))
        return response.replace(flags=[*response.flags, CUT_OFF]) if is_cut else response


_LOSSES: Final = (
    (FinderMiddleware, 30, "who finds pages is not known, and visits count whatever callbacks do"),
    (CallbackMiddleware, 990, "visits count whose callbacks fail where another middleware hides it"),
)
"""Spider middleware, its position, and what does not work in a project that leaves it out."""

_CHUNK_BYTES: Final = 65_536
MAX_BYTES_AT_ONCE: Final = 2**21
"""Size up to which a decoded body is checked in the reactor; a larger one is checked in a thread."""
MAX_DECODED_BYTES: Final = 2**26
"""Unpacked size up to which a body is checked for its end: a larger one may be a bomb."""
MAX_MEMBERS: Final = 100
"""Most gzip members or zstd frames of a body that are checked: each costs a copy of the rest."""
_GZIP_MAGIC: Final = b"\x1f\x8b"


class _LargeBodyError(Exception):
    pass


def lacks_end(body: bytes, encodings: Sequence[bytes], most: int = MAX_DECODED_BYTES) -> bool | None:
    """Whether a compressed body lacks its end; None if it decodes to more than `most` bytes.

    False where this is not known: for several encodings in ``encodings``, an unknown one, or a broken body.
    """
    names = [name.strip().lower() for value in encodings for name in value.split(b",")]
    if len(names) != 1 or not body:
        return False
    try:
        return _lacks_end(body, names[0], most)
    except _LargeBodyError:
        return None
    except Exception:  # no such stream: Scrapy says what is wrong with it
        return False


def _lacks_end(body: bytes, encoding: bytes, most: int) -> bool:
    if encoding in (b"gzip", b"x-gzip"):
        for _ in range(MAX_MEMBERS):
            decompressor = zlib.decompressobj(wbits=31)
            if not body.startswith(_GZIP_MAGIC):
                return False  # its end, or padding
            if not _inflates(decompressor, body, most):
                return True
            body = decompressor.unused_data
        return False
    if encoding == b"deflate":
        try:
            return not _inflates(zlib.decompressobj(), body, most)
        except zlib.error:  # raw, as some servers send it
            return not _inflates(zlib.decompressobj(wbits=-15), body, most)
    if encoding == b"br" and brotli is not None:
        return not _unbrotli_ends(body, most)
    if encoding == b"zstd" and zstd is not None:
        return not _unzstd_ends(body, most)
    return False


def _inflates(decompressor: Any, body: bytes, most: int) -> bool:
    decoded = 0
    while not decompressor.eof:
        chunk = decompressor.decompress(body, _CHUNK_BYTES)
        body = decompressor.unconsumed_tail
        if not chunk and not body:
            return bool(decompressor.eof)
        decoded = _counted(decoded, chunk, most)
    return True


def _counted(decoded: int, chunk: bytes, most: int) -> int:
    """Return the number ``decoded`` plus the length of `chunk`; raises _LargeBodyError above `most`."""
    if decoded + len(chunk) > most:
        raise _LargeBodyError
    return decoded + len(chunk)


def _unbrotli_ends(body: bytes, most: int) -> bool:
    decompressor = brotli.Decompressor()
    decoded = 0
    while not decompressor.is_finished():
        # Without a limit, a few kB of a bomb are gigabytes at once.
        chunk = decompressor.process(body, output_buffer_limit=_CHUNK_BYTES)
        decoded = _counted(decoded, chunk, most)
        body = b""
        if not chunk and decompressor.can_accept_more_data():
            return bool(decompressor.is_finished())
    return True


def _unzstd_ends(body: bytes, most: int) -> bool:
    decoded = 0
    for _ in range(MAX_MEMBERS):
        if not body:
            break
        decompressor = zstd.ZstdDecompressor()
        data = body
        while not decompressor.eof:
            chunk = decompressor.decompress(data, _CHUNK_BYTES)
            decoded = _counted(decoded, chunk, most)
            data = b""
            if not chunk and decompressor.needs_input and not decompressor.eof:
                return False
        body = decompressor.unused_data
    return True
