"""What `benchmarks.workers` counts and times in a ledger without pages: log, looks, renewals, copies."""

from __future__ import annotations

import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.common import machine, verdict
from scrapy_gp4c.distributed import exchange, leases, schema
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.ledger import LEASE_S, open_ledger
from scrapy_gp4c.distributed.link import RENEWALS
from scrapy_gp4c.distributed.log import Flush, flush
from scrapy_gp4c.distributed.looks import LONGEST_S
from scrapy_gp4c.distributed.places import Blobs
from scrapy_gp4c.distributed.polling import poll
from scrapy_gp4c.distributed.segments import segment
from scrapy_gp4c.distributed.turns import FLUSH_S
from tests.support.ledgers import joined, opened, taken, visits_of
from tests.support.logged import Logged
from tests.support.postgres import BIN, Server
from tests.support.proxy import Proxy

MOST_VISIT_BYTES: Final = 40.0
MOST_BYTES_S: Final = 500.0
MOST_SNAPSHOTS: Final = 3.0
FLUSHES: Final = 200
VISITS: Final = 100
FEW: Final = 6
"""Of a flush of a worker that makes so many a second."""
CYCLES: Final = 200
WORKERS: Final = 1000
"""Of a ledger with as many shards as there may be."""
MOST_LOOK_MS: Final = 2.0
"""So many workers, who look once a second, then keep at most 2 cores busy."""
TIMES: Final = 200


def begins(script: str) -> bool:
    """Print machine and command; False, and a line, where there is no PostgreSQL."""
    if BIN is None:
        print("no PostgreSQL: apt-get install --no-install-recommends postgresql", file=sys.stderr)
        return False
    print(machine())
    print(f"python -m benchmarks.{script} {' '.join(sys.argv[1:])}\n", flush=True)
    return True


def new_ledger(server: Server, shards: int) -> str:
    """Make an empty ledger; returns its database."""
    database = server.database()
    owner = Connection(server.dsn(database))
    schema.create(owner, shards)
    owner.close()
    return database


def economy(server: Server, folder: Path) -> bool:
    """Count what the log, looks, renewals and snapshots take, in a ledger of their own."""
    database = new_ledger(server, 4)
    ledger = open_ledger(server.dsn(database))
    with Proxy(server.port) as proxy:
        counted = open_ledger(server.dsn(database, port=proxy.port, sslmode="disable"))
        crawling = joined(counted)
        opened(counted, crawling)
        lease = taken(counted, crawling, 0)
        visits = visits_of(FLUSHES * VISITS)

        def taken_by(work: partial[Any]) -> int:
            start = proxy.bytes
            work()
            return proxy.bytes - start

        flushed = 0
        for seq in range(FLUSHES):
            one = segment(0, seq, visits[seq * VISITS : (seq + 1) * VISITS])
            what = Flush(seq + 1, 1, {0: lease.token}, (one,))
            flushed += taken_by(partial(counted.call, flush, crawling, what))
        few = Flush(FLUSHES + 1, 1, {0: lease.token}, (segment(0, FLUSHES, visits_of(FEW, 1)),))
        print(f"bytes of a flush of {FEW} visits: {taken_by(partial(counted.call, flush, crawling, few)):,}")
        beat = taken_by(partial(counted.single, leases.renew, crawling)) / (LEASE_S / RENEWALS)
        look = taken_by(partial(counted.single, poll, crawling)) / FLUSH_S
        wait = taken_by(partial(counted.single, exchange.look, Step(1, "round/0/0"))) / LONGEST_S
        counted.close()
    holds = verdict("bytes a visit, on the wire", flushed / len(visits), MOST_VISIT_BYTES, at_least=False)
    holds &= verdict("bytes/s of a worker that crawls", beat + look, MOST_BYTES_S, at_least=False)
    holds &= verdict("bytes/s of one that waits", beat + wait, MOST_BYTES_S, at_least=False)
    ledger.close()
    return holds & at_scale(server) & snapshots(server, folder)


def at_scale(server: Server) -> bool:
    """Time looks and flushes in a ledger of 1,000 workers and 1,024 shards, all with letters and parts."""
    database = new_ledger(server, schema.MOST_SHARDS)
    ledger = open_ledger(server.dsn(database))
    own = joined(ledger)
    opened(ledger, own)
    server.execute(
        "INSERT INTO gp4c.worker (name, instance, expires) SELECT 'w' || n, md5(n::text),"
        f" now() + interval '1 day' FROM generate_series(2, {WORKERS}) AS n;"
        f" UPDATE gp4c.shard SET holder = 'w' || shard % {WORKERS} + 1,"
        f" instance = md5((shard % {WORKERS} + 1)::text) WHERE shard > 0;"
        " INSERT INTO gp4c.mail (cycle, sender, receiver, body) SELECT 1, 0, 1 + n % 1023, '' FROM"
        " generate_series(1, 20000) AS n;"
        " INSERT INTO gp4c.report SELECT 1, 'round/0/0', shard, '' FROM gp4c.shard WHERE shard > 0; ANALYZE",
        database,
    )
    lease = taken(ledger, own, 0)

    def median_ms(work: partial[Any]) -> float:
        times = []
        for _ in range(TIMES):
            start = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - start))
        return statistics.median(times)

    look = median_ms(partial(ledger.single, poll, own))
    wait = median_ms(partial(ledger.single, exchange.look, Step(1, "round/0/0")))
    parts = [segment(0, seq, visits_of(VISITS, seq)) for seq in range(TIMES)]
    what = [Flush(seq + 1, 1, {0: lease.token}, (one,)) for seq, one in enumerate(parts)]
    flushes = iter(what)
    flushed = median_ms(partial(lambda: ledger.single(flush, own, next(flushes))))
    with Proxy(server.port) as proxy:
        counted = open_ledger(server.dsn(database, port=proxy.port, sslmode="disable"))
        counted.call(poll, own)
        start = proxy.bytes
        counted.call(leases.look)
        print(f"all rows of workers and shards: {(proxy.bytes - start) / 1000:.0f} kB")
        counted.close()
    ledger.close()
    print(f"a flush of {VISITS} visits: {flushed:.1f} ms, synced; a look for a step: {wait:.2f} ms")
    name = f"ms of a look, {WORKERS:,} workers, {schema.MOST_SHARDS:,} shards"
    return verdict(name, look, MOST_LOOK_MS, at_least=False)


def snapshots(server: Server, folder: Path) -> bool:
    """Take a shard through many cycles, and count what its copies take."""
    ledger = open_ledger(server.dsn(new_ledger(server, 4)))
    one = Logged(ledger, joined(ledger), Blobs(ledger), folder, ledger.call(schema.about).ledger)
    written: dict[str, int] = {}
    for cycle in range(CYCLES):
        one.crawl(1000 if cycle == 0 else 2, 0.05)
        one.keep(one.close())
        for name, size in ledger.call(snapshots_of):
            written[name] = size
    ledger.close()
    one.shard.close()
    print(f"{CYCLES} cycles: {one.log_bytes:,} bytes of log, {len(written)} snapshots")
    ratio = sum(written.values()) / one.log_bytes
    return verdict("snapshots, for a byte of the log", ratio, MOST_SNAPSHOTS, at_least=False)


def snapshots_of(tx: Any) -> list[tuple[str, int]]:
    """Names and sizes of the snapshots that are there."""
    found: list[tuple[str, int]] = tx.execute(
        "SELECT name, size FROM gp4c.object WHERE kind = 'snapshot'"
    ).fetchall()
    return found
