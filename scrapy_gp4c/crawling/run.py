"""One run of a crawl: admits requests, feeds the plan to Scrapy's queue, and plans round after round.

Scheduler and middleware work on the same run; the scheduler lends it Scrapy's queue.
"""

from __future__ import annotations

import dataclasses
import logging
from array import array
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.cycle import Claim, Cycle
from scrapy_gp4c.crawling.feeding import Feeder
from scrapy_gp4c.crawling.setup_requests import SetupRequests
from scrapy_gp4c.crawling.stored_requests import META, PASSED, is_page_request, page_key, to_stored
from scrapy_gp4c.errors import Gp4cError, StoreError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL, Sizes, open_store
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import StoredRequest

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

MAX_SETTLED: Final = 100_000
"""Keys whose next request is skipped without a look into the store: about 10 MB."""
PATIENCE_S: Final = 0.25
"""Free slots wait so long for the outcomes of a round; then the next is planned without the missing ones."""
DUPLICATE: Final = "gp4c/skipped/duplicate"
NOT_PLANNED: Final = "gp4c/skipped/not_planned"
POSTPONED: Final = "gp4c/skipped/new_page_postponed"
UNREADABLE: Final = "gp4c/skipped/unreadable"
"""Statistics of the requests that are dropped, and why."""

Enqueue = Callable[["Request"], bool]
"""Scrapy's own queue: False when its duplicate filter drops the request."""

runs: WeakKeyDictionary[Crawler, ReferenceType[Run]] = WeakKeyDictionary()
"""The run of each crawler, owned by its scheduler; weak, because a run leads back to its crawler."""


class Run:
    """What a crawl with an open cycle does with requests.

    A plain GET to an unknown page is a new page; to a known page it is admitted if the plan has it and
    dropped otherwise. All else (POST, ``meta={"gp4c": False}``, retries, redirects) is Scrapy's as ever.
    """

    def __init__(
        self, crawler: Crawler, store: PageStore, settings: Settings, spider: Spider, enqueue: Enqueue
    ) -> None:
        """Begin a cycle, or resume the one that is open. Raises PolicyError, ScoreError or StoreError."""
        assert crawler.stats is not None
        assert crawler.request_fingerprinter is not None
        self.stats = crawler.stats
        self._spider = spider
        self._enqueue = enqueue
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        cycle = Cycle(store, settings, self.stats)
        remaining = array("Q", cycle.remaining())
        if cycle.resumed and not remaining and cycle.rounds_over:
            cycle.finish("resumed with nothing left to visit")
            cycle = Cycle(store, settings, self.stats)
            remaining = array("Q", cycle.remaining())
        self.cycle = cycle
        per_host = crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._feeder = Feeder(cycle, remaining, per_host, spider, self._queue_claim)
        self._setup = SetupRequests(crawler)
        self._settled: dict[int, str] = {}
        self._warned = False
        self.idle_since_s: float | None = None
        """Since when free slots wait for the outcomes of a round (monotonic clock); None: they do not."""
        runs[crawler] = ref(self)
        for name, value in {"cycle": cycle.number, "planned": cycle.planned}.items():
            self.stats.set_value(f"gp4c/{name}", value)
        logger.info("%s", messages.opening(cycle, len(remaining)), extra=self.extra)

    @property
    def extra(self) -> dict[str, Any]:
        """What Scrapy wants with a log line."""
        return {"spider": self._spider}

    @property
    def has_more(self) -> bool:
        """Tell whether the plan still has pages to queue, or may come to have."""
        return len(self._feeder) > 0 or not (self.cycle.rounds_over or self.cycle.failure)

    # --- requests into the queue

    def admit(self, request: Request) -> bool:
        """Queue, drop or pass a request; False when it is dropped."""
        mark = request.meta.get(META)
        if isinstance(mark, Claim) and self.cycle.is_under_way(mark):
            return self._queue_again(request, mark)
        if mark == PASSED or not is_page_request(request):
            return self._queue_untouched(request)
        return self._admit_page(request)

    def _queue_again(self, request: Request, claim: Claim) -> bool:
        """Queue a retry or redirect of a visit under way: it costs no budget and ends the same visit."""
        claim = dataclasses.replace(claim, host=None)
        if self._queue_claim(request, claim):
            self.cycle.back_in_queue(claim)
            return True
        # Scrapy drops a redirect onto a URL it has already seen, and tells nobody.
        request.meta[META] = self.cycle.end(claim, "excluded")
        return False

    def _queue_untouched(self, request: Request) -> bool:
        if request.meta.get(META) is not False:
            request.meta[META] = PASSED
        queued = self._enqueue(request)
        if queued:
            self._setup.queued()
        return queued

    def _admit_page(self, request: Request) -> bool:
        cycle, store = self.cycle, self.cycle.store
        key = page_key(self._fingerprint(request))
        if not request.dont_filter and (why := self._settled.get(key)) is not None:
            self.stats.inc_value(why)
            return False
        page = store.find(key)
        if page is not None and cycle.is_claimed(page):
            if request.dont_filter and cycle.is_repeated(page, request.meta.get(META)):
                return self._queue_untouched(request)
            cycle.asked.add(page)
            return self._skip(key, DUPLICATE)
        try:
            stored = to_stored(request, self._spider)
        except ValueError as error:
            self._warn_not_storable(request, error)
            return self._queue_untouched(request)
        claim: Claim | None
        if page is None:
            page = store.add_page(key, stored)
            claim = cycle.claim_new(page)
            self.stats.inc_value("gp4c/new_pages")
            if claim is None:
                return self._skip(key, POSTPONED)
        else:
            claim = cycle.claim(page)
            known = store.request(page)
            if stored != known and (claim is not None or _callbacks(stored) != _callbacks(known)):
                store.set_request(page, stored)
            if claim is None:
                return self._skip(key, NOT_PLANNED)
        cycle.asked.add(page)
        self._settle(key, DUPLICATE)
        if self._queue_claim(request, claim):
            return True
        request.meta[META] = cycle.end(claim, "excluded")
        return False

    def _skip(self, key: int, why: str) -> bool:
        self._settle(key, why)
        self.stats.inc_value(why)
        return False

    def _settle(self, key: int, why: str) -> None:
        """Skip further requests of a page in this round, which are most links of a site, at little cost."""
        if len(self._settled) >= MAX_SETTLED:
            self._settled.clear()
        self._settled[key] = why

    def _queue_claim(self, request: Request, claim: Claim) -> bool:
        """Queue a claimed page; False when Scrapy's duplicate filter drops it, which it may do to new pages.

        A known page ends with an outcome of its own: what other pages redirect to, or what an earlier run
        with the same JOBDIR fetched, must not decide it.
        """
        request.meta[META] = claim
        dont_filter = request.dont_filter  # it stays what the spider set: it bypasses the off-site filter too
        request.dont_filter = dont_filter or claim.host is not None or claim.kind != "new"
        queued = self._enqueue(request)
        request.dont_filter = dont_filter
        return queued

    # --- the plan into the queue

    def feed(self, host_done: str | None = None) -> None:
        """Queue what is due of the plan; nothing before the requests are through that set up a session."""
        if self._setup.is_over():
            self._feeder.feed(host_done)

    def begin_round(self) -> bool:
        """Plan the next round where it is due, now that the queue is empty; True when it has pages.

        It is due when all pages of the rounds before have outcomes, or when free slots have waited for these
        long enough: a slow host holds up nobody.
        """
        cycle = self.cycle
        while not (cycle.rounds_over or cycle.failure) and self._setup.is_over() and not len(self._feeder):
            if cycle.awaits_outcomes:
                self.idle_since_s = self.idle_since_s or monotonic()
                if monotonic() - self.idle_since_s < PATIENCE_S:
                    return False
            self.idle_since_s = None
            try:
                pages = cycle.plan_round()
            except Gp4cError as error:
                logger.critical("No further round in cycle %d: %s", cycle.number, error, extra=self.extra)
                return False
            self._settled.clear()
            self.stats.set_value("gp4c/planned", cycle.planned)
            logger.info("%s", messages.next_round(cycle, len(pages)), extra=self.extra)
            self._feeder.extend(pages)
            self.feed()
            if pages:
                return True
        return False

    def leave_queue(self, request: Request) -> bool:
        """Note that a request goes to the downloader; False when its visit is already over."""
        self.idle_since_s = None
        claim = request.meta.get(META)
        if not isinstance(claim, Claim):
            self._setup.left_queue(request)
            return True
        if not self.cycle.is_under_way(claim):  # from the JOBDIR of an interrupted run
            claimed = self.cycle.claim(claim.page, "")
            if claimed is None:
                return False
            claim = request.meta[META] = dataclasses.replace(claimed, host=None)
        self.cycle.left_queue(claim)
        if claim.host is not None:
            self.feed(claim.host)
        return True

    def note_unreadable(self, error: Exception) -> None:
        """Note that a request in the queue cannot be read back; the first one is told."""
        if not self.stats.get_value(UNREADABLE):
            logger.warning("%s", messages.unreadable(error, UNREADABLE), extra=self.extra)
        self.stats.inc_value(UNREADABLE)

    def refeed(self) -> None:
        """Feed anew what the queue has lost, which is all that was in it."""
        self._setup.forget_queued()
        self._feeder.refeed(self.cycle.release_queued())
        self.feed()

    # --- the end

    def close(self, reason: str) -> None:
        """End the cycle, unless the run was interrupted: then the next run resumes it."""
        cycle = self.cycle
        cycle.end_lost()
        cycle.commit()
        if reason == "shutdown" or cycle.failure is not None:
            logger.info("Cycle %d is interrupted; the next run resumes it", cycle.number, extra=self.extra)
            return
        record = cycle.finish(reason)
        if record["change_rate"] is not None:
            self.stats.set_value("gp4c/change_rate", record["change_rate"])
        if record["panel"] is not None:
            for name in ("changed_share", "freshness"):
                self.stats.set_value(f"gp4c/panel/{name}", record["panel"][name]["estimate"])
        logger.info("%s", messages.closing(cycle, record), extra=self.extra)

    def close_store(self) -> None:
        """Close the store; what goes wrong then is one line."""
        try:
            self.cycle.store.close()
        except StoreError as error:
            logger.critical("%s", error, extra=self.extra)

    def _warn_not_storable(self, request: Request, error: ValueError) -> None:
        self.stats.inc_value("gp4c/not_storable")
        if not self._warned:
            self._warned = True
            logger.info("%s", messages.not_storable(request, error), extra=self.extra)


def open_run(
    crawler: Crawler, settings: Settings, spider: Spider, enqueue: Enqueue, sizes: Sizes = USUAL
) -> Run:
    """Open the spider's store, begin or resume its cycle. Raises Gp4cError; then the store is closed."""
    store = open_store(settings.store_path(spider.name), sizes=sizes)
    try:
        return Run(crawler, store, settings, spider, enqueue)
    except BaseException:
        store.close()
        raise


def _callbacks(stored: StoredRequest) -> tuple[Any, Any]:
    return stored.get("callback"), stored.get("errback")
