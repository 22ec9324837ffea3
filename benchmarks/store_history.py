"""Seconds to load the history of a store with a million visits, alone and while a crawl writes to it."""

import argparse
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import exit_code, machine, verdict
from scrapy_gp4c.page_state.outcomes import CHANGED, ERROR, FIRST, KINDS, UNCHANGED, VISIT
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.environment import encode
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import USUAL

CYCLES = 30
VISITS = 1_000_000
RUNS = 5

WRITER = """
import sys, time
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
with Store(sys.argv[1]) as store:
    store.begin_cycle({})
    pages, times = iter(range(store.pages)), []
    deadline = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < deadline:
        start = time.perf_counter()
        for _ in range(100):  # the last one commits
            store.record(NewVisit(page=next(pages), time=0.0, outcome="unchanged", kind="panel"))
        times.append(time.perf_counter() - start)
        time.sleep(0.02)
    store.finish_cycle({})
times.sort()
print(times[len(times) // 2], times[-len(times) // 50], len(times))
"""


def fill(path: Path) -> None:
    """Write a store whose panel pages have `VISITS` visits, 3% of them errors, by its own bulk writes."""
    rng = np.random.default_rng(0)
    pages = VISITS // CYCLES
    keys = rng.choice(2**62, pages, replace=False).astype(np.uint64)
    with Store(path) as store:
        numbering = fold.numbering_of(store)
        for start in range(0, pages, 65_536):
            batch = keys[start : start + 65_536]
            requests = [
                encode(
                    {"url": f"http://site{key % 500}.example/section/page-{key}.html", "callback": "parse"}
                )
                for key in batch.tolist()
            ]
            fold.append_new(store, numbering, list(zip(batch.tolist(), requests, strict=True)), 0)
        store.restore_cycles([{} for _ in range(CYCLES)])
        rate = rng.beta(0.5, 3.0, pages)
        for cycle in range(1, CYCLES + 1):
            visits = np.zeros(pages, VISIT)
            visits["page"] = rng.permutation(pages)
            changed = rng.random(pages) < rate[visits["page"]]
            visits["outcome"] = np.where(changed, CHANGED, UNCHANGED)
            visits["outcome"][rng.random(pages) < 0.03] = ERROR
            visits["outcome"][:] = visits["outcome"] if cycle > 1 else FIRST
            visits["kind"] = KINDS.index("panel")
            fold.put_visits(store, cycle, 0, visits, USUAL)


def load_seconds(path: Path) -> float:
    """Seconds of one `read_history`."""
    from training.histories.reading import read_history

    start = time.perf_counter()
    read_history(path)
    return time.perf_counter() - start


def writer(path: Path, seconds: float) -> subprocess.Popen[str]:
    """Start a process that records visits for ``seconds`` and prints how long 100 of them take."""
    command = [sys.executable, "-c", WRITER, str(path), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def commit_seconds(path: Path, read: Path) -> tuple[float, float, float, int]:
    """Seconds in which a crawl commits 100 visits while the store `read` is read: median, 98th percentile.

    Returned too are the numbers of commits and readings. Where `read` is a copy, no file is shared.
    """
    with writer(path, 4.0) as process:
        time.sleep(0.7)
        readings = 0
        while process.poll() is None:
            load_seconds(read)
            readings += 1
        assert process.stdout is not None
        median, slow, batches = map(float, process.stdout.read().split())
    return median, slow, batches, readings


def main() -> int:
    """Print seconds and what a reader costs the writer; 1 if loading takes too long."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    logging.disable()
    print(machine())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        fill(path)
        load_seconds(path)  # imports and file cache
        seconds = float(np.median([load_seconds(path) for _ in range(RUNS)]))
        copy = Path(directory) / "copy"
        shutil.copytree(path, copy)
        measured = {
            f"beside a reader of {what}": commit_seconds(path, read)
            for what, read in {"a copy": copy, "it": path}.items()
        }
    for name, (median, slow, batches, readings) in measured.items():
        print(
            f"100 visits recorded and committed {name}: median {1e3 * median:.2f} ms, "
            f"98th percentile {1e3 * slow:.2f} ms ({batches:.0f} batches, {readings} readings)"
        )
    return exit_code(verdict(f"seconds to load {VISITS:,} visits", seconds, 2.0, at_least=False))


if __name__ == "__main__":
    sys.exit(main())
