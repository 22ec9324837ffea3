"""One run of a crawl: admits requests, feeds the plan to Scrapy's queue, and plans round after round.

Scheduler and middleware work on the same run; the scheduler lends it Scrapy's queue.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
from array import array
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np
from pydispatch.robustapply import robustApply
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.extensions.feedexport import FeedExporter
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware
from scrapy.statscollectors import StatsCollector
from twisted.python.failure import Failure

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.admission import (
    FROM_CACHE,
    NO_DOWNLOAD,
    POSTPONED,
    Admission,
    Enqueue,
    SetupRequests,
    log_first,
)
from scrapy_gp4c.crawling.archiving import open_archive
from scrapy_gp4c.crawling.backups import Backups
from scrapy_gp4c.crawling.cycle import Cycle, VisitInfo
from scrapy_gp4c.crawling.downloads import Downloads, Load
from scrapy_gp4c.crawling.feeding import Feeder
from scrapy_gp4c.crawling.hidden_data import item_sum
from scrapy_gp4c.crawling.hints import HintReader
from scrapy_gp4c.crawling.measuring import Measuring
from scrapy_gp4c.crawling.neighbourhood import missing_clusters
from scrapy_gp4c.crawling.notifying import Notifier
from scrapy_gp4c.crawling.promises import unmatched_warning
from scrapy_gp4c.crawling.reports import collect_stats, count_without_text, resting_pages
from scrapy_gp4c.crawling.requests import (
    META,
    UNKNOWN_FINDER,
    Claim,
    Rebuilder,
    finder_for,
    finder_of,
    without_user,
)
from scrapy_gp4c.crawling.scrapy_internals import has_receivers, has_started, under_way, wake
from scrapy_gp4c.crawling.signalling import SignalSender
from scrapy_gp4c.crawling.store_owner import (
    RunWarnings,
    check_owner,
    new_store_warning,
    note_owner,
    set_mode,
    spider_arguments,
)
from scrapy_gp4c.errors import Gp4cError, StoreError
from scrapy_gp4c.foreign_text import counted, foreign_safe_logger
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.credentials import SECRET_PARAMS, Credentials
from scrapy_gp4c.store.opening import Store, open_store

logger = foreign_safe_logger(__name__)

MAX_ASKED: Final = 500
"""Most known pages whose URLs are compared with those of new pages at a run's end."""
PATIENCE_S: Final = 0.25
"""Seconds that free downloader slots wait for missing outcomes of a round, before the next is planned."""
START_PATIENCE_S: Final = 10.0
"""Seconds that planned pages wait for a spider's start that yields nothing."""

runs: WeakKeyDictionary[Crawler, ReferenceType[Run]] = WeakKeyDictionary()
"""Run of each crawler, which its scheduler owns; weak references, because a run refers to its crawler."""


class Run:
    """A run of a crawl: its open cycle, and what happens to requests on their way through the scheduler."""

    def __init__(
        self, crawler: Crawler, cycle: Cycle, remaining: array[int], spider: Spider, enqueue: Enqueue
    ) -> None:
        """Take an open cycle, and the `remaining` pages to visit in it. Raises StoreError.

        ``enqueue``: puts a request into Scrapy's queue.
        """
        assert crawler.stats is not None
        self.notifier = Notifier(cycle.store, cycle.settings, spider)
        self.backups = Backups(cycle.store.path, cycle.settings, {"spider": spider})
        self.sender = SignalSender(crawler, cycle)
        cycle.on_delivered = self.sender.visit_delivered
        self.stats = crawler.stats
        self.has_middleware = False
        """Whether responses of visits come to the add-on's middleware."""
        self._spider, self._enqueue = spider, enqueue
        self.warnings: RunWarnings | None = None
        self._crawler = crawler
        runs[crawler] = ref(self)
        self.cycle, store, settings = cycle, cycle.store, cycle.settings
        if named := sorted(set(settings.secret_params) - set(SECRET_PARAMS)):
            store.amend_record(secret_params=named)  # for readers of the store without these settings
        per_host = crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._setup = SetupRequests(crawler, cycle, START_PATIENCE_S)
        rebuilder = Rebuilder(crawler, spider, Credentials(settings.secret_params))
        self.hints = HintReader(cycle, rebuilder, spider)
        self._downloads: Downloads | None = None
        if cycle.rounds[1] is None:
            self._downloads = Downloads(crawler, len(np.unique(store.site_keys())), cycle.held)
        self.admission = Admission(cycle, rebuilder, self._setup, spider, self._note_and_enqueue)
        self._hears_idle = has_receivers(crawler, signals.spider_idle)
        self._feeder = Feeder(cycle, remaining, per_host, self.admission, crawler, self._hears_idle)
        self.doubted: Callable[[], list[int]] = list
        """Returns the fingerprints of texts that were doubted (blocks, say), of this and earlier cycles."""
        self._has_queued = False
        self.idle_since_s: float | None = None
        """Since when free downloader slots wait for outcomes (monotonic clock); None: no slot waits."""
        self._is_idle, self._requests_known = False, self.admission.requests_elsewhere
        self._passing = {int(status) for status in crawler.settings.getlist("RETRY_HTTP_CODES")}
        """Statuses of errors that may be over soon: Scrapy retries them."""
        if self._hears_idle:
            crawler.signals.connect(self._note_idle, signals.spider_idle)
        self._asked_with: int | None = None  # pages without an outcome when the policy last chose nothing
        crawler.signals.connect(self._note_error, signals.spider_error)
        crawler.signals.connect(self._note_error, signals.item_error)
        for name, value in {"cycle": cycle.number, "planned": cycle.planned}.items():
            self.stats.set_value(f"gp4c/{name}", value)
        logger.info("%s", messages.opening(cycle, len(remaining)), extra=self.extra)
        if settings.skip_unchanged and cycle.hidden_data.note_code(spider, cycle.number):
            edited = "The spider was edited: each page's callback runs at its next visit, unchanged or not."
            logger.info(edited, extra=self.extra)
        for line in (
            missing_clusters(settings, store),
            messages.other_policy(settings),
            messages.promises(cycle),
            messages.limited_sites(cycle),
            messages.left_alone(cycle.patience.left_alone),
        ):
            if line is not None:
                logger.warning("%s", line, extra=self.extra)

    @property
    def extra(self) -> dict[str, Any]:
        """Fields for the argument ``extra`` of a log call, as Scrapy's log lines have them."""
        return {"spider": self._spider}

    @property
    def has_more(self) -> bool:
        """Whether the plan has pages to queue, or may get some.

        Pages that wait for the idle signal (`_note_idle`) do not count: while this is true, it never comes.
        """
        late = len(self._feeder.late) if self._hears_idle else 0
        may_come = self._has_rest or not self.cycle.rounds_over
        return len(self._feeder) > late or (may_come and not self.cycle.failure)

    # --- the plan into the queue

    def feed(self, host_done: str | None = None) -> None:
        """Queue pages of the plan, as far as hosts have room, once the requests for a session have ended.

        ``host_done``: host of which a request has just left the queue; None: all hosts.
        """
        if self._setup.is_over():
            self._feeder.feed(host_done)

    def next_request(
        self, pop: Callable[[], Request | None], queued: Callable[[], Collection[str] | None]
    ) -> Request | None:
        """Return the next request to download, or None; the plan is fed into the queue as it empties.

        ``pop``: takes a request out of Scrapy's queue; ``queued``: the downloader slots of those in it, or
        None where nobody knows.
        """
        self.settle()
        self.feed()
        if self.admission.waiting_for_twins:
            self.admission.admit_twins()
        while True:
            load = self._load(queued)
            if load is Load.SAMPLED and self._begin_round(load):
                continue
            if load in (Load.FREE, Load.SAMPLED) and (request := pop()) is not None:
                self.idle_since_s = None
            elif self._begin_round(load):
                continue
            elif load is not Load.BUSY or self._leaves_room() or (request := pop()) is None:
                return None
            if (sent := self._leave_queue(request)) is not None:
                return sent

    def _load(self, queued: Callable[[], Collection[str] | None]) -> Load:
        """Return how busy queue and downloader are; `Load.FREE` if the policy plans no round of samples."""
        if self._downloads is None or self.cycle.rounds_over or (slots := queued()) is None:
            return Load.FREE
        load = self._downloads.load(slots, self.cycle.is_unrecorded)
        if load is Load.NONE and self._has_queued:
            self.idle_since_s = None  # only now nothing is left to send
        self._has_queued = load is not Load.NONE
        if load is Load.HELD:  # until the scheduler looks again
            self._note_wait()
        return load

    def _leaves_room(self) -> bool:
        """Whether to hold back queued pages of busy hosts, because a round may soon plan other hosts' pages.

        In the downloader they would take the room in which other hosts' pages could be sent at once.
        """
        downloads = self._downloads
        assert downloads is not None
        if not (downloads.rests() and downloads.may_feed_idle_host()):
            return False
        self._note_wait()
        return True

    def _note_wait(self) -> None:
        self.idle_since_s = self.idle_since_s or monotonic()

    def _awaits_start(self) -> bool:
        """Whether the spider's start may still yield requests; no longer than `START_PATIENCE_S`."""
        waited_s = 0.0 if self.idle_since_s is None else monotonic() - self.idle_since_s
        return not has_started(self._crawler) and waited_s <= START_PATIENCE_S

    def _begin_round(self, load: Load) -> bool:
        """Queue more pages, now that no queued one can be sent; returns whether there were any.

        In this order: pages deferred for lack of data, pages that waited for their finders, a new round if it
        is due, and what waits until all else is visited.
        """
        cycle = self.cycle
        if not self._setup.is_over():
            self._note_wait()
            return False
        if self._feeder.deferred and has_started(self._crawler) and not under_way(self._crawler):
            self._feeder.feed_deferred()
            return True
        if self._feeder.waiting and not under_way(self._crawler):
            # Only pages are left that wait for a finder without a visit: a start that never ends, say.
            self._note_wait()
            if self._awaits_start():
                return False
            self._feeder.release()
            return True
        while not (cycle.rounds_over or cycle.failure) and self._feeder.is_read:
            if cycle.without_outcome > len(self._feeder.late) and not self._is_due():
                self._note_wait()
                return False
            if self._plan_round(load):
                return True
        return self._feed_rest() or self._release_late()

    def _feed_rest(self) -> bool:
        """Queue the pages that wait until all others are visited; returns whether there were any.

        In this order: pages in place of those that cannot be requested or whose sites are left alone, new
        pages whose turn it is, and pages whose answer was doubtful.
        """
        cycle = self.cycle
        if not (self._has_rest and cycle.rounds_over):
            return False
        if under_way(self._crawler):  # their callbacks may yield requests
            self._note_wait()
            return False
        self.idle_since_s = None
        pages: list[int] = []
        if self.admission.admit_twins(may_wait=False):
            return True
        cycle.note_left_out(self._feeder.take_unasked())
        if cycle.has_left_out:
            try:
                pages = cycle.plan_instead()
            except Gp4cError as error:
                logger.critical("No visits in place of those left out: %s", error, extra=self.extra)
            if pages:
                logger.info("%s", messages.next_round(cycle, len(pages)), extra=self.extra)
                self.stats.set_value("gp4c/planned", cycle.planned)
        if not pages and cycle.first_visits.has_waiting:
            pages = cycle.first_visits.next_turns()
            self.stats.inc_value(POSTPONED, -len(pages))
        if not pages:
            again = cycle.next_to_ask_again()
            self.admission.offer_again(again)
            pages = list(again)
        self._feeder.extend(pages)
        self.feed()
        return bool(pages)

    @property
    def _has_rest(self) -> bool:
        cycle = self.cycle
        waiting = bool(self.admission.waiting_for_twins or self._feeder.unreplaced)
        has_rest = cycle.has_left_out or cycle.first_visits.has_waiting or cycle.has_to_ask_again
        return (waiting or has_rest) and not cycle.failure

    def _release_late(self) -> bool:
        """Queue the plan's pages that waited for the spider to request them, once it is idle; True if any."""
        if not self._feeder.late or under_way(self._crawler):
            return False
        self._note_wait()
        if self._awaits_start():
            return False
        if self._hears_idle:
            if not self._is_idle:
                return False
            # A queue that feeds an idle spider may do so again at the next signal.
            self._is_idle, known = False, self._requests_known
            self._requests_known = self.admission.requests_elsewhere
            if known != self._requests_known:
                return False
        self.idle_since_s = None
        self._feeder.release_late()
        return True

    def _note_idle(self) -> None:
        """Note that the spider is idle; keep it open (DontCloseSpider) if late pages have waited for that."""
        if self._feeder.late:
            self._is_idle = True
            wake(self._crawler)
            raise DontCloseSpider

    def _plan_round(self, load: Load) -> bool:
        cycle = self.cycle
        self.idle_since_s = None
        samples, begun_s = cycle.planned_kinds["sample"], monotonic()
        try:
            pages = cycle.plan_round()
        except Gp4cError as error:
            logger.critical("No further round in cycle %d: %s", cycle.number, error, extra=self.extra)
            return False
        self._asked_with = None if pages else cycle.without_outcome
        if self._downloads is not None and load is not Load.NONE:
            self._downloads.planned_ahead(cycle.planned_kinds["sample"] > samples if pages else None, begun_s)
        if not pages and cycle.rounds[1] is None:
            return False
        self.admission.forget_settled()
        self.stats.set_value("gp4c/planned", cycle.planned)
        logger.info("%s", messages.next_round(cycle, len(pages)), extra=self.extra)
        self._feeder.extend(pages)
        self.feed()
        return bool(pages)

    def _is_due(self) -> bool:
        """Whether to plan the next round though outcomes are missing, as nothing was sent for `PATIENCE_S`.

        A round of samples is due sooner: when a host is idle, and no outcome of a sample will come soon.
        """
        downloads = self._downloads
        if downloads is not None:
            if self._asked_with == self.cycle.without_outcome or downloads.rests():
                return False
            if not downloads.may_feed_idle_host():
                return False
            if not downloads.awaits(self.cycle.is_unrecorded):
                return True
        return self.idle_since_s is not None and monotonic() - self.idle_since_s >= PATIENCE_S

    def _note_and_enqueue(self, request: Request) -> bool:
        if self._downloads is not None and not self.cycle.rounds_over:
            self._downloads.expect(request)
        return self._enqueue(request)

    def _leave_queue(self, request: Request) -> Request | None:
        """Return the request that goes to the downloader; None when its visit is already over."""
        claim = request.meta.get(META)
        if not isinstance(claim, Claim):
            self._setup.left_queue(request)
            self.cycle.child_sent(finder_of(request, self.cycle.store) - 1, request)
            return request
        if not self.cycle.is_under_way(claim):  # from the JOBDIR of an interrupted run
            claimed = self.cycle.claim(claim.page, "")
            if claimed is None:
                return None
            claim = request.meta[META] = dataclasses.replace(claimed, host=None)
        if without_user(urlsplit(request.url).netloc) in self.cycle.patience.left_alone:
            self.cycle.leave_out(claim)
            self.cycle.chosen_left_out += claim.kind == "ranked"
            if claim.host is not None:
                self.feed(claim.host)
            return None
        self.cycle.left_queue(claim)
        if claim.host is not None:
            self.feed(claim.host)
        return self.admission.todays(request, claim)

    # --- deliveries

    def settle(self) -> None:
        """Record held visits whose callbacks and items have ended, and leave alone hosts that refuse."""
        if self.cycle.held or self.cycle.refusals:
            requests = under_way(self._crawler)
            self.cycle.settle(requests)
            self._leave_alone(self.cycle.count_refusals(requests))

    def _leave_alone(self, hosts: list[str]) -> None:
        if hosts:
            self.cycle.keep_left_alone()
        for host in hosts:
            line = messages.refusing(host, self.cycle.patience.left_alone[host])
            logger.warning("%s", line, extra=self.extra)

    def _note_error(self, failure: Failure, response: Response | None) -> None:
        if response is not None:  # else of a start, or of an item of a page event
            self.note_failure(response, failure.value)

    def watch_feeds(self) -> None:
        """Count a visit as not delivered if a feed does not take its item: Scrapy has no signal for that."""
        exporter = self._crawler.get_extension(FeedExporter)
        if exporter is None:
            return
        self._crawler.signals.disconnect(exporter.item_scraped, signals.item_scraped)
        self._crawler.signals.connect(self._export, signals.item_scraped)
        self._exporter = exporter

    def _export(self, item: Any, response: Response | None, spider: Spider) -> Any:
        try:  # a subclass may return an awaitable, for which Scrapy waits
            return robustApply(self._exporter.item_scraped, item=item, response=response, spider=spider)
        except Exception as error:
            if response is not None:
                self.note_failure(response, error)
                line = (
                    f"An item of {response.url} is not in its feed ({error}): the page is visited again. "
                    "Correct FEEDS, or the item."
                )
                log_first(self.stats, "gp4c/not_in_feed", line, self.extra, logging.ERROR)
            raise

    def note_failure(self, response: Response, error: BaseException | None) -> None:
        """Note that the callback of a response, or the pipeline of one of its items, has raised `error`."""
        request = response.request
        info = None if request is None else request.meta.get(META)
        if isinstance(info, VisitInfo):
            info.is_used = False
        held = getattr(info, "held", None)
        if held is None:  # the spider has put something else into the meta
            held = next((held for held in self.cycle.held.values() if held.request is request), None)
        if held is None and not (isinstance(error, HttpError) and response.status not in self._passing):
            held = self.cycle.held.get(finder_for(response) - 1)  # whose callback has sent a POST, say
        closes = isinstance(error, CloseSpider)
        if held is not None and not (closes and self.admission.note_close(held.claim.page)):
            held.failure = repr(error)[:200]

    def reaches_spider(self, request: Request, response: Response) -> bool:
        """Whether Scrapy passes a response with this status to the spider (`HttpErrorMiddleware`)."""
        errors = self._crawler.get_spider_middleware(HttpErrorMiddleware)
        try:
            if isinstance(errors, HttpErrorMiddleware):
                errors.process_spider_input(response.replace(request=request))
        except HttpError:
            return False
        return True

    def note_download(self, finder: int) -> None:
        """Note that the callback of `finder` downloads more by itself, and so has to run always."""
        if finder not in (UNKNOWN_FINDER, START) and self.cycle.is_ahead(finder - 1):
            self.admission.need_callback(finder - 1, "always")

    def note_lost_file(self, finder: int) -> None:
        """Note that a file of an item of the page `finder` (as by `finder_for`) could not be downloaded."""
        if (held := self.cycle.held.get(finder - 1)) is not None:
            held.lacks_file = True

    def note_shared(self, objects: list[tuple[object, bytes, str, bool]], url: str) -> None:
        """Note objects (see `PageResult.shared`) in a request's data that other requests may share."""
        for shared in objects:
            if self.admission.data.shared.note_use(*shared):
                line = (
                    "With GP4C_FETCHERS, callbacks of two fetchers have changed copies of the same data, "
                    f"such as an item that pages of several hosts fill. One is that of {url}: the item lacks "
                    "this part. Send the requests one after another, or await downloads in one callback."
                )
                log_first(self.stats, "gp4c/shared_data_copied", line, self.extra, logging.WARNING)

    def note_item(self, item: Any, response: Response | None) -> None:
        """Add an item to the checksum of its page's items, which shows whether callbacks read hidden data."""
        if (held := self.cycle.held.get(finder_for(response) - 1)) is not None:
            held.item_sum += item_sum(item)

    def note_reached(self, info: VisitInfo) -> None:
        """Note that the response of a visit, by its result `info`, has come to the spider."""
        self.cycle.sees_responses = info.is_used = True
        if info.held is not None:
            info.held.is_reached = True

    def note_unreadable(self, error: Exception) -> None:
        """Note that a request in the queue cannot be read back; the first one is logged."""
        line = (
            f"A request in the JOBDIR cannot be read ({error!r}) and is left out; planned pages are visited "
            "all the same."
        )
        log_first(self.stats, "gp4c/skipped/unreadable", line, self.extra, logging.WARNING)

    def refeed(self) -> None:
        """Feed the plan's unsent pages again, as the queue has lost its requests."""
        self._setup.forget_queued()
        self._feeder.refeed(self.cycle.release_queued())
        self.feed()

    # --- the end

    def close(self, reason: str) -> None:
        """End the cycle, unless the run was interrupted: then the next run resumes it.

        An error that keeps the cycle from being closed is put into its `failure`.
        """
        cycle = self.cycle
        self.admission.count_duplicates()
        cycle.settle((), is_closing=True)
        self._leave_alone(cycle.count_refusals(()))
        if cycle.failure is None:  # else the store may be beyond reading; the next run visits them
            cycle.end_lost()
            if reason != "shutdown":
                cycle.end_doubted()
        cycle.commit()
        if reason == "shutdown" or cycle.failure is not None:
            logger.info("Cycle %d is interrupted; the next run resumes it", cycle.number, extra=self.extra)
            return
        self._feeder.end_unasked()
        self.admission.keep_closers()
        self.admission.need_shared_callbacks()
        if cycle.settings.skip_unchanged:
            cycle.hidden_data.keep_spider(self.admission.rebuilder.spider)
        self.admission.data.warn()
        if has_started(self._crawler) and (earlier := self.admission.pages_of_earlier_start()):
            url = self.admission.rebuilder.credentials.url(cycle.store.request(earlier[0])["url"])
            logger.warning("%s", messages.earlier_start(cycle, earlier, url), extra=self.extra)
        if (cause := self._idle_cause()) is not None:
            logger.warning("scrapy-gp4c found nothing to do: %s", cause, extra=self.extra)
        is_explained = cause is not None or any(map(self.stats.get_value, (FROM_CACHE, NO_DOWNLOAD)))
        try:
            self._leave_alone(cycle.patience.end())
            requested = [page for page in self.admission.restored if page < cycle.store.merged_pages]
            urls = [stored["url"] for stored in cycle.store.requests(requested[:MAX_ASKED])]
            for line in (*cycle.repeats.finish(), *cycle.repeats.parts.finish(urls, len(requested))):
                logger.warning("%s", line, extra=self.extra)
            self.notifier.cycle_ends()
            record = cycle.finish(reason)
        except Gp4cError as error:
            cycle.failure = error
            return
        self.notifier.cycle_ended()
        collect_stats(self.stats, cycle.store, cycle.settings, record)
        logger.info("%s", messages.closing(cycle, record), extra=self.extra)
        lines = []
        if unmatched := cycle.rules.unmatched():
            lines.append(unmatched_warning(unmatched))
        if reason != "finished" and cycle.without_outcome:
            lines.append(messages.cut_short(cycle, reason))
        elif not record["visited"] and not is_explained:
            waiting = resting_pages(cycle.store, cycle.settings, cycle.number)
            lines.append(messages.nothing_visited(cycle, waiting))
        if pages := count_without_text(cycle.store):
            lines.append(messages.without_text(pages))
        for line in lines:
            logger.warning("%s", line, extra=self.extra)

    def _idle_cause(self) -> str | None:
        """Why the add-on does nothing in this crawl, with the remedy; None: it does something."""
        if not self.stats.get_value("response_received_count"):
            return None
        if not self.has_middleware:
            return (
                "DOWNLOADER_MIDDLEWARES leaves out scrapy_gp4c.middleware.FingerprintMiddleware, which judges"
                " visits. Set it to 5, or remove the entry."
            )
        if self.cycle.number >= 2 and not self.cycle.store.pages:
            return (
                "in two cycles, no request was a plain GET of a web page. POST requests, other "
                'schemes and meta={"gp4c": False} are left alone; crawl pages by GET, or remove the add-on.'
            )
        return None

    def close_store(self) -> None:
        """Close the store, then the search index and the archive; an error is one log line."""
        try:
            self.cycle.store.close()
        except StoreError as error:
            if self.cycle.failure is None:  # else it has been said
                logger.critical("%s", error, extra=self.extra)
        for resource in (self.cycle.measuring, self.cycle.archive):
            if resource is not None:
                resource.close()
        if self.warnings is not None:
            self.warnings.keep(self.cycle.store.path)
        set_mode(self.cycle.store.path, self.cycle.settings.store_mode)  # of files that this run has made


def run_of(crawler: Crawler) -> Run | None:
    """Return the run of a crawler; None: it has none, as under `scrapy shell`."""
    run = runs.get(crawler)
    return None if run is None else run()


def open_run(crawler: Crawler, settings: Settings, spider: Spider, enqueue: Enqueue) -> Run:
    """Return a run on the spider's store, with a cycle begun or resumed. Raises Gp4cError, the store closed.

    ``enqueue``: puts a request into Scrapy's queue.
    """
    arguments = spider_arguments(spider, Credentials(settings.secret_params))
    path = settings.store_path(spider.name, arguments)
    check_owner(path, spider, crawler.settings["BOT_NAME"])
    with ExitStack() as opened:  # what is open is closed where anything raises
        store = opened.enter_context(open_store(path))
        note_owner(path, spider, crawler, arguments)
        set_mode(path, settings.store_mode)
        warnings = RunWarnings(spider)
        opened.callback(warnings.keep, path)
        others = (
            () if store.pages or not arguments else (one for one in settings.store_paths() if one != path)
        )
        if (line := new_store_warning(spider, arguments, others)) is not None:
            logger.warning("%s", line, extra={"spider": spider})
        checked = counted(store.check_sample(), "checksum is", "checksums are")
        logger.info("Store %s: %s right", store.path.absolute(), checked, extra={"spider": spider})
        index = None
        if settings.query_log is not None:
            index = opened.enter_context(closing(Measuring(store, settings)))
            opened.callback(store.before_commit, lambda: None)
        if (archive := open_archive(store, settings, spider)) is not None:
            opened.enter_context(closing(archive))
        assert crawler.stats is not None
        cycle, remaining = _begin_or_resume(store, settings, crawler.stats, index, spider)
        run = Run(crawler, cycle, remaining, spider, enqueue)
        run.cycle.archive, run.warnings = archive, warnings
        opened.pop_all()
        return run


def _begin_or_resume(
    store: Store,
    settings: Settings,
    stats: StatsCollector,
    measuring: Measuring | None,
    spider: Spider,
) -> tuple[Cycle, array[int]]:
    """Begin a cycle, or resume the open one; returns it with the pages that it still has to visit.

    Raises PolicyError, ScoreError or StoreError.
    """
    cycle = Cycle(store, settings, stats, measuring)
    remaining = cycle.remaining()
    if cycle.resumed and not remaining and cycle.rounds_over and not _is_untouched(cycle):
        notifier = Notifier(store, settings, spider)
        notifier.cycle_ends()
        cycle.finish("resumed with nothing left to visit")
        notifier.cycle_ended()
        cycle = Cycle(store, settings, stats, measuring)
        remaining = cycle.remaining()
    return cycle, remaining


def _is_untouched(cycle: Cycle) -> bool:
    """Whether a cycle has neither plan nor visit, as a run was killed before it had any."""
    is_empty = not cycle.planned and not len(cycle.store.open_visits())
    return is_empty and cycle.record["plan"]["known"] == cycle.store.pages


def freeze_gc(crawler: Crawler, full_after: int | None = None) -> None:
    """Leave all present objects out of garbage collections until the spider is closed.

    Most are modules and stay anyway. A full collection would walk them for some 50 ms, and a crawl that is as
    fast as it can asks for several a second. Of unused objects, only those that refer to one another wait
    for the end. If a program has frozen objects itself, nothing is done, as `gc.unfreeze` thaws all.
    ``full_after``: number of collections of the middle generation for each full one; None: as it is.
    """
    if gc.get_freeze_count():
        return
    gc.freeze()
    thresholds = gc.get_threshold()
    if full_after is not None:
        gc.set_threshold(*thresholds[:2], full_after)

    def thaw() -> None:
        gc.unfreeze()
        gc.set_threshold(*thresholds)

    crawler.signals.connect(thaw, signals.spider_closed, weak=False)
