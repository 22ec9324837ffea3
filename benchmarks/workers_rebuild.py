"""A wiped shard of 1.25M pages and 100 cycles, built anew from its copies and the log by another worker.

The history is put into the ledger by `administration.create`. Some cycles are crawled besides (5% of the
pages each), and of one more half. Then the directory is deleted, and what a worker does when it takes a shard
is timed, until it could send its first request. Columns, plan and visits have to be the same, byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import scrapy
from scrapy.settings import Settings as ScrapySettings
from scrapy.utils.test import get_crawler
from twisted.internet import asyncioreactor

from benchmarks.common import verdict
from benchmarks.ledger_costs import begins
from benchmarks.plan import groups_of
from scrapy_gp4c.distributed import administration, cycles
from scrapy_gp4c.distributed.leases import new_worker
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.log import Flush, Progress, flush
from scrapy_gp4c.distributed.opening import Opening
from scrapy_gp4c.distributed.part import Part
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.outcomes import CHANGED, KINDS, UNCHANGED, VISIT
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.sealed import encode
from scrapy_gp4c.store.lmdb_store.sizes import USUAL
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.postgres import Server

TARGET_S: Final = 60.0
BUDGET: Final = 0.05
URL: Final = "http://site-%d.example/section-%d/a-page-with-a-long-name-%d.html"
BATCH: Final = 65_536
FLUSH_VISITS: Final = 100
LEASE_S: Final = 30.0


def build(path: Path, pages: int, cycles_: int) -> None:
    """Write a store of so many pages, 5% of which were visited in each of so many cycles."""
    rng = np.random.default_rng(1)
    visited = [rng.choice(pages, int(BUDGET * pages), replace=False) for _ in range(cycles_)]
    n = np.bincount(np.concatenate(visited), minlength=pages)
    rate = rng.beta(0.3, 2.0, pages)
    with Store(path) as store:
        numbering = fold.numbering_of(store.tables)
        for first in range(0, pages, BATCH):
            rows = np.arange(first, min(first + BATCH, pages))
            group = groups_of(rows, pages)
            requests = [
                encode({"url": URL % (one % 997, one // 997, page), "callback": "parse"})
                for page, one in zip(rows.tolist(), group.tolist(), strict=True)
            ]
            state = columns.new_columns(rows.astype(np.uint64) * np.uint64(2**64 // pages))
            state["n"][:] = n[rows]
            state["X"][:] = rng.binomial(n[rows], rate[rows])
            state["first_cycle"][:] = 1
            state["last_cycle"][:] = state["last_attempt"][:] = cycles_
            state["has_copy"][:] = 1
            fold.append_pages(store.tables, numbering, requests, state)
        store.tables.restore_cycles([{"started": 0.0, "finished": 1.0} for _ in range(cycles_)])
        for cycle, own in enumerate(visited, 1):
            visits = np.zeros(len(own), VISIT)
            visits["page"], visits["kind"] = own, KINDS.index("ranked")
            visits["time"] = 1.7e9 + 3600 * cycle + np.sort(rng.random(len(own))) * 3000
            visits["outcome"] = np.where(rng.random(len(own)) < rate[own], CHANGED, UNCHANGED)
            visits["fingerprint"] = rng.integers(0, 2**64, len(own), np.uint64)
            visits["bytes"] = rng.lognormal(10, 1, len(own))
            visits["latency_ms"] = rng.lognormal(5, 0.5, len(own))
            fold.put_visits(store.tables, cycle, 0, visits, USUAL)


class Worker:
    """A worker that takes the one shard there is."""

    def __init__(self, settings: Settings, name: str) -> None:
        """Take the settings of the crawl."""
        assert settings.ledger is not None
        self.link = Link(settings.ledger, new_worker(name, LEASE_S))
        self._settings, self._flushes = settings, 0
        self._spider = scrapy.Spider("rebuilt")
        self._crawler = get_crawler(scrapy.Spider)

    async def open(self) -> Part:
        """What a run of it begins with."""
        return await Opening(self._crawler, self._settings, self._spider, self.link).run("1", None)

    async def visit(self, part: Part, share: float) -> None:
        """Record visits of the first pages of the plan; all of them: end the cycle."""
        pages = list(part.cycle.remaining())
        pages = pages[: round(share * len(pages))]
        rng = np.random.default_rng(part.cycle.number)
        prints = rng.integers(0, 2**64, len(pages), np.uint64).tolist()
        for start in range(0, len(pages), FLUSH_VISITS):
            for page, fingerprint in zip(
                pages[start : start + FLUSH_VISITS], prints[start : start + FLUSH_VISITS], strict=True
            ):
                outcome = "changed" if fingerprint % 5 == 0 else "unchanged"
                part.store.record(
                    NewVisit(page, outcome, time.time(), "ranked", fingerprint, distance=9, bytes=20_000)
                )
            await self._flush(part, done=share == 1.0 and start + FLUSH_VISITS >= len(pages))

    async def _flush(self, part: Part, done: bool) -> None:
        self._flushes += 1
        token = {lease.shard: lease.token for lease in part.leases}
        progress = {0: Progress(part.store.pages, done)} if done else {}
        what = Flush(self._flushes, part.cycle.number, token, part.store.sealed(), progress=progress)
        await self.link.surely_single(flush, self.link.worker, what)
        part.store.write(what.segments)


def contents(part: Part) -> dict[str, str]:
    """Digests of all that a shard knows: each column, each cycle's visits, and the plan."""
    shard = part.store.shards[0]
    found: dict[str, Any] = {}
    for _, block in shard.blocks():
        for name, values in block.items():
            digest = found.setdefault(f"column {name}", hashlib.sha256())
            digest.update(np.ascontiguousarray(values).tobytes())
    for cycle, visits in shard.visits(1, part.cycle.number):
        found.setdefault(f"visits of cycle {cycle}", hashlib.sha256()).update(visits.tobytes())
    for chunk in shard.plan():
        found.setdefault("plan", hashlib.sha256()).update(chunk.tobytes())
    return {name: one.hexdigest() for name, one in found.items()}


async def measure(server: Server, folder: Path, pages: int, before: int, closed: int) -> bool:
    """Wipe a shard, and time its way back; tell whether the target holds."""
    settings = Settings.load(
        ScrapySettings(
            {
                "GP4C_LEDGER": server.dsn(server.database()),
                "GP4C_STORE": str(folder / "shards"),
                "GP4C_BUDGET": BUDGET,
                "GP4C_PANEL": 0,
                "GP4C_WARMUP_VISITS": 0,
                "GP4C_LEASE_S": LEASE_S,
                "GP4C_CYCLE_S": 0.001,
            }
        )
    )
    start = time.perf_counter()
    build(folder / "store", pages, before)
    administration.create(settings, 1, folder / "store", USUAL)
    shutil.rmtree(folder / "store")
    worker = Worker(settings, "first")
    part = await worker.open()
    for _ in range(closed):
        await worker.visit(part, 1.0)
        assert await worker.link.surely(cycles.close, part.cycle.number)
        part.store.close()
        part = await worker.open()  # which folds the one before, and copies
    await worker.visit(part, 0.5)
    expected = contents(part)
    part.store.close()
    worker.link.close(leave=True)
    size = sum(file.stat().st_size for file in (folder / "shards").rglob("*.mdb"))
    print(f"{pages:,} pages, {before + closed} cycles, {len(expected)} digests, {size / 1e6:.0f} MB;"
          f" made in {time.perf_counter() - start:.0f} s", flush=True)  # fmt: skip
    shutil.rmtree(folder / "shards")
    heir = Worker(settings, "second")
    start = time.perf_counter()
    part = await heir.open()
    seconds = time.perf_counter() - start
    differs = sorted(name for name, digest in contents(part).items() if digest != expected.pop(name, None))
    part.store.close()
    heir.link.close(leave=True)
    differs += sorted(expected)
    print(f"columns, visits or plans that differ: {', '.join(differs) or 'none'}")
    return verdict("seconds until a wiped shard is back", seconds, TARGET_S, at_least=False) and not differs


def main() -> int:
    """Print the figure; 1 if it is missed, or if anything differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=1_250_000)
    parser.add_argument("--cycles", type=int, default=60, help="that the history begins with (default: 60)")
    parser.add_argument("--closed", type=int, default=40, help="that are crawled besides (default: 40)")
    options = parser.parse_args()
    if not begins("workers_rebuild"):
        return 1
    asyncioreactor.install()
    from twisted.internet import defer, reactor, task

    held: list[bool] = []

    async def measured(folder: Path, server: Server) -> None:
        held.append(await measure(server, folder, options.pages, options.cycles, options.closed))

    with tempfile.TemporaryDirectory() as folder:
        server = Server()
        try:
            task.react(lambda _: defer.Deferred.fromCoroutine(measured(Path(folder), server)), (), reactor)
        except SystemExit as end:
            if end.code:
                raise
        finally:
            server.stop()
    return 0 if held == [True] else 1


if __name__ == "__main__":
    sys.exit(main())
