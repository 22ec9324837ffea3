"""Flushes: the ledger first, then the shards; what gets no answer goes again, what is fenced ends the run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_twisted

from scrapy_gp4c.distributed import cycles, leases
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import FencedError
from scrapy_gp4c.distributed.flushing import Flusher
from scrapy_gp4c.distributed.leases import Worker, new_worker
from scrapy_gp4c.distributed.link import Link, sleep
from scrapy_gp4c.distributed.log import read_log
from scrapy_gp4c.distributed.polling import poll
from scrapy_gp4c.distributed.post import Post
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.errors import Gp4cError
from tests.distributed.test_shared_store import begun as begun
from tests.distributed.test_shared_store import opened, url, visit
from tests.store.test_store_kill import key
from tests.support.ledgers import CODE, DECIDED, joined, killed, taken
from tests.support.postgres import NEEDS_POSTGRES, Server

pytestmark = NEEDS_POSTGRES


class Flushing:
    """A worker with all shards in cycle 1, whose pages others may have, too."""

    def __init__(self, dsn: str, store: SharedStore) -> None:
        self.store, self.link = store, Link(dsn, new_worker("one", 30.0))
        nothing: Any = SimpleNamespace(rebuilder=None)  # what a letter that comes in would need
        self.post = Post(nothing, store, nothing, nothing)
        self.failed: list[Gp4cError] = []

    async def begin(self) -> None:
        """Take the shards."""
        await self.link.enter([])
        await self.link.ask(_open, self.link.worker)
        tokens = {}
        for shard in self.store.numbers:
            lease = await self.link.ask(leases.take, self.link.worker, shard)
            assert lease is not None
            tokens[shard] = lease.token
        self.flusher = Flusher(self.link, self.store, self.post, 1, tokens)
        self.flusher.failed = self.failed.append

    async def quiet(self, done: bool = False) -> None:
        """Flush until nothing is on its way, or it failed."""
        self.flusher.start(done=done)
        while not self.flusher.is_quiet and not self.failed:
            await sleep(0.02)
            self.flusher.start(done=done)

    @property
    def written(self) -> int:
        """Visits that the shards have."""
        return sum(one.acknowledged_visits for one in self.store.shards)


def _open(tx: Transaction, worker: Worker) -> None:
    assert cycles.join(tx, worker, DECIDED, CODE, 0.0) is not None


@pytest.fixture
def one(dsn: str, begun: Path, tmp_path: Path) -> Iterator[Flushing]:
    """A worker."""
    shutil.copytree(begun, tmp_path / "own")
    with ExitStack() as stack:
        made = Flushing(dsn, SharedStore(tmp_path / "own", opened(stack, tmp_path / "own")))
        stack.callback(made.link.close, leave=False)
        yield made


@pytest_twisted.ensureDeferred
async def test_the_ledger_has_it_first(one: Flushing, ledger: Connection) -> None:
    """Then the shards write it; letters leave with the visits that found them."""
    await one.begin()
    for page in range(12):
        visit(one.store, page)
    one.post.send(9, {"url": url(3)}, 1 + (one.store.find(key(1)) or 0))
    one.flusher.start(done=False)
    assert (one.written, one.flusher.is_quiet) == (0, False)
    await one.quiet()
    assert (one.written, one.store.waiting) == (12, 0)
    recorded = [len(visits) for shard in range(4) for _, visits, _ in read_log(ledger, 1, shard)]
    assert sum(recorded) == 12
    (letter,) = ledger.single(poll, one.link.worker).letters
    assert letter.letter.receiver == one.store.shard_number(one.store.find(key(3)) or 0)


@pytest_twisted.ensureDeferred
async def test_that_nothing_is_left_is_told_and_taken_back(one: Flushing, ledger: Connection) -> None:
    """With the known pages; taken back as soon as there is something again."""
    await one.begin()

    def told() -> set[tuple[int, int]]:
        return {(row.done, row.pages) for row in ledger.call(leases.look).shards}

    await one.quiet(done=True)
    assert one.flusher.is_done
    assert told() == {(1, shard.pages) for shard in one.store.shards}
    visit(one.store, 3)
    await one.quiet(done=False)
    assert not one.flusher.is_done
    assert {done for done, _ in told()} == {0}


@pytest_twisted.ensureDeferred
async def test_what_gets_no_answer_goes_again(one: Flushing, ledger: Connection, server: Server) -> None:
    """PostgreSQL is killed with a flush on its way: when it is back, all of it is there once."""
    await one.begin()
    for page in range(8):
        visit(one.store, page)
    server.kill()
    one.flusher.start(done=False)
    await sleep(0.3)
    visit(one.store, 20)
    assert (one.written, one.failed) == (0, [])
    server.start()
    await one.quiet()
    await one.quiet()
    assert (one.written, one.failed) == (9, [])
    assert sum(len(visits) for shard in range(4) for _, visits, _ in read_log(ledger, 1, shard)) == 9


@pytest_twisted.ensureDeferred
async def test_a_flush_under_an_old_token_ends_the_run(one: Flushing, ledger: Connection) -> None:
    """Nothing of it is written anywhere, in no shard."""
    await one.begin()
    for page in range(8):
        visit(one.store, page)
    killed(ledger, one.link.worker)
    taken(ledger, joined(ledger, "heir"), 0)
    await one.quiet()
    (error,) = one.failed
    assert isinstance(error, FencedError)
    assert error.shards == (0,)
    assert one.written == 0
    assert [*read_log(ledger, 1, 1)] == []


@pytest_twisted.ensureDeferred
async def test_the_last_one_takes_all_along(one: Flushing, ledger: Connection) -> None:
    """What is on its way, and what came since."""
    await one.begin()
    visit(one.store, 1)
    one.flusher.start(done=False)
    visit(one.store, 2)
    one.flusher.last()
    assert (one.written, one.store.waiting, one.failed) == (2, 0, [])
    assert sum(len(visits) for shard in range(4) for _, visits, _ in read_log(ledger, 1, shard)) == 2
