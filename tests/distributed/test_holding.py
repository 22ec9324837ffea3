"""Which shards a worker holds: all have a holder before it goes on, and nobody has what others have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, gatherResults

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import LedgerError
from scrapy_gp4c.distributed.holding import NothingDueError, homeless, take_shards
from scrapy_gp4c.distributed.leases import PARKED_AFTER, new_worker
from scrapy_gp4c.distributed.link import Link
from tests.support.ledgers import joined, taken
from tests.support.postgres import NEEDS_POSTGRES

pytestmark = NEEDS_POSTGRES
LEASE_S = 2.0


@pytest.fixture
def linked(dsn: str) -> Iterator[Callable[[str], Link]]:
    """Makes links, and closes them."""
    made: list[Link] = []

    def link(name: str) -> Link:
        made.append(Link(dsn, new_worker(name, LEASE_S)))
        return made[-1]

    yield link
    for one in made:
        one.close(leave=True)


async def entered(link: Link) -> Link:
    """Enter a worker."""
    await link.enter([])
    return link


@pytest_twisted.ensureDeferred
async def test_workers_that_start_together_share_all_shards(linked: Callable[[str], Link]) -> None:
    """Each is told its own, with tokens; together they are all, and each once."""
    links = [await entered(linked(name)) for name in ("a", "b", "c")]
    found = await gatherResults([Deferred.fromCoroutine(take_shards(one, True)) for one in links])
    assert sorted(shard for held in found for shard in held) == [0, 1, 2, 3]
    assert all(held for held in found)
    assert {lease.token for held in found for lease in held.values()} == {1}


@pytest_twisted.ensureDeferred
async def test_who_comes_late_takes_nothing_within_a_cycle(
    linked: Callable[[str], Link], ledger: Connection
) -> None:
    """One line says so; at the end of a cycle the first one gives it half."""
    first = await entered(linked("first"))
    assert sorted(await take_shards(first, True)) == [0, 1, 2, 3]
    late = await entered(linked("late"))
    with pytest.raises(NothingDueError, match="nothing for this worker to do now"):
        await take_shards(late, False)
    assert homeless(ledger.call(leases.look)) == []
    found = await gatherResults(
        [Deferred.fromCoroutine(take_shards(one, True)) for one in (first, late)]
    )  # fmt: skip
    assert sorted(map(len, found)) == [2, 2]


@pytest_twisted.ensureDeferred
async def test_parked_shards_are_named(linked: Callable[[str], Link], ledger: Connection) -> None:
    """Nobody begins without them, and the line says what to do."""
    ledger.call(
        lambda tx: tx.execute("UPDATE gp4c.shard SET deaths = %s WHERE shard IN (1, 3)", (PARKED_AFTER,))
    )
    with pytest.raises(LedgerError, match=r"parked: 1, 3\. .*workers SPIDER unpark SHARD"):
        await take_shards(await entered(linked("a")), True)


def test_homeless_is_what_nobody_alive_holds(ledger: Connection) -> None:
    """Nobody's, and those of the dead; also where another process has a holder's name by now."""
    one = joined(ledger, "one")
    for shard in (0, 1):
        taken(ledger, one, shard)
    assert homeless(ledger.call(leases.look)) == [2, 3]
    ledger.call(lambda tx: tx.execute("UPDATE gp4c.worker SET instance = 'another'"))
    assert homeless(ledger.call(leases.look)) == [0, 1, 2, 3]
