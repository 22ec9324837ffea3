"""Workers that race for shards: what was acknowledged is in the log once, and nothing under an old token."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from scrapy_gp4c.distributed import leases, schema
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import FencedError, LedgerAwayError, NameTakenError
from scrapy_gp4c.distributed.leases import Lease, Worker
from scrapy_gp4c.distributed.ledger import open_ledger
from scrapy_gp4c.distributed.log import Flush, flush, read_log
from scrapy_gp4c.distributed.segments import segment, unpack
from scrapy_gp4c.page_state.outcomes import VISIT
from tests.support.ledgers import joined, killed, opened
from tests.support.postgres import NEEDS_PGBOUNCER, PASSWORD, Server, pgbouncer
from tests.support.proxy import Proxy

SHARDS = 2
FENCED = 3
"""Appends under an old token that a race has at least."""
MOST_ROUNDS = 20
"""Times as many rounds as asked for, after which a race ends without them."""
SERVERS: list[Server] = []


@pytest.fixture(autouse=True)
def _one_server(server: Server) -> Iterator[None]:
    """What the state machine, which takes no fixtures, works on."""
    SERVERS.append(server)
    yield
    SERVERS.pop()


def visits_numbered(first: int, count: int) -> Any:
    """Visits whose fingerprints are numbers that no other visit has."""
    visits = np.zeros(count, VISIT)
    visits["fingerprint"] = np.arange(first, first + count)
    return visits


def in_log(ledger: Connection) -> dict[int, list[int]]:
    """Shard -> numbers of its visits, in the log's order."""
    return {
        shard: [
            number for _, visits, _ in read_log(ledger, 1, shard) for number in visits["fingerprint"].tolist()
        ]
        for shard in range(SHARDS)
    }


def assert_tokens_ascend(ledger: Connection) -> None:
    """Segments were appended under ascending tokens: no former holder got between a heir's."""
    rows = ledger.call(
        lambda tx: tx.execute("SELECT shard, token FROM gp4c.log ORDER BY shard, seq").fetchall()
    )
    for shard in range(SHARDS):
        tokens = [token for one, token in rows if one == shard]
        assert tokens == sorted(tokens)


class Races(stateful.RuleBasedStateMachine):
    """Two workers, each with what it believes to hold, in any order of takeovers, flushes and repetitions."""

    def __init__(self) -> None:
        """Make a ledger with an open cycle."""
        super().__init__()
        dsn = SERVERS[-1].dsn(SERVERS[-1].database())
        owner = Connection(dsn)
        schema.create(owner, SHARDS)
        owner.close()
        self.ledger = open_ledger(dsn)
        self.workers: list[Worker] = [joined(self.ledger, name) for name in "ab"]
        opened(self.ledger, self.workers[0])
        self.believes: list[dict[int, Lease]] = [{}, {}]
        self.flushes = [0, 0]
        self.sent: list[Flush | None] = [None, None]
        self.next_visit = 1
        self.expected: dict[int, list[int]] = {shard: [] for shard in range(SHARDS)}
        self.tokens: dict[int, int] = dict.fromkeys(range(SHARDS), 0)
        for who in range(2):
            self.take(who, who)

    @stateful.rule(who=st.integers(0, 1), shard=st.integers(0, SHARDS - 1))
    def take(self, who: int, shard: int) -> None:
        """Take a shard, if nobody alive has it."""
        lease = self.ledger.call(leases.take, self.workers[who], shard)
        if lease is not None:
            assert lease.token >= self.tokens[shard]
            self.tokens[shard] = lease.token
            self.believes[who][shard] = lease

    @stateful.rule(who=st.integers(0, 1), shard=st.integers(0, SHARDS - 1))
    def take_over(self, who: int, shard: int) -> None:
        """Take a shard of one that is silent for a lease, and goes on then."""
        self.die(1 - who)
        self.take(who, shard)
        self.revive(1 - who)

    @stateful.rule(who=st.integers(0, 1))
    def die(self, who: int) -> None:
        """Stop renewing for a lease; the process does not know."""
        killed(self.ledger, self.workers[who])
        self.ledger.call(lambda tx: tx.execute("UPDATE gp4c.shard SET deaths = 0"))

    @stateful.rule(who=st.integers(0, 1))
    def revive(self, who: int) -> None:
        """Renew: what was taken meanwhile stays lost."""
        self.ledger.call(leases.renew, self.workers[who])

    @stateful.rule(who=st.integers(0, 1), shard=st.integers(0, SHARDS - 1))
    def release(self, who: int, shard: int) -> None:
        """Give a shard up, held or not."""
        if shard in self.believes[who]:
            self.ledger.call(leases.release, {shard: self.believes[who][shard].token})

    @stateful.rule(
        who=st.integers(0, 1), count=st.integers(1, 3), wanted=st.sampled_from([(0,), (1,), (0, 1)])
    )
    def record(self, who: int, count: int, wanted: tuple[int, ...]) -> None:
        """Flush visits of those of some shards that one believes to hold."""
        known = self.believes[who]
        shards = [shard for shard in wanted if shard in known]
        if not shards:
            return
        parts = []
        for shard in shards:
            parts.append(segment(shard, known[shard].seq, visits_numbered(self.next_visit, count)))
            self.next_visit += count
        self.flushes[who] += 1
        tokens = {shard: known[shard].token for shard in shards}
        what = Flush(self.flushes[who], 1, tokens, tuple(parts))
        if old := [shard for shard in shards if known[shard].token != self.tokens[shard]]:
            with pytest.raises(FencedError) as raised:
                self.ledger.single(flush, self.workers[who], what)
            assert set(raised.value.shards) == set(old)
            return
        assert not self.ledger.single(flush, self.workers[who], what).repeated
        self.sent[who] = what
        for part, shard in zip(parts, shards, strict=True):
            self.expected[shard] += unpack(part.body)[0]["fingerprint"].tolist()
            known[shard] = known[shard]._replace(seq=known[shard].seq + 1, cycle=1)

    @stateful.rule(who=st.integers(0, 1))
    def repeat(self, who: int) -> None:
        """Send the last flush again, as if its answer had been lost: whoever holds its shards by now."""
        what = self.sent[who]
        if what is not None:
            assert self.ledger.single(flush, self.workers[who], what).repeated

    @stateful.invariant()
    def what_was_acknowledged_is_there_once(self) -> None:
        """In the order of the acknowledgements."""
        assert in_log(self.ledger) == self.expected
        assert_tokens_ascend(self.ledger)

    def teardown(self) -> None:
        """Close."""
        self.ledger.close()


Races.TestCase.settings = hypothesis.settings(max_examples=10, stateful_step_count=30, deadline=None)
TestRaces = Races.TestCase


class Racer:
    """A worker in a thread: takes what it can, records, and notes what was acknowledged."""

    def __init__(self, dsn: str, name: str, seed: int) -> None:
        self.ledger = open_ledger(dsn, 3.0)
        self.name = name
        self.random = random.Random(seed)
        self.acknowledged: list[int] = []
        self.fenced = 0
        self.enough = threading.Event()

    def run(self, rounds: int) -> None:
        """Work until so many flushes were acknowledged or refused, and there is `enough`."""
        worker = self._enter()
        number = done = 0
        while done < rounds or (not self.enough.is_set() and done < MOST_ROUNDS * rounds):
            shard = self.random.randrange(SHARDS)
            lease = self._calling(
                lambda worker=worker, shard=shard: self.ledger.call(leases.take, worker, shard)
            )
            if lease is None:
                continue
            for _ in range(self.random.randrange(1, 4)):
                number += 1
                done += 1
                visits = visits_numbered(uuid.uuid4().int >> 65, 2)
                what = Flush(number, 1, {shard: lease.token}, (segment(shard, lease.seq, visits),))
                try:
                    self._calling(lambda what=what, worker=worker: self.ledger.single(flush, worker, what))
                except FencedError:
                    self.fenced += 1
                    break
                except NameTakenError:
                    raise AssertionError("expected one process of a name; found two") from None
                self.acknowledged += visits["fingerprint"].tolist()
                lease = lease._replace(seq=lease.seq + 1)
        self.ledger.close()

    def _enter(self) -> Worker:
        return self._calling(lambda: joined(self.ledger, self.name, 3.0))

    def _calling(self, call: Callable[[], Any]) -> Any:
        """Call again what had no answer, as it was."""
        while True:
            try:
                return call()
            except LedgerAwayError:
                continue


def race(direct: Connection, dsn: str, trouble: Callable[[], bool] = lambda: True) -> list[Racer]:
    """Let three workers race while a judge lets leases end at random, and there is trouble on the way.

    ``trouble``: makes some, now and then; returns whether there was enough of it.
    """
    racers = [Racer(dsn, f"racer {number}", number) for number in range(3)]
    pool = ThreadPoolExecutor(len(racers))
    running = [pool.submit(racer.run, 20) for racer in racers]
    judge = random.Random(7)
    while not all(one.done() for one in running):
        direct.call(
            lambda tx: tx.execute(
                "UPDATE gp4c.worker SET expires = clock_timestamp() - interval '1 s' WHERE name = %s",
                (f"racer {judge.randrange(3)}",),
            )
        )
        direct.call(lambda tx: tx.execute("UPDATE gp4c.shard SET deaths = 0"))
        if trouble() and sum(racer.fenced for racer in racers) >= FENCED:
            for racer in racers:
                racer.enough.set()
        wait(running, 0.02)
    pool.shutdown()
    for one in running:
        one.result()
    return racers


def assert_all_once(ledger: Connection, racers: list[Racer]) -> None:
    """The log has what was acknowledged, once, and nothing under an old token."""
    found = [number for numbers in in_log(ledger).values() for number in numbers]
    acknowledged = [number for racer in racers for number in racer.acknowledged]
    assert len(set(found)) == len(found)
    assert sorted(found) == sorted(acknowledged)
    assert sum(racer.fenced for racer in racers) >= FENCED
    assert_tokens_ascend(ledger)


def test_racing_workers_record_each_visit_once(ledger: Connection, dsn: str) -> None:
    """Three that take over from each other while they flush."""
    opened(ledger, joined(ledger))
    assert_all_once(ledger, race(ledger, dsn))


def test_racing_workers_whose_connections_are_cut_record_each_visit_once(
    ledger: Connection, server: Server, database: str
) -> None:
    """Every few commits are sent and not answered, and all connections are cut now and then."""
    opened(ledger, joined(ledger))
    dice = random.Random(1)
    with Proxy(server.port) as proxy:

        def trouble() -> bool:
            if dice.random() < 0.3:
                proxy.cut_when = lambda data: b"COMMIT" in data
            if dice.random() < 0.05:
                proxy.cut()
            return proxy.cuts > 3

        racers = race(ledger, server.dsn(database, port=proxy.port), trouble)
        assert proxy.cuts > 3
    assert_all_once(ledger, racers)


@NEEDS_PGBOUNCER
def test_racing_workers_behind_pgbouncer_record_each_visit_once(
    ledger: Connection, server: Server, database: str
) -> None:
    """In transaction mode, three workers on two connections to the server."""
    opened(ledger, joined(ledger))
    with pgbouncer(server) as port:
        dsn = server.dsn(database, port=port, user="owner", password=PASSWORD)
        assert_all_once(ledger, race(ledger, dsn))
