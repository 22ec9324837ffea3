"""Download handler of a crawl's owner: gives batches of pages to fetchers, and makes responses of results.

Everything else of the owner's crawl is as on one machine: scheduler, store, item pipelines and feeds take the
results of callbacks as if the owner's own spider had yielded them.
"""

from __future__ import annotations

import logging
import pickle
from collections import deque
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.request import request_from_dict
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from scrapy_gp4c.crawling.deliveries import visit
from scrapy_gp4c.crawling.fetched import Batch, FetchedResponse, KnownCopy, PageResult, PageTask
from scrapy_gp4c.crawling.requests import FOUND_BY, META, Claim
from scrapy_gp4c.crawling.run import run_of
from scrapy_gp4c.errors import CallbackError, FetcherError
from scrapy_gp4c.fetching.fetcher import Fetcher, FetcherConfig, fetch
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.settings import Settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = foreign_safe_logger(__name__)

FETCHER_SETTINGS: Final = "FETCHER_SETTINGS"
"""Setting in which the add-on leaves the project's own settings for the fetchers."""
BATCH_PAGES: Final = 100
BATCH_S: Final = 20.0
"""Seconds that the delays of a batch may add up to."""
GATHER_S: Final = 0.02
"""Seconds that requests are gathered before batches are cut."""
CONNECT_S: Final = 10.0
THREADS: Final = 16
"""Batches, hence hosts, that a fetcher works on at a time."""


class FetcherHandler(BaseDownloadHandler):
    """Gives one batch at a time of each host to the fetchers."""

    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        """Start nothing yet: the first request does."""
        super().__init__(crawler)
        self._settings = Settings.load(crawler.settings)
        self._waiting: dict[str, deque[tuple[Request, Deferred[PageResult]]]] = {}
        self._busy: set[str] = set()
        self._is_cut_planned = False
        self._client: Any = None
        self._cluster: Any = None
        self._is_starting = False
        self._delay_s = float(self._project["DOWNLOAD_DELAY"]) if "DOWNLOAD_DELAY" in self._project else 0.0
        fetchers = self._settings.fetchers
        self._window = 2 * THREADS * (fetchers if isinstance(fetchers, int) else 8)

    @property
    def _project(self) -> dict[str, Any]:
        project: dict[str, Any] = self.crawler.settings[FETCHER_SETTINGS]
        return project

    async def download_request(self, request: Request) -> Response:
        """Wait for a fetcher's result; raises IgnoreRequest or FetcherError where it has no response."""
        if run_of(self.crawler) is None:
            raise FetcherError(
                "GP4C_FETCHERS is for crawls that plan: add -s GP4C_FETCHERS=None for "
                "scrapy shell, fetch or parse"
            )
        deferred: Deferred[PageResult] = Deferred()
        host = request.url.split("/", 3)[2]
        self._waiting.setdefault(host, deque()).append((request, deferred))
        self._plan_cut()
        result = await maybe_deferred_to_future(deferred)
        if result.excluded:
            raise IgnoreRequest(result.excluded)
        if result.failed:
            raise FetcherError(f"{request} failed: {result.failed}")
        request.meta["download_latency"] = result.latency_s
        request.callback = partial(_yielded, result, self.crawler.spider)
        return FetchedResponse.of(result)

    async def close(self) -> None:
        """End the connection, and the fetchers if they are the owner's own."""
        if self._client is not None:
            await maybe_deferred_to_future(deferToThread(self._end))

    def _end(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    # --- batches

    def _plan_cut(self) -> None:
        if not self._is_cut_planned:
            self._is_cut_planned = True
            call_later(GATHER_S, self._cut)

    def _cut(self) -> None:
        """Cut batches of the hosts that wait and have none out, as far as the window goes."""
        self._is_cut_planned = False
        if self._client is None:
            self._start()
            return
        most = BATCH_PAGES if not self._delay_s else min(BATCH_PAGES, max(1, int(BATCH_S / self._delay_s)))
        for host in list(self._waiting):
            if len(self._busy) >= self._window:
                return
            if host in self._busy:
                continue
            waiting = self._waiting[host]
            pages = [waiting.popleft() for _ in range(min(most, len(waiting)))]
            if not waiting:
                del self._waiting[host]
            self._send(host, pages)

    def _send(self, host: str, pages: list[tuple[Request, Deferred[PageResult]]]) -> None:
        tasks, sent = [], []
        for request, deferred in pages:
            try:
                tasks.append(self._task(request))
                sent.append(deferred)
            except ValueError as error:  # a callback that is no method of the spider
                deferred.callback(PageResult(failed=f"it cannot be sent to a fetcher: {error}"))
        if not tasks:
            return
        self._busy.add(host)
        future = self._client.submit(fetch, Batch(tasks, self._delay_s), pure=False)
        future.add_done_callback(partial(self._gather, host, sent))

    def _gather(
        self, host: str, deferreds: list[Deferred[PageResult]], future: Future[list[PageResult]]
    ) -> None:
        """Take the result of a batch over into the reactor's thread; called in one of Dask's."""
        try:
            results = future.result()
        except Exception as error:
            results = [PageResult(failed=f"its batch failed: {error!r}") for _ in deferreds]
            logger.error("A batch of %d pages of %s failed: %r", len(deferreds), host, error)
        reactor: Any = import_module("twisted.internet.reactor")
        reactor.callFromThread(self._done, host, deferreds, results)

    def _done(self, host: str, deferreds: list[Deferred[PageResult]], results: list[PageResult]) -> None:
        self._busy.discard(host)
        for deferred, result in zip(deferreds, results, strict=True):
            deferred.callback(result)
        self._plan_cut()

    def _task(self, request: Request) -> PageTask:
        """A request as a fetcher gets it. Raises ValueError where it cannot be sent."""
        stored = request.to_dict(spider=self.crawler.spider)
        marks = (META, FOUND_BY, "download_slot", "download_timeout", "download_latency")
        stored["meta"] = {name: value for name, value in request.meta.items() if name not in marks}
        stored["errback"] = None  # the owner's affair
        run, claim = run_of(self.crawler), request.meta.get(META)
        if run is None or not isinstance(claim, Claim):
            return PageTask(stored, None)
        row = run.cycle.store.page(claim.page)
        info = {
            "page": claim.page,
            "cycle": run.cycle.number,
            "kind": claim.kind,
            "score": None if claim.score != claim.score else claim.score,
            "n": row.n,
            "X": row.X,
        }
        delivered: tuple[str, int | None] | None = None
        before = run.cycle.deliveries.copy_of(claim.page, row)
        if before is None:
            delivered = "first" if run.cycle.deliveries.pages[claim.page].is_new else "changed", None
        elif before is not row:
            delivered = "", before.fingerprint
        notes = run.cycle.store.copy_notes(claim.page) if row.has_copy else None
        copy = row.fingerprint if row.has_copy else None
        return PageTask(stored, KnownCopy(copy, notes, delivered, info))

    # --- fetchers

    def _start(self) -> None:
        """Start the fetchers, or connect to them, beside the reactor."""
        if self._is_starting:
            return
        self._is_starting = True
        deferToThread(self._connect, self._config()).addCallbacks(self._started, self._not_started)

    def _connect(self, config: FetcherConfig) -> tuple[Any, Any]:
        logging.getLogger("distributed").setLevel(logging.WARNING)
        distributed: Any = import_module("distributed")
        cluster, fetchers = None, self._settings.fetchers
        if isinstance(fetchers, int):
            cluster = distributed.LocalCluster(
                n_workers=fetchers, threads_per_worker=THREADS, dashboard_address=None, host="127.0.0.1"
            )
        client = distributed.Client(fetchers if cluster is None else cluster, timeout=CONNECT_S)
        client.register_plugin(Fetcher(config))
        return client, cluster

    def _started(self, connected: tuple[Any, Any]) -> None:
        self._client, self._cluster = connected
        logger.info("Fetchers: %s", self._settings.fetchers)
        self._cut()

    def _not_started(self, failure: Any) -> None:
        """Let every waiting request fail: without fetchers nothing can be fetched."""
        logger.critical("No fetchers (GP4C_FETCHERS = %r): %s", self._settings.fetchers, failure.value)
        self._is_starting = False
        waiting, self._waiting = self._waiting, {}
        for pages in waiting.values():
            for _, deferred in pages:
                deferred.callback(PageResult(failed=f"there are no fetchers: {failure.value}"))

    def _config(self) -> FetcherConfig:
        run, spider, settings = run_of(self.crawler), self.crawler.spider, self._settings
        assert spider is not None
        with_text = run is not None and (run.cycle.measuring is not None or run.cycle.archive is not None)
        return FetcherConfig(
            pickle.dumps(type(spider)),
            _arguments_of(spider),
            self._project,
            settings.features,
            with_text,
            settings.asks_for_clusters,
            settings.skip_unchanged,
            settings.distance_bits,
            isinstance(settings.fetchers, int),
        )


def _arguments_of(spider: Any) -> dict[str, Any]:
    """Arguments of a spider: its attributes that are text or numbers, as Scrapy's ``__init__`` keeps them."""
    return {
        name: value
        for name, value in vars(spider).items()
        if name != "name" and not name.startswith("_") and isinstance(value, str | int | float | bool)
    }


def _yielded(result: PageResult, spider: Any, response: Response, **_: Any) -> Iterator[Any]:
    """Yield what the callback has yielded on the fetcher; raises CallbackError where it failed there."""
    if result.verdict is not None:
        visit(response).changed = result.verdict
    if result.withdrawn is not None:
        visit(response).withdraw(result.withdrawn)
    yield from result.items
    for stored in result.requests:
        yield request_from_dict(stored, spider=spider)
    if result.callback_error:
        raise CallbackError(f"the callback of {response} failed on a fetcher:\n{result.callback_error}")
