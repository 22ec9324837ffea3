"""Coverage by different orders of first visits: crawls of recorded sites from their start pages.

    python -m benchmarks.first_visits CONTENTS [--cap 0.01] [--seeds 3]

Every site of a file of contents (docs/lab/histories.md) is crawled from the page with the most links in week
0; pages that no links lead to are left out. A page weighs 1 + the pages of its site that link to it. Each
cycle may fetch so many pages for the first time (``GP4C_NEW_PAGES``), a share of all. Printed is the weighted
share of the pages that were fetched after 5, 10 and 20 cycles, means of the seeds. Target: after 10 cycles
some function of the terminals of first visits is at least as good as a random order.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.common import machine, printed, verdict
from scrapy_gp4c.page_state.groupings import Links
from scrapy_gp4c.scoring import functions
from training.histories.contents import ContentHistory, read_contents
from training.histories.growth import NO_FINDER, GrowthHistory
from training.histories.links import links_of
from training.replaying.growth import HUBS, GrowthCrawl, growth_crawl, replay_growth
from training.replaying.prepared import CrawlChoices
from training.replaying.refresh_value import link_importance

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
}
"""Order -> function of ``GP4C_NEW_PAGE_FUNCTION``."""
AFTER: Final = (5, 10, 20)


def linked_sites(contents: ContentHistory) -> GrowthHistory:
    """All sites as crawls from their start pages find them: the finder is the first page breadth first."""
    history, texts = contents.history, contents.texts_at(0)
    links = links_of(history.site.tolist(), list(history.page_names or ()), texts)
    targets: list[list[int]] = [[] for _ in range(history.pages)]
    for source, target in zip(links.source.tolist(), links.target.tolist(), strict=True):
        targets[source].append(target)
    count = np.array([len(some) for some in targets])
    finder = np.full(history.pages, NO_FINDER, np.int32)
    reached = np.zeros(history.pages, np.bool_)
    for site in range(int(history.site.max()) + 1):
        pages = np.flatnonzero(history.site == site)
        if not len(pages):
            continue
        start = int(pages[np.argmax(count[pages])])
        reached[start] = True
        waiting = deque([start])
        while waiting:
            page = waiting.popleft()
            for target in targets[page]:
                if not reached[target] and history.site[target] == site:
                    reached[target], finder[target] = True, page
                    waiting.append(target)
    position = np.cumsum(reached) - 1
    in_site = reached[links.source] & reached[links.target]
    own_finders = finder[reached]
    weighted = replace(history, weight=np.asarray(link_importance(contents), np.float64))
    return GrowthHistory(
        weighted.take(reached),
        np.zeros(int(reached.sum()), np.int32),
        np.where(own_finders == NO_FINDER, NO_FINDER, position[own_finders]).astype(np.int32),
        links=Links(position[links.source[in_site]], position[links.target[in_site]], int(reached.sum())),
    )


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
    options = parser.parse_args(arguments)
    grown = linked_sites(read_contents(options.contents))
    cap = max(1, round(options.cap * grown.history.pages))
    print(machine(("numpy",)))
    print(f"{grown.history.pages:,} pages, {cap} first visits a cycle\n")
    print(f"| order | function |{' |'.join(f' after {cycle} cycles' for cycle in AFTER)} |")
    print("|---" * (2 + len(AFTER)) + "|")
    after: dict[str, float] = {}
    for name, function in ORDERS.items():
        values = coverage(grown, function, cap, options.seeds)
        after[name] = values[1]
        print(f"| {name} | `{function}` | {' | '.join(f'{value:.3f}' for value in values)} |", flush=True)
    best = max(value for name, value in after.items() if name != "random")
    return 0 if verdict("best order less random", best - after["random"], 0.0, at_least=True) else 1


if __name__ == "__main__":
    sys.exit(main())
