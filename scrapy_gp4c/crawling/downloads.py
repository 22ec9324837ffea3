"""What Scrapy's downloader has to do for each host: may it be sent more, and whose answers are far off?

The downloader takes any request, keeps it while its host may not be asked, and lends it one of the places of
``CONCURRENT_REQUESTS`` for that time. Pages of a slow host that come first take all places so, and a policy
that waits for them holds up every other host. Its slots, one a host, are what Scrapy's own queue looks at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from enum import Enum, auto
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from scrapy_gp4c.crawling.claims import Claim
from scrapy_gp4c.crawling.stored_requests import META
from scrapy_gp4c.page_state.outcomes import KINDS, PANEL, RANKED, SAMPLE

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

HELD_S: Final = 0.5
"""A host has enough at the downloader when that lasts so long: the scheduler is asked again by then."""
TURN_S: Final = 0.02
"""Rounds that are planned so soon one after the other are one turn of the reactor."""
TELLING: Final = tuple(KINDS[kind] for kind in (SAMPLE, PANEL, RANKED))
"""Kinds of visits that a policy which samples may wait for: neighbours tell it nothing."""


class Load(Enum):
    """What the queue has for the downloader."""

    NONE = auto()
    """Nothing."""
    FREE = auto()
    """A page of a host that can be asked at once; or nobody knows."""
    BUSY = auto()
    """Only pages of hosts that may not be asked yet, or have as many requests under way as they may."""
    HELD = auto()
    """Such pages, and the downloader has enough for all their hosts."""


class Downloads:
    """Tells the load of hosts, and whether a round may be planned before their pages are through."""

    def __init__(self, crawler: Crawler, sites: int) -> None:
        """Take the crawler; ``sites``: how many the store knows."""
        self._crawler = crawler
        self._sites = sites
        settings = crawler.settings
        concurrency = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._usual: tuple[int, float] = concurrency, settings.getfloat("DOWNLOAD_DELAY")
        self._given: dict[str, tuple[int, float]] = {
            name: (given.get("concurrency", self._usual[0]), given.get("delay", self._usual[1]))
            for name, given in settings.getdict("DOWNLOAD_SLOTS").items()
        }
        self._counts: Counter[str] = Counter()
        self._telling: dict[Claim, str] = {}
        self._queued: frozenset[str] = frozenset()
        self._in_vain: frozenset[str] = frozenset()
        """Hosts that a round was planned ahead of, until there is a page for another one."""
        self._rests_until_s = 0.0

    @property
    def _downloader(self) -> Any:
        engine = self._crawler.engine
        assert engine is not None
        return engine.downloader

    def expect(self, request: Request) -> None:
        """Note that a request is queued: its outcome may be one that the policy waits for."""
        claim = request.meta.get(META)
        if isinstance(claim, Claim) and claim.kind in TELLING:
            self._telling[claim] = self._downloader.get_slot_key(request)

    def load(self, queued: Collection[str]) -> Load:
        """Tell what the queue has; ``queued``: slots of its requests."""
        if len(queued) > len(self._downloader.active) and not self._in_vain:
            return Load.FREE  # a host has nothing under way
        self._count()
        self._queued = frozenset(queued)
        if not queued:
            return Load.NONE
        enough = True
        for slot in self._queued:
            backlog_s = self._backlog_s(slot)
            if not backlog_s and not self._answers_late(slot):
                if slot not in self._in_vain:
                    self._in_vain = frozenset()
                return Load.FREE
            enough &= backlog_s >= HELD_S
        return Load.HELD if enough else Load.BUSY

    def _count(self) -> None:
        """Count requests by slot. A slot itself hears of a request only in a later turn of the reactor."""
        downloader = self._downloader
        self._counts = Counter(map(downloader.get_slot_key, downloader.active))

    def _backlog_s(self, name: str) -> float:
        """Seconds that a further request would wait for those before it; infinite: for answers."""
        slot = self._downloader.slots.get(name)
        count = self._counts[name]
        if slot is None:  # there is one from the first request on
            concurrency, delay_s = self._given.get(name, self._usual)
            sent, seen_s = 0, 0.0
        else:
            concurrency, delay_s, sent = slot.concurrency, slot.delay, len(slot.transferring)
            seen_s = slot.lastseen
        if delay_s:
            waiting = max(0, count - sent) * delay_s
            return waiting or max(0.0, min(delay_s, seen_s + delay_s - time()))
        return math.inf if count > concurrency else 0.0

    def _answers_late(self, name: str) -> bool:
        """Tell whether a host that has a delay may be asked before its last answer is in.

        Scrapy's queue gives pages of hosts without any request under way first, whatever their delay.
        """
        slot = self._downloader.slots.get(name)
        return slot is not None and bool(slot.delay) and self._counts[name] > 0

    def awaits(self, is_under_way: Callable[[Claim], bool]) -> bool:
        """Tell whether an outcome is missing that the policy may wait for, and which is not far off."""
        for claim, slot in list(self._telling.items()):
            if not is_under_way(claim):
                del self._telling[claim]
            elif not HELD_S <= self._backlog_s(slot) < math.inf:
                return True
        return False

    def leave_a_host(self) -> bool:
        """Tell whether a host may have nothing to do, so that a further round could give it some.

        Where the round before brought samples for the busy hosts alone, the others have nothing left.
        """
        if self._queued and self._queued <= self._in_vain:
            return False
        busy = self._queued.union(slot for slot in self._counts if self._backlog_s(slot) >= HELD_S)
        return len(busy) < self._sites

    def rests(self) -> bool:
        """Tell whether the reactor has its turn before the next round is planned ahead of queued pages."""
        return bool(self._queued) and monotonic() < self._rests_until_s - TURN_S

    def planned_ahead(self, samples: bool, begun_s: float) -> None:
        """Note that a round was; ``samples``: whether with pages that tell of others.

        ``begun_s``: since when (monotonic clock). Planning takes half of the time at most, `TURN_S` in a row.
        """
        self._in_vain = self._queued if samples else frozenset()
        self._rests_until_s = max(self._rests_until_s, begun_s) + 2 * (monotonic() - begun_s)
