"""A fetcher: a Dask worker with the spider and its project, but without a store.

It takes batches of pages, downloads them as Scrapy does, with the project's own delays and middlewares,
fingerprints them, runs their callbacks and sends the results to the owner, the process with the store. The
owner calls the functions at the end of this module, in the loop of the worker; Scrapy has a thread with a
loop of its own.
"""

import asyncio
import inspect
import pickle
import signal
import threading
import time
import traceback
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha1
from importlib import import_module, metadata
from operator import itemgetter
from typing import Any, Final

from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.exceptions import CloseSpider, DontCloseSpider, DropItem, IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object
from twisted.internet.error import ReactorAlreadyInstalledError
from twisted.python.failure import Failure

from scrapy_gp4c.crawling.claim_files import kind_of
from scrapy_gp4c.crawling.cycle import VisitInfo, outcome_of, with_outcome
from scrapy_gp4c.crawling.doubt import SharedTexts
from scrapy_gp4c.crawling.fetched import (
    VISIT_META,
    Batch,
    Judgement,
    KnownCopy,
    News,
    NotFetchedError,
    PageResult,
    PageTask,
    Reply,
)
from scrapy_gp4c.crawling.hidden_data import different_part
from scrapy_gp4c.crawling.requests import META, SHARED
from scrapy_gp4c.crawling.run import freeze_gc
from scrapy_gp4c.crawling.scrapy_internals import guard_downloads, is_seen
from scrapy_gp4c.crawling.visits import (
    Unchanged,
    has_same_markup,
    judge,
    known_judgement,
    markup_sum,
    plain_outcome,
    without_output,
)
from scrapy_gp4c.errors import FetcherError
from scrapy_gp4c.fetching.packing import (
    CallbackObject,
    ObjectTable,
    pack,
    pack_request,
    packed_or_none,
    unpack_request,
)
from scrapy_gp4c.fetching.spider_state import SpiderState
from scrapy_gp4c.fingerprint import compared_part, read
from scrapy_gp4c.fingerprint.copy_notes import rules_digest
from scrapy_gp4c.fingerprint.description import description

PAGE: Final = "gp4c_batch_page"
"""Key in ``Request.meta`` of the `BatchPage` for which a request is made."""
_called_back: "ContextVar[BatchPage | None]" = ContextVar("called_back", default=None)
"""Page whose callback runs in the current coroutine; None outside of callbacks."""
START_LIMIT_S: Final = 60.0
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
IDLE_S: Final = 60.0
"""Time without a call of the owner after which a fetcher closes its crawl."""
POLL_S: Final = 0.1
LONG_POLL_S: Final = 1.0
LEAVE_S: Final = 20.0
"""Longest time that a fetcher waits for its last results to be fetched when it is asked to end."""
OWNERS_STATS: Final = (
    "elapsed", "finish", "gp4c/", "item_", "items_", "memusage", "response_received", "responses_",
    "scheduler/",
)  # fmt: skip
"""Prefixes of the statistics that the owner counts itself, so that fetchers do not report them."""
_JOINS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "inc_value": sum, "max_value": max, "min_value": min, "set_value": itemgetter(-1),
}  # fmt: skip
"""Method of statistics collectors -> function that joins the values of two calls into that of one."""

revision: str | None = None
"""`GP4C_REVISION` of this fetcher's project."""
is_leaving = threading.Event()
_crawls: "dict[str, FetcherCrawl]" = {}
_reactor: Future[asyncio.AbstractEventLoop] | None = None


def clock_s() -> float:
    """Return the time in seconds of a clock that runs on while the machine sleeps, if the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True)
class FetcherConfig:
    """Settings and spider of a crawl, as its owner sends them to a fetcher."""

    store: str
    """Name of the owner's store; a new crawl on it ends an old one that its owner has left behind."""
    spiders: list[bytes]
    """Pickled spider class, by its module and name, and by value where that is possible.

    Fetchers of a script do not run the code below ``if __name__ == "__main__"``."""
    arguments: dict[str, Any]
    attributes: dict[str, bytes]
    """Attributes of the owner's spider, pickled, such as those that its start has set."""
    settings: dict[str, Any]
    """Scrapy's settings, as the project has them."""
    features: Any
    with_text: bool
    describes: bool
    skip_unchanged: bool
    link_params: tuple[str, ...]
    """URL parameters of links, as of campaigns, that make no difference to a callback."""
    distance_bits: int
    has_pipelines: bool
    """Whether items go through the project's pipelines on the fetcher."""
    is_local: bool
    """Whether the owner has started the fetcher, and ends it."""


def versions(features: Any, project: str | None) -> dict[str, str | None]:
    """Return the versions of all code that decides how a page is read: owner and fetchers must have the same.

    ``features``: of `GP4C_FEATURES`; ``project``: the project's `GP4C_REVISION`.
    """
    source = None
    if features is not None:
        try:
            code = inspect.getsource(inspect.getmodule(features) or features)
            source = sha1(code.encode()).hexdigest()[:12]
        except (OSError, TypeError):
            source = repr(features)
    return {
        "scrapy-gp4c": metadata.version("scrapy-gp4c"),
        "the fingerprint": rules_digest().hex()[:12],
        "GP4C_FEATURES": source,
        "GP4C_REVISION": project,
    }


class NotSentError(NotFetchedError):
    """Raised when a batch ends before a page, or the robots.txt of its host, has been requested."""


class ElsewhereError(Exception):
    """Raised when a page redirects to a host that another fetcher may have; it holds the request."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.url)
        self.request = request


class HostMiddleware:
    """Downloader middleware that refuses redirects to other hosts, and keeps robots.txt for the owner."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers

    @classmethod
    def from_crawler(cls, crawler: Any) -> "HostMiddleware":
        crawler.gp4c_answers = []
        return cls(crawler.gp4c_answers)

    def process_request(self, request: Request) -> None:
        """Raise ElsewhereError for a redirect to another host, FetcherError for one that goes in a circle."""
        page = request.meta.get(PAGE)
        asking = _called_back.get()
        if page is None and asking is not None:
            asking.result.has_downloads = True
        if page is not None and page.is_elsewhere(request):
            raise ElsewhereError(request)
        if list(request.meta.get("redirect_urls", ())).count(request.url) > 1:  # once may set a cookie
            raise FetcherError("redirects to itself")

    def process_response(self, request: Request, response: Response) -> Response:
        """Keep a robots.txt for the owner, which reads the sitemaps that it names."""
        if PAGE not in request.meta and response.url.endswith("/robots.txt"):
            self.answers.append((response.url, response.status, dict(response.headers), response.body))
        return response


class NoStartMiddleware:
    """Spider middleware that suppresses the spider's start on a fetcher, as the owner runs it."""

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield nothing, whatever the spider and the project's middlewares would start with."""
        return
        yield


def stats_for_owner(collector: type[Any]) -> type[Any]:
    """Return a subclass of a project's statistics collector that also keeps new values for the owner."""

    class StatsForOwner(collector):  # type: ignore[misc] # known when it runs
        """The project's statistics collector, which also keeps values since the last `News` in `new`."""

        def __init__(self, crawler: Crawler) -> None:
            super().__init__(crawler)
            self.new: dict[tuple[str, str], Any] = {}

    def noting(method: str, join: Callable[[list[Any]], Any]) -> Callable[..., None]:
        def note(self: Any, key: str, value: Any = 1, *arguments: Any, **options: Any) -> None:
            value = options.pop("count", value)
            getattr(collector, method)(self, key, value, *arguments, **options)
            if not key.startswith(OWNERS_STATS):
                new = self.new.get((method, key))
                self.new[method, key] = value if new is None else join([new, value])

        return note

    for method, join in _JOINS.items():
        setattr(StatsForOwner, method, noting(method, join))
    return StatsForOwner


@dataclass(eq=False)
class BatchPage:
    """A page of a batch (pages of one host) on the fetcher, with its result so far."""

    batch: str
    position: int
    host: str
    task: PageTask
    start_s: float
    end_s: float
    result: PageResult = field(default_factory=PageResult)
    is_sent: bool = False
    shared: Sequence[CallbackObject] = ()
    """Objects in the data of its request that other requests may have, too."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self.batch,)  # where a spider puts a copy of its meta into an item

    def is_elsewhere(self, request: Request) -> bool:
        """Whether a request is not for the host of the batch."""
        return (
            "download_slot" not in self.task.request["meta"]
            and urlparse_cached(request).hostname != self.host
        )


@dataclass
class FetcherCrawl:
    """Scrapy's crawler on a fetcher for one run of an owner: gets batches of pages, gives back results."""

    config: FetcherConfig
    loop: asyncio.AbstractEventLoop
    crawler: Crawler
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Name of this fetcher to the owner: Dask's address is another one after a restart of the scheduler."""
    asked_s: float = field(default_factory=clock_s)
    """When the owner last asked for results (`clock_s`)."""
    turn_s: float = field(default_factory=clock_s)
    """When the reactor last had a turn (`clock_s`)."""
    results: list[tuple[str, int, bytes]] = field(default_factory=list)
    """Results that are in no `News` yet."""
    batches: Counter[str] = field(default_factory=Counter)
    """Batch -> number of its unfinished pages."""

    def __post_init__(self) -> None:
        """Set up the batches' queues, and a guard by which no request is sent after its batch's end."""
        assert self.crawler.spider is not None
        self._spider = self.crawler.spider
        self._queues: dict[str, deque[BatchPage]] = {}
        self._waiting: Counter[str] = Counter()
        """Host -> number of pages in the downloader that are not sent yet."""
        self._active = 0
        self._is_closed = False
        self._ends_s: dict[str, float] = {}
        self._texts = SharedTexts([])
        self._cookies: dict[tuple[Any, ...], Any] = {}
        self._objects = ObjectTable(self.identity)
        self._askers: dict[bytes, tuple[Any, ...]] = {}
        """Fingerprint of a request sent from here -> batch, URL and body of the page that led to it."""
        self._news = News(0, [], [], {}, {}, [], [])
        self._tasks: set[asyncio.Task[None]] = set()
        settings = self.crawler.settings
        self._concurrency = settings.getint("CONCURRENT_REQUESTS") or 10**6
        self._per_host = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._state = SpiderState(self._spider)
        guard_downloads(self.crawler, self._before_sent)
        self._tick()

    # --- batches, in the reactor's thread

    def _tick(self) -> None:
        self.turn_s = clock_s()
        if self.turn_s - self.asked_s > IDLE_S:
            self.close()
        elif not self._is_closed:
            self.loop.call_later(0.5, self._tick)

    def give(self, batch: Batch, tasks: list[PageTask]) -> None:
        """Queue the pages of a batch; ``tasks``: its `Batch.tasks`, unpickled."""
        now_s = clock_s()
        self._texts.doubted.update(dict.fromkeys(batch.doubted))
        for key, cookie in batch.cookies:
            self._jars()[key].jar.set_cookie(cookie)
            self._cookies[cookie_key(key, cookie)] = cookie.value
        self._state.apply(batch.changes)
        queue = self._queues.setdefault(batch.host, deque())
        self._ends_s[batch.host] = max(batch.end_s, self._ends_s.get(batch.host, 0.0))
        self.batches[batch.name] = len(tasks)
        for position, task in enumerate(tasks):
            start_s = now_s + batch.pause_s
            queue.append(BatchPage(batch.name, position, batch.host, task, start_s, batch.end_s))
        self.loop.call_later(batch.pause_s, self._pump)
        self.loop.call_later(max(0.0, batch.end_s - now_s), self._pump)
        self._pump()

    def cut_short(self) -> None:
        """End all batches now: pages that are not sent yet are given back."""
        for queue in self._queues.values():
            for page in queue:
                page.end_s = 0.0
        self._ends_s = dict.fromkeys(self._ends_s, 0.0)
        self._pump()

    def _pump(self) -> None:
        """Move queued pages to the downloader, by turns of hosts; give back pages of ended batches."""
        now_s, is_moving = clock_s(), True
        slots = self.crawler.engine.downloader.slots if self.crawler.engine else {}
        while is_moving:
            is_moving = False
            for host, queue in list(self._queues.items()):
                while queue and queue[0].end_s <= now_s:
                    self._finish(queue.popleft(), b"")
                slot = slots.get(host)
                most = 1 if slot is None or slot.delay else self._per_host
                if not queue:
                    del self._queues[host]
                elif (
                    queue[0].start_s <= now_s
                    and self._active < self._concurrency
                    and self._waiting[host] < most
                ):
                    self._begin(queue.popleft())
                    is_moving = True

    def _begin(self, page: BatchPage) -> None:
        self._active += 1
        self._waiting[page.host] += 1
        task = self.loop.create_task(self._run(page))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _before_sent(self, request: Request) -> None:
        """Check each request as it is sent; raises NotSentError after the end of its batch."""
        page, now_s = request.meta.get(PAGE), clock_s()
        if page is not None:
            end_s = page.end_s
        elif request.url.endswith("/robots.txt"):
            end_s = self._ends_s.get(request.meta.get("download_slot", ""), now_s + 1)
        else:
            return  # a callback's own download
        if end_s <= now_s or (page is not None and self._ends_s[page.host] <= now_s):
            raise NotSentError
        if page is not None and not page.is_sent:
            page.is_sent = True
            self._waiting[page.host] -= 1
            self.loop.call_soon(self._pump)

    def _downloaded(self, page: BatchPage) -> None:
        self._active -= 1
        if not page.is_sent:
            page.is_sent = True
            self._waiting[page.host] -= 1
        self._pump()

    def _finish(self, page: BatchPage, message: bytes) -> None:
        self.results.append((page.batch, page.position, message))
        self.batches[page.batch] -= 1
        if not self.batches[page.batch]:
            del self.batches[page.batch]

    async def _run(self, page: BatchPage) -> None:
        try:
            await self._fetch(page)
        except NotSentError:
            self._finish(page, b"")
            return
        except ElsewhereError as error:
            page.result = PageResult(elsewhere=self._stored(error.request))
        except Exception:  # the owner waits for an answer about every page
            page.result.callback_error = traceback.format_exc()
        result = page.result
        result.shared = [(one.identity, one.version, self.identity, one.is_filled()) for one in page.shared]
        try:
            message = pack(result)
        except Exception:  # whatever the objects of an item raise when they are pickled
            result.items, result.requests = [], []
            result.callback_error = f"items and requests must be picklable:\n{traceback.format_exc()}"
            message = pack(result)
        self._finish(page, message)

    async def _fetch(self, page: BatchPage) -> None:
        engine, task, result = self.crawler.engine, page.task, page.result
        assert engine is not None
        request = None
        try:
            request = unpack_request(task.request, self._spider)
            page.shared = self._objects.take(request)
            request.meta[PAGE] = page
            response = await engine.download_async(request)
        except (NotSentError, ElsewhereError):
            raise
        except Exception as error:  # handlers and middlewares of projects raise anything
            if isinstance(error, IgnoreRequest):
                result.excluded = str(error) or "a middleware ignored the request"
            else:
                result.failed = f"{type(error).__name__}: {error}"
            if request is not None:
                if task.copy is not None:
                    request.meta[META] = VisitInfo(with_outcome(task.info, "error", None))
                await self._fail(request, error, page)
            return
        finally:
            self._downloaded(page)
        response.request = request = response.request or request
        request.meta.pop(PAGE, None)
        result.url, result.status = response.url, response.status
        result.headers, result.flags = dict(response.headers), list(response.flags)
        result.size_bytes = len(response.body)
        result.meta = {name: request.meta[name] for name in VISIT_META if name in request.meta}
        if task.is_download or kind_of(response.body, response.url) is not None:
            result.body = response.body
        if task.is_download:
            return
        is_unchanged = task.copy is not None and self._judge(response, task, task.copy, result)
        skips = self.config.skip_unchanged
        is_known = result.judgement.is_known or response.status == 304
        if is_unchanged and skips and task.copy is not None and not is_known:
            result.markup_sum = markup_sum(response, self.config.link_params, follows=task.follows)
            is_unchanged = has_same_markup(task.copy.notes, result.markup_sum, follows=task.follows)
        if is_unchanged and skips and task.copy is not None and task.copy.notes is not None:
            parts = task.hidden_parts if response.status != 304 else ()
            result.hidden_part = different_part(task.copy.notes, result.judgement, response, parts)
            is_unchanged = result.hidden_part is None
        if is_unchanged and skips and not task.needs_callback:
            await self._fail(request, Unchanged(response), page)
            return
        _called_back.set(page)
        info = request.meta.get(META)
        if isinstance(info, VisitInfo):
            info.is_used = True
        await self._call_back(response, request, page)
        result.is_used = isinstance(info, VisitInfo) and info.is_used and not result.callback_error
        if skips:
            follows = task.follows or bool(result.requests) or not result.items
            result.markup_sum = markup_sum(response, self.config.link_params, follows=follows)

    async def _call_back(self, response: Response, request: Request, page: BatchPage) -> None:
        assert self.crawler.engine is not None
        scraper = self.crawler.engine.scraper
        called = scraper.spidermw.scrape_response_async(scraper.call_spider_async, response, request)
        await self._collect(called, page)

    async def _fail(self, request: Request, error: Exception, page: BatchPage) -> None:
        if request.errback is not None:
            assert self.crawler.engine is not None
            if isinstance(error, Unchanged):
                request.errback = partial(without_output, request.errback)
            failure: Any = Failure(error)  # type: ignore[no-untyped-call]
            await self._collect(self.crawler.engine.scraper.call_spider_async(failure, request), page)

    # --- reading and callbacks

    def _judge(self, response: Response, task: PageTask, copy: KnownCopy, result: PageResult) -> bool:
        """Compare a page with its copy, and fill `result`; returns whether its callback sees no change."""
        assert response.request is not None
        outcome: str | None = None
        if "cached" in response.flags:
            outcome = "not_modified" if "download_latency" in result.meta else "excluded"
        outcome, bits = outcome or plain_outcome(response, response.request), None
        if outcome is None:
            result.judgement = self._judgement(response, copy)
        reading, doubt = result.judgement.reading, result.judgement.doubt.reason
        is_rebased = result.judgement.is_rebased
        compare = partial(
            outcome_of, distance_bits=copy.distance_bits, rule=copy.rule, previous=lambda: task.previous_text
        )
        if outcome is None and (reading is None or doubt is not None):
            outcome = "error" if reading is None else "doubtful"
        elif reading is not None:
            outcome, bits = ("unchanged", None) if is_rebased else compare(reading, copy.fingerprint)
        assert outcome is not None
        text = None if reading is None or doubt is not None else reading.text
        previous = None if is_rebased else task.previous_text
        info = VisitInfo(with_outcome(task.info, outcome, bits), text, lambda: previous)
        if doubt is not None:
            info["doubtful"] = doubt
        elif reading is not None:
            if self.config.describes:
                result.description = description(response)
            if task.delivered is not None:
                outcome, before = task.delivered
                outcome, bits = (outcome, None) if before is None else compare(reading, before)
                info.update(outcome=outcome, changed=outcome != "unchanged", distance=bits)
            if is_rebased:
                info["compared_anew"] = True
        info.held = result  # type: ignore[assignment]  # which takes the callback's verdict
        response.request.meta[META] = info
        return outcome in ("unchanged", "not_modified")

    def _judgement(self, response: Response, copy: KnownCopy) -> Judgement:
        config = self.config
        watched = compared_part(response, config.features, copy.rule.watch, copy.rule.ignore)
        request = response.request or Request(response.url)
        if (known := known_judgement(request, watched, copy, self._texts)) is not None:
            return known
        try:
            reading = read(watched.response, watched.features, with_text=config.with_text)
        except Exception:  # GP4C_FEATURES is the project's
            return Judgement(error=FetcherError(traceback.format_exc()))
        return judge(request, response, watched, reading, copy, self._texts)

    async def _collect(self, output: Any, page: BatchPage) -> None:
        result = page.result
        try:
            async for entry in as_async_generator(await output or ()):
                if not isinstance(entry, Request):
                    await self._keep_item(entry, result)
                    continue
                try:
                    shared = self._packed(entry)
                except ValueError as error:
                    result.not_sendable = result.not_sendable or f"{entry}: {error}"
                    await self._visit_here(entry, page)
                    continue
                if not result.requests or result.requests[-1][0] != shared:
                    result.requests.append((shared, []))
                result.requests[-1][1].append(entry.url)
        except NotSentError:
            raise
        except CloseSpider as error:
            result.close_reason = error.reason or "cancelled"
        except Exception:  # the callback is the project's
            result.callback_error = traceback.format_exc()

    async def _visit_here(self, request: Request, page: BatchPage) -> None:
        """Download here a request whose callback cannot be pickled; its output joins the page's result."""
        engine, fingerprinter = self.crawler.engine, self.crawler.request_fingerprinter
        assert engine is not None
        assert fingerprinter is not None
        key, of_page = fingerprinter.fingerprint(request), page.task.request
        batch, *asker = page.batch, of_page["url"], of_page["body"]
        earlier_batch, *earlier_asker = self._askers.get(key, ("", "", b""))
        # The owner sends a page again where it has given up the batch with all of its results.
        is_again = asker == earlier_asker and batch != earlier_batch
        if not (request.dont_filter or is_again) and is_seen(self.crawler, request):
            return
        self._askers[key] = (batch, *asker)
        try:
            response = await engine.download_async(request)
        except Exception as error:  # handlers and middlewares of projects raise anything
            await self._fail(request, error, page)
            return
        await self._call_back(response, response.request or request, page)

    async def _keep_item(self, item: Any, result: PageResult) -> None:
        if item is None:
            return
        if self.config.has_pipelines:
            assert self.crawler.engine is not None
            assert self.crawler.stats is not None
            try:
                item = await self.crawler.engine.scraper.itemproc.process_item_async(item)
            except DropItem:
                self.crawler.stats.inc_value("fetchers/items_dropped")
                return
        result.items.append(item)

    def _stored(self, request: Request) -> dict[str, Any]:
        """Return a request's non-default fields, to be pickled; ValueError: its callback cannot be."""
        stored = pack_request(request, self._spider)
        stored["meta"] = {name: value for name, value in stored["meta"].items() if name != PAGE}
        if identities := self._objects.identify(stored):
            stored["meta"][SHARED] = identities
        defaults = _defaults()
        return {name: value for name, value in stored.items() if name == "url" or value != defaults.get(name)}

    def _packed(self, request: Request) -> bytes:
        """Return a request without its URL, pickled; raises ValueError for data that cannot be pickled."""
        stored = self._stored(request)
        del stored["url"]
        try:
            return pack(stored)
        except Exception as error:  # whatever its objects raise when they are pickled
            raise ValueError(f"its data cannot be pickled: {type(error).__name__}: {error}") from error

    # --- the owner's questions, in the worker's loop

    async def take(self, acknowledged: int) -> Reply:
        """Wait up to a second for results of pages; return a `Reply` with all that the owner still lacks.

        ``acknowledged``: number of the last `News` that the owner has got.
        """
        self.asked_s = clock_s()
        await asyncio.sleep(POLL_S)  # each call costs the owner some ms: results are collected first
        while not self.results and clock_s() - self.asked_s < LONG_POLL_S:
            await asyncio.sleep(POLL_S)
        done: Future[Reply] = Future()
        self.loop.call_soon_threadsafe(lambda: done.set_result(self._reply(acknowledged)))
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(done)), LONG_POLL_S)
        except TimeoutError:
            now_s = clock_s()
            return Reply(now_s, self.unacknowledged(), is_leaving.is_set(), now_s - self.turn_s)

    def unacknowledged(self) -> frozenset[str]:
        """Return the batches of which the owner has not acknowledged all results."""
        return frozenset((*self.batches, *(batch for batch, *_ in (*self._news.results, *self.results))))

    def _reply(self, acknowledged: int) -> Reply:
        if self._news.number <= acknowledged:
            self._news = self._new_news(acknowledged + 1)
            self.results = []
        return Reply(clock_s(), self.unacknowledged(), is_leaving.is_set(), 0.0, self._news)

    def _new_news(self, number: int) -> News:
        assert self.crawler.engine is not None
        slots = self.crawler.engine.downloader.slots
        answers: Any = getattr(self.crawler, "gp4c_answers", [])
        files, answers[:] = list(answers), []
        return News(
            number,
            self.results,
            self._state.changes(is_last=not self.batches),
            self._new_stats(),
            {host: slot.delay for host, slot in slots.items() if host in self._ends_s},
            self._new_cookies() if self.results else [],
            files,
        )

    def _new_stats(self) -> dict[tuple[str, str], Any]:
        stats: Any = self.crawler.stats
        new, stats.new = stats.new, {}
        return {key: value for key, value in new.items() if packed_or_none(value) is not None}

    def _jars(self) -> Any:
        middleware = self.crawler.get_downloader_middleware(CookiesMiddleware)
        return defaultdict(dict) if middleware is None else middleware.jars

    def _new_cookies(self) -> list[tuple[Any, Any]]:
        new = []
        for key, jar in list(self._jars().items()):
            for cookie in jar.jar:
                if self._cookies.get(name := cookie_key(key, cookie)) != cookie.value:
                    self._cookies[name] = cookie.value
                    new.append((key, cookie))
        return new

    def close(self) -> None:
        self._is_closed = True
        for name, crawl in list(_crawls.items()):
            if crawl is self:
                del _crawls[name]
        self.cut_short()
        if self.crawler.engine is not None:
            self.loop.create_task(self.crawler.stop_async())  # the loop never ends


def cookie_key(jar: Any, cookie: Any) -> tuple[Any, ...]:
    """Return what identifies a cookie: the key of its jar, and its domain, path and name."""
    return jar, cookie.domain, cookie.path, cookie.name


@cache
def _defaults() -> dict[str, Any]:
    return Request("http://h/").to_dict()


# --- Scrapy's thread


def _reactor_loop() -> Future[asyncio.AbstractEventLoop]:
    """Return the event loop of the reactor's thread, which the first call starts: a reactor starts once."""
    global _reactor
    if _reactor is None:
        _reactor = Future()
        threading.Thread(target=_run_reactor, args=(_reactor,), name="gp4c-fetcher", daemon=True).start()
    return _reactor


def _run_reactor(started: Future[asyncio.AbstractEventLoop]) -> None:
    try:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        asyncioreactor: Any = import_module("twisted.internet.asyncioreactor")
        try:
            asyncioreactor.install(loop)  # before anything imports it
        except ReactorAlreadyInstalledError:
            raise FetcherError(
                "modules of the project install a reactor as they are imported; import "
                "twisted.internet.reactor in functions, and let a script crawl below "
                '`if __name__ == "__main__":`'
            ) from None
        reactor: Any = import_module("twisted.internet.reactor")
        loop.call_soon(started.set_result, loop)
        reactor.run(installSignalHandlers=False)
    except BaseException as error:
        if not started.done():
            started.set_exception(error)


async def _open(config: FetcherConfig) -> FetcherCrawl:
    by_name, *by_value = config.spiders  # sent by the owner, over a connection it chose
    try:
        spider_class = pickle.loads(by_name)
    except AttributeError:
        if not by_value:
            raise
        spider_class = pickle.loads(by_value[0])

    class OfOwner(spider_class):  # type: ignore[misc, valid-type] # known when it runs
        """Subclass of the spider's class, with the settings of the owner's spider."""

        @classmethod
        def update_settings(cls, settings: Any) -> None:
            """Leave feeds and limits of ``custom_settings`` to the owner."""

        @staticmethod
        def close(spider: Any, reason: str) -> None:
            """Do not call ``closed``: the owner calls it, with the data of all fetchers."""

    OfOwner.__name__, OfOwner.__module__ = spider_class.__name__, spider_class.__module__
    settings = Settings(config.settings)
    nearest = {NoStartMiddleware: -10_000}  # to the engine
    settings.set("SPIDER_MIDDLEWARES", {**settings.getdict("SPIDER_MIDDLEWARES"), **nearest})
    settings.set(
        "WARN_ON_GENERATOR_RETURN_VALUE", False
    )  # else Scrapy reads sources, which may be missing here
    settings.set("STATS_CLASS", stats_for_owner(load_object(settings["STATS_CLASS"])))
    runner = AsyncCrawlerRunner(settings)
    crawler = runner.create_crawler(OfOwner)
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[None] = loop.create_future()

    def stay_open() -> None:
        raise DontCloseSpider

    def is_opened() -> None:
        crawler.signals.disconnect_all(signals.spider_idle)  # only the owner's spider may act when idle
        crawler.signals.connect(stay_open, signals.spider_idle, weak=False)
        opened.set_result(None)

    def take_attributes() -> None:
        for name, value in config.attributes.items():
            with suppress(Exception):  # only the owner may have its module
                attribute = pickle.loads(value)
                is_data = type(attribute) in _PLAIN or isinstance(attribute, list | dict | set | tuple)
                if is_data or not getattr(crawler.spider, name, None):
                    setattr(crawler.spider, name, attribute)

    crawler.signals.connect(take_attributes, signals.spider_opened, weak=False)
    crawler.signals.connect(is_opened, signals.spider_opened, weak=False)
    crawling = asyncio.ensure_future(runner.crawl(crawler, **config.arguments))
    await asyncio.wait({crawling, opened}, return_when=asyncio.FIRST_COMPLETED)
    if not opened.done():
        crawling.result()
        raise FetcherError("the spider has closed as it opened")
    return FetcherCrawl(config, loop, crawler)


# --- what the owner calls, in the loop of the worker


async def open_crawl(
    run: str, needed: dict[str, str | None], packed: bytes, dask_worker: Any = None
) -> tuple[str, str, str | None]:
    """Open a crawl; returns identity and name of the fetcher, and why it refuses the crawl, or None.

    ``run``: identity of the owner's run; ``needed``: `versions` of the owner; ``packed``: pickled
    `FetcherConfig`; ``dask_worker``: set by Dask.
    """
    name, nobody = str(dask_worker.name), uuid.uuid4().hex
    if run in _crawls:  # the scheduler was restarted
        return _crawls[run].identity, name, None
    try:
        installed = versions(None, needed["GP4C_REVISION"])
        for what in ("scrapy-gp4c", "the fingerprint"):
            if installed[what] != needed[what]:
                return nobody, name, _other_version(what, installed[what], needed[what])
        # First the reactor: modules of unpickled objects may import one.
        loop = await asyncio.wait_for(asyncio.wrap_future(_reactor_loop()), START_LIMIT_S)
        config: FetcherConfig = pickle.loads(packed)  # trusted, as the spider is
        installed = versions(config.features, needed["GP4C_REVISION"] if config.is_local else revision)
        for what, value in needed.items():
            if value is not None and installed[what] != value:
                return nobody, name, _other_version(what, installed[what], value)
        if config.is_local and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the owner ends the others
        for crawl in [crawl for crawl in _crawls.values() if crawl.config.store == config.store]:
            loop.call_soon_threadsafe(crawl.close)
        opening = asyncio.run_coroutine_threadsafe(_open(config), loop)
        _crawls[run] = await asyncio.wait_for(asyncio.wrap_future(opening), START_LIMIT_S)
        freeze_gc(_crawls[run].crawler)
    except Exception as error:
        return nobody, name, f"the spider does not open there: {type(error).__name__}: {error}"
    return _crawls[run].identity, name, None


def _other_version(what: str, installed: str | None, needed: str | None) -> str:
    both = f"{installed} there, {needed} here"
    return f"it has another version of {what}: {both}; deploy the same project there"


def give(run: str, packed: bytes) -> None:
    """Queue batches for the crawl of `run`; ``packed``: pickled list. Raises KeyError if it is closed."""
    crawl = _crawls[run]
    batches: list[Batch] = pickle.loads(packed)
    for batch in batches:
        crawl.loop.call_soon_threadsafe(crawl.give, batch, [pickle.loads(task) for task in batch.tasks])


async def take(run: str, acknowledged: int) -> bytes:
    """Return the pickled result of `FetcherCrawl.take` of the crawl of `run`. KeyError if it is closed."""
    return pack(await _crawls[run].take(acknowledged))


def cut_short(run: str) -> None:
    """End all batches of the crawl of `run` now."""
    if (crawl := _crawls.get(run)) is not None:
        crawl.loop.call_soon_threadsafe(crawl.cut_short)


def close_crawl(run: str) -> None:
    if (crawl := _crawls.pop(run, None)) is not None:
        crawl.loop.call_soon_threadsafe(crawl.close)


async def leave() -> None:
    """Refuse further batches, and wait until all results are given back, at most `LEAVE_S`."""
    is_leaving.set()
    for crawl in _crawls.values():
        crawl.loop.call_soon_threadsafe(crawl.cut_short)
    end_s = clock_s() + LEAVE_S
    await asyncio.sleep(POLL_S)
    while clock_s() < end_s and any(crawl.unacknowledged() for crawl in _crawls.values()):
        await asyncio.sleep(POLL_S)
