"""One run of a worker: as a run of one machine, with the shards that it holds, and with the others."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.admission import Enqueue
from scrapy_gp4c.crawling.counting import tell
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.run import Run
from scrapy_gp4c.distributed import closing, cycles, mail, rounds
from scrapy_gp4c.distributed.catching_up import Home
from scrapy_gp4c.distributed.errors import LedgerAwayError, LedgerFullError
from scrapy_gp4c.distributed.flushing import MOST_WAITING, Flusher
from scrapy_gp4c.distributed.holding import MoreShardsError, watch
from scrapy_gp4c.distributed.leases import Lease
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.polling import poll
from scrapy_gp4c.distributed.post import Post
from scrapy_gp4c.distributed.rounds import Exchange, SharedRounds
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.distributed.standing import begun
from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.store.records import CycleRecord

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

TURN_S: Final = 0.2
"""From one look at what is to be done to the next."""
FLUSH_S: Final = 1.0
"""From one flush to the next, and from one look at the ledger to the next."""
MORE_SHARDS: Final = "gp4c_more_shards"
"""Finish reason of a run that ends to begin again with shards that others have lost."""
DRAINED: Final = "gp4c_drained"
"""Finish reason of a run whose worker gives up its shards."""


class Part(NamedTuple):
    """What a worker has of a cycle."""

    store: SharedStore
    rounds: SharedRounds
    exchange: Exchange
    leases: list[Lease]


class SharedRun(Run):
    """What a worker's crawl does with requests."""

    def __init__(
        self,
        crawler: Crawler,
        cycle: Cycle,
        enqueue: Enqueue,
        spider: Spider,
        part: Part,
        link: Link,
        home: Home,
    ) -> None:
        """Take an open cycle, in which own shards have caught up. Raises StoreError."""
        super().__init__(crawler, cycle, array("Q", cycle.remaining()), spider, enqueue)
        self._crawler, self._part, self._link, self._home = crawler, part, link, home
        self._post = Post(cycle, part.store, self._admission.rebuilder, self.admit, self.stats)
        self._admission.abroad = self._post
        tokens = {lease.shard: lease.token for lease in part.leases}
        self._flusher = Flusher(link, part.store, self._post, cycle.number, tokens)
        self._flusher.failed = self._fail
        part.store.on_full = lambda: self._flusher.start(done=False)
        self._record: CycleRecord | None = None
        """What the cycle came to, once it is folded."""
        self._busy: set[str] = set()
        """What is under way with the ledger."""
        self._turns = 0
        self._ending = False
        self.queue_is_empty: Callable[[], bool] = lambda: True
        """Whether Scrapy's queue is."""
        self._calls = LoopingCall(self._turn)
        self._calls.start(TURN_S, now=False)

    @property
    def has_more(self) -> bool:
        """Tell whether the crawl goes on: until the cycle is folded, or cannot be."""
        return self._record is None and self.cycle.failure is None

    @property
    def may_send(self) -> bool:
        """Tell whether requests may be sent: not without a lease, nor with too much that the ledger lacks."""
        return self._link.may_act and self._part.store.waiting < MOST_WAITING and self._record is None

    # --- what is done from time to time

    def _turn(self) -> None:
        if self._link.failure is not None:
            self._fail(self._link.failure)
        if self.cycle.failure is not None or self._ending or self._record is not None:
            return
        self._turns += 1
        is_idle = self._is_idle()
        if is_idle:
            self.cycle.end_lost()
            self._feeder.end_unasked()
        is_due = self._turns % max(1, round(FLUSH_S / TURN_S)) == 0
        if is_idle or is_due:
            self._flusher.start(done=is_idle)
        if is_due:  # each look costs the ledger a kilobyte, and closing locks the rows of all shards
            self._once("poll", self._poll)
            if is_idle and self._flusher.is_done and self._flusher.is_quiet:
                self._once("close", self._close_cycle)
        if not is_idle:
            self._wake()

    def _once(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin something with the ledger, unless it is under way."""
        if name in self._busy:
            return
        self._busy.add(name)
        deferred: Deferred[None] = Deferred.fromCoroutine(work())

        def over(result: Any) -> None:
            self._busy.discard(name)
            if self._ending:
                return
            error = getattr(result, "value", None)
            if error is None:
                self._wake()
            elif isinstance(error, MoreShardsError):
                self._end(MORE_SHARDS, str(error))
            elif not isinstance(error, LedgerAwayError | LedgerFullError):
                self._fail(error if isinstance(error, Gp4cError) else Gp4cError(repr(error)))

        deferred.addBoth(over)

    def _fail(self, error: Gp4cError) -> None:
        self.cycle.failure = self.cycle.failure or error

    def _end(self, reason: str, line: str) -> None:
        """End the run; the next one goes on."""
        if not self._ending:
            self._ending = True
            logger.info("%s", line, extra=self.extra)
            assert self._crawler.engine is not None
            deferred_from_coro(self._crawler.engine.close_spider_async(reason=reason))

    def _wake(self) -> None:
        slot: Any = getattr(self._crawler.engine, "_slot", None)
        if slot is not None:
            slot.nextcall.schedule()

    def _is_idle(self) -> bool:
        """Tell whether nothing is left to visit, as far as is known here."""
        engine: Any = self._crawler.engine
        slot = getattr(engine, "_slot", None)
        return bool(
            slot is not None
            and not slot.inprogress
            and engine.scraper.slot.is_idle()
            and getattr(engine, "_start", None) is None
            and not len(self._feeder)
            and self.queue_is_empty()
            and self.cycle.rounds_over
        )

    async def _poll(self) -> None:
        found = await self._link.ask(poll, self._link.worker, self._part.store.numbers)
        if found.draining:
            self._end(DRAINED, "this worker is drained: it gives up its shards, the cycle goes on elsewhere")
        if found.mail:
            letters = await self._link.ask(mail.waiting, self._part.store.numbers, self._post.known)
            self._post.receive(letters)
        if found.homeless and not found.closed:
            await watch(self._link, self._part.store.numbers, None)

    # --- rounds and the end

    def _may_plan(self) -> bool:
        if self._part.rounds.result is None:
            self._once("plan", self._plan)
        return self._part.rounds.result is not None

    async def _plan(self) -> None:
        part = self._part
        if not self._flusher.is_quiet or part.store.waiting:
            self._flusher.start(done=False)
            return  # and again, when it is acknowledged
        number, awaited = part.rounds.planned_rounds, self.cycle.without_outcome > 0
        part.rounds.result = await rounds.plan(part.exchange, part.rounds.planners, number, awaited)

    async def _close_cycle(self) -> None:
        number = self.cycle.number
        if not await self._link.ask(cycles.close, number):
            return
        ended = await self._link.surely(begun, number)
        part = self._part
        record = await closing.close(part.exchange, self._link, part.store.shards, ended, self.cycle.settings)
        await closing.copy(self._link, self._home, part.store.shards, part.leases)
        part.store.reload()
        self._record = record

    def close(self, reason: str) -> None:
        """End the run; unless the cycle is folded, the next one goes on with it."""
        self._ending = True
        self._calls.stop()
        cycle = self.cycle
        if self._record is not None:
            tell(cycle, self._record)
            logger.info("%s", messages.closing(cycle, self._record), extra=self.extra)
        else:
            if cycle.failure is None:
                cycle.end_lost()
                self._flusher.last()
            logger.info("Cycle %d is interrupted; the next run goes on", cycle.number, extra=self.extra)
        self._link.close(leave=True, keep_name=reason == DRAINED)
