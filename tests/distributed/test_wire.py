"""What the ledger takes of network and disk, counted by a proxy and by the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scrapy_gp4c.distributed import exchange, leases
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.ledger import LEASE_S
from scrapy_gp4c.distributed.link import RENEWALS
from scrapy_gp4c.distributed.log import Flush, flush
from scrapy_gp4c.distributed.looks import LONGEST_S
from scrapy_gp4c.distributed.polling import poll
from scrapy_gp4c.distributed.segments import segment
from scrapy_gp4c.distributed.turns import FLUSH_S
from tests.support.ledgers import flush_of, joined, opened, taken, visits_of
from tests.support.postgres import Server
from tests.support.proxy import Proxy

VISITS = 100


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """What counts."""
    with Proxy(server.port) as counting:
        yield counting


@pytest.fixture
def counted(
    server: Server, database: str, dsn: str, proxy: Proxy, connect: Callable[..., Connection]
) -> Connection:
    """The ledger, behind it."""
    return connect(at=server.dsn(database, port=proxy.port, sslmode="disable"))


def test_full_segments_take_at_most_40_bytes_a_visit(
    counted: Connection, proxy: Proxy, server: Server, database: str
) -> None:
    """On the wire, both ways, with all that their flush says and hears; and on disk, with the index."""
    worker = joined(counted)
    opened(counted, worker)
    held = [taken(counted, worker, shard) for shard in range(4)]
    visits = visits_of(VISITS * 200)
    parts = [visits[start : start + VISITS] for start in range(0, len(visits), VISITS)]
    packed = [segment(0, seq, part) for seq, part in enumerate(parts)]
    start = proxy.bytes
    for number, one in enumerate(packed, 1):
        counted.single(flush, worker, flush_of(number, 1, held[0], one))
    wire = (proxy.bytes - start) / len(visits)
    ((disk,),) = server.execute(
        "SELECT pg_table_size('gp4c.log_1') + pg_indexes_size('gp4c.log_1')", database
    )
    start = proxy.bytes
    tokens = {lease.shard: lease.token for lease in held[1:]}
    together = tuple(segment(shard, 0, parts[shard]) for shard in tokens)
    counted.single(flush, worker, Flush(201, 1, tokens, together))
    several = (proxy.bytes - start) / (VISITS * len(tokens))
    body = sum(len(one.body) for one in packed) / len(visits)
    print(
        f"bytes a visit: segment {body:.1f}, row and index {disk / len(visits):.1f}, "
        f"on the wire {wire:.1f}, of three shards in one flush {several:.1f}"
    )
    assert max(wire, several, disk / len(visits)) <= 40


def test_leases_and_polling_take_few_bytes(counted: Connection, proxy: Proxy) -> None:
    """A look and a renewal as often as a run has them, and while it waits for others: 500 B/s."""
    worker = joined(counted)
    opened(counted, worker)
    taken(counted, worker, 0)

    def taken_by(work: Callable[..., object], *arguments: object) -> int:
        start = proxy.bytes
        counted.single(work, *arguments)
        return proxy.bytes - start

    look = taken_by(poll, worker, Step(12, "round/3"))
    renewal = taken_by(leases.renew, worker)
    wait = taken_by(exchange.look, Step(1, "round/0/0"))
    beat = renewal / (LEASE_S / RENEWALS)
    print(f"bytes: a look {look}, a look for a step {wait}, a renewal {renewal}")
    print(f"bytes/s: in a crawl {look / FLUSH_S + beat:.0f}, in a wait {wait / LONGEST_S + beat:.0f}")
    assert look / FLUSH_S + beat <= 500
    assert wait / LONGEST_S + beat <= 500
