"""One run of a crawl: admits requests, feeds the plan to Scrapy's queue, and plans round after round.

Scheduler and middleware work on the same run; the scheduler lends it Scrapy's queue.
"""

from __future__ import annotations

import dataclasses
import logging
from array import array
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.admission import Admission, Enqueue
from scrapy_gp4c.crawling.archiving import open_archive
from scrapy_gp4c.crawling.claims import Claim
from scrapy_gp4c.crawling.clusters import missing
from scrapy_gp4c.crawling.counting import page_counts
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.feeding import Feeder
from scrapy_gp4c.crawling.hints import HintReader
from scrapy_gp4c.crawling.measuring import Measuring, measuring
from scrapy_gp4c.crawling.rebuilding import Rebuilder
from scrapy_gp4c.crawling.setup_requests import SetupRequests
from scrapy_gp4c.crawling.stored_requests import META
from scrapy_gp4c.errors import Gp4cError, StoreError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.credentials import SECRET_PARAMS, Credentials
from scrapy_gp4c.store.opening import USUAL, Sizes, open_store
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 0.25
"""Free slots wait so long for the outcomes of a round; then the next is planned without the missing ones."""
UNREADABLE: Final = "gp4c/skipped/unreadable"
"""Statistic of the requests in a JOBDIR that cannot be read back."""

runs: WeakKeyDictionary[Crawler, ReferenceType[Run]] = WeakKeyDictionary()
"""The run of each crawler, owned by its scheduler; weak, because a run leads back to its crawler."""


class Run:
    """What a crawl with an open cycle does with requests."""

    def __init__(
        self, crawler: Crawler, cycle: Cycle, remaining: array[int], spider: Spider, enqueue: Enqueue
    ) -> None:
        """Take an open cycle, and the pages that it still has to visit. Raises StoreError."""
        assert crawler.stats is not None
        self.stats = crawler.stats
        self._spider = spider
        self.cycle, store, settings = cycle, cycle.store, cycle.settings
        if named := sorted(set(settings.secret_params) - set(SECRET_PARAMS)):
            store.amend_record(secret_params=named)  # for who reads the store without these settings
        per_host = crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._setup = SetupRequests(crawler)
        rebuilder = Rebuilder(crawler, spider, Credentials(settings.secret_params))
        self.hints = HintReader(cycle, rebuilder, spider) if settings.hints else None
        self._admission = Admission(cycle, rebuilder, self._setup, spider, enqueue)
        self._feeder = Feeder(cycle, remaining, per_host, rebuilder, self._admission.queue_claim)
        self.admit = self._admission.admit
        self.idle_since_s: float | None = None
        """Since when free slots wait for the outcomes of a round (monotonic clock); None: they do not."""
        runs[crawler] = ref(self)
        for name, value in {"cycle": cycle.number, "planned": cycle.planned}.items():
            self.stats.set_value(f"gp4c/{name}", value)
        logger.info("%s", messages.opening(cycle, len(remaining)), extra=self.extra)
        for line in (missing(settings, store), messages.other_policy(settings)):
            if line is not None:
                logger.warning("%s", line, extra=self.extra)

    @property
    def extra(self) -> dict[str, Any]:
        """What Scrapy wants with a log line."""
        return {"spider": self._spider}

    @property
    def has_more(self) -> bool:
        """Tell whether the plan still has pages to queue, or may come to have."""
        return len(self._feeder) > 0 or not (self.cycle.rounds_over or self.cycle.failure)

    @property
    def may_send(self) -> bool:
        """Tell whether requests may be sent now."""
        return True

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
        if self._feeder.has_deferred and self._setup.is_over() and self._setup.is_quiet():
            self._feeder.feed_deferred()
            return True
        while not (cycle.rounds_over or cycle.failure) and self._setup.is_over() and not len(self._feeder):
            if cycle.awaits_outcomes:
                self.idle_since_s = self.idle_since_s or monotonic()
                if monotonic() - self.idle_since_s < PATIENCE_S:
                    return False
            if not self._may_plan():
                return False
            self.idle_since_s = None
            try:
                pages = cycle.plan_round()
            except Gp4cError as error:
                logger.critical("No further round in cycle %d: %s", cycle.number, error, extra=self.extra)
                return False
            if not pages and cycle.rounds[1] is None:
                continue
            self._admission.forget_settled()
            self.stats.set_value("gp4c/planned", cycle.planned)
            logger.info("%s", messages.next_round(cycle, len(pages)), extra=self.extra)
            self._feeder.extend(pages)
            self.feed()
            if pages:
                return True
        return False

    def _may_plan(self) -> bool:
        """Tell whether the next round can be planned now, where others have a say in it."""
        return True

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
        """End the cycle, unless the run was interrupted: then the next run resumes it.

        What makes that impossible is noted in the cycle's `failure`.
        """
        cycle = self.cycle
        if cycle.failure is None:  # else the store may be beyond reading; the next run visits them
            cycle.end_lost()
        cycle.commit()
        if reason == "shutdown" or cycle.failure is not None:
            logger.info("Cycle %d is interrupted; the next run resumes it", cycle.number, extra=self.extra)
            return
        self._feeder.end_unasked()
        try:
            record = cycle.finish(reason)
        except Gp4cError as error:
            cycle.failure = error
            return
        self._tell(record)
        logger.info("%s", messages.closing(cycle, record), extra=self.extra)

    def _tell(self, record: CycleRecord) -> None:
        """Say in statistics what `scrapy gp4c status` would say now."""
        told: dict[str, float | None] = {
            name: record[name] for name in ("judged", "changed", "change_rate", "known")
        }
        counts = page_counts(self.cycle.store, self.cycle.settings)
        told |= {f"pages/{name.replace(' ', '_')}": count for name, count in counts.items()}
        if (found := record["panel"]) is not None:
            told["panel/judged"] = found["judged"]
            for name in ("changed_share", "freshness"):
                told[f"panel/{name}"] = found[name]["estimate"]
                told |= {f"panel/{name}_{end}": found[name][end] for end in ("low", "high")}
        if "gained" in record:
            told["gained_ppm"] = record["gained"][1]
        for name, value in told.items():
            if value is not None:
                self.stats.set_value(f"gp4c/{name}", value)

    def close_store(self) -> None:
        """Close the store, then the search index and the archive; what goes wrong then is one line."""
        try:
            self.cycle.store.close()
        except StoreError as error:
            if self.cycle.failure is None:  # else it has been said
                logger.critical("%s", error, extra=self.extra)
        for beside in (self.cycle.measuring, self.cycle.archive):
            if beside is not None:
                beside.close()


def hear(crawler: Crawler, response: Response, visit: Claim | None) -> None:
    """Read what a response claims, just before its visit, if it is one, is recorded: a commit has both or
    none."""
    found = runs.get(crawler)
    run = found() if found is not None else None
    if run is not None and run.hints is not None:
        run.hints.read(response, None if visit is None else visit.page)


def open_run(
    crawler: Crawler, settings: Settings, spider: Spider, enqueue: Enqueue, sizes: Sizes = USUAL
) -> Run:
    """Open the spider's store, begin or resume its cycle. Raises Gp4cError; then the store is closed."""
    if settings.map_size_bytes is not None:
        sizes = sizes._replace(map_size=settings.map_size_bytes)
    store = open_store(settings.store_path(spider.name), sizes=sizes)
    try:
        logger.info("Store %s: %s", store.path, store.look_over(), extra={"spider": spider})
        index, archive = measuring(store, settings), None
        try:
            archive = open_archive(store, settings, spider)
            assert crawler.stats is not None
            run = Run(crawler, *_begun(store, settings, crawler.stats, index), spider, enqueue)
            run.cycle.archive = archive
            return run
        except BaseException:
            store.before_commit(lambda: None)
            for beside in (index, archive):
                if beside is not None:
                    beside.close()
            raise
    except BaseException:
        store.close()
        raise


def _begun(
    store: PageStore, settings: Settings, stats: StatsCollector, measuring: Measuring | None
) -> tuple[Cycle, array[int]]:
    """Begin a cycle, or resume the one that is open; with the pages that it still has to visit.

    Raises PolicyError, ScoreError or StoreError.
    """
    cycle = Cycle(store, settings, stats, measuring)
    remaining = array("Q", cycle.remaining())
    if cycle.resumed and not remaining and cycle.rounds_over and not _is_untouched(cycle):
        cycle.finish("resumed with nothing left to visit")
        cycle = Cycle(store, settings, stats, measuring)
        remaining = array("Q", cycle.remaining())
    return cycle, remaining


def _is_untouched(cycle: Cycle) -> bool:
    """Tell whether a run was killed before anything came of its cycle: then the next run is its first."""
    is_empty = not cycle.planned and not len(cycle.store.open_visits())
    return is_empty and cycle.record["plan"]["known"] == cycle.store.pages
