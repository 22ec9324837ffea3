"""The log: all or nothing, once, in order, under the fence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import (
    CycleClosedError,
    DiffersError,
    FencedError,
    LedgerAwayError,
    LedgerDamagedError,
    NameTakenError,
)
from scrapy_gp4c.distributed.leases import Lease, Worker
from scrapy_gp4c.distributed.log import Flush, Letter, Progress, flush, read_log
from scrapy_gp4c.distributed.segments import segment
from tests.support.ledgers import flush_of, joined, killed, opened, segments_of, taken, visits_of
from tests.support.postgres import Server


@pytest.fixture
def worker(ledger: Connection) -> Worker:
    """A worker in an open cycle."""
    one = joined(ledger)
    opened(ledger, one)
    return one


@pytest.fixture
def lease(ledger: Connection, worker: Worker) -> Lease:
    """Shard 2, held by it."""
    return taken(ledger, worker, 2)


def test_what_was_flushed_is_read(ledger: Connection, worker: Worker, lease: Lease) -> None:
    """Visits of several flushes and segments, and the bytes beside them, in order."""
    other = taken(ledger, worker, 3)
    parts = [segment(2, seq, visits_of(100, seq), b"rest %d" % seq) for seq in range(3)]
    tokens = {lease.shard: lease.token, other.shard: other.token}
    ledger.single(flush, worker, Flush(1, 1, tokens, (*parts[:2], segment(3, 0, visits_of(5)))))
    ledger.single(flush, worker, flush_of(2, 1, lease, parts[2]))
    found = list(read_log(ledger, 1, 2))
    assert [(seq, rest) for seq, _, rest in found] == [(seq, b"rest %d" % seq) for seq in range(3)]
    for seq, visits, _ in found:
        assert np.array_equal(visits, visits_of(100, seq))
    assert [seq for seq, _, _ in read_log(ledger, 1, 2, first=2)] == [2]
    assert [len(visits) for _, visits, _ in read_log(ledger, 1, 3)] == [5]
    assert list(read_log(ledger, 1, 0)) == []


def test_many_segments_are_read_piece_by_piece(ledger: Connection, worker: Worker, lease: Lease) -> None:
    """More than one call reads, none missing between two."""
    ledger.single(flush, worker, flush_of(1, 1, lease, *segments_of(2, 205, visits=1)))
    assert [seq for seq, _, _ in read_log(ledger, 1, 2)] == list(range(205))


def test_a_repeated_flush_is_recognised(ledger: Connection, worker: Worker, lease: Lease) -> None:
    """Sent again as it was, mail too: nothing is written twice."""
    letter = Letter(2, 0, b"hello")
    what = Flush(1, 1, {2: lease.token}, tuple(segments_of(2, 2)), (letter,))
    assert not ledger.single(flush, worker, what).repeated
    assert ledger.single(flush, worker, what).repeated
    assert len(list(read_log(ledger, 1, 2))) == 2
    assert ledger.call(lambda tx: tx.execute("SELECT count(*) FROM gp4c.mail").fetchone()) == (1,)


def test_a_repeated_flush_is_recognised_after_a_takeover(
    ledger: Connection, worker: Worker, lease: Lease
) -> None:
    """What committed is recorded, whoever holds the shard by now; the next one is refused."""
    what = flush_of(1, 1, lease, *segments_of(2, 1))
    ledger.single(flush, worker, what)
    killed(ledger, worker)
    taken(ledger, joined(ledger, "two"), 2)
    assert ledger.single(flush, worker, what).repeated
    with pytest.raises(FencedError, match="taken over: 2"):
        ledger.single(flush, worker, flush_of(2, 1, lease, *segments_of(2, 1, first=1)))


def test_a_repeated_segment_is_recognised_by_its_sum(
    ledger: Connection, worker: Worker, lease: Lease
) -> None:
    """In another flush, too; one of other contents is an error, and so is a gap."""
    ledger.single(flush, worker, flush_of(1, 1, lease, *segments_of(2, 2)))
    ledger.single(flush, worker, flush_of(2, 1, lease, *segments_of(2, 3)))
    assert len(list(read_log(ledger, 1, 2))) == 3
    with pytest.raises(
        DiffersError, match="segment 0 of shard 2, cycle 1, is in the ledger with other contents"
    ):
        ledger.single(flush, worker, flush_of(3, 1, lease, segment(2, 0, visits_of(9))))
    with pytest.raises(DiffersError, match=r"at segment 3 of cycle 1 .* segment 5 .* older backup"):
        ledger.single(flush, worker, flush_of(3, 1, lease, *segments_of(2, 1, first=5)))
    assert len(list(read_log(ledger, 1, 2))) == 3


def test_an_append_under_an_old_token_writes_nothing(
    ledger: Connection, worker: Worker, lease: Lease
) -> None:
    """Neither of the lost shard nor of those that are still held, nor mail, nor the lease."""
    other = taken(ledger, worker, 1)
    killed(ledger, worker)
    second = joined(ledger, "two")
    again = taken(ledger, second, 2)
    assert again.token == lease.token + 1
    what = Flush(
        1,
        1,
        {1: other.token, 2: lease.token},
        (*segments_of(1, 1), *segments_of(2, 1)),
        (Letter(1, 0, b"x"),),
        progress={1: Progress(10, True)},
    )
    with pytest.raises(FencedError) as raised:
        ledger.single(flush, worker, what)
    assert raised.value.shards == (2,)
    assert list(read_log(ledger, 1, 1)) == list(read_log(ledger, 1, 2)) == []
    view = ledger.call(leases.look)
    assert view.shards[1].pages == view.shards[1].done == 0
    assert next(row for row in view.workers if row.name == "one").left_s < 0
    ledger.single(flush, second, flush_of(1, 1, again, *segments_of(2, 1)))
    assert len(list(read_log(ledger, 1, 2))) == 1


def test_a_flush_renews_the_lease(ledger: Connection, worker: Worker, lease: Lease) -> None:
    """One without contents, too; and the former process of a name gets an error."""
    for number, parts in enumerate(((), segments_of(2, 1)), 1):
        killed(ledger, worker)
        ledger.single(flush, worker, flush_of(number, 1, lease, *parts))
        assert ledger.call(leases.look).workers[0].left_s > 20
    killed(ledger, worker)
    joined(ledger, worker.name)
    for parts in ((), segments_of(2, 1, first=1)):
        with pytest.raises(NameTakenError, match="'one' is alive"):
            ledger.single(flush, worker, flush_of(3, 1, lease, *parts))


def test_progress_is_noted(ledger: Connection, worker: Worker, lease: Lease) -> None:
    """Pages and the end of a shard's cycle, which may be taken back; an end clears its deaths."""
    ledger.single(flush, worker, flush_of(1, 1, lease, done=True))
    assert ledger.call(leases.look).shards[2].done == 1
    ledger.single(flush, worker, Flush(2, 1, {2: lease.token}, progress={2: Progress(123, False)}))
    row = ledger.call(leases.look).shards[2]
    assert (row.done, row.pages) == (0, 123)


def test_nothing_is_recorded_in_a_cycle_that_is_not_open(
    ledger: Connection, worker: Worker, lease: Lease
) -> None:
    """Neither in one that comes, nor, see test_cycles, in one that is closed."""
    with pytest.raises(CycleClosedError, match="cycle 2 is not open"):
        ledger.single(flush, worker, flush_of(1, 2, lease, *segments_of(2, 1)))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE gp4c.log SET body = overlay(body PLACING '\\x00' FROM 30) WHERE seq = 1", "not those"),
        ("UPDATE gp4c.log SET body = substr(body, 1, 40) WHERE seq = 1", "not those"),
        ("UPDATE gp4c.log SET visits = 4 WHERE seq = 1", "holds 3 visits and should hold 4"),
        ("UPDATE gp4c.log SET body = '', sha256 = sha256('') WHERE seq = 1", "found 0 bytes"),
        ("DELETE FROM gp4c.log WHERE seq = 1", "missing, and segment 2 is there"),
    ],
)
def test_a_damaged_segment_is_named(
    ledger: Connection, worker: Worker, lease: Lease, server: Server, database: str, damage: str, said: str
) -> None:
    """Flipped, torn, miscounted, empty or missing: what lies before is yielded, nothing of it."""
    ledger.single(flush, worker, flush_of(1, 1, lease, *segments_of(2, 3)))
    server.execute(damage, database)
    reading = read_log(ledger, 1, 2)
    assert next(reading)[0] == 0
    with pytest.raises(LedgerDamagedError, match=f"segment 1 of shard 2, cycle 1, is damaged: .*{said}"):
        next(reading)


def test_a_segment_without_a_token_is_refused(
    ledger: Connection, worker: Worker, lease: Lease, connect: Callable[..., Connection]
) -> None:
    """By whoever makes such a flush: nothing is written outside a fence, nor mail that nobody reads."""
    what = flush_of(1, 1, lease)
    for bare in (
        what._replace(segments=tuple(segments_of(3, 1))),
        what._replace(letters=(Letter(3, 0, b""),)),
        what._replace(progress={3: Progress(1, True)}),
    ):
        with pytest.raises(ValueError, match="expected a token for shard 3"):
            ledger.single(flush, worker, bare)
    with pytest.raises(ValueError, match="expected letters to shards of the ledger"):
        ledger.single(flush, worker, what._replace(letters=(Letter(2, 4, b""),)))
    assert list(read_log(connect(), 1, 3)) == []


def test_a_flush_waits_for_locks_no_longer_than_a_call_may(
    ledger: Connection, worker: Worker, lease: Lease, connect: Callable[..., Connection]
) -> None:
    """The server itself ends one that waits for a shard's row: nothing of it is there, and it goes again."""
    what = flush_of(1, 1, lease, *segments_of(2, 1))

    def locking(tx: Transaction) -> None:
        leases.lock(tx, [2])
        with pytest.raises(LedgerAwayError, match="55P03"):
            ledger.single(flush, worker._replace(lease_s=1.0), what)

    connect().call(locking)
    assert list(read_log(ledger, 1, 2)) == []
    assert not ledger.single(flush, worker, what).repeated
    assert len(list(read_log(ledger, 1, 2))) == 1
