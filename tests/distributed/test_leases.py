"""Who lives, who holds what, and whose token counts: all by the server's clock."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import FencedError, LedgerError, NameTakenError
from scrapy_gp4c.distributed.leases import PARKED_AFTER
from tests.support.ledgers import joined, killed, taken


def test_a_name_is_one_living_processs(ledger: Connection) -> None:
    """A second one is refused while the first lives, and has the name when its lease is over."""
    first = joined(ledger)
    with pytest.raises(NameTakenError, match=r"a worker named 'one' is alive.*GP4C_WORKER"):
        joined(ledger)
    ledger.call(leases.register, first, [1, 2])
    assert ledger.call(leases.look).workers[0].copies == {1, 2}
    killed(ledger, first)
    second = joined(ledger)
    assert second.instance != first.instance
    with pytest.raises(NameTakenError):
        ledger.call(leases.renew, first)
    with pytest.raises(NameTakenError):
        ledger.call(leases.register, first)


def test_a_lease_ends_by_the_servers_clock(ledger: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose clock is a day off is nobody's trouble, nor its own."""
    now = time.time()
    for offset in (-86_400, 86_400):
        monkeypatch.setattr(time, "time", lambda offset=offset: now + offset)
        worker = joined(ledger, f"off {offset}")
        (row,) = (one for one in ledger.call(leases.look).workers if one.name == worker.name)
        assert 20 < row.left_s <= 30
        lease = taken(ledger, worker, 0)
        assert ledger.call(leases.take, joined(ledger, f"other {offset}"), 0) is None
        ledger.call(leases.release, {0: lease.token})


def test_a_lease_that_was_not_renewed_is_over(ledger: Connection) -> None:
    """After its time, and not before."""
    worker = joined(ledger, lease_s=0.3)
    other = joined(ledger, "two")
    taken(ledger, worker, 0)
    while ledger.call(leases.look).workers[0].left_s >= 0:
        assert ledger.call(leases.take, other, 0) is None or ledger.call(leases.look).workers[0].left_s < 0
    assert ledger.call(leases.take, other, 0) is not None


def test_a_takeover_raises_the_token(ledger: Connection) -> None:
    """Only of a shard that nobody alive holds; taking again is no takeover."""
    first, second = joined(ledger), joined(ledger, "two")
    lease = taken(ledger, first, 3)
    assert taken(ledger, first, 3) == lease
    assert ledger.call(leases.take, second, 3) is None
    killed(ledger, first)
    again = taken(ledger, second, 3)
    assert again.token == lease.token + 1
    assert ledger.call(leases.holdings, first) == []
    assert ledger.call(leases.holdings, second) == [again]
    ledger.call(leases.fence, {3: again.token})
    with pytest.raises(FencedError) as raised:
        ledger.call(leases.fence, {3: lease.token, 99: 1})
    assert raised.value.shards == (3, 99)


def test_a_shard_that_the_ledger_lacks_is_told(ledger: Connection) -> None:
    """As its number is fixed."""
    with pytest.raises(LedgerError, match="the ledger has no shard 4"):
        ledger.call(leases.take, joined(ledger), 4)


def test_a_process_that_takes_a_dead_ones_name_takes_its_shards_anew(ledger: Connection) -> None:
    """With another token: its former self may still be on its way."""
    first = joined(ledger)
    lease = taken(ledger, first, 1)
    killed(ledger, first)
    assert taken(ledger, joined(ledger), 1).token == lease.token + 1


def test_what_is_released_is_nobodys(ledger: Connection) -> None:
    """And no death: but what another took meanwhile stays its."""
    first, second = joined(ledger), joined(ledger, "two")
    kept, lost = taken(ledger, first, 0), taken(ledger, first, 1)
    killed(ledger, first)
    taken(ledger, second, 1)
    ledger.call(leases.release, {0: kept.token, 1: lost.token})
    rows = ledger.call(leases.look).shards
    assert [row.holder for row in rows] == [None, "two", None, None]
    assert [row.deaths for row in rows] == [0, 1, 0, 0]


def test_who_leaves_holds_nothing(ledger: Connection) -> None:
    """And its name is free at once."""
    worker = joined(ledger)
    for shard in range(3):
        taken(ledger, worker, shard)
    ledger.call(leases.leave, worker)
    view = ledger.call(leases.look)
    assert view.workers == ()
    assert {row.holder for row in view.shards} == {None}
    joined(ledger)


def test_a_shard_that_kills_is_parked(ledger: Connection) -> None:
    """After three holders in a row nobody gets it, until somebody looked after it."""
    for number in range(PARKED_AFTER):
        victim = joined(ledger, f"victim {number}")
        taken(ledger, victim, 2)
        killed(ledger, victim)
    last = joined(ledger, "last")
    assert ledger.call(leases.take, last, 2) is None
    row = ledger.call(leases.look).shards[2]
    assert (row.holder, row.deaths) == (None, PARKED_AFTER)
    ledger.call(leases.unpark, 2)
    assert taken(ledger, last, 2).token > PARKED_AFTER


def test_copies_are_noted(ledger: Connection) -> None:
    """What a worker took it has in its directory, once."""
    worker = joined(ledger)
    for shard in (2, 0, 2):
        taken(ledger, worker, shard)
    assert ledger.call(leases.look).workers[0].copies == {0, 2}


def test_a_drained_worker_is_marked(ledger: Connection) -> None:
    """Until another process has its name; an unknown one is told."""
    worker = joined(ledger)
    ledger.call(leases.drain, "one")
    ledger.call(leases.register, worker)
    assert ledger.call(leases.look).workers[0].draining
    killed(ledger, worker)
    joined(ledger)
    assert not ledger.call(leases.look).workers[0].draining
    with pytest.raises(LedgerError, match="knows no worker 'nobody'"):
        ledger.call(leases.drain, "nobody")


def test_the_servers_age_is_told(ledger: Connection, connect: Callable[..., Connection]) -> None:
    """By which leases that nobody could renew are no deaths."""
    first = ledger.call(leases.look).server_up_s
    assert 0 < first < connect().call(leases.look).server_up_s
