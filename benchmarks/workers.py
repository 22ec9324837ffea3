"""Planning a cycle by several processes, against one: time, and the bytes that the ledger takes.

    python -m benchmarks.workers [--pages 10000000] [--shards 8] [--runs 5] [--directory DIR]

The pages of a store of `benchmarks.plan` are in shards besides, a process for each, all of which go through
one real PostgreSQL. In turn, one process plans a cycle of the whole store, and the processes plan one of the
shards: from opening the cycle to the last plan written. The plans choose the same pages, 5%. Targets, on 2
cores: the ratio of the medians is at most 1.0. A proxy counts what passes between processes and PostgreSQL in
a cycle in which nobody visits anything: planning and closing take at most 16 kB per shard, and at most 1.5
times what they take of a tenth of the pages. Besides: bytes of the log a visit (at most 40), of looks and
renewals a second (at most 500), and of snapshots for a byte of the log over 200 cycles (at most 3).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from benchmarks.common import in_fresh_process, machine, verdict
from benchmarks.ledger_costs import economy, new_ledger
from benchmarks.plan import BUDGET, SCORE_FUNCTION, anonymous_bytes, build, settings
from scrapy_gp4c.crawling.begun import record_of
from scrapy_gp4c.crawling.evidence import UNPLANNED
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.distributed import closing, cycles, leases, schema
from scrapy_gp4c.distributed.catching_up import Home, caught_up
from scrapy_gp4c.distributed.cycles import Code, Decided
from scrapy_gp4c.distributed.ledger import open_ledger
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.log import Flush, Progress, flush
from scrapy_gp4c.distributed.places import Blobs
from scrapy_gp4c.distributed.rounds import Exchange
from scrapy_gp4c.distributed.standing import Begun
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import USUAL
from scrapy_gp4c.store.shards.directory import shard_path
from scrapy_gp4c.store.shards.part import ShardOf
from tests.support.postgres import Server
from tests.support.proxy import Proxy

MOST_AGAINST_ONE: Final = 1.0
MOST_KB: Final = 16.0
MOST_GROWTH: Final = 1.5
NOBODY: Final = Code((), (), "", "")


class Task(NamedTuple):
    """What a worker's process gets."""

    shard: int
    dsn: str
    folder: Path
    barrier: Any


class Told(NamedTuple):
    """What it tells."""

    began: float
    planned: float
    cpu_s: float
    """Of its process, between them."""
    keys: npt.NDArray[np.uint64]
    """Of the pages of its plan."""
    memory_mb: float
    """Anonymous, of its process."""


def one_process(path: str) -> Told:
    """Plan a cycle of the whole store, and end it."""
    with Store(path) as store:
        began, cpu_s = time.monotonic(), time.process_time()
        store.begin_cycle({"started": time.time()})
        Planner(store, settings()).plan({}, UNPLANNED)
        planned, cpu_s = time.monotonic(), time.process_time() - cpu_s
        keys = planned_keys(store)
        store.finish_cycle({"finished": time.time()})
    return Told(began, planned, cpu_s, keys, anonymous_bytes() / 1e6)


def planned_keys(store: Store) -> npt.NDArray[np.uint64]:
    """Keys of the pages of a plan, ascending."""
    pages = np.sort(np.concatenate([np.empty(0, np.uint32), *(chunk["page"] for chunk in store.plan())]))
    return np.sort(store.columns_of(pages)["key"])


async def nothing(missing: Iterable[int]) -> None:
    """Nobody dies here."""


async def worker(task: Task) -> Told:
    """Plan a cycle of a shard with the others, and close it."""
    own = settings()
    link = Link(task.dsn, leases.new_worker(f"w{task.shard}", 60.0))
    await link.enter([])
    lease = await link.surely(leases.take, link.worker, task.shard)
    assert lease is not None
    place = Blobs(link.thread)
    home = Home(task.folder, place, await link.surely(schema.about), USUAL)
    one = home.open(task.shard)
    one.wait()
    record = record_of(own, None)
    del record["started"]
    await deferToThread(task.barrier.wait)
    began, cpu_s = time.monotonic(), time.process_time()
    found = await link.surely_single(cycles.join, link.worker, Decided(record, {}), NOBODY, 0.0)
    assert found is not None
    tokens = {task.shard: lease.token}
    with_others = Exchange(link, found.cycle, home.about.shards, tokens, nothing)
    opened_cycle = Begun(found.cycle, found.started, None, found.decided)
    await caught_up(link, with_others, [one], opened_cycle, own)
    planned, cpu_s = time.monotonic(), time.process_time() - cpu_s
    await deferToThread(task.barrier.wait)
    keys = planned_keys(one)
    done = {task.shard: Progress(one.pages, True)}
    await link.surely_single(flush, link.worker, Flush(1, found.cycle, tokens, progress=done))
    await deferToThread(task.barrier.wait)  # all are done, and what passed so far is counted
    while (closed_s := await link.single(cycles.closed_s, found.cycle)) is None:
        await link.surely(cycles.close, found.cycle)
    await closing.close(with_others, [one], closed_s, own)
    await deferToThread(task.barrier.wait)
    one.close()
    link.close(leave=True)
    return Told(began, planned, cpu_s, keys, anonymous_bytes() / 1e6)


def in_reactor(task: Task) -> Told:
    """Run a worker in a process of its own."""
    from twisted.internet import reactor

    loop: Any = reactor
    told: list[Any] = []

    def start() -> None:
        Deferred.fromCoroutine(worker(task)).addBoth(told.append).addBoth(lambda _: loop.stop())

    loop.callWhenRunning(start)
    loop.run(installSignalHandlers=False)  # the pool ends its processes by signals
    (found,) = told
    if not isinstance(found, Told):
        found.raiseException()
    assert isinstance(found, Told)
    return found


def by_workers(dsn: str, folder: Path, shards: int, proxy: Proxy | None = None) -> tuple[list[Told], int]:
    """Plan and close a cycle by a process for each shard; returns what they tell, and the bytes counted."""
    with _NEW.Manager() as manager, _NEW.Pool(shards) as pool:
        barrier: Barrier = manager.Barrier(shards + 1)  # type: ignore[assignment] # its proxy
        tasks = [Task(shard, dsn, folder, barrier) for shard in range(shards)]
        found = [pool.apply_async(in_reactor, (task,)) for task in tasks]
        passed = []
        for _ in range(4):
            while barrier.n_waiting < shards:
                for one in found:
                    if one.ready():
                        one.get()  # raises what has ended it too early
                time.sleep(0.05)  # asking takes time of the two cores
            passed.append(0 if proxy is None else proxy.bytes)
            barrier.wait()
        return [one.get() for one in found], passed[1] - passed[0] + passed[3] - passed[2]


class Crawl:
    """A store, and a ledger with shards of the same pages."""

    def __init__(self, server: Server, folder: Path, pages: int, shards: int) -> None:
        """Build all; the server has this ledger until the next one is made."""
        self.server, self.shards = server, shards
        self.store, self.folder = str(folder / "one"), folder / "shards"
        in_fresh_process(build, self.store, pages)
        self.database = new_ledger(server, shards)
        connection = open_ledger(server.dsn(self.database))
        about = connection.call(schema.about)
        connection.close()
        in_fresh_process(build_shards, self.folder, pages, shards, about.ledger)
        with Store(self.store, readonly=True) as store:
            last = store.last_cycle
        server.execute(
            "INSERT INTO gp4c.cycle (cycle, opened, opener, decided, code, closed) VALUES"
            f" ({last}, 'epoch', 'nobody', '[{{}}, {{}}]', '[[], [], \"\", \"\"]', now())",
            self.database,
        )

    def run(self, proxy: Proxy | None = None) -> tuple[list[Told], int]:
        """Plan and close the next cycle by workers."""
        where: dict[str, Any] = {} if proxy is None else {"port": proxy.port, "sslmode": "disable"}
        return by_workers(self.server.dsn(self.database, **where), self.folder, self.shards, proxy)

    def kilobytes(self) -> float:
        """What planning and closing a cycle takes, per shard; one process plans it, too."""
        in_fresh_process(one_process, self.store)
        with Proxy(self.server.port) as proxy:
            return self.run(proxy)[1] / self.shards / 1000


def build_shards(folder: Path, pages: int, shards: int, ledger: str) -> None:
    """Write the pages of a store as shards of a ledger."""
    for number in range(shards):
        build(str(shard_path(folder, number)), pages, ShardOf(number, shards, ledger))


def compare(crawl: Crawl, runs: int) -> bool:
    """Time one process and the workers, by turns."""
    alone, together = [], []
    cpu_s: list[tuple[float, float]] = []
    for _ in range(runs):
        one = in_fresh_process(one_process, crawl.store)
        many, _ = crawl.run()
        alone.append(one.planned - one.began)
        cpu_s.append((sum(told.cpu_s for told in many), one.cpu_s))
        together.append(max(told.planned for told in many) - min(told.began for told in many))
        chosen = np.sort(np.concatenate([told.keys for told in many]))
        if not np.array_equal(chosen, one.keys):
            raise AssertionError(f"expected the pages of one process; found others, {len(chosen):,} of them")
    print(f"one process plans {len(one.keys):,} pages in {', '.join(f'{time_s:.2f}' for time_s in alone)} s")
    print(f"{crawl.shards} workers plan the same in {', '.join(f'{time_s:.2f}' for time_s in together)} s")
    spread = ", ".join(f"{own:.2f} / {ones:.2f}" for own, ones in sorted(cpu_s))
    print(f"processor time of all workers / of the one process, s: {spread}")
    memory = max(told.memory_mb for told in many)
    print(f"a worker's process takes {memory:.0f} MB, the one {one.memory_mb:.0f} MB")
    ratio = statistics.median(together) / statistics.median(alone)
    return verdict("workers, against one process", ratio, MOST_AGAINST_ONE, at_least=False)


def main() -> int:
    """Measure all; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", help="where to build the stores (default: the temporary directory)")
    given = parser.parse_args()
    print(machine(("psycopg", "lmdb", "numpy")))
    print(f"score function: {SCORE_FUNCTION}, budget {BUDGET:.0%}")
    server = Server()
    try:
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            holds = economy(server, Path(folder))
            tenth = Crawl(server, Path(folder, "small"), given.pages // 10, given.shards)
            small = tenth.kilobytes()
            print(
                f"kB of cut, plan and report per shard, {given.pages // 10:,} pages: {small:.2f}", flush=True
            )
            start = time.perf_counter()
            crawl = Crawl(server, Path(folder, "large"), given.pages, given.shards)
            print(f"{given.pages:,} pages (built twice in {time.perf_counter() - start:.0f} s)")
            large = crawl.kilobytes()
            holds &= verdict("kB of cut, plan and report per shard", large, MOST_KB, at_least=False)
            holds &= verdict("  against a tenth of the pages", large / small, MOST_GROWTH, at_least=False)
            holds &= compare(crawl, given.runs)
    finally:
        server.stop()
    return 0 if holds else 1


_NEW = multiprocessing.get_context("spawn")
"""Interpreters of their own, as workers are, and as the one process is."""

if __name__ == "__main__":
    sys.exit(main())
