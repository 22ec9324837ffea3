"""Cost of directories to a store: a million of one page each, against one for all pages.

    python -m benchmarks.store_directories [--pages 1000000] [--directory DIR]

Adds the pages in bulk, then does `CYCLES` cycles: the first visits all pages, the others the share `VISITED`.
Prints bytes of the tables per page, processor time of adding and of a fold, and the peak of the process.
Target: a directory of one page, with its sums of visits, takes at most as many bytes as that page with its
visits.
"""

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import exit_code, in_fresh_process, machine, printed, verdict
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import USUAL, Tables
from scrapy_gp4c.store.records import NewVisit, StoredRequest

OF_GROUPS = ("groups", "group_visits", "first_urls")


class Cost(NamedTuple):
    """Time and space of a store of so many pages."""

    of_pages: float
    """Bytes per page: all tables but those of directories."""
    of_directories: float
    """Bytes per page of the tables of directories."""
    adding_s: float
    """Processor time of adding all pages."""
    folding_s: float
    """Median processor time of a cycle's fold."""
    memory_mb: float
    """Peak of the process's memory, mapped pages of the file included."""


def requests(pages: int, own_directories: bool) -> Iterator[tuple[int, StoredRequest]]:
    """Yield pages: each in a directory of its own, or all in one."""
    for page in range(pages):
        name = f"{page:09}/page" if own_directories else f"page/{page:09}"
        yield page * 0x9E3779B97F4A7C15 % 2**64, {"url": f"http://site.example/{name}", "callback": "parse"}


def measure(path: Path, pages: int, cycles: int, share: float, own_directories: bool) -> Cost:
    """Fill a store, and measure its tables, times and memory."""
    generator = np.random.default_rng(1)
    folding_s = []
    with Store(path, sizes=USUAL._replace(commit_visits=100_000)) as store:
        start = time.process_time()
        store.add_pages(requests(pages, own_directories))
        adding_s = time.process_time() - start
        for cycle in range(cycles):
            store.begin_cycle({})
            visited = generator.permutation(pages)[: round(share * pages) if cycle else pages]
            for page in visited.tolist():
                outcome = "changed" if page % 5 == 0 else "unchanged"
                store.record(NewVisit(page, outcome if cycle else "first", 1.0))
            store.commit()
            start = time.process_time()
            store.finish_cycle({})
            folding_s.append(time.process_time() - start)
        used = {name: table_bytes(store, name) / pages for name in store.db}
    of_directories = sum(used[name] for name in OF_GROUPS)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(
        sum(used.values()) - of_directories, of_directories, adding_s, statistics.median(folding_s), peak_mb
    )


def table_bytes(tables: Tables, name: str) -> int:
    """Bytes of a table's LMDB pages."""
    with tables.transaction() as txn:
        stat: dict[str, int] = txn.stat(tables.db[name].handle)
    return stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])


CYCLES = 9
VISITED = 0.05
"""Share of the pages that a cycle visits."""


def main() -> int:
    """Print the costs; 1 if a target was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--directory", help="where the stores are written (default: a temporary directory)")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for name, has_directories in (("one directory", False), ("a directory per page", True)):
            path = Path(directory) / name
            cost = in_fresh_process(measure, path, options.pages, CYCLES, VISITED, has_directories)
            print(
                f"{options.pages:,} pages, {name}: {cost.of_pages:.1f} bytes per page and "
                f"{cost.of_directories:.1f} of directories; added in {cost.adding_s:.1f} s, a fold takes "
                f"{cost.folding_s:.2f} s, peak {cost.memory_mb:.0f} MB"
            )
    of_directories, of_pages = (printed(one, ".1f") for one in (cost.of_directories, cost.of_pages))
    name = "a directory per page: bytes of directories by those of pages"
    return exit_code(verdict(name, of_directories / of_pages, 1.0, at_least=False))


if __name__ == "__main__":
    sys.exit(main())
