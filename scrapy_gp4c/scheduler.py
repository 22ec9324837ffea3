"""Scrapy's stock scheduler, with a plan: which known pages this run revisits, and which it leaves alone."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.core.scheduler import Scheduler
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from scrapy_gp4c.crawling.engine import wake
from scrapy_gp4c.crawling.opening import open_run
from scrapy_gp4c.crawling.run import Run
from scrapy_gp4c.errors import Gp4cError, StoreError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.start import (
    FAILED,
    cannot_begin,
    end_as_failure,
    is_crawl,
    leave_out_what_is_there,
)

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)


class RecrawlScheduler(Scheduler):
    """Opens a cycle, feeds its plan, admits new pages: docs/architecture.md, "A request's way"."""

    gp4c: Settings
    commit_interval_s = 0.5
    """A fast crawl commits by number of visits; no visit of a slow one waits longer than twice this."""
    _run: Run | None = None
    _torn = False
    """Whether the queue has lost a request, perhaps of a claimed page."""
    _told = False
    """Whether the log has what makes it impossible to go on."""
    open_run = staticmethod(open_run)
    """How a run is opened: a test opens one whose store is small."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler; raises SettingsError when a ``GP4C_*`` setting is wrong."""
        self = super().from_crawler(crawler)
        self.gp4c = Settings.load(crawler.settings)
        return self

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open queue and store, begin or resume a cycle; where that is not possible, close the spider."""
        deferred = super().open(spider)
        assert self.crawler is not None
        if not is_crawl(spider, self.crawler):
            return deferred
        try:
            self._begin(self.open_run(self.crawler, self.gp4c, spider, super().enqueue_request))
        except Gp4cError as error:
            cannot_begin(self.crawler, error)
        return deferred

    def _begin(self, run: Run) -> None:
        assert self.crawler is not None
        self._run = run
        leave_out_what_is_there(self.crawler)
        self._tick_call = create_looping_call(self._tick)
        self._tick_call.start(self.commit_interval_s, now=False)
        self.crawler.signals.connect(run.close_store, signals.spider_closed)

    def close(self, reason: str) -> Deferred[None] | None:
        """End the cycle, unless the run was interrupted: then the next run resumes it."""
        if self._run is not None:
            if self._tick_call.running:
                self._tick_call.stop()
            self._close_run(self._run, reason)
        return super().close(reason)

    def _close_run(self, run: Run, reason: str) -> None:
        """Close the run; what makes its end impossible is one line, a finish reason and an exit code."""
        assert self.crawler is not None
        run.close(reason)
        failure = run.cycle.failure
        if failure is not None:
            end_as_failure(self.crawler, signals.engine_stopped)
            if not self._told:
                logger.critical("Cycle %d cannot be finished: %s", run.cycle.number, failure, extra=run.extra)
                self.crawler.signals.connect(self._note_failure, signals.spider_closed)

    def _note_failure(self) -> None:
        assert self.crawler is not None
        assert self.crawler.stats is not None
        self.crawler.stats.set_value("finish_reason", FAILED)

    def _tick(self) -> None:
        """Commit, and stop the crawl where that has become impossible: a full disk, for one."""
        assert self._run is not None
        assert self.crawler is not None
        assert self.crawler.engine is not None
        cycle = self._run.cycle
        if monotonic() - cycle.store.committed_s >= self.commit_interval_s:
            cycle.commit()
        if cycle.failure is not None:
            self._tick_call.stop()
            self._told = True
            logger.critical("%s", cycle.failure, extra=self._run.extra)
            deferred_from_coro(self.crawler.engine.close_spider_async(reason=FAILED))
        elif self._run.idle_since_s is not None:
            wake(self.crawler)

    def has_pending_requests(self) -> bool:
        """Tell whether the queue or the plan still has requests."""
        return super().has_pending_requests() or (self._run is not None and self._run.has_more)

    def enqueue_request(self, request: Request) -> bool:
        """Admit, drop or pass a request; False when it is dropped."""
        if self._run is None:
            return super().enqueue_request(request)
        try:
            return self._run.admit(request)
        except StoreError as error:  # of which `_tick` tells
            self._run.cycle.failure = error
            return False

    def next_request(self) -> Request | None:
        """Return the next request to download, feeding the plan into the queue as it empties."""
        run = self._run
        if run is None:
            return super().next_request()
        if not run.may_send:
            return None
        try:
            return run.next_request(self._pop, self._queued_slots)
        except StoreError as error:
            run.cycle.failure = error
            return None

    def _queued_slots(self) -> set[str] | None:
        """Return the downloader slots of queued requests; None: the queue does not tell them apart."""
        slots: set[str] = set()
        for queue in (self.mqs, self.dqs):
            if queue is not None and not isinstance(queue, DownloaderAwarePriorityQueue):
                return None
            slots.update(queue.pqueues if queue is not None else ())
        return slots

    def _pop(self) -> Request | None:
        """Take a request out of the queue; one of a JOBDIR that cannot be read back is left out.

        Another version may have written it, or a kill has torn a file. Where the queue gives no more, it is
        used no further in this run, and the pages whose requests it has lost are fed anew, into memory.
        """
        assert self._run is not None
        while self.dqs is not None:
            waiting = len(self)
            try:
                request = super().next_request()
                if request is None and len(self) < waiting:
                    raise ValueError("a file of the queue ends too early")
                if request is not None or not self._torn:
                    return request
            except Exception as error:
                self._run.note_unreadable(error)
                self._torn = True
                if len(self) < waiting:
                    continue
            self.dqs = None
            self._run.refeed()
        return super().next_request()
