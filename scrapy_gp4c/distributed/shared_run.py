"""One run of a worker: as a run of one machine, with the shards that it holds, and with the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.admission import Enqueue
from scrapy_gp4c.crawling.counting import tell
from scrapy_gp4c.crawling.downloads import Load
from scrapy_gp4c.crawling.engine import is_quiet, under_way, wake
from scrapy_gp4c.crawling.run import Run
from scrapy_gp4c.distributed import closing, cycles, mail
from scrapy_gp4c.distributed.errors import LedgerAwayError, LedgerFullError
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.flushing import MOST_WAITING, Flusher
from scrapy_gp4c.distributed.holding import MoreShardsError, NothingDueError, watch
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.news import POLL, News
from scrapy_gp4c.distributed.part import Again, Part
from scrapy_gp4c.distributed.polling import Poll
from scrapy_gp4c.distributed.post import Post
from scrapy_gp4c.distributed.taking_back import for_later, from_downloader
from scrapy_gp4c.distributed.turns import Turns
from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.store.records import CycleRecord

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

DRAINED: Final = "gp4c_drained"
"""Finish reason of a run whose worker gives up its shards."""


class SharedRun(Run):
    """What a worker's crawl does with requests."""

    def __init__(
        self, crawler: Crawler, enqueue: Enqueue, spider: Spider, part: Part, link: Link, again: Again
    ) -> None:
        """Take what is to be done of an open cycle, in which own shards have caught up. Raises StoreError."""
        self._link, self._again = link, again
        self._record: CycleRecord | None = None
        """What the cycle came to, once it is folded."""
        self._busy: dict[str, Deferred[None]] = {}
        """What is under way with the ledger."""
        self._ending = False
        self._moving = False
        """Whether shards of others are to be taken: nothing is sent until they are."""
        self._is_between = False
        """Whether the store is closed for that."""
        self._kept: list[Request] = []
        """Requests that wait for that."""
        self.queue_is_empty: Callable[[], bool] = lambda: True
        """Whether Scrapy's queue is."""
        super().__init__(crawler, part.cycle, part.cycle.remaining(), spider, enqueue)
        self._take(part)
        self._turns = Turns(self._turn)

    def _take(self, part: Part) -> None:
        """Take the shards in which the cycle is."""
        self._part, cycle = part, part.cycle
        self._unasked_s = monotonic()  # when nobody was known to have asked for the next round
        self._post = Post(cycle, part.store, self._admission, self.stats)
        self._admission.abroad = self._post
        tokens = {lease.shard: lease.token for lease in part.leases}
        self._flusher = Flusher(self._link, part.store, self._post, cycle.number, tokens)
        self._flusher.failed = self._fail
        self._news = News(self._link, self._flusher, self._post, self._busy, self._once, self._hear)
        part.exchange.with_flush = self._with_flush
        part.store.on_full = lambda: self._flusher.start(done=False)

    @property
    def has_more(self) -> bool:
        """Tell whether the crawl goes on: until the cycle is folded, or cannot be."""
        return self._record is None and self.cycle.failure is None

    @property
    def may_send(self) -> bool:
        """Tell whether requests may be sent: not without a lease, nor with too much that the ledger lacks."""
        return self._link.may_act and self._part.store.waiting < MOST_WAITING and self._record is None

    # --- what is done from time to time

    def _turn(self, is_due: bool) -> None:
        if self._link.failure is not None:
            self._fail(self._link.failure)
        if self.cycle.failure is not None or self._ending or self._record is not None:
            return
        if self._moving:
            self._move_on()
            self._turns.soon()
            return
        is_idle = self._is_idle()
        if is_idle:
            self.cycle.end_lost()
            self._feeder.end_unasked()
        awaits = bool(self._post.awaited)  # what others go on with is a visit of this worker
        if is_idle:
            self._flusher.start(done=not awaits)
        if is_due:
            self._news.ask(self._next_step(), alone=is_idle)
            if awaits and self._flusher.is_quiet and self._is_quiet():
                self._once("answers", self._end_unanswered)
        if not is_idle and (is_due or self._is_asked_for()):
            wake(self._crawler)  # else what is under way does, once it is in
        if self._is_asked_for():
            self._turns.soon()

    def _next_step(self) -> Step | None:
        return self._part.rounds.next_step(self.cycle.number)

    def _with_flush(self, awaited: Step) -> Deferred[bytes | None] | None:
        """Let a flush tell how far a step is: it comes in place of that of the next turn."""
        told = self._news.of_step(self._next_step(), awaited)
        if told is not None:
            self._turns.postpone()
        return told

    def _is_asked_for(self) -> bool:
        """Tell whether nothing may happen that wakes the engine."""
        return self.idle_since_s is not None or not under_way(self._crawler)

    def _once(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin something with the ledger, unless it is under way."""
        if name in self._busy:
            return
        deferred = self._busy[name] = Deferred.fromCoroutine(work())

        def over(result: Any) -> None:
            self._busy.pop(name, None)
            error = getattr(result, "value", None)
            if self._ending or isinstance(error, CancelledError) or (error is None and name == POLL):
                return  # a poll wakes the engine for letters alone
            if error is None:
                wake(self._crawler)
            elif isinstance(error, MoreShardsError):
                self._move(str(error))
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

    def _is_idle(self) -> bool:
        """Tell whether nothing is left to visit, as far as is known here."""
        return self._is_quiet() and not len(self._feeder) and self.cycle.rounds_over

    def _is_quiet(self) -> bool:
        """Tell whether nothing is queued or under way."""
        return is_quiet(self._crawler) and self.queue_is_empty()

    async def _hear(self, found: Poll, step: Step | None) -> None:
        if found.draining:
            self._end(DRAINED, "this worker is drained: it gives up its shards, the cycle goes on elsewhere")
        if found.letters:
            self._post.receive(found.letters)
            wake(self._crawler)
        if found.homeless and not found.closed:
            await watch(self._link, self._part.store.numbers, None)
        own = self._part.rounds
        own.is_asked = found.asked and step == self._next_step()  # else it is planned by now
        if not own.is_asked:
            self._unasked_s = monotonic()
        elif not self._is_patient(self._unasked_s):
            self._once("plan", self._plan)
        is_told = self._flusher.is_done and self._flusher.is_quiet and not self._post.awaited
        if is_told and self._is_idle() and (found.closed or found.ended):
            self._once("close", self._close_cycle)

    # --- shards that others have lost

    def _move(self, line: str) -> None:
        """Take them, once nothing is under way: pages have other numbers then."""
        if not self._moving:
            self._moving = True
            self._turns.soon()
            logger.info("%s", line, extra=self.extra)
            if "plan" in self._busy:  # the others may come to that round only when these shards have holders
                self._busy["plan"].cancel()

    def _keep(self, request: Request) -> bool:
        self._kept.append(request)
        return True

    def next_request(
        self, pop: Callable[[], Request | None], queued: Callable[[], Collection[str] | None]
    ) -> Request | None:
        """As `Run` does; before shards are taken, empty the queue instead."""
        while self._moving and (request := pop()) is not None:
            self._take_back(request)
        request = None if self._moving else super().next_request(pop, queued)
        if request is None and self._is_asked_for():
            self._turns.soon()
        return request

    def _take_back(self, request: Request) -> None:
        if (later := for_later(request)) is not None:
            self._kept.append(later)

    def _move_on(self) -> None:
        """Let the ledger have all that was done, and then take the shards."""
        assert self._crawler.engine is not None
        for request in from_downloader(self._crawler.engine.downloader, self.cycle):
            self._take_back(request)
        if self._busy or not self._is_quiet():
            wake(self._crawler)  # which empties the queue
            return
        self.cycle.end_lost()
        self._flusher.start(done=False)
        if self._flusher.is_quiet:
            self._once("take over", self._take_over)

    async def _take_over(self) -> None:
        number = self.cycle.number
        self._is_between, self.admit = True, self._keep
        self._admission.tell_dropped()
        self._part.store.on_full = lambda: None
        self._part.store.close()
        try:
            part = await self._again(number)
        except NothingDueError as error:
            self._end("finished", str(error))
            return
        self._work_on(part.cycle, part.cycle.remaining())
        self._take(part)
        self._moving = self._is_between = False
        kept, self._kept = self._kept, []
        for request in kept:
            asked, request.dont_filter = request.dont_filter, True  # Scrapy's filter has seen it
            self.admit(request)
            request.dont_filter = asked

    async def _end_unanswered(self) -> None:
        """End visits that nobody goes on with: where there is no letter at all, nobody will answer."""
        awaited = list(self._post.awaited)
        if await self._link.ask(mail.is_empty):
            self._post.end_unanswered(awaited)

    # --- rounds and the end

    def _may_plan(self) -> bool:
        """False: a round is asked for, and its pages come when all have planned it."""
        if self._part.rounds.is_asked or not self._part.rounds.is_light:
            self._once("plan", self._ask)
        return False

    async def _ask(self) -> None:
        """Ask for the next round, as soon as the ledger has all outcomes that are there."""
        if await self._flusher.settle():
            await self._plan()

    async def _plan(self) -> None:
        """Plan the next round with all others, by what the ledger has of own visits by now."""
        await self._part.rounds.plan_with(self._part.exchange)
        self._plan_round(Load.NONE)

    async def _close_cycle(self) -> None:
        number, part = self.cycle.number, self._part
        while (closed_s := await self._link.single(cycles.closed_s, number)) is None:
            if not await self._link.ask(cycles.close, number):
                return
        record = await closing.close(part.exchange, part.store.shards, closed_s, self.cycle.settings)
        await closing.copy(self._link, part.home, part.store.shards, part.leases)
        part.store.reload()
        self._record = record

    def close(self, reason: str) -> None:
        """End the run; unless the cycle is folded, the next one goes on with it."""
        cycle, self._ending = self.cycle, True
        self._turns.stop()
        self._admission.tell_dropped()
        if self._record is not None:
            tell(cycle, self._record)
            logger.info("%s", messages.closing(cycle, self._record), extra=self.extra)
        else:
            if cycle.failure is None and not self._is_between:
                cycle.end_lost()
                self._flusher.last()
            logger.info("Cycle %d is interrupted; the next run goes on", cycle.number, extra=self.extra)
        self._link.close(leave=True)
