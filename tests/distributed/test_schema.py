"""Making a ledger, and who may do what in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_gp4c.distributed import cycles, exchange, leases, objects, schema
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import LedgerRightsError, LedgerSchemaError
from scrapy_gp4c.distributed.exchange import Posted, Step, Waiting
from scrapy_gp4c.distributed.log import Flush, Letter, Progress, flush
from scrapy_gp4c.distributed.migrations import MIGRATIONS
from scrapy_gp4c.distributed.objects import Owned
from scrapy_gp4c.distributed.places import Blobs
from scrapy_gp4c.distributed.polling import poll
from scrapy_gp4c.distributed.schema import VERSION
from tests.support.ledgers import flush_of, joined, opened, raised, segments_of, taken
from tests.support.postgres import WORKER, Server


def test_a_ledger_is_made_once(server: Server, database: str) -> None:
    """A second time changes nothing; another number of shards is refused."""
    connection = Connection(server.dsn(database))
    made = schema.create(connection, 5)
    assert made.version == schema.VERSION
    assert schema.create(connection, 5) == made
    assert [row.shard for row in connection.call(leases.look).shards] == list(range(5))
    with pytest.raises(LedgerSchemaError, match="a ledger of 5 shards, and 6 are asked for"):
        schema.create(connection, 6)
    connection.close()


@pytest.mark.parametrize("shards", [0, 1025, -1])
def test_a_number_of_shards_that_is_none_is_refused(server: Server, shards: int) -> None:
    """Before anything is connected to."""
    with pytest.raises(ValueError, match=f"expected 1 to 1024 shards; found {shards}"):
        schema.create(Connection(server.dsn("nowhere")), shards)


def test_two_that_make_a_ledger_make_one(server: Server, database: str) -> None:
    """At the same time."""
    found: list[schema.About] = []
    start = threading.Barrier(3)

    def make() -> None:
        connection = Connection(server.dsn(database))
        connection.call(lambda tx: start.wait())
        found.append(schema.create(connection, 2))
        connection.close()

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


def test_a_newer_ledger_is_not_touched(server: Server, database: str, dsn: str) -> None:
    """Nor is one that was emptied by hand taken for a ledger."""
    server.execute("UPDATE gp4c.about SET version = 99", database)
    connection = Connection(dsn)
    with pytest.raises(LedgerSchemaError, match="version 99 of the schema"):
        schema.create(connection, 4)
    server.execute("DELETE FROM gp4c.about", database)
    with pytest.raises(LedgerSchemaError, match="the ledger is empty"):
        connection.call(schema.about)
    connection.close()


def test_an_older_ledger_is_brought_up_to_date(server: Server, database: str) -> None:
    """By `create`, with what is in it; until then workers are told."""
    owner = Connection(server.dsn(database))

    def first_version(tx: Transaction) -> None:
        tx.execute(MIGRATIONS[0].encode())
        tx.execute("INSERT INTO gp4c.about (version, ledger, shards) VALUES (1, 'old', 4)")
        tx.execute("INSERT INTO gp4c.shard (shard, pages) SELECT n, 7 FROM generate_series(0, 3) AS n")
        tx.execute("INSERT INTO gp4c.object VALUES ('one', 0, 'snapshot', 1, 1, 1, '', 'the ledger', now())")

    owner.call(first_version)
    with pytest.raises(LedgerSchemaError, match=f"version 1 of .* works on version {VERSION}"):
        owner.call(schema.check)
    assert schema.create(owner, 4) == (VERSION, "old", 4)
    assert [row.pages for row in owner.call(leases.look).shards] == [7] * 4
    worker = joined(owner)
    assert owner.single(poll, worker).homeless == 4
    opened(owner, worker)
    what = flush_of(1, 1, taken(owner, worker, 2), *segments_of(2, 1))
    assert [owner.single(flush, worker, what).repeated for _ in range(2)] == [False, True]
    (stored,) = owner.call(objects.registered)
    assert (stored.name, stored.log) == ("one", 0)
    owner.close()


def test_what_workers_call_often_is_planned_once(server: Server, database: str) -> None:
    """Whatever the size of what a call is given, the server goes by the plan that it made first."""
    owner = Connection(server.dsn(database))
    schema.create(owner, 2)
    owner.close()
    rows = server.execute(
        "SELECT proname FROM pg_proc WHERE 'plan_cache_mode=force_generic_plan' = ANY (proconfig) ORDER BY 1",
        database,
    )
    assert [name for (name,) in rows] == ["flush", "look", "post", "post", "step"]


@pytest.fixture
def as_worker(server: Server, database: str, dsn: str, connect: Callable[..., Connection]) -> Connection:
    """The ledger under a worker's role, which has the documented rights."""
    return connect(at=server.worker_role(database, *schema.grants(WORKER)))


def test_a_worker_needs_no_ddl(as_worker: Connection, tmp_path: Path) -> None:
    """All that a cycle needs is done under the granted rights."""
    worker = joined(as_worker)
    assert opened(as_worker, worker).cycle == 1
    held = [taken(as_worker, worker, shard) for shard in range(4)]
    tokens = {lease.shard: lease.token for lease in held}
    as_worker.single(flush, worker, Flush(1, 1, tokens, tuple(segments_of(0, 1)), (Letter(0, 1, b""),)))
    (letter,) = as_worker.single(poll, worker).letters
    done = {shard: Progress(1, True) for shard in tokens}
    as_worker.single(flush, worker, Flush(2, 1, tokens, consumed=(letter.id,), progress=done))
    for shard, token in tokens.items():
        as_worker.call(exchange.post, Step(1, "cut"), [Posted(shard, token, b"part")])
    as_worker.call(exchange.put_answer, Step(1, "cut"), b"answer")
    assert as_worker.single(exchange.look, Step(1, "cut")) == Waiting(0, 0, b"answer")
    assert as_worker.call(cycles.close, 1)
    as_worker.call(cycles.keep_record, 1, {"cycle": 1})
    assert not as_worker.call(cycles.drop_log, 1)
    (tmp_path / "cycle").write_bytes(b"history")
    place = Blobs(as_worker)
    for kind in ("cycle", "snapshot"):
        objects.put(as_worker, place, Owned(0, tokens[0]), kind, 1, tmp_path / "cycle")
    objects.clean(as_worker, place, Owned(0, tokens[0]))
    assert as_worker.call(cycles.drop_log, 1)
    assert as_worker.single(poll, worker).closed
    as_worker.call(leases.drain, worker.name)
    as_worker.call(leases.unpark, 0)
    as_worker.call(leases.release, {0: tokens[0]})
    as_worker.call(leases.leave, worker)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE gp4c.mine (a int)",
        "DROP TABLE gp4c.log_1",
        "DELETE FROM gp4c.log",
        "UPDATE gp4c.log SET token = 0",
        "DELETE FROM gp4c.object",
        "UPDATE gp4c.object SET token = 0",
        "DELETE FROM gp4c.shard",
        "DELETE FROM gp4c.cycle",
        "UPDATE gp4c.about SET shards = 1",
        "UPDATE gp4c.report SET body = ''",
    ],
)
def test_a_worker_cannot_undo(as_worker: Connection, statement: str) -> None:
    """No word of the log, no object, no cycle; and nothing can be created."""
    opened(as_worker, joined(as_worker))
    error = raised(lambda: as_worker.call(lambda tx: tx.execute(statement.encode())))
    assert isinstance(error, LedgerRightsError)


def test_grants_quote_the_role() -> None:
    """Whatever it is called."""
    assert all('"a ""b"' in statement for statement in schema.grants('a "b'))
