"""Coverage by different orders of first visits: crawls of recorded sites from their start pages.

    python -m benchmarks.first_visits HISTORY [--seeds 3] [--query-log LOG] [--learned FILE]

Every site of a file of contents (docs/lab/histories.md) is crawled from the page with the most links in week
0; pages that no links lead to are left out. A page weighs 1 + the pages of its site that link to it. A
history of growth is crawled from its start pages. With ``--learned`` the functions that
``training.learn --growth --jointly`` has written rank first visits, hubs and all other pages. Each cycle may
fetch so many pages for the first time (``GP4C_NEW_PAGES``), a share of all. Printed is the weighted share of
the pages that were fetched after 5, 10 and 20 cycles, means of the seeds. Target: after 10 cycles some
function of the terminals of first visits is at least as good as a random order.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.common import exit_code, machine, printed, verdict
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.first_visits import COUNTED
from scrapy_gp4c.search.queries import read_query_log
from training.histories.contents import has_contents, read_contents
from training.histories.growth import GrowthHistory, read_growth
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
"""Name of an order of first visits -> score function for ``GP4C_NEW_PAGE_FUNCTION``."""
AFTER: Final = (5, 10, 20)
LEARNED: Final = ("hub", "new_page")
"""Suffixes of the score files that ``--jointly`` writes beside that of the score function."""


def readable(function: str, grown: GrowthHistory) -> bool:
    """Whether the history `grown` has the links that `function` reads."""
    read = {*functions.load(function).terminals}
    known = len(grown.links) > 0 and ("anchor" not in read or bool(grown.links["anchor"].any()))
    return known or read.isdisjoint(COUNTED)


def coverage(grown: GrowthHistory, crawl: GrowthCrawl, function: str, cap: int, seeds: int) -> list[float]:
    """Weighted coverage after each of `AFTER` cycles, means of the seeds."""
    coverages = []
    for seed in range(seeds):
        one = replace(
            crawl, new_pages=cap, new_page_function=functions.load(function), from_start=True, seed=seed
        )
        coverages.append(replay_growth(grown, one).weighted_coverage)
    means = (float(np.mean([row[cycle - 1] for row in coverages])) for cycle in AFTER)
    return [printed(mean, ".3f") for mean in means]


CAP: Final = 0.01
"""First visits of a cycle, as a share of all pages."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_visits", description=__doc__)
    parser.add_argument("history", type=Path)
    parser.add_argument("--learned", type=Path, help="score file of --jointly, with the others beside it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--query-log", type=Path, help="queries, for the texts of links")
    options = parser.parse_args(arguments)
    log = None if options.query_log is None else read_query_log(options.query_log)
    if has_contents(options.history):
        grown = growth_of_contents(read_contents(options.history), log)
    else:
        grown = read_growth(options.history)
    usual = growth_crawl("default", None, 0.1, HUBS, CrawlChoices(0.05, warmup=0))
    rows = {name: (function, usual) for name, function in ORDERS.items() if readable(function, grown)}
    if options.learned is not None:
        hubs, first = (str(options.learned.with_stem(f"{options.learned.stem}-{of}")) for of in LEARNED)
        crawl = growth_crawl(str(options.learned), None, 0.1, hubs, CrawlChoices(0.05, warmup=0))
        rows["learned jointly"] = first, crawl
    cap = max(1, round(CAP * grown.history.pages))
    print(machine(("numpy",)))
    print(f"{grown.history.pages:,} pages, {cap} first visits a cycle\n")
    print(f"| order | function |{' |'.join(f' after {cycle} cycles' for cycle in AFTER)} |")
    print("|---" * (2 + len(AFTER)) + "|")
    after: dict[str, float] = {}
    for name, (function, crawl) in rows.items():
        values = coverage(grown, crawl, function, cap, options.seeds)
        after[name] = values[1]
        shown = functions.load(function).formula
        print(f"| {name} | `{shown}` | {' | '.join(f'{value:.3f}' for value in values)} |", flush=True)
    best = max(value for name, value in after.items() if name != "random")
    return exit_code(verdict("best order less random", best - after["random"], 0.0, at_least=True))


if __name__ == "__main__":
    sys.exit(main())
