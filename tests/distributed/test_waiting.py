"""Who waits for the next cycle: known by name, and nothing else."""

from __future__ import annotations

from scrapy_gp4c.distributed import leases, waiting
from scrapy_gp4c.distributed.connection import Connection
from tests.support.ledgers import joined, killed, taken


def names(ledger: Connection) -> list[tuple[str, bool]]:
    """Name of everybody, and whether it drains."""
    return [(row.name, row.draining) for row in ledger.call(leases.look, waiting=True).workers]


def test_who_waits_has_a_name_alone(ledger: Connection) -> None:
    """No assignment sees it; its crawl takes the name over, and it is there again when that has left."""
    assert not ledger.call(waiting.wait, "one")
    assert not ledger.call(waiting.wait, "one")
    assert names(ledger) == [("one", False)]
    assert ledger.call(leases.look).workers == ()
    crawl = joined(ledger)
    assert [row.instance for row in ledger.call(leases.look).workers] == [crawl.instance]
    assert not ledger.call(waiting.wait, "one")
    assert [row.instance for row in ledger.call(leases.look).workers] == [crawl.instance]
    ledger.call(leases.leave, crawl)
    assert names(ledger) == []
    ledger.call(waiting.wait, "one")
    ledger.call(waiting.end, "one")
    assert names(ledger) == []


def test_who_is_drained_is_told(ledger: Connection) -> None:
    """While it waits, in its crawl, and when that has left; not when a new one begins."""
    ledger.call(waiting.wait, "one")
    ledger.call(leases.drain, "one")
    assert ledger.call(waiting.wait, "one")
    crawl = joined(ledger)  # begun just before it was drained
    assert names(ledger) == [("one", True)]
    taken(ledger, crawl, 0)
    ledger.call(waiting.end, "one")
    assert names(ledger) == [("one", True)]
    ledger.call(leases.leave, crawl)
    assert ledger.call(leases.look).shards[0].holder is None
    assert ledger.call(waiting.wait, "one")
    ledger.call(waiting.end, "one")
    assert names(ledger) == []
    assert not ledger.call(waiting.wait, "one")


def test_who_died_waits_under_its_name(ledger: Connection) -> None:
    """Its shards are nobody's, as before."""
    crawl = joined(ledger)
    taken(ledger, crawl, 1)
    killed(ledger, crawl)
    assert not ledger.call(waiting.wait, "one")
    assert names(ledger) == [("one", False)]
    heir = joined(ledger, "two")
    assert taken(ledger, heir, 1).shard == 1
    assert ledger.call(leases.look).shards[1].deaths == 1
