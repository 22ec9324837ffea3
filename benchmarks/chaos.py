"""Crawls, commands and stores under kill -9, wrong clocks, power cuts, bad disks, flipped bits and lost ends.

Prints the table of docs/reliability.md. All random choices come from ``--seed``. The log of the server has
what a crawl fetched; a file to which it appends after each commit has what it committed.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.common import machine
from benchmarks.trouble.beside import (
    claim_files,
    damaged_archives,
    damaged_indexes,
    long_diffs,
    signalled_monitors,
)
from benchmarks.trouble.counting import Count
from benchmarks.trouble.crawls import failing_disks, killed_crawls
from benchmarks.trouble.damage import damage, flip, recoveries, truncate, wipe
from benchmarks.trouble.stores import disk_faults, killed_commands, power_cuts, retention, two_writers

TROUBLE: Final[dict[str, tuple[int, Callable[..., Count]]]] = {
    "kill -9 of crawls": (1000, killed_crawls),
    "kill -9 of crawls with a JOBDIR": (60, partial(killed_crawls, jobdir=True)),
    "kill -9 of crawls whose clocks jump": (100, partial(killed_crawls, clocks=True)),
    "disks that fail under a crawl": (100, failing_disks),
    "kill -9 of backup, restore, compact, restore --from-damaged": (200, killed_commands),
    "power cuts": (300, power_cuts),
    "disks without room": (200, disk_faults),
    "flipped bits": (1000, partial(damage, change=flip)),
    "pages of zeros": (200, partial(damage, change=wipe)),
    "lost ends": (200, partial(damage, change=truncate)),
    "recoveries": (100, recoveries),
    "four writers at once": (30, two_writers),
    "cycles with GP4C_KEEP_CYCLES": (400, retention),
    "wrong bytes in feeds and sitemaps": (100, claim_files),
    "diffs of hostile texts": (60, long_diffs),
    "damaged archives of texts": (200, damaged_archives),
    "damaged search indexes": (200, damaged_indexes),
    "signals to monitors": (60, signalled_monitors),
    "torn queues of a JOBDIR": (60, partial(killed_crawls, jobdir=True, torn=True)),
}
"""Kind of trouble -> how many times it is made, and the function that makes it."""
HEADER: Final = ("trouble", "times", "lost", "doubled", "silent", "hangs", "tracebacks, signals", "")


def run(share: float, seed: int, only: str = "") -> dict[str, Count]:
    """Make trouble, ``share`` of the usual times; ``only``: text that the name of its kind must have."""
    counts = {}
    for number, (name, (times, trouble)) in enumerate(TROUBLE.items()):
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            numbers = random.Random(seed * 1000 + number)
            count = trouble(max(1, round(times * share)), numbers, Path(folder))
            counts[name] = count
        print(f"{name}: {tuple(count)} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    return counts


def main() -> int:
    """Print the table; 1 if anything was lost, doubled, silent, or hung, or ended badly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the usual times (default: 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="trouble whose name has this (default: all)")
    options = parser.parse_args()
    print(machine())
    print(f"python -m benchmarks.chaos {' '.join(sys.argv[1:])}\n")
    counts = run(options.share, options.seed, options.only)
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for name, count in counts.items():
        print(f"| {name} | {' | '.join(map(str, count))} |")
    return int(any(any(count[1:6]) for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
