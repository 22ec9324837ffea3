"""Scrapy's scheduler with a plan of the known pages that this cycle visits; it drops requests for others."""

from importlib import import_module
from time import monotonic
from typing import Final, Self

from scrapy import Request, Spider, signals, version_info
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_gp4c.crawling.run import Run, freeze_gc, open_run
from scrapy_gp4c.crawling.scrapy_internals import is_command, is_shell, queued_slots, wake
from scrapy_gp4c.crawling.store_owner import fail_exit_code
from scrapy_gp4c.errors import Gp4cError, StoreError
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.settings import Settings

logger = foreign_safe_logger(__name__)

FAILED: Final = "gp4c_store_failed"
"""Finish reason of a run that cannot use its store."""
QUEUE_IS_TORN: Final = (
    "The queue in %s cannot be read (%r): this run works without it, and visits all planned pages. Delete "
    "the JOBDIR to use one again."
)
FULL_COLLECTION_AFTER: Final = 100
"""Collections of Python's middle generation for each full one of an owner of fetchers; Python has 10."""
CLOSES_AT_START: Final = (2, 19)
"""First version of Scrapy whose scheduler may close the spider as it opens; before, it has to raise."""


class RecrawlScheduler(Scheduler):
    """Scrapy's scheduler, which queues the plan of a cycle and new pages, and drops other requests.

    See docs/code/architecture.md, "A request's way".
    """

    gp4c: Settings
    commit_interval_s = 0.5
    """Seconds between two commits of a slow crawl; a fast one commits by number of visits."""
    _run: Run | None = None
    _queue_is_torn = False
    """Whether the disk queue has lost a request, perhaps that of a visit."""
    _has_lost_requests = False
    """Whether the disk queue was given up, and the plan's pages in it are not queued anew yet."""
    _is_failure_logged = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler; raises SettingsError when a ``GP4C_*`` setting is wrong."""
        self = super().from_crawler(crawler)
        self.gp4c = Settings.load(crawler.settings)
        return self

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open queue and store, begin or resume a cycle; where that is not possible, close the spider."""
        assert self.crawler is not None
        try:
            deferred = super().open(spider)
        except Exception as error:
            if self.dqdir is None:
                raise
            # A kill has torn the list of its files. They stay, so that somebody may look at them.
            logger.warning(QUEUE_IS_TORN, self.dqdir, error, extra={"spider": spider})
            self.dqdir = None
            deferred = super().open(spider)
        if is_shell(self.crawler) or is_command(type(spider), self.crawler.settings):
            return deferred
        self._tick_call = create_looping_call(self._tick)
        try:
            self._run = open_run(self.crawler, self.gp4c, spider, self._push)
        except Gp4cError as error:
            refuse(self.crawler, error)
            return deferred
        if type(self.df) is not RFPDupeFilter:
            self._run.admission.use_filter(self.df.request_seen)
        if self.gp4c.fetchers is not None:
            import_module("distributed")  # now: each full collection would walk its objects, for 0.2 s
            # For each, requests under way would stop the reactor for 0.1 s. An owner has no bodies to free.
            freeze_gc(self.crawler, FULL_COLLECTION_AFTER)
        elif self.gp4c.freeze_gc:
            freeze_gc(self.crawler)
        self._tick_call.start(self.commit_interval_s, now=False)
        self.crawler.signals.connect(self._run.close_store, signals.spider_closed)
        self.crawler.signals.connect(self._run.notifier.send, signals.spider_closed)
        self.crawler.signals.connect(self._run.backups.finish, signals.spider_closed)
        if self.crawler.settings.getdict("FEEDS"):
            self._run.cycle.deliveries.flag_feeds()
            self._run.watch_feeds()
        self.crawler.signals.connect(self._unflag_feeds, signals.engine_stopped)
        return deferred

    def close(self, reason: str) -> Deferred[None] | None:
        """End the cycle; after an interrupted run, as by Ctrl-C, it stays open for the next run."""
        if self._run is not None:
            if self._tick_call.running:
                self._tick_call.stop()
            self._close_run(self._run, reason)
            self._run.sender.look()
            if self._run.sender.under_way:
                return deferred_from_coro(self._close_later(self._run, super().close(reason)))
        return super().close(reason)

    async def _close_later(self, run: Run, closed: Deferred[None] | None) -> None:
        """Wait until handlers and pipelines got the last page events, then for Scrapy's close, `closed`."""
        await run.sender.close()
        if closed is not None:
            await maybe_deferred_to_future(closed)

    def _close_run(self, run: Run, reason: str) -> None:
        """Close the run; a failure to end its cycle sets the finish reason and exit code, and is logged."""
        assert self.crawler is not None
        run.close(reason)
        failure = run.cycle.failure
        if failure is not None:
            fail_exit_code(self.crawler)
            if not self._is_failure_logged:
                logger.critical("Cycle %d cannot be finished: %s", run.cycle.number, failure, extra=run.extra)
                self.crawler.signals.connect(self._note_failure, signals.spider_closed)

    def _unflag_feeds(self) -> None:
        """Remove the flag file that says that feeds may lack items, unless a feed of this run failed."""
        assert self._run is not None
        failed = [name for name in self._run.stats.get_stats() if name.startswith("feedexport/failed_count")]
        if not failed and not self._run.cycle.deliveries.again:
            self._run.cycle.deliveries.unflag_feeds()

    def _note_failure(self) -> None:
        assert self._run is not None
        self._run.stats.set_value("finish_reason", FAILED)

    def _tick(self) -> None:
        """Record ended visits (`Run.settle`) and commit; after a failure (a full disk, say) end the crawl."""
        assert self._run is not None
        assert self.crawler is not None
        assert self.crawler.engine is not None
        cycle = self._run.cycle
        self._run.settle()
        self._run.backups.look()
        self._run.sender.look()
        if monotonic() - cycle.store.committed_s >= self.commit_interval_s:
            cycle.commit()
        if cycle.failure is not None:
            self._tick_call.stop()
            self._is_failure_logged = True
            logger.critical("%s", cycle.failure, extra=self._run.extra)
            deferred_from_coro(self.crawler.engine.close_spider_async(reason=FAILED))
        elif self._run.idle_since_s is not None:
            wake(self.crawler)

    def has_pending_requests(self) -> bool:
        """Whether the queue or the plan still has requests."""
        if super().has_pending_requests() or self._has_lost_requests:
            return True
        return self._run is not None and self._run.has_more

    def enqueue_request(self, request: Request) -> bool:
        """Queue a request, or drop it and return False; `Admission` decides, and makes new pages known."""
        if self._run is None:
            return super().enqueue_request(request)
        try:
            return self._run.admission.admit(request)
        except StoreError as error:  # which `_tick` logs
            self._run.cycle.failure = error
            return False

    def next_request(self) -> Request | None:
        """Return the next request to download, feeding the plan into the queue as it empties."""
        run = self._run
        if run is None:
            return super().next_request()
        try:
            return run.next_request(self._pop, lambda: queued_slots(self))
        except StoreError as error:
            run.cycle.failure = error
            return None

    def _push(self, request: Request) -> bool:
        """Put a request into the queue, in memory if a file of the JOBDIR's queue turns out to be damaged."""
        try:
            return super().enqueue_request(request)
        except Exception as error:  # Scrapy expects none but ValueError; `struct.error` hung the crawl
            if self.dqs is None or self._run is None:
                raise
            self._run.note_unreadable(error)
            self._give_up_disk_queue()
            self.mqs.push(request)
            return True

    def _pop(self) -> Request | None:
        """Take a request out of the queue; a request in the JOBDIR that cannot be read is skipped.

        A kill may have torn a file, or another version written it. Once a damaged queue gives no more, this
        run uses only memory, and queues anew the planned pages whose requests were lost.
        """
        assert self._run is not None
        while self.dqs is not None:
            waiting = len(self)
            try:
                request = super().next_request()
                if request is None and len(self) < waiting:
                    raise ValueError("a file of the queue ends too early")
                if request is not None or not self._queue_is_torn:
                    return request
            except Exception as error:
                self._run.note_unreadable(error)
                self._queue_is_torn = True
                if len(self) < waiting:
                    continue
            self._give_up_disk_queue()
        request = super().next_request()
        if request is None and self._has_lost_requests:
            self._has_lost_requests = False
            self._run.refeed()
            request = super().next_request()
        return request

    def _give_up_disk_queue(self) -> None:
        self.dqs = None
        self._has_lost_requests = True


def refuse(crawler: Crawler, error: Gp4cError) -> None:
    """Log in one line why no cycle can begin, and close the spider as it opens.

    Scrapy before 2.19 cannot do that: the error is raised there.
    """
    logger.critical("Cannot begin a cycle (GP4C_STORE, GP4C_SCORE_FUNCTION): %s", error)
    fail_exit_code(crawler)
    if version_info < CLOSES_AT_START:
        raise error
    crawler.signals.connect(_close_spider, signals.spider_opened, weak=False)


def _close_spider() -> None:
    raise CloseSpider(FAILED)
