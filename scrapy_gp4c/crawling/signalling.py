"""Sends events of pages (new, changed, gone, ...) as signals and as items, when visits are delivered."""

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict
from itertools import chain
from threading import Timer
from typing import Final

import numpy as np
from scrapy import signals as scrapy_signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.defer import deferred_from_coro

from scrapy_gp4c import signals
from scrapy_gp4c.crawling.admission import log_first
from scrapy_gp4c.crawling.cycle import Cycle, VisitInfo
from scrapy_gp4c.crawling.notifying import delivered_visits, open_cycle_events, open_texts
from scrapy_gp4c.crawling.scrapy_internals import awaitable, has_receivers, is_scraping, item_done
from scrapy_gp4c.crawling.store_owner import spider_arguments
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.notices.events import EventSource, PageChange, PageEvent, dropped_state, page_events
from scrapy_gp4c.notices.sending import LIMIT_S
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.events import EVENTS, CycleEvents, events_of, recorded_events
from scrapy_gp4c.page_state.outcomes import OUTCOMES, SAME, VISIT
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.records import CycleRecord, NewVisit, packed_visit

SIGNALS: Final = {kind: getattr(signals, f"page_{kind}") for kind in EVENTS}
VisitNumber = tuple[int, int]
"""Cycle of a visit, and its position among the visits of the cycle."""


class SignalSender:
    """Sends the signals of `scrapy_gp4c.signals` in one crawl, and items of page events if settings say so.

    The record of a cycle says of how many visits all events have been handled. Events that a run has not
    sent, or not noted as handled before it was killed, the next run sends.
    """

    def __init__(self, crawler: Crawler, cycle: Cycle) -> None:
        """Look up how many events earlier runs have sent. Raises StoreError."""
        self._crawler, self._cycle = crawler, cycle
        self._with_items = cycle.settings.change_items
        self._credentials = Credentials(cycle.settings.secret_params)
        self._open: Counter[VisitNumber] = Counter()
        """Visit -> number of its events that handlers or pipelines have not finished, or not got yet."""
        self.under_way = 0
        """Number of events that handlers or pipelines are working on."""
        self._listened_kinds: set[str] | None = None
        """Kinds of events with a listener, as found at the first visit after `look`; None: not found yet."""
        self._is_idle: Future[None] | None = None
        self._sent_visits: dict[int, int] = {}
        """Cycle -> number of visits whose events were handled, by its record; empty: nobody listens."""
        self._visits: dict[int, int] = {}
        """Finished cycle -> number of its visits."""
        self._unsent = list(self._unsent_events())
        self._open.update(visit_number for visit_number, _ in self._unsent)
        if self._with_items:
            crawler.signals.connect(self._stay_open, scrapy_signals.spider_idle)
        self._note()

    def _unsent_events(self) -> Iterator[tuple[VisitNumber, CycleEvents]]:
        """Yield the events that earlier runs have not sent, of the last finished cycle and the open one."""
        store, settings, number = self._cycle.store, self._cycle.settings, self._cycle.number
        records: list[CycleRecord] = [{}, {}, *store.cycles(max(1, store.last_cycle - 1))]
        earlier, last, record = records[-3:]
        sent_visits = last.get("signalled")
        if sent_visits is not None and sent_visits < last.get("visited", 0):
            cycle = last["cycle"]
            # There are fewer visits, or none, if pages were forgotten meanwhile.
            visits = np.concatenate([np.empty(0, VISIT), *(rows for _, rows in store.visits(cycle, cycle))])
            self._sent_visits[cycle], self._visits[cycle] = sent_visits, len(visits)
            delivered = delivered_visits(store, visits, last, earlier, settings.distance_bits)
            cycles = chain(store.visits(1, cycle - 1), [(cycle, delivered)])
            unsent_pages = visits["page"][sent_visits:]
            for events in recorded_events(cycles, dropped_state(store), settings.gone_after, cycle):
                yield (cycle, sent_visits), events.only(np.isin(events.visits["page"], unsent_pages))
        sent_visits = record.get("signalled")
        if self._cycle.resumed and sent_visits is not None:
            self._sent_visits[number] = sent_visits
            first = min(sent_visits, self._cycle.recorded)
            delivered = delivered_visits(
                store, store.open_visits()[first:], record, last, settings.distance_bits
            )
            yield (number, first), open_cycle_events(store, settings.gone_after, delivered)

    def look(self) -> None:
        """Send events that earlier runs have not sent, once all listeners are open; note handled visits."""
        self._listened_kinds = None
        try:
            self._send_unsent()
            self._note()
        except StoreError as error:
            self._cycle.failure = error

    def _send_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for visit_number, events in unsent:
            with open_texts(self._cycle.store) as texts:
                for event in page_events(events, self._source(), texts.diff):
                    self._send(visit_number, event)
            self._end_event(visit_number)

    def _note(self) -> None:
        """Note in the cycles' records of how many visits the events were handled, if anybody listens."""
        number = self._cycle.number
        if not (self._sent_visits or self._with_items or any(self._hears(kind) for kind in EVENTS)):
            return
        visits = {**self._visits, number: self._cycle.recorded}
        for cycle, count in visits.items():
            sent = min((position for of_cycle, position in self._open if of_cycle == cycle), default=count)
            if self._sent_visits.get(cycle) != sent:
                self._cycle.store.amend_record(cycle, signalled=sent)
                self._sent_visits[cycle] = sent

    def _hears(self, kind: str) -> bool:
        return has_receivers(self._crawler, SIGNALS[kind])

    def _stay_open(self) -> None:
        """Keep the spider open while pipelines have items of page events, also those of the last visits."""
        self._send_unsent()
        self._cycle.settle(())
        if self.under_way:
            raise DontCloseSpider

    async def close(self) -> None:
        """Wait at most 10 s for handlers and pipelines with events, and note the handled visits."""
        self._is_idle = Future()
        timer = Timer(LIMIT_S, self._end_wait)
        timer.start()
        await awaitable(self._is_idle)
        timer.cancel()
        self.look()

    def _end_wait(self) -> None:
        if self._is_idle is not None and not self._is_idle.done():
            self._is_idle.set_result(None)

    def visit_delivered(self, row: PageRow, visit: NewVisit, info: VisitInfo) -> None:
        """Send the events of a delivered visit; ``row``: columns of the page before it."""
        if self._unsent:  # events come in the order of their visits
            self._send_unsent()
        outcome = OUTCOMES.index(visit.outcome)
        if outcome in SAME and not row.gone:  # as most visits
            return
        if self._listened_kinds is None:
            self._listened_kinds = {kind for kind in EVENTS if self._hears(kind)}
        if not self._listened_kinds and not self._with_items:
            return  # as in most crawls: the arrays of one visit would cost more
        for event in page_events(self._events_of(row, visit), self._source(), lambda *_: diff_of(info)):
            if event.kind in self._listened_kinds or self._with_items:
                self._send((self._cycle.number, self._cycle.recorded - 1), event)

    def _events_of(self, row: PageRow, visit: NewVisit) -> CycleEvents:
        visits = np.frombuffer(packed_visit(visit), VISIT)
        before = {name: np.array([getattr(row, name)]) for name in ("outcome", "gone", "X")}
        previous_s = self._cycle.store.starts_s([row.last_attempt]).get(row.last_attempt, np.nan)
        gone_after = self._cycle.settings.gone_after
        return events_of(self._cycle.number, visits, before, np.array([previous_s]), gone_after)

    def _send(self, visit_number: VisitNumber, event: PageEvent) -> None:
        self._open[visit_number] += 1
        self.under_way += 1
        deferred_from_coro(self._deliver(visit_number, event))

    async def _deliver(self, visit_number: VisitNumber, event: PageEvent) -> None:
        """Send an event; where pipelines are closed already, the next run sends it."""
        crawler, spider = self._crawler, self._crawler.spider
        try:
            if self._hears(event.kind):
                await crawler.signals.send_catch_log_async(SIGNALS[event.kind], event=event, spider=spider)
            if not self._with_items:
                self._end_event(visit_number)
            elif is_scraping(crawler):
                assert crawler.engine is not None
                item = PageChange(**asdict(event))
                await crawler.engine.scraper.start_itemproc_async(item, response=None)
                self._end_event(visit_number)
            else:
                line = (
                    f"The {event.kind} event of {event.url} becomes an item in the next run: the spider was "
                    "closing."
                )
                log_first(
                    self._cycle.stats, "gp4c/change_item_too_late", line, {"spider": spider}, logging.WARNING
                )
        finally:
            self.under_way -= 1
            item_done(crawler)
            if not self.under_way:
                self._end_wait()

    def _end_event(self, visit_number: VisitNumber) -> None:
        self._open[visit_number] -= 1
        if not self._open[visit_number]:
            del self._open[visit_number]

    def _source(self) -> EventSource:
        spider = self._crawler.spider
        assert spider is not None
        arguments = spider_arguments(spider, self._credentials)
        return EventSource(self._cycle.store, spider.name, self._credentials.url, arguments)


def diff_of(info: VisitInfo) -> tuple[str, ...] | None:
    """Return the lines of `VisitInfo.diff`; None: there are none."""
    return tuple(info.diff().splitlines()) or None
