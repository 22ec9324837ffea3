"""What a worker recorded, into the ledger and then into its shards; one flush at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Final

from scrapy_gp4c.distributed.errors import LedgerAwayError, LedgerFullError
from scrapy_gp4c.distributed.link import Link, fired, sleep
from scrapy_gp4c.distributed.log import Flush, Flushed, Progress, flush
from scrapy_gp4c.distributed.post import Post
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.errors import Gp4cError

MOST_WAITING: Final = 10_000
"""Visits that wait for the ledger, from which on a worker sends no request."""
WAIT_S: Final = 0.02
"""From one look for an acknowledgement to the next."""


class Flusher:
    """Sends flushes, again until they are acknowledged, and lets the shards write what was."""

    def __init__(
        self, link: Link, store: SharedStore, post: Post, cycle: int, tokens: Mapping[int, int]
    ) -> None:
        """Take own shards in an open cycle."""
        self._link, self._store, self._post = link, store, post
        self._cycle, self._tokens = cycle, tokens
        self._number = 0
        self._waiting: Flush | None = None
        self._sent: Future[Flushed] | None = None
        self.is_done: bool | None = None
        """Whether the ledger has that nothing is left to visit; None: as a former holder has told it."""
        self.failed: Callable[[Gp4cError], object] = lambda error: None
        """Called when nothing can be recorded any more."""
        self.heard: Callable[[list[bytes]], object] = lambda told: None
        """Called with what was asked besides a flush."""
        self.of_step: Callable[[bytes | None], object] = lambda told: None
        """Called once, with what was asked besides of a step of the plan; None: nobody has told it."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way."""
        return self._waiting is None

    def start(self, *, done: bool, besides: str | None = None) -> bool:
        """Send what is buffered, unless a flush is on its way; tells whether anything was sent.

        ``done``: nothing is left to visit; ``besides``: what is asked with it, see `heard`.
        """
        if self._sent is not None:
            return False
        if self._waiting is None:
            self._waiting = self._next(done)
        if self._waiting is None:
            return False
        sent = self._link.clock.now()
        self._sent = self._link.thread.post_single(flush, self._link.worker, self._waiting, besides)
        deferred = fired(self._sent)
        deferred.addCallbacks(
            lambda flushed: self._acknowledged(sent, flushed), lambda failure: self._lost(failure.value)
        )
        return True

    async def settle(self) -> bool:
        """Tell whether the ledger has all that was recorded; else send it, and wait for a moment."""
        if self.is_quiet and not self._store.waiting:
            return True
        self.start(done=False)
        await sleep(WAIT_S)
        return False

    def _next(self, done: bool) -> Flush | None:
        progress = {}
        segments, letters = self._store.sealed(), self._post.letters()
        consumed = self._post.consumed()
        if done != self.is_done and (done or segments or letters or consumed):
            progress = {one.shard_of.number: Progress(one.pages, done) for one in self._store.shards}
        if not (segments or letters or consumed or progress):
            return None
        self._number += 1
        return Flush(self._number, self._cycle, self._tokens, segments, letters, consumed, progress)

    def _acknowledged(self, sent: float, flushed: Flushed) -> None:
        self._sent = None
        self._link.clock.renewed(sent)
        self._write()
        if flushed.told is not None:
            self.heard(flushed.told)
        self._tell_of_step(flushed.of_step)

    def _tell_of_step(self, told: bytes | None) -> None:
        tell, self.of_step = self.of_step, lambda told: None
        tell(told)

    def _write(self) -> None:
        if self._waiting is None:
            return
        what, self._waiting = self._waiting, None
        for one in what.progress.values():
            self.is_done = one.done
        self._post.forget(what.consumed)
        try:
            self._store.write(what.segments)
        except Gp4cError as error:
            self.failed(error)

    def _lost(self, error: BaseException) -> None:
        self._sent = None
        self._tell_of_step(None)
        if isinstance(error, LedgerAwayError | LedgerFullError):
            return  # the same flush goes again with the next `start`
        if not isinstance(error, CancelledError):  # of a run that has ended
            self.failed(error if isinstance(error, Gp4cError) else Gp4cError(repr(error)))

    def last(self) -> None:
        """Send all that is buffered and wait for it, once; what cannot be acknowledged now is lost."""
        for _ in range(2):  # the one on its way, and the last one
            if self._waiting is None:
                self._waiting = self._next(done=bool(self.is_done))
            if self._waiting is None:
                return
            try:
                if self._sent is not None:
                    self._sent.result()
                else:
                    self._link.thread.single(flush, self._link.worker, self._waiting)
            except Gp4cError as error:
                if not isinstance(error, LedgerAwayError | LedgerFullError):
                    self.failed(error)
                return
            self._sent = None
            self._write()
