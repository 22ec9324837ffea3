"""Private API of Scrapy: every use of it stands here, with the reason."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler, CrawlerRunnerBase
from scrapy.dupefilters import RFPDupeFilter
from scrapy.http import Response
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import BaseSettings, get_settings_priority
from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet.threads import deferToThread

_NOT_OBSERVING: Final = ("scrapy.spidermiddlewares.", "scrapy.downloadermiddlewares.offsite", "scrapy_gp4c.")
"""Modules of middlewares that do not mind if a repeated request for a URL does not reach them."""


def _engine_slot(crawler: Crawler) -> Any:
    """Return the engine's state of its spider; None before the spider is opened, and once it is closed."""
    return getattr(crawler.engine, "_slot", None)


def is_shell(crawler: Crawler) -> bool:
    """Whether the engine stays open without requests, as in `scrapy shell`; no setting says so."""
    slot = _engine_slot(crawler)
    return slot is not None and not slot.close_if_idle


def is_command(spider_class: type[Spider], settings: BaseSettings) -> bool:
    """Whether `scrapy shell`, `fetch`, `parse`, `check` or `bench` runs, and no crawl.

    A shell sets two defaults, a project's command may set one; the others have set the spider's start.
    """
    defaults = ("DUPEFILTER_CLASS", "LOGSTATS_INTERVAL")
    is_shells = min(settings.getpriority(name) or 0 for name in defaults) == get_settings_priority("command")
    start: Any = spider_class.start
    return is_shells or start.__module__.startswith("scrapy.commands.")


class CrawlCall(NamedTuple):
    """Arguments of the call of `Crawler.crawl` that is building an engine; Scrapy does not keep them."""

    arguments: dict[str, Any]
    """Arguments of the spider, which it need not keep; a positional one has the name of its parameter."""
    runner: CrawlerRunnerBase | None


def crawl_call(crawler: Crawler) -> CrawlCall:
    """Return the call of `Crawler.crawl` that is under way, found by the local variables of its frame."""
    arguments: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, CrawlerRunnerBase):
            return CrawlCall(arguments, owner)
        if owner is crawler and frame.f_code.co_name in ("crawl", "crawl_async"):
            names = list(inspect.signature(crawler.spidercls.__init__).parameters)[1:]
            positional = dict(zip(names, frame.f_locals["args"], strict=False))
            arguments = {**positional, **frame.f_locals["kwargs"]}
        frame = frame.f_back
    return CrawlCall(arguments, None)


def under_way(crawler: Crawler) -> Collection[Request]:
    """Return the requests that were sent and whose callbacks have not ended; no signal reports these."""
    slot = _engine_slot(crawler)
    return () if slot is None else slot.inprogress


def has_started(crawler: Crawler) -> bool:
    """Whether the spider's start has yielded all its requests; no signal reports that."""
    return getattr(crawler.engine, "_start", None) is None


def wake(crawler: Crawler) -> None:
    """Let the engine ask for requests now; by itself it does so every five seconds."""
    slot = _engine_slot(crawler)
    if slot is not None:
        slot.nextcall.schedule()


def is_scraping(crawler: Crawler) -> bool:
    """Whether pipelines take items: they are open and not being closed."""
    slot = None if crawler.engine is None else crawler.engine.scraper.slot
    return slot is not None and not slot.closing


def item_done(crawler: Crawler) -> None:
    """Let the engine check whether it may close, as pipelines have ended an item of `signalling`."""
    slot = None if crawler.engine is None else crawler.engine.scraper.slot
    if crawler.engine is not None and slot is not None and slot.closing and not slot.closing.called:
        crawler.engine.scraper._check_if_closing()
    wake(crawler)


def observes_requests(crawler: Crawler, middleware: object | None, signals: Iterable[object]) -> bool:
    """Whether any code sees all requests, and so would miss one that this spider middleware drops.

    Such are other spider middlewares nearer to the engine, and receivers of `signals` sent for each request.
    """
    assert crawler.engine is not None
    for nearer in crawler.engine.scraper.spidermw.middlewares:
        if nearer is middleware or middleware is None:
            break
        if not type(nearer).__module__.startswith(_NOT_OBSERVING):
            return True
    receivers = (receiver for signal in signals for receiver in getAllReceivers(crawler, signal))
    live = liveReceivers(receivers)
    owners = (type(getattr(receiver, "__self__", None)) for receiver in live)
    return not all(owner.__module__.startswith(_NOT_OBSERVING) for owner in owners)


def has_receivers(crawler: Crawler, signal: object) -> bool:
    """Whether anybody is connected to a signal; the signal manager has no method for that."""
    return next(iter(liveReceivers(getAllReceivers(crawler, signal))), None) is not None


def queued_slots(scheduler: Scheduler) -> set[str] | None:
    """Return the downloader slots of a scheduler's queued requests; None where the queue has no slots.

    A policy that samples plans on as soon as a host has nothing to do; the public API has only a length.
    """
    slots: set[str] = set()
    for queue in (scheduler.mqs, scheduler.dqs):
        if queue is not None and not isinstance(queue, DownloaderAwarePriorityQueue):
            return None
        slots.update(queue.pqueues if queue is not None else ())
    return slots


def downloader(crawler: Crawler) -> Any:
    """Return the downloader, whose slots show which host may be asked at once.

    ``active``: its requests, sent or waiting for their host; ``slots``: by name, with ``concurrency``,
    ``delay`` and ``lastseen`` (s), and requests ``transferring``; ``get_slot_key(request)``: name of a slot.
    """
    assert crawler.engine is not None
    return crawler.engine.downloader


def is_seen(crawler: Crawler, request: Request) -> bool:
    """Whether Scrapy's own duplicate filter has seen a request; the filter remembers it from now on."""
    slot = _engine_slot(crawler)
    seen = None if slot is None else slot.scheduler.df
    return type(seen) is RFPDupeFilter and seen.request_seen(request)


def is_closing(crawler: Crawler) -> bool:
    """Whether the engine closes, and only waits for requests under way; signals come after that."""
    slot = _engine_slot(crawler)
    return slot is not None and slot.closing is not None


def guard_downloads(crawler: Crawler, before_sent: Callable[[Request], None]) -> None:
    """Call `before_sent` with each request when it is sent to its host; an exception ends the request.

    A middleware is no substitute: it sees requests before they wait for their host in the downloader.
    """
    handlers = downloader(crawler).handlers
    download = handlers.download_request_async

    async def guarded(request: Request) -> Response:
        before_sent(request)
        return await download(request)

    handlers.download_request_async = guarded


Result = TypeVar("Result")


def awaitable(future: Future[Result]) -> Awaitable[Result]:
    """Return a thread's future as an awaitable that Scrapy can await, with asyncio or without."""
    if is_asyncio_available():
        return asyncio.wrap_future(future)
    return deferToThread(future.result)
