"""What a worker hears of the others: with a flush if there is one, as another statement costs as much."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any

from twisted.internet.defer import Deferred

from scrapy_gp4c.distributed import exchange
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.flushing import Flusher
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.polling import Poll, heard, looking, poll
from scrapy_gp4c.distributed.post import Post

Once = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], object]
"""Begins something, unless what has this name is under way."""
Hear = Callable[[Poll, Step | None], Coroutine[Any, Any, None]]
"""Does what follows from what was told; the step is the one that was asked about."""
POLL = "poll"
"""Name under which it is done."""


class News:
    """Asks the ledger what may have changed."""

    def __init__(
        self, link: Link, flusher: Flusher, post: Post, busy: Collection[str], once: Once, hear: Hear
    ) -> None:
        """``busy``: names of what is under way."""
        self._link, self._flusher, self._post = link, flusher, post
        self._busy, self._once, self._hear = busy, once, hear

    def ask(self, step: Step | None, *, alone: bool) -> None:
        """Ask; ``step``: by which others begin the next round; ``alone``: without a flush."""
        if alone or not self._flush(step, None):
            self._once(POLL, lambda: self._poll(step))

    def of_step(self, step: Step | None, awaited: Step) -> Deferred[bytes | None] | None:
        """Ask with a flush how far a step is, besides; None: there is nothing to be sent.

        What it fires with is read by `exchange.waiting`; None: the flush was lost, and will be repeated.
        """
        if POLL in self._busy or not self._flush(step, awaited):
            return None
        deferred: Deferred[bytes | None] = Deferred()
        self._flusher.of_step = deferred.callback
        return deferred

    def _flush(self, step: Step | None, awaited: Step | None) -> bool:
        besides = None
        if POLL not in self._busy:
            besides = looking(self._link.worker, step, self._post.known)
            besides += f", {exchange.looking(awaited)}" if awaited else ""
        is_sent = self._flusher.start(done=False, besides=besides)
        if is_sent:  # else one is on its way that asked about another step, perhaps
            self._flusher.heard = lambda told: self._once(POLL, lambda: self._hear(heard(told), step))
        return is_sent

    async def _poll(self, step: Step | None) -> None:
        await self._hear(await self._link.single(poll, self._link.worker, step, self._post.known), step)
