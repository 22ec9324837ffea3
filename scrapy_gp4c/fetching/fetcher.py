"""A fetcher: a Dask worker with the spider and its project, but without a store.

It takes a batch of pages of one host, downloads them as Scrapy does, with the project's own delays and
middlewares, fingerprints them, runs their callbacks and gives back what the owner needs of them.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import threading
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker

from scrapy_gp4c.errors import FetcherError

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_gp4c.crawling.fetched import Batch, KnownCopy, PageResult, PageTask

NAME = "gp4c-fetcher"
"""Name of the plugin on its worker."""
START_LIMIT_S = 60.0


@dataclass(frozen=True)
class FetcherConfig:
    """Everything that a fetcher needs to know of a crawl, ready to be sent."""

    spider: bytes
    """Pickled spider class, by its module and name."""
    arguments: dict[str, Any]
    """Arguments of the spider."""
    settings: dict[str, Any]
    """Scrapy's settings, as the project has them."""
    features: Any
    """`GP4C_FEATURES`."""
    with_text: bool
    describes: bool
    skip_unchanged: bool
    distance_bits: int
    is_local: bool
    """Whether the owner has started the fetcher, and ends it."""


class Fetcher(WorkerPlugin):
    """Scrapy's crawler in a thread of a Dask worker, which stays open and does what batches ask."""

    name = NAME

    def __init__(self, config: FetcherConfig) -> None:
        """Take the configuration; nothing is started before the worker has the plugin."""
        self.config = config

    def setup(self, worker: Any) -> None:
        """Start the crawler. Raises FetcherError where the spider does not open."""
        if self.config.is_local and threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # Ctrl-C reaches all: the owner ends what is under way
        self._started: Future[tuple[Crawler, asyncio.AbstractEventLoop]] = Future()
        threading.Thread(target=self._run, name=NAME, daemon=True).start()
        self._crawler, self._loop = self._started.result(START_LIMIT_S)

    def fetch(self, batch: Batch) -> list[PageResult]:
        """Fetch the pages of a batch, in the thread of a task; returns their results in order."""
        return asyncio.run_coroutine_threadsafe(self._fetch_all(batch), self._loop).result()

    def _run(self) -> None:
        """Thread of the reactor, which Scrapy needs; it must be installed before anything imports it."""
        try:
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            asyncioreactor: Any = import_module("twisted.internet.asyncioreactor")
            asyncioreactor.install(loop)
            reactor: Any = import_module("twisted.internet.reactor")
            opening = loop.create_task(self._open(loop))
            reactor.run(installSignalHandlers=False)
            del opening
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            from scrapy import signals
            from scrapy.crawler import AsyncCrawlerRunner
            from scrapy.exceptions import DontCloseSpider
            from scrapy.settings import Settings

            spider_class = pickle.loads(self.config.spider)  # sent by the owner, over a connection it chose

            class WithoutStart(spider_class):  # type: ignore[misc, valid-type]
                """The spider, whose start is the owner's affair."""

                async def start(self) -> AsyncIterator[Any]:
                    """Yield nothing."""
                    return
                    yield

            WithoutStart.__name__, WithoutStart.__module__ = spider_class.__name__, spider_class.__module__
            settings = Settings(self.config.settings)
            runner = AsyncCrawlerRunner(settings)
            crawler = runner.create_crawler(WithoutStart)

            def stay_open() -> None:
                raise DontCloseSpider

            def opened() -> None:
                self._started.set_result((crawler, loop))

            crawler.signals.connect(stay_open, signals.spider_idle, weak=False)
            crawler.signals.connect(opened, signals.spider_opened, weak=False)
            await runner.crawl(crawler, **self.config.arguments)
            raise FetcherError("the spider of a fetcher has closed; the log of the fetcher says why")
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)

    async def _fetch_all(self, batch: Batch) -> list[PageResult]:
        if batch.delay_s:
            await asyncio.sleep(batch.delay_s)
        return await asyncio.gather(*(self._fetch(task) for task in batch.tasks))

    async def _fetch(self, task: PageTask) -> PageResult:
        from scrapy.exceptions import IgnoreRequest
        from scrapy.utils.request import request_from_dict

        from scrapy_gp4c.crawling.fetched import PageResult

        crawler, result = self._crawler, PageResult()
        assert crawler.engine is not None
        assert crawler.spider is not None
        try:
            request = request_from_dict(task.request, spider=crawler.spider)
            response = await crawler.engine.download_async(request)
        except IgnoreRequest as error:
            result.excluded = str(error) or "a middleware ignored the request"
            return result
        except Exception as error:
            result.failed = f"{type(error).__name__}: {error}"
            return result
        response.request = request = response.request or request
        result.url, result.status = response.url, response.status
        result.headers, result.flags = dict(response.headers), list(response.flags)
        result.size_bytes = len(response.body)
        result.latency_s = request.meta.get("download_latency", 0.0)
        unchanged = task.copy is not None and self._read(response, task.copy, result)
        if not (unchanged and self.config.skip_unchanged):
            await self._call_back(response, request, result)
        return result

    def _read(self, response: Response, copy: KnownCopy, result: PageResult) -> bool:
        """Fingerprint a visited page and judge it; tells whether it is unchanged."""
        from scrapy_gp4c.crawling.claim_files import kind_of
        from scrapy_gp4c.crawling.deliveries import VisitInfo
        from scrapy_gp4c.crawling.requests import META
        from scrapy_gp4c.fingerprint import read
        from scrapy_gp4c.fingerprint.copy_notes import compared
        from scrapy_gp4c.fingerprint.description import description
        from scrapy_gp4c.fingerprint.sketches import distance, is_changed

        config, outcome, bits = self.config, "error", None
        assert response.request is not None
        if response.status == 304:
            outcome = "not_modified"
        elif response.status in (404, 410):
            outcome = "gone"
        elif 200 <= response.status < 300 and not {"dataloss", "cached"}.intersection(response.flags):
            if kind_of(response.body, response.url) is not None:
                result.body = response.body
            try:
                result.reading = read(response, config.features, with_text=config.with_text)
            except Exception:
                result.unread = traceback.format_exc()
            else:
                result.reading, result.notes = compared(
                    response,
                    result.reading,
                    config.features,
                    copy.fingerprint,
                    copy.notes,
                    config.distance_bits,
                )
                fingerprint = result.reading.fingerprint
                if config.describes:
                    result.description = description(response)
                outcome = "first"
                if copy.fingerprint is not None:
                    bits = distance(fingerprint, copy.fingerprint)
                    is_other = is_changed(fingerprint, copy.fingerprint, config.distance_bits)
                    outcome = "changed" if is_other else "unchanged"
        judged = outcome in ("unchanged", "changed", "not_modified")
        changed = outcome == "changed"
        n, X = copy.info["n"] + judged, copy.info["X"] + changed
        if copy.delivered is not None and result.reading is not None:
            outcome, before = copy.delivered
            bits = None if before is None else distance(result.reading.fingerprint, before)
            if before is not None:
                is_other = is_changed(result.reading.fingerprint, before, config.distance_bits)
                outcome = "changed" if is_other else "unchanged"
            judged, changed = True, outcome != "unchanged"
        info = VisitInfo(
            {
                **copy.info,
                "managed": True,
                "outcome": outcome,
                "changed": changed if judged else None,
                "distance": bits,
                "n": n,
                "X": X,
            },
            None if result.reading is None else result.reading.text,
        )
        info.held = result  # type: ignore[assignment]  # which takes the callback's verdict
        response.request.meta[META] = info
        return outcome in ("unchanged", "not_modified")

    async def _call_back(self, response: Response, request: Request, result: PageResult) -> None:
        """Run the callback of a response, spider middlewares included, and keep what it yields."""
        from scrapy import Request

        spider: Spider | None = self._crawler.spider
        assert self._crawler.engine is not None
        scraper = self._crawler.engine.scraper
        try:
            output = await scraper.spidermw.scrape_response_async(
                scraper.call_spider_async, response, request
            )
            async for entry in output:
                if not isinstance(entry, Request):
                    result.items.append(entry)
                    continue
                try:
                    result.requests.append(entry.to_dict(spider=spider))
                except ValueError:  # its callback is no method of the spider
                    result.callback_error = traceback.format_exc()
        except Exception:
            result.callback_error = traceback.format_exc()


def fetch(batch: Batch) -> list[PageResult]:
    """Task of a Dask worker that has the plugin."""
    fetcher = get_worker().plugins[NAME]
    assert isinstance(fetcher, Fetcher)
    return fetcher.fetch(batch)
