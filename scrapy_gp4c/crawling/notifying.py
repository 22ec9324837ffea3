"""Notices of a run: its cycle's events, put into the outbox before the cycle ends, and sent afterwards."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scrapy import Spider

from scrapy_gp4c.archive.differences import differences, shown
from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.arrays import Array
from scrapy_gp4c.crawling.neighbourhood import columns_in_order
from scrapy_gp4c.crawling.reports import mean_age_cycles, page_counts
from scrapy_gp4c.crawling.scrapy_internals import awaitable
from scrapy_gp4c.crawling.store_owner import spider_arguments
from scrapy_gp4c.errors import ArchiveError, Gp4cError
from scrapy_gp4c.fingerprint import is_changed
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.notices.events import Diff, EventSource, PageEvent, dropped_state, page_events
from scrapy_gp4c.notices.feeds import ENTRIES, FeedEvents, write_feed
from scrapy_gp4c.notices.metrics import metrics
from scrapy_gp4c.notices.outbox import Outbox
from scrapy_gp4c.notices.receivers import DEFAULT_EVENTS
from scrapy_gp4c.notices.sending import deliver
from scrapy_gp4c.page_state.events import CycleEvents, events_of, last_events, recorded_events
from scrapy_gp4c.page_state.outcomes import CHANGED, COPIED, FIRST, UNCHANGED, among
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.atomic_files import write
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import ARCHIVE, Store
from scrapy_gp4c.store.records import CycleRecord

logger = foreign_safe_logger(__name__)


class Notifier:
    """Sends a cycle's page events to receivers and a command, and writes the feed and the metrics."""

    def __init__(self, store: Store, settings: Settings, spider: Spider) -> None:
        self._store, self._settings, self._spider = store, settings, spider
        self._outbox = Outbox(Path(store.path))
        self._feed_events = FeedEvents(Path(store.path))

    @property
    def is_on(self) -> bool:
        """Whether the settings want messages, a command, a feed or metrics."""
        return bool(self._settings.notify or self._settings.on_change)

    def cycle_ends(self) -> None:
        """Put the messages about the open cycle into the outbox, just before the cycle is finished.

        The first cycle has nothing but new pages: there are no messages about it.
        """
        cycle = self._store.open_cycle
        if not (self.is_on or self._settings.feed) or cycle is None or cycle == 1:
            return
        cycles: list[CycleRecord] = [{}, *self._store.cycles(max(1, self._store.last_cycle))]
        bits, visits = self._settings.distance_bits, self._store.open_visits()
        visits = delivered_visits(self._store, visits, cycles[-1], cycles[-2], bits)
        events = open_cycle_events(self._store, self._settings.gone_after, visits)
        if not self.is_on:
            events = last_events(events, DEFAULT_EVENTS, ENTRIES)
        records = self._with_diffs(events)
        try:
            if self.is_on:
                command = bool(self._settings.on_change)
                self._outbox.put(cycle, self._settings.notify, records, command=command)
            if self._settings.feed:
                newest = [record for record in records if record.kind in DEFAULT_EVENTS]
                self._feed_events.add(cycle, self._recent_events(), newest, self._store.pages)
        except OSError as error:
            self._warn("No notices of cycle %d are sent: %s", cycle, error)

    def cycle_ended(self) -> None:
        """Write the feed and the metrics, after the cycle is finished."""
        settings, spider = self._settings, self._spider
        arguments = spider_arguments(spider, Credentials(settings.secret_params))
        files = {
            "GP4C_FEED": (settings.feed, self._write_feed),
            "GP4C_METRICS": (settings.metrics, self._write_metrics),
        }
        for name, (template, write_to) in files.items():
            try:
                if template:
                    write_to(settings.filled_path(template, spider.name, arguments))
            except Gp4cError as error:
                self._warn("%s is not written: %s", name, error)
            except OSError as error:
                self._warn("%s is not written (%s): name a file that this user can write", name, error)

    def _write_feed(self, path: Path) -> None:
        write_feed(path, self._spider.name, self._store.store_id, self._recent_events())

    def _write_metrics(self, path: Path) -> None:
        store, settings = self._store, self._settings
        record, counts = store.cycles(store.last_cycle)[-1], page_counts(store, settings)
        write(path, metrics(self._spider.name, record, counts, mean_age_cycles(store)))

    def _recent_events(self) -> list[PageEvent]:
        """Return the newest events of finished cycles, as kept for the feed or else read from all visits."""
        store = self._store
        events = self._feed_events.read(store.last_cycle, store.merged_pages)
        if events is None:
            with open_texts(store) as texts:
                events = list(recent_events(store, self._settings, self._spider.name, texts.diff))
            self._warn_of(texts)
        return events

    async def send(self) -> None:
        """Send the messages in the outbox, in a thread; a failing receiver is one warning."""
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

    def _with_diffs(self, events: CycleEvents) -> list[PageEvent]:
        """Return the page events, with text differences for those that a message or the feed shows.

        For all of a cycle's 10,000 changes they would take minutes, and a digest names 20.
        """
        settings, credentials = self._settings, Credentials(self._settings.secret_params)
        arguments = spider_arguments(self._spider, credentials)
        source = EventSource(self._store, self._spider.name, credentials.url, arguments)
        records = list(page_events(events, source))
        shown = set(range(len(records)) if settings.on_change else ())
        for receiver in settings.notify:
            positions = (index for index, record in enumerate(records) if receiver.wants(record))
            shown.update(islice(positions, receiver.most_shown))
        if settings.feed:
            in_feed = [index for index, one in enumerate(records) if one.kind in DEFAULT_EVENTS]
            shown.update(in_feed[-ENTRIES:])
        pages, fingerprints = (events.visits[name].tolist() for name in ("page", "fingerprint"))
        with open_texts(self._store) as texts:
            for index in sorted(shown):
                if records[index].kind == "changed":
                    diff = texts.diff(pages[index], events.cycle, fingerprints[index])
                    records[index] = replace(records[index], diff=diff)
        self._warn_of(texts)
        return records

    def _warn_of(self, texts: "StoredTexts") -> None:
        if texts.problem is not None:
            self._warn("Notices lack differences: %s", texts.problem)

    def _warn(self, line: str, *values: Any) -> None:
        logger.warning(line, *values, extra={"spider": self._spider})


def delivered_visits(
    store: Store, visits: Array, record: CycleRecord, before: CycleRecord, distance_bits: int
) -> Array:
    """Return a copy of a cycle's delivered and failed visits, with outcomes against the last delivered copy.

    So a change whose delivery failed in an earlier cycle is one in the cycle that delivers it. ``visits``:
    dtype `VISIT`; ``record``: of the cycle; ``before``: of the cycle before, empty if there is none.
    """
    now = {int(page) for page in record.get("undelivered", {})}
    visits = visits[~(np.isin(visits["page"], sorted(now)) & among(visits["outcome"], COPIED))].copy()
    for page, (_, fingerprint, _, is_new, key) in before.get("undelivered", {}).items():
        for row in np.flatnonzero((visits["page"] == int(page)) & among(visits["outcome"], COPIED)):
            if store.page(int(page)).key != key:
                continue
            is_other = fingerprint is None or is_changed(
                int(visits["fingerprint"][row]), fingerprint, distance_bits
            )
            visits["outcome"][row] = FIRST if is_new else CHANGED if is_other else UNCHANGED
    return visits


def open_cycle_events(store: Store, gone_after: int, visits: Array | None = None) -> CycleEvents:
    """Return the page events of the open cycle so far; ``visits``: those to consider, None: all."""
    cycle, visits = store.open_cycle, store.open_visits() if visits is None else visits
    assert cycle is not None
    before = {name: np.zeros(len(visits), np.int64) for name in ("outcome", "gone", "X", "last_attempt")}
    known = visits["page"] < store.merged_pages
    columns = columns_in_order(store, visits["page"][known])
    for name, column in before.items():
        column[known] = columns[name]
    # The store knows the cycle of a page's last visit, not its time: the start of that cycle stands for it.
    attempts, number = np.unique(before["last_attempt"], return_inverse=True)
    starts_s = store.starts_s(attempts.tolist())
    previous_s = np.array([starts_s.get(attempt, np.nan) for attempt in attempts.tolist()], np.float64)
    return events_of(cycle, visits, before, previous_s[number], gone_after)


def recent_events(store: Store, settings: Settings, spider: str, diff: Diff | None) -> Iterator[PageEvent]:
    """Yield the newest events for a feed, oldest first, from the visits that the store still has.

    The first cycle has nothing but new pages and is left out. ``diff``: returns the text differences of an
    event, and is called for these events alone.
    """
    newest: deque[CycleEvents] = deque()
    before = dropped_state(store)
    for events in recorded_events(store.visits(), before, settings.gone_after, first_cycle=2):
        newest.append(last_events(events, DEFAULT_EVENTS, ENTRIES))
        while sum(len(one.kinds) for one in newest) - len(newest[0].kinds) >= ENTRIES:
            newest.popleft()
    source = EventSource(store, spider, Credentials(settings.secret_params).url, {})
    for events in newest:
        yield from page_events(events, source, diff)


class StoredTexts:
    """Archive of a store, open for reading; ``problem``: why texts cannot be read, or None."""

    def __init__(self, store: Store, texts: Texts | None, problem: ArchiveError | None) -> None:
        self._store, self._texts = store, texts
        self.problem = problem

    def diff(self, page: int, cycle: int, fingerprint: int) -> tuple[str, ...] | None:
        """Return the text differences that a visit found; None where the archive lacks one of the texts."""
        if self._texts is None:
            return None
        try:
            pair = self._texts.pair(self._store.page(page).key, cycle, fingerprint)
        except ArchiveError as error:
            self.problem = error
            return None
        return None if pair is None else tuple(shown(differences(*pair)))


@contextmanager
def open_texts(store: Store) -> Iterator[StoredTexts]:
    """Open a store's archive for reading, until the context ends; yields no texts if there are none."""
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
