"""Notices of a run: its cycle's events, put into the outbox before the cycle ends, and sent afterwards."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.defer import deferred_from_coro

from scrapy_gp4c import signals
from scrapy_gp4c.archive.differences import differences, shown
from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.arrays import Array
from scrapy_gp4c.crawling.admission import log_first
from scrapy_gp4c.crawling.awaiting import awaitable
from scrapy_gp4c.crawling.reports import page_counts
from scrapy_gp4c.crawling.scrapy_internals import has_receivers, is_scraping, item_done
from scrapy_gp4c.errors import ArchiveError, Gp4cError
from scrapy_gp4c.fingerprint.sketches import is_changed
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.notices.events import PageEvent, item_of, page_events
from scrapy_gp4c.notices.feeds import ENTRIES, write_feed
from scrapy_gp4c.notices.metrics import metrics, write_metrics
from scrapy_gp4c.notices.outbox import Outbox
from scrapy_gp4c.notices.receivers import DEFAULT_EVENTS
from scrapy_gp4c.notices.sending import deliver
from scrapy_gp4c.page_state.events import (
    EVENTS,
    CycleEvents,
    events_of,
    kinds_of_visit,
    last_events,
    recorded_events,
)
from scrapy_gp4c.page_state.outcomes import (
    CHANGED,
    COPIED,
    FIRST,
    NO_DISTANCE,
    OUTCOMES,
    SAME,
    UNCHANGED,
    among,
)
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import ARCHIVE

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_gp4c.crawling.cycle import Cycle
    from scrapy_gp4c.notices.events import Diff
    from scrapy_gp4c.page_state.columns import PageRow
    from scrapy_gp4c.settings import Settings
    from scrapy_gp4c.store.protocols import PageStore
    from scrapy_gp4c.store.records import NewVisit

logger = foreign_safe_logger(__name__)

NO_ITEM: Final = "gp4c/change_item_too_late"
"""Statistic of events that came when no item could be sent any more."""
SIGNALS: Final = {kind: getattr(signals, f"page_{kind}") for kind in EVENTS}
"""Kind of an event -> its signal."""


class Notifier:
    """Tells receivers, a command, a feed and metrics of a run what its cycle found."""

    def __init__(self, store: PageStore, settings: Settings, spider: Spider) -> None:
        self._store, self._settings, self._spider = store, settings, spider
        self._outbox = Outbox(Path(store.path))

    @property
    def is_on(self) -> bool:
        """Whether anybody is to be told of events."""
        return bool(self._settings.notify or self._settings.on_change)

    def cycle_ends(self) -> None:
        """Put the messages about the open cycle into the outbox, just before the cycle is finished.

        The first cycle has nothing but new pages: it tells nobody.
        """
        cycle = self._store.open_cycle
        if not self.is_on or cycle is None or cycle == 1:
            return
        visits = delivered_visits(self._store, self._settings.distance_bits)
        events = open_cycle_events(self._store, self._settings.gone_after, visits)
        records = list(self._records(events))
        try:
            self._outbox.put(cycle, self._settings.notify, records, command=bool(self._settings.on_change))
        except OSError as error:
            self._warn("No notices of cycle %d are sent: %s", cycle, error)

    def cycle_ended(self) -> None:
        """Write the feed and the metrics, after the cycle is finished."""
        settings, store, spider = self._settings, self._store, self._spider.name
        try:
            if settings.feed:
                with open_texts(store) as texts:
                    events = recent_events(store, settings, spider, texts.diff)
                    write_feed(Path(settings.feed), spider, store.store_id, events)
                self._warn_of(texts)
            if settings.metrics:
                record = store.cycles()[-1]
                write_metrics(Path(settings.metrics), metrics(spider, record, page_counts(store, settings)))
        except (Gp4cError, OSError) as error:
            self._warn("The feed or the metrics are not written: %s", error)

    async def send(self) -> None:
        """Send what waits in the outbox, off the reactor; a failing receiver is one warning."""
        if self.is_on:
            thread = ThreadPoolExecutor(1, "gp4c-notices")
            await awaitable(thread.submit(self._send))
            thread.shutdown(wait=False)

    def _send(self) -> None:
        try:
            for problem in deliver(self._outbox, self._settings.notify, self._settings.on_change):
                self._warn("%s", problem)
        except OSError as error:
            self._warn("Notices wait for the next run: %s", error)

    def _records(self, events: CycleEvents) -> Iterator[PageEvent]:
        credentials = Credentials(self._settings.secret_params)
        with open_texts(self._store) as texts:
            requests = self._store.requests
            yield from page_events(events, self._spider.name, requests, credentials.url, texts.diff)
        self._warn_of(texts)

    def _warn_of(self, texts: StoredTexts) -> None:
        if texts.problem is not None:
            self._warn("Notices lack differences: %s", texts.problem)

    def _warn(self, line: str, *values: Any) -> None:
        logger.warning(line, *values, extra={"spider": self._spider})


class SignalSender:
    """Sends the signals of `scrapy_gp4c.signals` of one crawl, and items of events where they are wanted."""

    def __init__(self, crawler: Crawler, cycle: Cycle) -> None:
        self._crawler, self._cycle = crawler, cycle
        self._url = Credentials(cycle.settings.secret_params).url
        self._items_under_way = 0
        if cycle.settings.change_items:
            crawler.signals.connect(self._stay_open, scrapy_signals.spider_idle)

    def _stay_open(self) -> None:
        """Keep the spider open while pipelines have items of events, the last visits' included."""
        self._cycle.settle(())
        if self._items_under_way:
            raise DontCloseSpider

    def visit_delivered(self, row: PageRow, visit: NewVisit) -> None:
        """Send the signals of a visit's events; ``row``: its page before the visit."""
        outcome = OUTCOMES.index(visit.outcome)
        if outcome in SAME and not row.gone:  # as most visits
            return
        heard = {kind for kind, signal in SIGNALS.items() if has_receivers(self._crawler, signal)}
        with_items = self._cycle.settings.change_items
        if not heard and not with_items:  # as in most crawls: the arrays of one visit would cost more
            return
        for kind in kinds_of_visit(outcome, row.failures, row.gone, self._cycle.settings.gone_after):
            if kind in heard or with_items:
                event = self._event(kind, row, visit)
                if kind in heard:
                    self._send(SIGNALS[kind], event)
                if with_items:
                    self._items_under_way += 1
                    deferred_from_coro(self._send_item(event))

    async def _send_item(self, event: PageEvent) -> None:
        try:
            if is_scraping(self._crawler):
                assert self._crawler.engine is not None
                await self._crawler.engine.scraper.start_itemproc_async(item_of(event), response=None)
            else:
                line = f"The {event.kind} event of {event.url} is no item: the spider was closing."
                extra = {"spider": self._crawler.spider}
                log_first(self._cycle.stats, NO_ITEM, line, extra, logging.WARNING)
        finally:
            self._items_under_way -= 1
            item_done(self._crawler)

    def _event(self, kind: str, row: PageRow, visit: NewVisit) -> PageEvent:
        spider, request = self._crawler.spider, self._cycle.store.request(visit.page)
        assert spider is not None
        return PageEvent(
            kind=kind,
            url=self._url(request["url"]),
            spider=spider.name,
            cycle=self._cycle.number,
            time=visit.time,
            previous_time=None,
            outcome=visit.outcome,
            distance=None if visit.distance == NO_DISTANCE else visit.distance,
            changes=row.X + (visit.outcome == "changed"),
            reason=visit.kind,
            tag=request.get("meta", {}).get("gp4c_tag"),
        )

    def _send(self, signal: object, event: PageEvent) -> None:
        manager, spider = self._crawler.signals, self._crawler.spider
        deferred_from_coro(manager.send_catch_log_async(signal, event=event, spider=spider))


def delivered_visits(store: PageStore, distance_bits: int) -> Array:
    """Delivered visits of the open cycle, and failed ones, with their outcomes since the last delivery."""
    visits, records = store.open_visits(), store.cycles()
    now = {int(page) for page in records[-1].get("undelivered", {})}
    visits = visits[~(np.isin(visits["page"], sorted(now)) & among(visits["outcome"], COPIED))].copy()
    before = records[-2].get("undelivered", {}) if len(records) > 1 else {}
    for page, (_, fingerprint, _, is_new, key) in before.items():
        for row in np.flatnonzero((visits["page"] == int(page)) & among(visits["outcome"], COPIED)):
            if store.page(int(page)).key != key:
                continue
            is_other = fingerprint is None or is_changed(
                int(visits["fingerprint"][row]), fingerprint, distance_bits
            )
            visits["outcome"][row] = FIRST if is_new else CHANGED if is_other else UNCHANGED
    return visits


def open_cycle_events(store: PageStore, gone_after: int, visits: Array | None = None) -> CycleEvents:
    """Events of the open cycle so far; ``visits``: of these of its visits, None: of all."""
    cycle, visits = store.open_cycle, store.open_visits() if visits is None else visits
    assert cycle is not None
    before = {name: np.zeros(len(visits), np.int64) for name in ("failures", "gone", "X", "last_attempt")}
    known = np.flatnonzero(visits["page"] < store.merged_pages)
    known = known[np.argsort(visits["page"][known])]
    columns = store.columns_of(visits["page"][known])
    for name, column in before.items():
        column[known] = columns[name]
    # The store knows the cycle of a page's last visit, not its time: the start of that cycle stands for it.
    starts_s = np.full(cycle + 1, np.nan)
    for record in store.cycles():
        if (started := record.get("started")) is not None:
            starts_s[record["cycle"]] = started
    return events_of(cycle, visits, before, starts_s[before["last_attempt"]], gone_after)


def recent_events(
    store: PageStore, settings: Settings, spider: str, diff: Diff | None
) -> Iterator[PageEvent]:
    """Yield the newest recorded events of a feed, oldest first, as far as visits are kept.

    The first cycle has nothing but new pages and is left out. Differences are made of these events alone.
    """
    newest: deque[CycleEvents] = deque()
    for events in recorded_events(store.visits(), store.pages, settings.gone_after, first_cycle=2):
        newest.append(last_events(events, DEFAULT_EVENTS, ENTRIES))
        while sum(len(one.kinds) for one in newest) - len(newest[0].kinds) >= ENTRIES:
            newest.popleft()
    public_url = Credentials(settings.secret_params).url
    for events in newest:
        yield from page_events(events, spider, store.requests, public_url, diff)


class StoredTexts:
    """Archive of a store for reading; nothing of it is missing where ``problem`` is None."""

    def __init__(self, store: PageStore, texts: Texts | None, problem: ArchiveError | None) -> None:
        self._store, self._texts = store, texts
        self.problem = problem

    @property
    def diff(self) -> Diff | None:
        """Function for the differences that a visit found; None without an archive."""
        return None if self._texts is None else self._diff

    def _diff(self, page: int, cycle: int, fingerprint: int) -> tuple[str, ...] | None:
        assert self._texts is not None
        try:
            pair = self._texts.pair(self._store.page(page).key, cycle, fingerprint)
        except ArchiveError as error:
            self.problem = error
            return None
        return None if pair is None else tuple(shown(differences(*pair)))


@contextmanager
def open_texts(store: PageStore) -> Iterator[StoredTexts]:
    """Archive of a store, open for reading; empty where there is none, or it cannot be used."""
    path = Path(store.path) / ARCHIVE
    texts, problem = None, None
    try:
        if os.path.lexists(path):
            texts = Texts(path, readonly=True)
    except ArchiveError as error:
        problem = error
    try:
        yield StoredTexts(store, texts, problem)
    finally:
        if texts is not None:
            texts.close()
