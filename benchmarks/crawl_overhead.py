"""Pages per second of one crawl, with stock Scrapy and with scrapy-gp4c, measured in pairs.

    python -m benchmarks.crawl_overhead [--pages 800] [--runs 3]

The same spider follows the links of pages of 10 KB (1,500 words) from one page to all of them, without
delays, 32 requests at a time. Every pair is a crawl with stock Scrapy and one with the add-on, each in a
process of its own and on a core of its own, right after each other:

- *new*: the first cycle; every page is new;
- *revisit*: the next cycle at a budget of 1.0; every page is in the plan, is compared with its last
  visit, and every link is dropped as known.

Time runs from before the crawl is built to the engine's end: opening the store, planning, commits and
the fold are in it; the imports are not. The crawls are CPU-bound: CPU time is 97% and more of the wall time
on a quiet machine. On a busy one it is not, and CPU time decides.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from benchmarks.common import in_fresh_process, machine, median_ratio, verdict
from benchmarks.server import server

TARGET = 0.95
CPU_BOUND = 0.9
"""Share of wall time from which on a crawl had a core to itself and nothing but work to do."""
CONCURRENT_REQUESTS = 32


class Crawled(NamedTuple):
    """One crawl."""

    pages: int
    wall_s: float
    cpu_s: float


def crawl(port: int, store: str | None) -> Crawled:
    """Crawl the site once, with the add-on where a store is given; for a fresh process."""
    import scrapy
    from scrapy import signals
    from scrapy.crawler import CrawlerProcess

    import scrapy_gp4c.scheduler  # noqa: F401 (its imports are not part of the crawl)

    class PageSpider(scrapy.Spider):
        name = "pages"

        def parse(self, response: Any) -> Iterator[Any]:
            yield {"url": response.url, "title": response.css("h1::text").get()}
            for href in response.css("a::attr(href)").getall():
                yield response.follow(href, callback=self.parse)

    settings: dict[str, Any] = {
        "CONCURRENT_REQUESTS": CONCURRENT_REQUESTS,
        "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENT_REQUESTS,
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
    }
    if store is not None:
        settings |= {
            "ADDONS": {"scrapy_gp4c.Addon": 500},
            "GP4C_STORE": store,
            "GP4C_BUDGET": 1.0,
            "GP4C_WARMUP_VISITS": 0,
        }
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(PageSpider)
    ended: list[tuple[float, float]] = []
    crawler.signals.connect(lambda: ended.append(_now()), signals.engine_stopped, weak=False)
    wall_s, cpu_s = _now()
    process.crawl(crawler, start_urls=[f"http://127.0.0.1:{port}/0"])
    process.start()
    assert crawler.stats is not None
    pages = crawler.stats.get_value("item_scraped_count")
    return Crawled(pages, ended[0][0] - wall_s, ended[0][1] - cpu_s)


def _now() -> tuple[float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return perf_counter(), usage.ru_utime + usage.ru_stime


def measure(pages: int, runs: int) -> dict[str, list[tuple[Crawled, Crawled]]]:
    """Return for each cycle the (stock, add-on) pairs."""
    pairs: dict[str, list[tuple[Crawled, Crawled]]] = {"new": [], "revisit": []}
    with server(pages) as port, tempfile.TemporaryDirectory() as directory:
        for run in range(runs):
            store = str(Path(directory, f"run-{run}"))
            for cycle, measured in pairs.items():
                pair = in_fresh_process(crawl, port, None), in_fresh_process(crawl, port, store)
                measured.append(pair)
                for name, crawled in zip(("stock", "add-on"), pair, strict=True):
                    if crawled.pages != pages:
                        raise RuntimeError(f"{name}, {cycle}: {crawled.pages} of {pages} pages were scraped")
    return pairs


def _wall_s(crawled: Crawled) -> float:
    return crawled.wall_s


def _cpu_s(crawled: Crawled) -> float:
    return crawled.cpu_s


def main() -> int:
    """Print pages per second and their ratios; return 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=800, help="pages of the site (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="pairs per cycle (default: %(default)s)")
    arguments = parser.parse_args()
    print(machine())
    pairs = measure(arguments.pages, arguments.runs)
    print(f"\n{arguments.pages} pages, medians of {arguments.runs} pairs")
    print("cycle    crawl    pages/s   CPU ms/page   CPU/wall")
    for cycle, measured in pairs.items():
        for name, crawls in zip(("stock", "add-on"), zip(*measured, strict=True), strict=True):
            speed, cpu_ms, busy = (
                statistics.median(figure)
                for figure in zip(
                    *((c.pages / c.wall_s, 1000 * c.cpu_s / c.pages, c.cpu_s / c.wall_s) for c in crawls),
                    strict=True,
                )
            )
            print(f"{cycle:8} {name:8} {speed:7.0f}   {cpu_ms:11.2f}   {busy:8.2f}")
    alone = (
        min(c.cpu_s / c.wall_s for measured in pairs.values() for pair in measured for c in pair) >= CPU_BOUND
    )
    clock, of = ("wall clock", _wall_s) if alone else ("CPU time", _cpu_s)
    if not alone:
        print(f"Other processes had this machine's cores (CPU/wall below {CPU_BOUND}): CPU time decides.")
    holds = True
    for cycle, measured in pairs.items():
        ratios = [(of(stock), of(ours)) for stock, ours in measured]
        spread = ", ".join(f"{ratio:.2f}" for ratio in sorted(a / b for a, b in ratios))
        print(f"{cycle}, pair by pair: {spread} by {clock}")
        name = f"pages/s with the add-on / stock, {cycle}"
        holds &= verdict(name, median_ratio(ratios), TARGET, at_least=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
