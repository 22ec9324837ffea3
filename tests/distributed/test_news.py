"""What a worker hears: with a flush if there is one, also how far a step of the plan is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest_twisted
from twisted.internet.defer import Deferred

from scrapy_gp4c.distributed import exchange
from scrapy_gp4c.distributed.exchange import Posted, Step
from scrapy_gp4c.distributed.news import POLL, News
from scrapy_gp4c.distributed.polling import Poll
from tests.distributed.test_flushing import Flushing
from tests.distributed.test_flushing import one as one
from tests.distributed.test_shared_store import begun as begun
from tests.distributed.test_shared_store import visit
from tests.support.postgres import NEEDS_POSTGRES, Server

pytestmark = NEEDS_POSTGRES
NEXT, AWAITED = Step(1, "round/2"), Step(1, "round/1/0")


class Listening:
    """What a run does with news: begins one thing at a time."""

    def __init__(self, one: Flushing) -> None:
        self.busy: set[str] = set()
        self.told: list[tuple[Poll, Step | None]] = []
        self.news = News(one.link, one.flusher, one.post, self.busy, self._once, self._hear)

    def _once(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self.busy:
            self.busy.add(name)
            Deferred.fromCoroutine(work()).addBoth(lambda _: self.busy.discard(name))

    async def _hear(self, found: Poll, step: Step | None) -> None:
        self.told.append((found, step))


async def post_first(one: Flushing, step: Step) -> int:
    """Post the part of one shard; returns how many are missing."""
    (shard, token), *rest = one.flusher._tokens.items()
    await one.link.single(exchange.post, step, [Posted(shard, token, b"part")])
    return len(rest)


@pytest_twisted.ensureDeferred
async def test_a_flush_tells_how_far_a_step_is(one: Flushing) -> None:
    """And besides what a worker asks once a second, of the step that others may have begun."""
    await one.begin()
    listening = Listening(one)
    missing = await post_first(one, AWAITED)
    await post_first(one, NEXT)
    visit(one.store, 3)
    deferred = listening.news.of_step(NEXT, AWAITED)
    assert deferred is not None
    raw = await deferred
    assert raw is not None
    assert exchange.waiting(raw) == await one.link.single(exchange.look, AWAITED)
    assert exchange.waiting(raw).missing == missing
    ((found, step),) = listening.told
    assert (found.cycle, found.asked, step) == (1, True, NEXT)
    assert one.written == 1
    assert not listening.busy


@pytest_twisted.ensureDeferred
async def test_without_a_flush_nobody_tells(one: Flushing) -> None:
    """Where nothing is to be sent, or news is on its way, which comes by itself then, where asked for."""
    await one.begin()
    listening = Listening(one)
    assert listening.news.of_step(NEXT, AWAITED) is None
    listening.news.ask(NEXT, alone=False)
    assert POLL in listening.busy
    visit(one.store, 3)
    assert listening.news.of_step(NEXT, AWAITED) is None
    await one.quiet()
    assert [(found.asked, step) for found, step in listening.told] == [(False, NEXT)]


@pytest_twisted.ensureDeferred
async def test_a_lost_flush_tells_nothing(one: Flushing, server: Server) -> None:
    """Who waits for it looks by himself; the flush goes again."""
    await one.begin()
    listening = Listening(one)
    visit(one.store, 3)
    server.kill()
    deferred = listening.news.of_step(NEXT, AWAITED)
    assert deferred is not None
    assert await deferred is None
    server.start()
    await one.quiet()
    assert (one.written, listening.told) == (1, [])
