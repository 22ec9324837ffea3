"""Feeds the plan into Scrapy's queue: requests of planned pages, with priorities in the plan's order.

What the spider yields for a page today is sent, not the stored request. Hence a page whose finder (the page
that links to it) is planned in the same cycle waits until that visit has ended, callback included. A page
whose request carries data (`scrapy_gp4c.crawling.request_data`), or that the spider may request when idle, is
*late*: it is sent as it is stored, but only when nothing else is left to do.
"""

import logging
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_gp4c.crawling.admission import (
    SECRET_NOT_GIVEN,
    Admission,
    log_first,
    secret_not_given,
)
from scrapy_gp4c.crawling.cycle import RANK_LEVELS, Cycle
from scrapy_gp4c.crawling.requests import UNKNOWN_FINDER, CallbackMissingError
from scrapy_gp4c.crawling.scrapy_internals import has_started
from scrapy_gp4c.foreign_text import counted, foreign_safe_logger
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.records import LastAnswer, StoredRequest

CHUNK_PAGES: Final = 256
"""Number of the plan's pages whose requests are read at a time: it takes the reactor some milliseconds."""
MIN_HOSTS: Final = 64
"""Number of hosts with queued pages below which more of the plan is read."""
MAX_WAITING: Final = 250_000
"""Number of read pages that wait for room at their hosts from which on the plan is read no further."""


class Frontier:
    """Pages of a plan that are not queued yet; each host's window limits its queued pages."""

    def __init__(
        self, pages: Iterable[int], read: Callable[[Sequence[int]], list[StoredRequest]], window: int
    ) -> None:
        """Take the plan: ``pages``, their ids in the order to visit.

        ``read(pages)``: returns the stored requests of some pages, in that order; ``window``: how many pages
        of one host may be in the queue at a time.
        """
        self._plan = array("Q", pages)
        self._read = read
        self._window = window
        self._next = 0
        self._waiting: dict[str, deque[int]] = {}
        self._waiting_pages = 0
        self._queued: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._plan) - self._next + self._waiting_pages

    @property
    def is_read(self) -> bool:
        """Whether all requests of the plan are read, so that pages only wait for room in a host's window."""
        return self._next >= len(self._plan)

    def extend(self, pages: Iterable[int]) -> None:
        self._plan.extend(pages)

    def forget_queued(self) -> None:
        """Count no page as queued any more, after Scrapy's queue has lost its requests."""
        self._queued.clear()

    def feed(self, host_done: str | None = None) -> Iterator[tuple[int, StoredRequest]]:
        """Yield (page, stored request) of the pages to queue now, as far as windows and plan have room.

        ``host_done``: the host of a page fed earlier that has just left the queue for the downloader.
        """
        if host_done is not None:
            self._queued[host_done] -= 1
            if self._queued[host_done] <= 0:
                del self._queued[host_done]
            if host_done in self._waiting and self._queued[host_done] <= self._window // 2:
                yield from self._refill(host_done)
        if (
            self._next < len(self._plan)
            and len(self._queued) < MIN_HOSTS
            and self._waiting_pages < MAX_WAITING
        ):
            yield from self._read_on()

    def _refill(self, host: str) -> Iterator[tuple[int, StoredRequest]]:
        """Yield pages of a host until its window is full; called at half a window, as reads cost."""
        waiting = self._waiting[host]
        pages = [waiting.popleft() for _ in range(min(len(waiting), self._window - self._queued[host]))]
        if not waiting:
            del self._waiting[host]
        self._waiting_pages -= len(pages)
        self._queued[host] += len(pages)
        yield from zip(pages, self._read(pages), strict=True)

    def _read_on(self) -> Iterator[tuple[int, StoredRequest]]:
        chunk = self._plan[self._next : self._next + CHUNK_PAGES]
        self._next += len(chunk)
        for page, stored in zip(chunk, self._read(chunk), strict=True):
            host = host_of(stored)
            if self._queued[host] < self._window:
                self._queued[host] += 1
                yield page, stored
            else:
                self._waiting.setdefault(host, deque()).append(page)
                self._waiting_pages += 1


def host_of(stored: StoredRequest) -> str:
    """Return host and port of a stored request, without a user: the unit of Scrapy's per-domain limits.

    "" for a broken request, which is reported when it is built.
    """
    try:
        return urlsplit(str(stored["url"])).netloc.rpartition("@")[2]
    except (KeyError, TypeError, ValueError):
        return ""


logger = foreign_safe_logger(__name__)

MIN_WINDOW_PAGES: Final = 16

NOT_REBUILT: Final = "gp4c/not_rebuilt"
"""Statistic of planned pages whose stored requests cannot be rebuilt."""


class Feeder:
    """Feeds the plan of a cycle to Scrapy's queue, and holds back the pages that have to wait."""

    def __init__(
        self,
        cycle: Cycle,
        pages: Iterable[int],
        per_host: int,
        admission: Admission,
        crawler: Crawler,
        hears_idle: bool,
    ) -> None:
        """Take a cycle and ``pages``, those that it still has to visit.

        ``per_host``: number of requests that Scrapy sends to a host at a time; ``admission``: queues requests
        of visits, and has the spider's own requests of this run; ``hears_idle``: whether the project handles
        Scrapy's signal `spider_idle`, and may request pages then.
        """
        self._hears_idle = hears_idle
        self._cycle, self._admission, self._crawler = cycle, admission, crawler
        self._rebuilder = admission.rebuilder
        self._frontier = Frontier((), cycle.store.requests, max(MIN_WINDOW_PAGES, 2 * per_host))
        self._fed = self._planned = 0
        self.waiting: dict[int, array[int]] = {}
        """Finder, as the column ``found_by`` has it -> pages that wait for its visit."""
        self.late = array("Q")
        """Pages that the spider itself may still request, with today's data or when it is idle."""
        self._waits_for_data = cycle.rounds[1] is not None  # a policy that samples needs its answers at once
        self._released: set[int] = set()
        self.deferred = array("Q")
        """Pages whose requests lacked a value, to be tried again when the spider's requests have ended."""
        self._tries: Counter[int] = Counter()
        """Page -> how often it could not be queued, as its request lacked a value or secret."""
        self._unasked: dict[int, tuple[StoredRequest, list[str]]] = {}
        """Page that only the spider can request -> its stored request, and names of what that lacks."""
        self.unreplaced: set[int] = set()
        """Pages that only the spider can request, and for which no others are planned yet."""
        self.extend(pages)

    def __len__(self) -> int:
        """Return the number of pages not queued yet, with those that wait for one finder counted as one."""
        return len(self._frontier) + len(self.deferred) + len(self.waiting) + len(self.late)

    @property
    def is_read(self) -> bool:
        """Whether every page is queued, or waits only for room at its host or for the spider's request."""
        return self._frontier.is_read and not self.deferred and not self.waiting

    def feed_deferred(self) -> None:
        """Try the pages again whose requests lacked a value; `_defer` says what follows if one still does."""
        self._frontier.extend(self.deferred)
        self.deferred = array("Q")
        self.feed()

    def release(self) -> None:
        """Feed pages that wait for finders, as all else is done; those of a late finder become late."""
        late = set(self.late)
        for finder in list(self.waiting):
            pages = self.waiting.pop(finder)
            if finder - 1 in late:
                self.late.extend(pages)
            else:
                self._frontier.extend(pages)
        self.feed()

    def release_late(self) -> None:
        """Feed the late pages (see the module's text), now that nothing else is left, as they are stored.

        First come those that no other late page has found, last those whose callbacks close the spider.
        """
        closing = array("Q", (page for page in self.late if page in self._admission.closers))
        if len(closing) < len(self.late):
            self.late = array("Q", (page for page in self.late if page not in self._admission.closers))
        else:
            closing = array("Q")
        late, finders = self.late, self._cycle.finders(self.late)
        waiting = {page + 1 for page in late}
        still_late = [
            page
            for page, finder in zip(late, finders, strict=True)
            if finder in waiting and finder != page + 1
        ]
        self.late = array("Q", still_late if len(still_late) < len(late) else ())
        released = set(late).difference(self.late)
        self._released |= released
        self._frontier.extend(page for page in late if page in released)
        self.late.extend(closing)
        self.feed()

    def take_unasked(self) -> list[int]:
        """Return pages whose requests only the spider can make, and did not make so far; each only once."""
        unasked, self.unreplaced = self.unreplaced, set()
        return [page for page in unasked if not self._cycle.is_claimed(page)]

    def end_unasked(self) -> None:
        """Warn of planned pages that only the spider could have requested, and did not.

        Those whose requests lack a secret end as errors; the others stay without an outcome. So do all in a
        resumed run: the callback that would ask for them may have run before.
        """
        unasked = {page: one for page, one in self._unasked.items() if not self._cycle.is_claimed(page)}
        for page, (stored, lacks) in unasked.items():
            is_secret = not set(lacks).isdisjoint(stored.get("lacks", ()))
            if is_secret and not self._cycle.resumed and (claim := self._cycle.claim(page, "")) is not None:
                answer = LastAnswer(error="the stored request lacks a secret, and the spider did not send it")
                self._cycle.end(claim, "error", answer=answer)
        if not unasked:
            return
        self._cycle.stats.inc_value("gp4c/not_asked_for", len(unasked))
        stored, lacks = next(iter(unasked.values()))
        logger.warning(
            "Planned but not visited: %d of %s, which the spider did not ask for in this run, and whose "
            "request the store does not keep in full. The first is %s, which lacks: %s. "
            "Let the spider yield it, or add what is missing in its method gp4c_request(request).",
            len(unasked),
            counted(self._cycle.store.pages, "known page"),
            self._rebuilder.credentials.url(stored["url"]),
            ", ".join(lacks),
            extra={"spider": self._rebuilder.spider},
        )

    def extend(self, pages: Iterable[int]) -> None:
        """Append the pages of a round; one waits in `waiting` if its finder is still to be visited."""
        pages = array("Q", pages)
        self._planned += len(pages)
        ready = array("Q")
        for page, finder in zip(pages, self._cycle.awaited_finders(pages), strict=True):
            if finder == UNKNOWN_FINDER or (finder == START and has_started(self._crawler)):
                ready.append(page)
            else:
                self.waiting.setdefault(finder, array("Q")).append(page)
        self._frontier.extend(ready)

    def refeed(self, pages: Iterable[int]) -> None:
        """Feed again the pages whose requests the queue has lost."""
        self._frontier.forget_queued()
        self._frontier.extend(pages)

    def feed(self, host_done: str | None = None) -> None:
        """Queue pages as far as there is room for their hosts; where one cannot be queued, try the next.

        ``host_done``: the host of a planned page that has just left the queue.
        """
        self._end_waits()
        unused = [host_done]
        while unused:
            for page, stored in self._frontier.feed(unused.pop()):
                if not self._queue(page, stored):
                    unused.append(host_of(stored))

    def _end_waits(self) -> None:
        """Feed the pages in `waiting` whose finders' visits have ended."""
        ended = [page + 1 for page in self._cycle.ended if page + 1 in self.waiting]
        self._cycle.ended.clear()
        if START in self.waiting and has_started(self._crawler):
            ended.append(START)
        for finder in ended:
            self._frontier.extend(self.waiting.pop(finder))

    def _queue(self, page: int, stored: StoredRequest) -> bool:
        if self._cycle.is_claimed(page):  # the spider itself has requested it in the meantime
            return False
        is_late = page in self._admission.closers or (
            page not in self._admission.restored
            and (self._admission.data.of(stored) or self._comes_when_idle(page))
        )
        if self._waits_for_data and page not in self._released and is_late:
            self.late.append(page)
            return False
        request: Request | None = None
        lacks: list[str] = []
        try:
            request, lacks = self._rebuilder.build(stored, self._admission.data.varying)
        except CallbackMissingError as error:  # only the spider knows its present name
            lacks = [str(error)]
        except Exception as error:  # foreign data in the store fails this page alone
            self._log_not_built(stored, error)
        if lacks and (offered := self._admission.offered.pop(page, None)) is not None:
            request, lacks = offered, []
        if lacks:
            self._defer(page, stored, lacks)
            return False
        claim = self._cycle.claim(page, host_of(stored))
        assert claim is not None
        if request is None:
            self._cycle.end(claim, "error", answer=LastAnswer(error="the request cannot be rebuilt"))
            return False
        if page not in self._admission.restored:
            self._admission.data.note_queued(page, stored)
        level = self._fed * RANK_LEVELS // self._planned
        request.priority += RANK_LEVELS - min(level, RANK_LEVELS - 1)
        self._fed += 1
        return self._admission.queue_claim(request, claim)

    def _comes_when_idle(self, page: int) -> bool:
        """Whether the spider may request a page when it is idle, because the stored request has no finder."""
        return self._hears_idle and int(self._cycle.finders([page])[0]) == UNKNOWN_FINDER

    def _defer(self, page: int, stored: StoredRequest, lacks: list[str]) -> None:
        """Keep a page whose request lacks values, by their names `lacks`, to be tried again at most twice.

        The first time it is tried when the spider's requests have ended, then after a visit of its finder;
        at last it is left to the spider (`end_unasked`).
        """
        self._tries[page] += 1
        if self._tries[page] == 1:
            self.deferred.append(page)
            return
        finder = int(self._cycle.finders([page])[0])
        if self._tries[page] == 2 and finder not in (UNKNOWN_FINDER, START, page + 1):
            self._admission.need_callback(finder - 1, "once")
            if self._cycle.may_visit(finder - 1):
                self.waiting.setdefault(finder, array("Q")).append(page)
                self._frontier.extend([finder - 1])
                return
        self._unasked[page] = stored, lacks
        self.unreplaced.add(page)
        if stored.get("lacks"):
            extra = {"spider": self._rebuilder.spider}
            log_first(self._cycle.stats, SECRET_NOT_GIVEN, secret_not_given(stored), extra)

    def _log_not_built(self, stored: StoredRequest, error: Exception) -> None:
        page = str(stored["url"] if isinstance(stored, dict) and "url" in stored else "a page")[:300]
        line = f"Cannot revisit {page}: {error}. Let the spider request the page again."
        line, extra = self._rebuilder.credentials.url(line), {"spider": self._rebuilder.spider}
        log_first(self._cycle.stats, NOT_REBUILT, line, extra, logging.ERROR)
