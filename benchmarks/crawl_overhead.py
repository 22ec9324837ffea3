"""Pages per second of one crawl, with stock Scrapy and with scrapy-gp4c, measured in pairs.

    python -m benchmarks.crawl_overhead [--pages 800] [--runs 3]

The same spider follows the links of pages of 10 KB (1,500 words) from one page to all of them, without
delays, 32 requests at a time. Every pair is a crawl with stock Scrapy and one with the add-on, each in a
process of its own and on a core of its own, right after each other:

- *new*: the first cycle; every page is new;
- *frozen*: the same, with ``GP4C_FREEZE_GC``;
- *revisit*: the next cycle at a budget of 1.0; every page is in the plan, is compared with its last
  visit, and every link is dropped as known;
- *searched*: a pair of crawls with the add-on, both of new pages, the second with a log of 1,000 queries
  (``GP4C_QUERY_LOG``), which stages all texts for a search index; until the last page is scraped;
- *indexed*: the same pair to its end, the index's update included;
- *described*: new pages by ``GP4C_POLICY = "cb"``, for which every new copy is described for its clusters.

Time runs from before the crawl is built to the engine's end (but for *searched*): opening the store,
planning, commits and the fold are in it; the imports are not. The crawls are CPU-bound: CPU time is 97% and
more of the wall time on a quiet machine. On a busy one it is not, and CPU time decides.
"""

import argparse
import random
import resource
import statistics
import sys
import tempfile
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

from benchmarks.common import exit_code, in_fresh_process, machine, printed, verdict
from benchmarks.server import server, vocabulary

TARGET = 0.95
SEARCHED_TARGET = 0.9
DESCRIBED_TARGET = 0.8
QUERIES = 1_000
CPU_BOUND = 0.9
"""Share of wall time from which on a crawl had a core to itself and nothing but work to do."""
CONCURRENT_REQUESTS = 32


class Crawled(NamedTuple):
    """Pages and times of one crawl."""

    pages: int
    wall_s: float
    cpu_s: float
    scraped: tuple[float, float]
    """Wall and CPU time until the last page was scraped, s."""

    def until_scraped(self) -> Self:
        """The crawl's figures without the time after the last scraped page."""
        return self._replace(wall_s=self.scraped[0], cpu_s=self.scraped[1])


class Pair(NamedTuple):
    """Two crawls to compare."""

    names: tuple[str, str]
    target: float | None
    """Least pages per second of the second crawl, as a share of the first's; None: no target."""


PAIRS = {
    "new": Pair(("stock", "add-on"), TARGET),
    "frozen": Pair(("stock", "GP4C_FREEZE_GC"), TARGET),
    "revisit": Pair(("stock", "add-on"), TARGET),
    "searched": Pair(("add-on", "with queries"), SEARCHED_TARGET),
    "indexed": Pair(("add-on", "with queries"), None),
    "described": Pair(("stock", "with clusters"), DESCRIBED_TARGET),
}


def crawl(port: int, store: str | None, of_add_on: dict[str, Any] | None = None) -> Crawled:
    """Crawl the site once, with the add-on and its settings where a store is given; for a fresh process."""
    import scrapy
    from scrapy import signals
    from scrapy.crawler import CrawlerProcess

    if store is not None:
        # Imports are not part of the crawl, those that come with a log of queries neither; stock Scrapy is
        # without them, as each module is more for its garbage collections.
        import scrapy_gp4c.crawling.archiving
        import scrapy_gp4c.crawling.measuring
        import scrapy_gp4c.scheduler  # noqa: F401

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
            **(of_add_on or {}),
        }
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(PageSpider)
    ended: list[tuple[float, float]] = []
    crawler.signals.connect(lambda: ended.append(_now()), signals.engine_stopped, weak=False)
    scraped = [_now()]
    crawler.signals.connect(lambda: scraped.append(_now()), signals.item_scraped, weak=False)
    wall_s, cpu_s = _now()
    process.crawl(crawler, start_urls=[f"http://127.0.0.1:{port}/0"])
    process.start()
    assert crawler.stats is not None
    pages = crawler.stats.get_value("item_scraped_count")
    last = scraped[-1][0] - wall_s, scraped[-1][1] - cpu_s
    return Crawled(pages, ended[0][0] - wall_s, ended[0][1] - cpu_s, last)


def _now() -> tuple[float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return perf_counter(), usage.ru_utime + usage.ru_stime


def query_log(path: Path, seed: int = 1) -> str:
    """Write queries of one to three words of the site's pages; returns the path."""
    generator, words = random.Random(seed), vocabulary(random.Random(1))
    queries = {" ".join(generator.choices(words, k=generator.randint(1, 3))) for _ in range(QUERIES)}
    path.write_text("".join(f"{query}\t{rank + 1}\n" for rank, query in enumerate(sorted(queries))))
    return str(path)


def measure(pages: int, runs: int) -> dict[str, list[tuple[Crawled, Crawled]]]:
    """Return for each cycle the pairs of `PAIRS`."""
    pairs: dict[str, list[tuple[Crawled, Crawled]]] = {cycle: [] for cycle in PAIRS}
    with server(pages) as port, tempfile.TemporaryDirectory() as directory:
        log = query_log(Path(directory, "queries.tsv"))
        for run in range(runs):
            stores = {name: str(Path(directory, f"{run}-{name}")) for name in ("plain", *PAIRS)}
            crawls: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
                "new": ((None,), (stores["new"],)),
                "frozen": ((None,), (stores["frozen"], {"GP4C_FREEZE_GC": True})),
                "revisit": ((None,), (stores["new"],)),
                "indexed": ((stores["plain"],), (stores["indexed"], {"GP4C_QUERY_LOG": log})),
                "described": ((None,), (stores["described"], {"GP4C_POLICY": "cb"})),
            }
            for cycle, (first, second) in crawls.items():
                pair = in_fresh_process(crawl, port, *first), in_fresh_process(crawl, port, *second)
                pairs[cycle].append(pair)
                for name, crawled in zip(PAIRS[cycle].names, pair, strict=True):
                    if crawled.pages != pages:
                        raise RuntimeError(f"{name}, {cycle}: {crawled.pages} of {pages} pages were scraped")
                if cycle == "indexed":
                    pairs["searched"].append((pair[0].until_scraped(), pair[1].until_scraped()))
    return pairs


def main() -> int:
    """Print pages per second and their ratios; return 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=800, help="pages of the site (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="pairs per cycle (default: %(default)s)")
    arguments = parser.parse_args()
    print(machine())
    pairs = measure(arguments.pages, arguments.runs)
    print(f"\n{arguments.pages} pages, medians of {arguments.runs} pairs")
    print("cycle     crawl          pages/s   CPU ms/page   CPU/wall")
    for cycle, measured in pairs.items():
        for name, crawls in zip(PAIRS[cycle].names, zip(*measured, strict=True), strict=True):
            speed, cpu_ms, busy = (
                statistics.median(figure)
                for figure in zip(
                    *((c.pages / c.wall_s, 1000 * c.cpu_s / c.pages, c.cpu_s / c.wall_s) for c in crawls),
                    strict=True,
                )
            )
            print(f"{cycle:9} {name:14} {speed:7.0f}   {cpu_ms:11.2f}   {busy:8.2f}")
    alone = (
        min(c.cpu_s / c.wall_s for measured in pairs.values() for pair in measured for c in pair) >= CPU_BOUND
    )
    clock, of = ("wall clock", attrgetter("wall_s")) if alone else ("CPU time", attrgetter("cpu_s"))
    if not alone:
        print(f"Other processes had this machine's cores (CPU/wall below {CPU_BOUND}): CPU time decides.")
    holds = True
    for cycle, measured in pairs.items():
        ratios = sorted(printed(of(one) / of(other), ".2f") for one, other in measured)
        spread = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{cycle}, pair by pair: {spread} by {clock}")
        (base, name), target = PAIRS[cycle]
        figure, ratio = f"pages/s, {name} / {base}, {cycle}", statistics.median(ratios)
        if target is None:
            print(f"{figure}: {ratio:.2f}")
        else:
            holds &= verdict(figure, ratio, target, at_least=True)
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
