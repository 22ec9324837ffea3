"""Planning a cycle: score every known page, choose 5%, write the plan, read the requests of it.

    python -m benchmarks.plan [--pages 1000000 10000000] [--runs 5] [--directory DIR]

Builds a store of synthetic pages with heavy-tailed change rates in a temporary directory. Then it does what
the scheduler does when a spider opens, until there is a request to send: it begins a `Cycle` with a score
function of 20 nodes, which commits the plan and reads it; the frontier takes its pages and the first
requests. Last it reads all stored requests of the plan in order of page id. Targets for all of that: 0.5 s
for 1M pages, 1 s for 10M, 12 s for 100M, and up to 10M at most 0.5 GB of anonymous memory more than before.
Outside the targets, requests are read in order of rank too, as in a crawl, and three columns are summed, as a
yardstick.

The cost of related pages is the time of choosing by `RELATED` beyond that by `PLAIN`, in turn and in one
process. The lowest of several processor times counts, which other processes change little. Every directory
has 10 pages, far from each other in the store, and 5% of the pages were visited in each of the last 8 cycles.
Target: with related pages, plan and all requests take at most 1.3 times the processor time.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scrapy.settings import Settings as ScrapySettings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler

from benchmarks.common import anonymous_bytes, exit_code, in_fresh_process, machine, peak_memory, verdict
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.feeding import CHUNK_PAGES, MIN_WINDOW_PAGES, Frontier
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.groups import GROUP, KEPT_CYCLES, count_visits
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import GROUP_ROWS

SCORE_FUNCTION = "t * X / (n + 1.0) + cg * t - exp(nad * t) + sqrt(log(n))"
PLAIN = "t * (X + 0.5)"
RELATED = f"{PLAIN} * near"
TARGET_RELATED = 1.3
PAGES_OF_DIRECTORY = 10
SITES = 997
CYCLES = 40
BUDGET = 0.05
TARGET_S = {1_000_000: 0.5, 10_000_000: 1.0, 100_000_000: 12.0}
TARGET_MEMORY_GB = 0.5
UNREAD_COLUMNS = ("A", "G", "A_cycles", "G_cycles", "E")
"""Columns that the score functions do not read; filled, as they are in a crawl's store."""
MOST_PAGES_IN_MEMORY = 10_000_000
"""Pages of the largest store that the target of memory is for."""
BATCH = 262_144
CHOICES = 10
"""Number of times that each of the two functions chooses pages, in each run."""
IN_ID_ORDER = 16_384
"""Pages per read when the plan is read in order of page id."""


def build(path: str, pages: int) -> None:
    """Write a store of `pages` pages; keys ascend, so that bulk loading appends."""
    generator = np.random.default_rng(1)
    step = 2**64 // pages
    number = np.arange(max(1, pages // PAGES_OF_DIRECTORY), dtype=np.uint64)
    directories = np.zeros(len(number), GROUP)
    directories["key"], directories["site"] = number + np.uint64(1), number % np.uint64(SITES)
    with Store(path) as store:
        store.restore_cycles([{"started": 0.0, "finished": 1.0} for _ in range(CYCLES)])
        for first in range(0, pages, BATCH):
            count = min(BATCH, pages - first)
            n = generator.integers(2, CYCLES, count)
            changes = generator.binomial(n, generator.beta(0.3, 2.0, count))
            last = generator.integers(3, CYCLES + 1, count)
            group = groups_of(np.arange(first, first + count), pages)
            keys = [page * step for page in range(first, first + count)]
            requests = [
                b'{"url":"http://site-%d.example/section-%d/a-page-with-a-long-name-%d.html","callback":"parse_page"}'
                % (directory % SITES, directory // SITES, page)
                for page, directory in enumerate(group.tolist(), first)
            ]
            state = columns.new_columns(np.array(keys, np.uint64))
            state["n"][:], state["X"][:] = n, changes
            state["first_cycle"][:] = 1
            state["last_cycle"][:] = state["last_attempt"][:] = last
            state["has_copy"][:] = 1
            state["fingerprint"][:] = generator.integers(0, 2**64, count, np.uint64)
            for name in UNREAD_COLUMNS:
                state[name][:] = generator.random(count)
            state["group"][:] = group
            store.append_pages(requests, state, directories[: 0 if first else None])
        for cycle in range(CYCLES - KEPT_CYCLES + 1, CYCLES + 1):
            group = groups_of(generator.integers(0, pages, int(BUDGET * pages)), pages)
            is_changed = generator.random(len(group)) < 0.2
            visits = count_visits(group, is_changed, 0.2 * np.ones(len(group)))
            with store.transaction(write=True) as txn:
                GROUP_ROWS.put(txn, store.db, cycle, 0, visits)


def groups_of(page: npt.NDArray[np.int64], pages: int) -> npt.NDArray[np.int64]:
    """Directory of each page in ``page``, of a store of ``pages``; neighbours are in different ones."""
    return page * 7919 % max(1, pages // PAGES_OF_DIRECTORY)


def settings(score_function: str = SCORE_FUNCTION) -> Settings:
    """The settings of the benchmark's crawl."""
    return Settings.load(ScrapySettings({"GP4C_SCORE_FUNCTION": score_function, "GP4C_BUDGET": BUDGET}))


def read_requests(store: Store, pages: npt.NDArray[Any], chunk: int) -> int:
    """Read the stored requests of pages, a bounded number at a time; returns how many have a URL."""
    starts = range(0, len(pages), chunk)
    return sum(
        "url" in request for start in starts for request in store.requests(pages[start : start + chunk])
    )


def measure(path: str) -> dict[str, float]:
    """Plan once, in a process whose memory is clean: seconds per stage, and peak memory."""
    loaded, stats = settings(), MemoryStatsCollector(get_crawler())
    before = anonymous_bytes()
    peak, peak_related = [0], [0]
    with Store(path) as store:
        start = time.perf_counter()
        total = 0
        for _, block in store.blocks():
            total += sum(int(column.sum()) for column in (block["n"], block["X"], block["last_cycle"]))
        pass_s = time.perf_counter() - start
        assert total
        with peak_memory(peak):
            start, cpu_start = time.perf_counter(), time.process_time()
            cycle = Cycle(store, loaded, stats)
            plan_s = time.perf_counter() - start
            frontier = Frontier(cycle.remaining(), store.requests, MIN_WINDOW_PAGES)
            assert next(frontier.feed())
            fed = time.perf_counter()
            plan = store.plan()["page"]
            assert read_requests(store, np.sort(plan), IN_ID_ORDER) == len(plan) == int(BUDGET * store.pages)
            done = time.perf_counter()
            cpu_s = time.process_time() - cpu_start
            read_requests(store, plan, CHUNK_PAGES)
            as_fed = time.perf_counter()
        with peak_memory(peak_related):
            Planner.of(store, settings(RELATED)).first_choice()
        choosing: dict[str, list[float]] = {PLAIN: [], RELATED: []}
        for score_function, times in list(choosing.items()) * CHOICES:
            start_s = time.process_time()
            Planner.of(store, settings(score_function)).first_choice()
            times.append(time.process_time() - start_s)
    return {
        "pass": pass_s,
        "plan": plan_s,
        "first": fed - start,
        "requests": done - fed,
        "total": done - start,
        "requests as fed": as_fed - done,
        "CPU": cpu_s,
        "memory": (max(peak[0], peak_related[0]) - before) / 1e9,
        **{name: min(times) for name, times in choosing.items()},
    }


def measure_copy(path: str) -> dict[str, float]:
    """Measure on a copy: a cycle is planned once, and what closing it writes would scatter the file."""
    copy = f"{path}.run"
    shutil.copytree(path, copy)
    os.sync()  # the plan's commits wait for the disk, and should not wait for this
    try:
        return in_fresh_process(measure, copy)
    finally:
        shutil.rmtree(copy)


def main() -> int:
    """Measure every size that was asked for; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", help="where to build the stores (default: the temporary directory)")
    arguments = parser.parse_args()
    print(machine())
    print(
        f"score function: {SCORE_FUNCTION} ({len(parse(SCORE_FUNCTION).tokens)} nodes), budget {BUDGET:.0%}"
    )
    holds = True
    for pages in arguments.pages:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            path = str(Path(directory, "store"))
            start = time.perf_counter()
            in_fresh_process(build, path, pages)
            print(f"{pages:,} pages (store built in {time.perf_counter() - start:.0f} s)")
            runs = [measure_copy(path) for _ in range(arguments.runs)]
        median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(f"  score, choose and write the plan: {median['plan']:.2f} s")
        print(f"  ({median['plan'] / median['pass']:.1f} times a bare pass over three of the columns)")
        print(f"  until the first request: {median['first']:.2f} s")
        print(f"  all {int(BUDGET * pages):,} requests: {median['requests']:.2f} s in order of page id,")
        print(f"  {median['requests as fed']:.2f} s in order of rank, {CHUNK_PAGES} at a time")
        print(f"  processor time of plan and all requests by id: {median['CPU']:.2f} s")
        plain, related = (min(run[name] for run in runs) for name in (PLAIN, RELATED))
        print(f"  choose by {PLAIN}: {plain:.2f} s of the processor, by {RELATED}: {related:.2f} s")
        print(f"  ({related / plain:.2f} times that)")
        with_near = 1 + (related - plain) / median["CPU"]
        holds &= verdict(
            "  plan and all requests with near, times without", with_near, TARGET_RELATED, at_least=False
        )
        target_s = TARGET_S.get(pages, pages / 1e6 * 0.5)
        holds &= verdict("  plan and all requests, s", median["total"], target_s, at_least=False)
        name, memory = "  anonymous memory above the interpreter, GB", max(run["memory"] for run in runs)
        if pages <= MOST_PAGES_IN_MEMORY:
            holds &= verdict(name, memory, TARGET_MEMORY_GB, at_least=False)
        else:
            print(f"{name}: {memory:.2f}")
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
