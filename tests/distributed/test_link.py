"""A worker's link: the reactor does not wait, a lease is kept whatever it is busy with, and given up at the
end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_twisted

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import LedgerAwayError, LedgerError, LedgerRightsError, NameTakenError
from scrapy_gp4c.distributed.leases import new_worker
from scrapy_gp4c.distributed.link import Link, sleep
from tests.support.ledgers import killed
from tests.support.postgres import NEEDS_POSTGRES, Server

pytestmark = NEEDS_POSTGRES


@pytest.fixture
def linked(dsn: str) -> Iterator[Callable[..., Link]]:
    """Makes links, and closes them."""
    made: list[Link] = []

    def link(name: str = "one", lease_s: float = 30.0) -> Link:
        made.append(Link(dsn, new_worker(name, lease_s)))
        return made[-1]

    yield link
    for one in made:
        one.close(leave=False)


@pytest_twisted.ensureDeferred
async def test_calls_are_done_beside_the_reactor(linked: Callable[..., Link]) -> None:
    """It goes on while a call is under way, and gets the result in its own thread."""
    link, turns = linked(), 0
    waiting = link.ask(lambda tx: tx.execute("SELECT pg_sleep(0.3), 7").fetchone()[1])  # type: ignore[index] # there is a row
    while not waiting.called:
        turns += 1
        await sleep(0.01)
    assert turns > 5
    assert await waiting == 7
    threads: list[threading.Thread] = []
    await link.ask(lambda tx: None).addCallback(lambda _: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


@pytest_twisted.ensureDeferred
async def test_what_is_away_is_asked_again_and_what_is_wrong_is_told(linked: Callable[..., Link]) -> None:
    """`surely` repeats while there is no answer; `ask` does not; other errors end both."""
    link, tries = linked(), 0

    def away(tx: Transaction) -> int:
        nonlocal tries
        tries += 1
        if tries % 3:
            raise LedgerAwayError("away")
        return tries

    with pytest.raises(LedgerAwayError):
        await link.ask(away)
    tries = 0
    assert await link.surely(away) == 3

    def wrong(tx: Transaction) -> None:
        raise LedgerRightsError("no")

    with pytest.raises(LedgerRightsError):
        await link.surely(wrong)


@pytest_twisted.ensureDeferred
async def test_a_lease_is_renewed_while_the_reactor_is_busy(
    linked: Callable[..., Link], ledger: Connection
) -> None:
    """Three leases long; before it is entered, and when it cannot be renewed, a worker may not act."""
    link = linked(lease_s=1.2)
    assert not link.is_entered
    assert not link.may_act
    await link.enter([2])
    assert link.is_entered
    time.sleep(3.6)  # this is the reactor's thread
    assert link.may_act
    (row,) = ledger.call(leases.look).workers
    assert (row.name, row.copies) == ("one", frozenset({2}))
    assert row.left_s > 0


@pytest_twisted.ensureDeferred
async def test_a_lease_that_flushes_renew_is_not_renewed_besides(
    linked: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as they stop, it is."""
    renewed: list[float] = []
    renew = leases.renew

    def noted(tx: Transaction, worker: leases.Worker) -> None:
        renewed.append(time.monotonic())
        renew(tx, worker)

    monkeypatch.setattr(leases, "renew", noted)
    link = linked(lease_s=1.2)
    await link.enter([])
    for _ in range(40):
        link.clock.renewed(link.clock.now())
        await sleep(0.02)
    assert renewed == []
    while not renewed:
        await sleep(0.02)
    assert link.may_act


@pytest_twisted.ensureDeferred
async def test_a_name_that_another_took_over_is_lost(linked: Callable[..., Link], ledger: Connection) -> None:
    """The former worker hears why, and does nothing in its name any more."""
    link = linked(lease_s=1.2)
    await link.enter([])
    killed(ledger, link.worker)
    ledger.call(leases.register, new_worker("one", 30.0))
    while link.failure is None:
        await sleep(0.05)
    assert isinstance(link.failure, NameTakenError)
    assert not link.may_act
    with pytest.raises(LedgerError):
        await linked().enter([])


@pytest_twisted.ensureDeferred
async def test_who_leaves_gives_its_shards_up(linked: Callable[..., Link], ledger: Connection) -> None:
    """At once, and is forgotten; one that is drained stays known; one that does not leave keeps them."""

    async def held(name: str, **how: Any) -> tuple[list[str], set[str | None]]:
        link = linked(name)
        await link.enter([])
        await link.ask(leases.take, link.worker, 0)
        link.close(**how)
        view = ledger.call(leases.look)
        return [row.name for row in view.workers], {row.holder for row in view.shards}

    assert await held("gone", leave=True) == ([], {None})
    assert await held("silent", leave=False) == (["silent"], {None, "silent"})


@pytest_twisted.ensureDeferred
async def test_a_server_that_is_killed_is_waited_for(linked: Callable[..., Link], server: Server) -> None:
    """What was asked meanwhile is answered when it is back."""
    link = linked()
    await link.enter([])
    server.kill()
    waiting = link.surely(leases.look)
    starting = threading.Thread(target=server.start)
    starting.start()
    view = await waiting
    starting.join()
    assert [row.name for row in view.workers] == ["one"]
    assert link.may_act
