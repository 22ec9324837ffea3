"""A worker's link to its ledger: calls that the reactor does not wait for, and a lease that is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.errors import LedgerAwayError, LedgerError, LedgerFullError
from scrapy_gp4c.distributed.lease_clock import LeaseClock
from scrapy_gp4c.distributed.leases import Worker
from scrapy_gp4c.distributed.ledger import LedgerThread, open_ledger

P = ParamSpec("P")
T = TypeVar("T")

RENEWALS: Final = 4
"""In a lease."""
PAUSE_S: Final = 0.25
"""Before what could not be done for now is tried again."""


class Link:
    """One worker's connection, thread and lease; used by the reactor's thread."""

    def __init__(self, dsn: str, worker: Worker) -> None:
        """Take a connection string; nothing is connected before the first call."""
        self.worker = worker
        self.thread = LedgerThread(open_ledger(dsn, worker.lease_s))
        self.clock = LeaseClock(worker.lease_s)
        self.failure: LedgerError | None = None
        """Why the lease cannot be renewed any more."""
        self._ended = threading.Event()
        self._beat: threading.Thread | None = None

    def ask(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        """Do work in a transaction of its own, once."""
        return fired(self.thread.post(work, *args, **kwargs))

    def single(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        """Do work of one statement, once: a fifth of the bytes of `ask`."""
        return fired(self.thread.post_single(work, *args, **kwargs))

    async def surely(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do work, again and again while the ledger is away; raises what else goes wrong."""
        return await self._again(lambda: self.ask(work, *args, **kwargs))

    async def surely_single(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do work of one statement; else as `surely`."""
        return await self._again(lambda: self.single(work, *args, **kwargs))

    async def _again(self, ask: Callable[[], Deferred[T]]) -> T:
        while True:
            try:
                return await ask()
            except (LedgerAwayError, LedgerFullError):
                if self.failure is not None:
                    raise self.failure from None
                await sleep(PAUSE_S)

    async def enter(self, copies: list[int]) -> None:
        """Enter the worker, and renew its lease from now on; fails at once where there is no ledger."""
        sent = self.clock.now()
        await self.ask(leases.register, self.worker, copies)
        self.clock.renewed(sent)
        self._beat = threading.Thread(target=self._renew, name="gp4c-lease", daemon=True)
        self._beat.start()

    def _renew(self) -> None:
        """Renew the lease until the end, whatever the reactor is busy with, where no flush has done so."""
        every_s = self.worker.lease_s / RENEWALS
        pause_s = every_s
        while not self._ended.wait(pause_s):
            pause_s = every_s - self.clock.renewed_s
            if pause_s > 0:
                continue
            pause_s, sent = every_s, self.clock.now()
            try:
                self.thread.single(leases.renew, self.worker)
                self.clock.renewed(sent)
            except (LedgerAwayError, LedgerFullError):
                continue
            except LedgerError as error:
                self.failure = error
                return
            except (CancelledError, RuntimeError):  # the thread has ended
                return

    @property
    def is_entered(self) -> bool:
        """Whether the worker is entered."""
        return self._beat is not None

    @property
    def may_act(self) -> bool:
        """Tell whether the lease lets this worker send anything."""
        return self.failure is None and self.clock.left_s > 0

    def close(self, *, leave: bool) -> None:
        """End; ``leave``: give up all shards first. What goes wrong with that, the lease's end mends."""
        self._ended.set()
        if leave:
            with suppress(LedgerError, CancelledError, RuntimeError):
                self.thread.call(leases.leave, self.worker)
        self.thread.close()


def fired(future: Future[T]) -> Deferred[T]:
    """A thread's result in the reactor."""
    from twisted.internet import reactor  # which one it is, is settled when the crawl starts

    deferred: Deferred[T] = Deferred()
    loop: Any = reactor

    def fire() -> None:
        error = CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            deferred.errback(error)
        else:
            deferred.callback(future.result())

    future.add_done_callback(lambda _: loop.callFromThread(fire))
    return deferred


def sleep(seconds: float) -> Deferred[None]:
    """Fire after so many seconds."""
    from twisted.internet import reactor

    deferred: Deferred[None] = Deferred()
    loop: Any = reactor
    loop.callLater(seconds, deferred.callback, None)
    return deferred
