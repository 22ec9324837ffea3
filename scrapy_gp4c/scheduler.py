"""Scrapy's stock scheduler, with a plan: which known pages this run revisits, and which it leaves alone."""

from __future__ import annotations

import dataclasses
import logging
from array import array
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals
from scrapy.core.scheduler import Scheduler
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.defer import deferred_from_coro

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.cycle import Claim, Cycle, cycles
from scrapy_gp4c.crawling.frontier import Frontier, host_of
from scrapy_gp4c.crawling.setup_requests import Preamble
from scrapy_gp4c.crawling.stored_requests import META, PASSED, from_stored, is_page_request, to_stored
from scrapy_gp4c.errors import Gp4cError, StoreError
from scrapy_gp4c.policies.top_k import TopK
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import StoredRequest

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

COMMIT_INTERVAL_S: Final = 0.5
"""A fast crawl commits by number of visits; no visit of a slow one waits longer than twice this."""
RANK_LEVELS: Final = 64
"""Priorities that a plan is spread over: each distinct priority costs Scrapy's queue time at every pop."""
MIN_WINDOW_PAGES: Final = 16
MAX_SETTLED: Final = 100_000
"""Keys whose next request is skipped without a look into the store: about 10 MB."""
DUPLICATE: Final = "gp4c/skipped/duplicate"
NOT_PLANNED: Final = "gp4c/skipped/not_planned"
POSTPONED: Final = "gp4c/skipped/new_page_postponed"
"""Statistics of the requests that are dropped, and why."""


class RecrawlScheduler(Scheduler):
    """Opens a cycle, feeds its plan into the queue and admits new pages (DESIGN section 8).

    A plain GET to an unknown page is a new page; to a known page it is admitted if the plan has it and
    dropped otherwise. All else (POST, ``meta={"gp4c": False}``, retries, redirects) is Scrapy's as ever.
    """

    gp4c: Settings
    _cycle: Cycle | None = None
    _frontier: Frontier
    _fed = 0
    _warned = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler; raises SettingsError when a ``GP4C_*`` setting is wrong."""
        self = super().from_crawler(crawler)
        self.gp4c = Settings.load(crawler.settings)
        return self

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open queue and store, begin or resume a cycle; raises StoreError."""
        deferred = super().open(spider)
        assert self.crawler is not None
        assert self.crawler.request_fingerprinter is not None
        self._key = self.crawler.request_fingerprinter.fingerprint
        if not _is_crawl(spider, self.crawler):
            return deferred
        try:
            self._open_cycle(spider)
        except Gp4cError as error:  # said in one line before Scrapy's traceback
            logger.critical("Cannot begin a cycle (GP4C_STORE, GP4C_SCORE_FUNCTION): %s", error)
            raise
        return deferred

    def _open_cycle(self, spider: Spider) -> None:
        assert self.crawler is not None
        assert self.crawler.stats is not None
        store = open_store(self.gp4c.store_path(spider.name))
        try:
            cycle = Cycle(store, self.gp4c, TopK(self.gp4c), self.crawler.stats)
            remaining = array("Q", cycle.remaining())
            if cycle.resumed and not remaining:
                cycle.finish("resumed with nothing left to visit")
                cycle = Cycle(store, self.gp4c, TopK(self.gp4c), self.crawler.stats)
                remaining = array("Q", cycle.remaining())
        except BaseException:
            store.close()
            raise
        self._cycle = cycles[self.crawler] = cycle
        per_host = self.crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._frontier = Frontier(remaining, store.requests, max(MIN_WINDOW_PAGES, 2 * per_host))
        self._settled: dict[int, str] = {}
        self._preamble = Preamble(self.crawler)
        self._commit_call = create_looping_call(self._commit)
        self._commit_call.start(COMMIT_INTERVAL_S, now=False)
        self.crawler.signals.connect(self._close_store, signals.spider_closed)
        for name, value in {"cycle": cycle.number, "planned": cycle.planned}.items():
            self.crawler.stats.set_value(f"gp4c/{name}", value)
        logger.info("%s", messages.opening(cycle, len(remaining)), extra=self._extra)

    def close(self, reason: str) -> Deferred[None] | None:
        """End the cycle, unless the run was interrupted: then the next run resumes it."""
        if self._cycle is not None:
            if self._commit_call.running:
                self._commit_call.stop()
            self._cycle.end_lost()
            self._cycle.commit()
            if reason == "shutdown" or self._cycle.failure is not None:
                logger.info(
                    "Cycle %d is interrupted; the next run resumes it", self._cycle.number, extra=self._extra
                )
            else:
                self._finish(self._cycle, reason)
        return super().close(reason)

    def _finish(self, cycle: Cycle, reason: str) -> None:
        assert self.stats is not None
        record = cycle.finish(reason)
        if record["change_rate"] is not None:
            self.stats.set_value("gp4c/change_rate", record["change_rate"])
        if record["panel"] is not None:
            for name in ("changed_share", "freshness"):
                self.stats.set_value(f"gp4c/panel/{name}", record["panel"][name]["estimate"])
        logger.info("%s", messages.closing(cycle, record), extra=self._extra)

    def _commit(self) -> None:
        """Commit, and stop the crawl where that has become impossible: a full disk, for one."""
        assert self._cycle is not None
        assert self.crawler is not None
        if monotonic() - self._cycle.store.committed_s >= COMMIT_INTERVAL_S:
            self._cycle.commit()
        if self._cycle.failure is not None:
            self._commit_call.stop()
            logger.critical("%s", self._cycle.failure, extra=self._extra)
            assert self.crawler.engine is not None
            deferred_from_coro(self.crawler.engine.close_spider_async(reason="gp4c_store_failed"))

    def _close_store(self) -> None:
        assert self._cycle is not None
        try:
            self._cycle.store.close()
        except StoreError as error:
            logger.critical("%s", error, extra=self._extra)

    def has_pending_requests(self) -> bool:
        """Tell whether the queue or the plan still has requests."""
        return super().has_pending_requests() or (self._cycle is not None and len(self._frontier) > 0)

    def enqueue_request(self, request: Request) -> bool:
        """Admit, drop or pass a request; False when it is dropped."""
        cycle = self._cycle
        if cycle is None:
            return super().enqueue_request(request)
        mark = request.meta.get(META)
        if isinstance(mark, Claim) and cycle.is_under_way(mark):
            return self._enqueue_again(request, mark, cycle)
        if mark == PASSED or not is_page_request(request):
            return self._enqueue_untouched(request)
        return self._enqueue_page(request, cycle)

    def next_request(self) -> Request | None:
        """Return the next request to download, feeding the plan into the queue as it empties."""
        if self._cycle is not None and self._preamble.is_over():
            self._frontier.extend(self._cycle.further_pages())
            self._feed(None, self._cycle)
        while (request := super().next_request()) is not None:
            if self._cycle is None or self._leave_queue(request, self._cycle):
                return request
        return None

    def _enqueue_again(self, request: Request, visit: Claim, cycle: Cycle) -> bool:
        """Queue a retry or redirect of a visit under way: it costs no budget and ends the same visit."""
        visit = dataclasses.replace(visit, host=None)
        if self._enqueue_visit(request, visit):
            cycle.back_in_queue(visit)
            return True
        # Scrapy drops a redirect onto a URL it has already seen, and tells nobody.
        request.meta[META] = cycle.end(visit, "excluded")
        return False

    def _enqueue_untouched(self, request: Request) -> bool:
        if request.meta.get(META) is not False:
            request.meta[META] = PASSED
        queued = super().enqueue_request(request)
        if queued:
            self._preamble.queued()
        return queued

    def _enqueue_page(self, request: Request, cycle: Cycle) -> bool:
        store = cycle.store
        key = int.from_bytes(self._key(request)[:8], "big")
        if not request.dont_filter and (why := self._settled.get(key)) is not None:
            self._count(why)
            return False
        page = store.find(key)
        if page is not None and cycle.is_claimed(page):
            if request.dont_filter and cycle.is_repeated(page, request.meta.get(META)):
                return self._enqueue_untouched(request)
            cycle.asked.add(page)
            return self._skip(key, DUPLICATE)
        try:
            stored = to_stored(request, self.spider)
        except ValueError as error:
            self._warn_not_storable(request, error)
            return self._enqueue_untouched(request)
        visit: Claim | None
        if page is None:
            page = store.add_page(key, stored)
            visit = cycle.claim_new(page)
            self._count("gp4c/new_pages")
            if visit is None:
                return self._skip(key, POSTPONED)
        else:
            visit = cycle.claim(page)
            known = store.request(page)
            if stored != known and (visit is not None or _callbacks(stored) != _callbacks(known)):
                store.set_request(page, stored)
            if visit is None:
                return self._skip(key, NOT_PLANNED)
        cycle.asked.add(page)
        self._settle(key, DUPLICATE)
        if self._enqueue_visit(request, visit):
            return True
        request.meta[META] = cycle.end(visit, "excluded")
        return False

    def _skip(self, key: int, why: str) -> bool:
        self._settle(key, why)
        self._count(why)
        return False

    def _settle(self, key: int, why: str) -> None:
        """Skip further requests of a page in this run, which are most links of a site, at little cost."""
        if len(self._settled) >= MAX_SETTLED:
            self._settled.clear()
        self._settled[key] = why

    def _feed(self, host_done: str | None, cycle: Cycle) -> None:
        """Queue what the frontier has for now; a page it yields in vain gives its place to the next."""
        unused = [host_done]
        while unused:
            for page, stored in self._frontier.feed(unused.pop()):
                if not self._queue_planned(page, stored, cycle):
                    unused.append(host_of(stored["url"]))

    def _queue_planned(self, page: int, stored: StoredRequest, cycle: Cycle) -> bool:
        visit = cycle.claim(page, host_of(stored["url"]))
        if visit is None:  # the spider itself has requested it in the meantime
            return False
        try:
            request = from_stored(stored, self.spider)
        except AttributeError as error:
            logger.error(
                "Cannot revisit %s: %s. Rename the method back, or let the spider request the page again.",
                stored["url"],
                error,
                extra=self._extra,
            )
            cycle.end(visit, "error")
            return False
        level = self._fed * RANK_LEVELS // max(1, self._fed + len(self._frontier))
        request.priority += RANK_LEVELS - min(level, RANK_LEVELS - 1)
        self._fed += 1
        return self._enqueue_visit(request, visit)

    def _enqueue_visit(self, request: Request, visit: Claim) -> bool:
        """Queue a claimed page; False when Scrapy's duplicate filter drops it, which it may do to new pages.

        A known page ends with an outcome of its own: what other pages redirect to, or what an earlier run
        with the same JOBDIR fetched, must not decide it.
        """
        request.meta[META] = visit
        dont_filter = request.dont_filter  # it stays what the spider set: it bypasses the off-site filter too
        request.dont_filter = dont_filter or visit.host is not None or visit.kind != "new"
        queued = super().enqueue_request(request)
        request.dont_filter = dont_filter
        return queued

    def _leave_queue(self, request: Request, cycle: Cycle) -> bool:
        """Note that a request goes to the downloader; False when its visit is already over."""
        visit = request.meta.get(META)
        if not isinstance(visit, Claim):
            self._preamble.left_queue(request)
            return True
        if not cycle.is_under_way(visit):  # from the JOBDIR of an interrupted run
            claimed = cycle.claim(visit.page, "")
            if claimed is None:
                return False
            visit = request.meta[META] = dataclasses.replace(claimed, host=None)
        cycle.left_queue(visit)
        if visit.host is not None:
            self._feed(visit.host, cycle)
        return True

    def _count(self, stat: str) -> None:
        assert self.stats is not None
        self.stats.inc_value(stat)

    @property
    def _extra(self) -> dict[str, Any]:
        return {"spider": self.spider}

    def _warn_not_storable(self, request: Request, error: ValueError) -> None:
        self._count("gp4c/not_storable")
        if not self._warned:
            self._warned = True
            logger.info("%s", messages.not_storable(request, error), extra=self._extra)


def _is_crawl(spider: Spider, crawler: Crawler) -> bool:
    """Tell a crawl from `scrapy shell`, `fetch`, `parse` and `check`, which fetch only what was asked."""
    start: Any = type(spider).start
    slot: Any = getattr(crawler.engine, "_slot", None)
    is_shell = slot is not None and not slot.close_if_idle
    return not (is_shell or start.__module__.startswith("scrapy.commands."))


def _callbacks(stored: StoredRequest) -> tuple[Any, Any]:
    return stored.get("callback"), stored.get("errback")
