"""Load of Scrapy's downloader by host: which hosts can take more requests, and which will not answer soon.

The downloader takes as many requests as ``CONCURRENT_REQUESTS`` says, those included that wait in it until
their host may be asked. So pages of a slow host can take all that room, and hold up all other hosts. The
downloader has a *slot* for each host, with its requests; Scrapy's own queue looks at slots, too.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Container
from enum import Enum, auto
from time import monotonic, time
from typing import Any, Final

from scrapy import Request
from scrapy.crawler import Crawler

from scrapy_gp4c.crawling.cycle import RANK_LEVELS
from scrapy_gp4c.crawling.requests import META, Claim
from scrapy_gp4c.crawling.scrapy_internals import downloader
from scrapy_gp4c.page_state.outcomes import KINDS, PANEL, RANKED, SAMPLE

HELD_S: Final = 0.5
"""Backlog of a host at the downloader, s, that is enough: the scheduler is asked again by then."""
ANSWERED_S: Final = 0.25
"""Seconds after a request was sent during which its answer is expected soon."""
TURN_S: Final = 0.02
"""Seconds that rounds may be planned in a row, before the reactor gets a turn."""
AWAITED_KINDS: Final = tuple(KINDS[kind] for kind in (SAMPLE, PANEL, RANKED))
"""Kinds of visits that a sampling policy waits for: it learns nothing from neighbours."""


class Load(Enum):
    """Room of the downloader for the requests in Scrapy's queue."""

    NONE = auto()
    """No request."""
    FREE = auto()
    """A request to a host that can be asked at once; or the queue cannot be read."""
    BUSY = auto()
    """Only requests to hosts that may not be asked yet, or have as many requests under way as they may."""
    HELD = auto()
    """Only requests to hosts with a backlog of `HELD_S` at the downloader."""
    SAMPLED = auto()
    """As `FREE`, and there are new samples by which a round may give pages to an idle host."""


class Downloads:
    """Load of hosts, by which a sampling policy plans a round before all planned pages have been visited."""

    def __init__(self, crawler: Crawler, sites: int, held: Container[int]) -> None:
        """Take the number of the store's sites, and `held`, the pages whose callbacks have not ended."""
        self._crawler = crawler
        self._sites = sites
        settings = crawler.settings
        concurrency = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._default_pace: tuple[int, float] = concurrency, settings.getfloat("DOWNLOAD_DELAY")
        self._paces: dict[str, tuple[int, float]] = {
            name: (slot.get("concurrency", concurrency), slot.get("delay", self._default_pace[1]))
            for name, slot in settings.getdict("DOWNLOAD_SLOTS").items()
        }
        self._held = held
        self._counts: Counter[str] = Counter()
        self._awaited: dict[Claim, str | None] = {}
        """Visit that the policy waits for -> downloader slot; None: a delay keeps it behind another visit."""
        self._new_outcomes = 0
        """Number of outcomes that the policy waited for, since a round was planned ahead."""
        self._queued: frozenset[str] = frozenset()
        self._in_vain: frozenset[str] = frozenset()
        """Hosts with queued pages at a round planned ahead: another is in vain if no further host has any."""
        self._rests_until_s = self._leaves_time_until_s = 0.0

    @property
    def _downloader(self) -> Any:
        return downloader(self._crawler)

    def expect(self, request: Request) -> None:
        """Note that a request is queued, whose outcome may be one that the policy waits for.

        Where hosts have delays, a sample gets priority in its host's queue, because other hosts may wait for
        its result.
        """
        claim = request.meta.get(META)
        if isinstance(claim, Claim) and claim.kind in AWAITED_KINDS:
            name = self._downloader.get_slot_key(request)
            has_delay = self._pace(name)[1] > 0
            self._awaited[claim] = None if has_delay and name in self._awaited.values() else name
            if has_delay and self._sites > 1 and claim.kind == KINDS[SAMPLE]:
                request.priority += RANK_LEVELS

    def load(self, queued: Collection[str], is_unrecorded: Callable[[Claim], bool]) -> Load:
        """Return the load of a queue, by its requests' downloader slots (`queued`) and unrecorded visits."""
        load = self._of_queue(queued)
        return Load.SAMPLED if load is Load.FREE and self._may_plan_ahead(is_unrecorded) else load

    def _of_queue(self, queued: Collection[str]) -> Load:
        self._queued = frozenset(queued)
        if not self._queued <= self._in_vain:
            self._in_vain = frozenset()
        if len(queued) > len(self._downloader.active) and not self._in_vain:
            return Load.FREE  # a host has nothing under way
        self._count()
        if not queued:
            return Load.NONE
        enough = True
        for slot in self._queued:
            backlog_s = self._backlog_s(slot)
            if not backlog_s and not self._has_unanswered(slot):
                return Load.FREE
            enough &= backlog_s >= HELD_S
        return Load.HELD if enough else Load.BUSY

    def _count(self) -> None:
        """Count the downloader's requests by slot; slots themselves lag behind by a turn of the reactor."""
        self._counts = Counter(map(self._downloader.get_slot_key, self._downloader.active))

    def _backlog_s(self, name: str) -> float:
        """Return the seconds that a slot's next request would wait; infinite if that depends on answers."""
        slot = self._downloader.slots.get(name)
        concurrency, delay_s = self._pace(name)
        count = self._counts[name]
        sent, seen_s = (0, 0.0) if slot is None else (len(slot.transferring), slot.lastseen)
        if delay_s:
            waiting = max(0, count - sent) * delay_s
            return waiting or max(0.0, min(delay_s, seen_s + delay_s - time()))
        return math.inf if count > concurrency else 0.0

    def _pace(self, name: str) -> tuple[int, float]:
        """Return the concurrency of a slot, and its delay between two requests, s."""
        slot = self._downloader.slots.get(name)
        if slot is None:  # there is one from the first request on
            return self._paces.get(name, self._default_pace)
        return slot.concurrency, slot.delay

    def _has_unanswered(self, name: str) -> bool:
        """Whether a host with a delay still has requests under way.

        Scrapy's queue gives pages of hosts without any request under way first, whatever their delay.
        """
        slot = self._downloader.slots.get(name)
        return slot is not None and bool(slot.delay) and self._counts[name] > 0

    def awaits(self, is_unrecorded: Callable[[Claim], bool]) -> bool:
        """Whether an outcome is missing that the policy waits for, and that will come soon."""
        for claim, name in list(self._awaited.items()):
            if not is_unrecorded(claim):
                del self._awaited[claim]
                self._new_outcomes += 1
            elif claim.page in self._held or (name is not None and self._answers_soon(claim, name)):
                return True
        return False

    def _answers_soon(self, claim: Claim, name: str) -> bool:
        """Whether a visit's request can be sent at once, or was sent just now: no delay holds it up."""
        slot = self._downloader.slots.get(name)
        if slot is not None and any(request.meta.get(META) == claim for request in slot.transferring):
            return bool(time() - slot.lastseen < ANSWERED_S)
        return not 0.0 < self._backlog_s(name) < math.inf

    def _may_plan_ahead(self, is_unrecorded: Callable[[Claim], bool]) -> bool:
        """Whether new samples allow a further round now, by which an idle host may get pages.

        Only where hosts have delays: elsewhere no host is idle for long.
        """
        slots = self._downloader.slots.values()
        if monotonic() < self._leaves_time_until_s or not any(slot.delay for slot in slots):
            return False
        self._count()
        return not self.awaits(is_unrecorded) and self._new_outcomes > 0 and self.may_feed_idle_host()

    def may_feed_idle_host(self) -> bool:
        """Whether a further round could give pages to a host that has none queued.

        It could not where the last round brought samples for the busy hosts alone.
        """
        if self._queued and self._queued <= self._in_vain:
            return False
        busy = self._queued.union(slot for slot in self._counts if self._backlog_s(slot) > 0)
        return len(busy) < self._sites

    def rests(self) -> bool:
        """Whether planning ahead pauses, so that the reactor can send the pages that wait in the queue."""
        return bool(self._queued) and monotonic() < self._rests_until_s - TURN_S

    def planned_ahead(self, samples: bool | None, begun_s: float) -> None:
        """Note a round that was planned ahead; ``samples``: whether it has samples, None: it has no page.

        ``begun_s``: when its planning began (monotonic clock). Planning takes half of the time at most,
        `TURN_S` in a row; and a tenth of the time where there are pages to send.
        """
        now_s, self._new_outcomes = monotonic(), 0
        if samples is not None:
            self._in_vain = self._queued if samples else frozenset()
        self._rests_until_s = max(self._rests_until_s, begun_s) + 2 * (now_s - begun_s)
        self._leaves_time_until_s = now_s + 9 * (now_s - begun_s)
