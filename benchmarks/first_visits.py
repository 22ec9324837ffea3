"""Coverage by different orders of first visits: crawls of recorded sites from their start pages.

    python -m benchmarks.first_visits CONTENTS [--cap 0.01] [--seeds 3] [--query-log LOG]

Every site of a file of contents (docs/lab/histories.md) is crawled from the page with the most links in week
0; pages that no links lead to are left out. A page weighs 1 + the pages of its site that link to it. Each
cycle may fetch so many pages for the first time (``GP4C_NEW_PAGES``), a share of all. Printed is the weighted
share of the pages that were fetched after 5, 10 and 20 cycles, means of the seeds. Target: after 10 cycles
some function of the terminals of first visits is at least as good as a random order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.common import machine, printed, verdict
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.search.queries import read_query_log
from training.histories.contents import read_contents
from training.histories.growth import GrowthHistory
from training.replaying.growth import HUBS, GrowthCrawl, growth_crawl, replay_growth
from training.replaying.linked import growth_of_contents
from training.replaying.prepared import CrawlChoices

ORDERS: Final = {
    "random": "random",
    "breadth first": "0 - link_depth",
    "OPIC": "cash",
    "longest waiting": "waited",
    "finder's change rate": "finder_rate",
    "finder's new pages": "finder_brought",
    "rate of its directory": "near",
    "OPIC, by rate of its directory": "cash * near",
    "breadth first, then OPIC": "cash - link_depth",
    "in-links": "inlinks",
    "breadth first, then in-links": "inlinks / 1000 - link_depth",
    "words of links": "anchor",
    "in-links and words of links": "inlinks * (anchor + 0.01)",
}
"""Order -> function of ``GP4C_NEW_PAGE_FUNCTION``."""
AFTER: Final = (5, 10, 20)


def coverage(grown: GrowthHistory, function: str, cap: int, seeds: int) -> list[float]:
    """Weighted coverage after some cycles, means of the seeds."""
    crawl = growth_crawl("default", None, 0.1, HUBS, CrawlChoices(0.05, warmup=0))
    coverages = []
    for seed in range(seeds):
        one: GrowthCrawl = replace(
            crawl, new_pages=cap, new_page_function=functions.load(function), from_start=True, seed=seed
        )
        coverages.append(replay_growth(grown, one).weighted_coverage)
    means = (float(np.mean([row[cycle - 1] for row in coverages])) for cycle in AFTER)
    return [printed(mean, ".3f") for mean in means]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_visits", description=__doc__)
    parser.add_argument("contents", type=Path)
    parser.add_argument("--cap", type=float, default=0.01, help="first visits of a cycle, share of all pages")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--query-log", type=Path, help="queries, for the texts of links")
    options = parser.parse_args(arguments)
    contents = read_contents(options.contents)
    log = None if options.query_log is None else read_query_log(options.query_log)
    grown = growth_of_contents(contents, log)
    cap = max(1, round(options.cap * grown.history.pages))
    print(machine(("numpy",)))
    print(f"{grown.history.pages:,} pages, {cap} first visits a cycle\n")
    print(f"| order | function |{' |'.join(f' after {cycle} cycles' for cycle in AFTER)} |")
    print("|---" * (2 + len(AFTER)) + "|")
    after: dict[str, float] = {}
    for name, function in ORDERS.items():
        if log is None and "anchor" in function:
            continue
        values = coverage(grown, function, cap, options.seeds)
        after[name] = values[1]
        print(f"| {name} | `{function}` | {' | '.join(f'{value:.3f}' for value in values)} |", flush=True)
    best = max(value for name, value in after.items() if name != "random")
    return 0 if verdict("best order less random", best - after["random"], 0.0, at_least=True) else 1


if __name__ == "__main__":
    sys.exit(main())
