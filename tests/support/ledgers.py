"""Visits, segments and flushes for tests of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.distributed import cycles, leases
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.cycles import Code, Decided, Joined
from scrapy_gp4c.distributed.leases import Lease, Worker
from scrapy_gp4c.distributed.log import Flush, Progress
from scrapy_gp4c.distributed.segments import Segment, segment
from scrapy_gp4c.page_state.outcomes import CHANGED, RANKED, UNCHANGED, VISIT

CODE = Code(("n", "X"), ("bayesian",), "simhash/1", "1.0")
DECIDED = Decided({"formula": "X / n", "seed": 7, "budget": 0.05}, {"GP4C_NEW_PAGES": 100})


def visits_of(count: int, seed: int = 0, pages: int = 1_250_000) -> npt.NDArray[Any]:
    """Visits as a crawl makes them: 10 a second, of pages that changed now and then."""
    random = np.random.default_rng(seed)
    visits = np.zeros(count, VISIT)
    visits["time"] = 1.7e9 + np.cumsum(random.exponential(0.1, count))
    visits["fingerprint"] = random.integers(0, 2**64, count, np.uint64)
    visits["page"] = random.choice(pages, count, replace=False, shuffle=False)
    visits["bytes"] = random.lognormal(10, 1, count)
    visits["latency_ms"] = random.lognormal(5, 0.5, count)
    visits["kind"] = RANKED
    visits["outcome"] = np.where(random.random(count) < 0.2, CHANGED, UNCHANGED)
    visits["distance"] = np.where(visits["outcome"] == CHANGED, random.integers(1, 20, count), 0)
    return visits


def joined(ledger: Connection, name: str = "one", lease_s: float = 30.0) -> Worker:
    """A new worker, registered."""
    worker = leases.new_worker(name, lease_s)
    ledger.call(leases.register, worker)
    return worker


def opened(ledger: Connection, worker: Worker, cycle_s: float = 0.0) -> Joined:
    """The open cycle, or the next one."""
    found = ledger.single(cycles.join, worker, DECIDED, CODE, cycle_s)
    assert found is not None
    return found


def taken(ledger: Connection, worker: Worker, shard: int) -> Lease:
    """A shard that the worker holds from now on."""
    lease = ledger.call(leases.take, worker, shard)
    assert lease is not None
    return lease


def killed(ledger: Connection, worker: Worker) -> None:
    """Let a worker's lease end, as if it had been killed a lease ago."""
    ledger.call(
        lambda tx: tx.execute(
            "UPDATE gp4c.worker SET expires = clock_timestamp() - interval '1 s' WHERE name = %s",
            (worker.name,),
        )
    )


def flush_of(number: int, cycle: int, lease: Lease, *segments: Segment, done: bool | None = None) -> Flush:
    """A flush of one shard's segments."""
    progress = {} if done is None else {lease.shard: Progress(0, done)}
    return Flush(number, cycle, {lease.shard: lease.token}, segments, progress=progress)


def segments_of(shard: int, count: int, first: int = 0, visits: int = 3) -> list[Segment]:
    """Segments of a shard, one after the other."""
    return [
        segment(shard, seq, visits_of(visits, seed=1000 * shard + seq)) for seq in range(first, first + count)
    ]


def raised(work: Callable[[], object]) -> BaseException:
    """What some work raises."""
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("expected an error; found none")
