"""Behind PgBouncer in transaction mode: no statement of ours needs a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_gp4c.distributed import cycles, exchange, leases, objects
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import LedgerAwayError
from scrapy_gp4c.distributed.exchange import Posted, Step, Waiting
from scrapy_gp4c.distributed.log import Flush, Progress, flush, read_log
from scrapy_gp4c.distributed.objects import CHUNK, Owned
from scrapy_gp4c.distributed.places import Blobs
from scrapy_gp4c.distributed.polling import poll
from tests.support.ledgers import joined, opened, segments_of, taken
from tests.support.postgres import NEEDS_PGBOUNCER, Server, pgbouncer

pytestmark = NEEDS_PGBOUNCER


def test_a_cycle_passes(
    server: Server, database: str, dsn: str, connect: Callable[..., Connection], tmp_path: Path
) -> None:
    """From joining to the dropped log, by more clients than there are connections to the server."""
    with pgbouncer(server) as port:
        clients = [connect(at=server.dsn(database, port=port)) for _ in range(4)]
        workers = [joined(client, f"w{number}") for number, client in enumerate(clients)]
        place = Blobs(clients[0])
        (tmp_path / "cycle").write_bytes(bytes(CHUNK + 1))
        for shard, (client, worker) in enumerate(zip(clients, workers, strict=True)):
            assert opened(client, worker).cycle == 1
            token = taken(client, worker, shard).token
            client.single(exchange.post, Step(1, "cut"), [Posted(shard, token, b"part")])
            done = {shard: Progress(5, True)}
            client.call(
                flush, worker, Flush(1, 1, {shard: token}, tuple(segments_of(shard, 2)), progress=done)
            )
            objects.put(clients[0], place, Owned(shard, token), "cycle", 1, tmp_path / "cycle")
        assert clients[3].single(exchange.look, Step(1, "cut")) == Waiting(0, 0, None)
        assert clients[2].call(exchange.told, Step(1, "cut")) == [b"part"] * 4
        assert len(list(read_log(clients[1], 1, 3))) == 2
        assert clients[3].call(cycles.close, 1)
        assert clients[0].call(cycles.drop_log, 1)
        assert clients[0].single(poll, workers[0]).closed


def test_timeouts_hold_for_one_transaction(
    server: Server, database: str, dsn: str, connect: Callable[..., Connection]
) -> None:
    """And are not left behind on a connection that another client gets next."""
    with pgbouncer(server) as port:
        hasty, patient = (connect(lease_s, server.dsn(database, port=port)) for lease_s in (1.5, 60.0))
        patient.call(leases.look)

        def hold(tx: Transaction) -> None:
            leases.lock(tx, [0])
            with pytest.raises(LedgerAwayError):
                hasty.call(leases.lock, [0])

        patient.call(hold)
        for _ in range(3):
            patient.call(lambda tx: tx.execute("SELECT pg_sleep(0.7)"))
