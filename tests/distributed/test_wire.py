"""What the ledger takes of network and disk, counted by a proxy and by the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.log import Flush, flush
from scrapy_gp4c.distributed.polling import poll
from scrapy_gp4c.distributed.segments import segment
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
    lease = taken(counted, worker, 0)
    visits = visits_of(VISITS * 200)
    start = proxy.bytes
    for seq in range(200):
        one = segment(0, seq, visits[seq * VISITS : (seq + 1) * VISITS])
        counted.call(flush, worker, flush_of(seq + 1, 1, lease, one))
    assert (proxy.bytes - start) / len(visits) <= 40
    ((size,),) = server.execute(
        "SELECT pg_table_size('gp4c.log_1') + pg_indexes_size('gp4c.log_1')", database
    )
    assert size / len(visits) <= 40


def test_leases_and_polling_take_few_bytes(counted: Connection, proxy: Proxy) -> None:
    """A poll every 5 s and a renewal every 10 s: at most 500 B/s."""
    worker = joined(counted)
    opened(counted, worker)
    lease = taken(counted, worker, 0)
    start = proxy.bytes
    for _ in range(2):
        counted.call(poll, worker, [0])
    counted.call(flush, worker, Flush(1, 1, {0: lease.token}))
    assert (proxy.bytes - start) / 10 <= 500
