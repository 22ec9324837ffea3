"""Do 100 best pages on one slow host hold up the pages of the other hosts?

    python -m benchmarks.politeness [--delay-s 0.2] [--runs 2] [--policy top_k]

A plan of 500 pages: the 100 of the highest score lie on one host that may be asked once per ``delay``
(``--delay-s 1``: as in a polite crawl), 10 each on 40 more hosts with a delay of 0.1 s (a slow machine needs
more, or the others wait for its processor). The same pages are crawled with stock Scrapy, all in its queue
before the first one is fetched. The figure is the time until the last page of the 40 other hosts has arrived,
as a ratio of both, measured in pairs, each crawl in a process of its own. ``--policy gsb`` (or ``cb``,
``db``, ...) samples the slow host too, whose answers come late. Every page has changed, so that the policy
visits the pages near each sample. Clusters go across hosts.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import exit_code, in_fresh_process, machine, median_ratio, printed, verdict
from benchmarks.server import server
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.store.records import StoredGroups

TARGET = 1.2
SLOW_PAGES = 100
PAGES_PER_HOST = 10
CLUSTERS = 10
OTHER_DELAY_S = 0.1
"""Delay of the other hosts: with a shorter one they would wait for the CPU."""
SLOW_HOST, *OTHER_HOSTS = (f"127.0.0.{number}" for number in range(1, 42))


class Crawled(NamedTuple):
    """Times of one crawl of all pages."""

    others_s: float
    """Time until the last page of the other hosts has arrived."""
    total_s: float


def urls(port: int) -> list[str]:
    """Return the pages, those of the slow host first."""
    slow = [f"http://{SLOW_HOST}:{port}/{number}" for number in range(SLOW_PAGES)]
    others = [f"http://{host}:{port}/{number}" for number in range(PAGES_PER_HOST) for host in OTHER_HOSTS]
    return slow + others


def crawl(port: int, delays_s: tuple[float, float], store: str | None, policy: str) -> Crawled:
    """Crawl all pages in a fresh process, with the add-on if ``store`` is its path.

    ``delays_s``: of the slow host, and of the others.
    """
    import scrapy
    from scrapy import signals
    from scrapy.crawler import CrawlerProcess

    import scrapy_gp4c.scheduler  # noqa: F401 (its imports are not part of the crawl)

    arrived: dict[str, list[float]] = {"slow": [], "others": []}

    class PageSpider(scrapy.Spider):
        name = "pages"

        def parse(self, response: Any) -> None:
            arrived["slow" if f"//{SLOW_HOST}:" in response.url else "others"].append(perf_counter())

    settings: dict[str, Any] = {
        "DOWNLOAD_SLOTS": {
            host: {"delay": delays_s[host != SLOW_HOST], "concurrency": 8, "jitter": 0}
            for host in (SLOW_HOST, *OTHER_HOSTS)
        },
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
    }
    if store is not None:
        _remember(store, urls(port), PageSpider)
        settings |= {
            "ADDONS": {"scrapy_gp4c.Addon": 500},
            "GP4C_STORE": store,
            "GP4C_BUDGET": 1.0,
            "GP4C_WARMUP_VISITS": 1,
            "GP4C_POLICY": policy,
        }
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(PageSpider)

    def queue_all() -> None:
        assert crawler.engine is not None
        for url in urls(port):
            crawler.engine.crawl(scrapy.Request(url))

    if store is None:
        crawler.signals.connect(queue_all, signals.spider_opened)
    started = perf_counter()
    process.crawl(crawler)
    process.start()
    counts = len(arrived["slow"]), len(arrived["others"])
    if counts != (SLOW_PAGES, PAGES_PER_HOST * len(OTHER_HOSTS)):
        raise RuntimeError(f"(slow host, other hosts) sent {counts} pages")
    return Crawled(max(arrived["others"]) - started, max(max(times) for times in arrived.values()) - started)


def _remember(path: str, pages: list[str], spider_class: Any) -> None:
    """Fill a store in which the slow host's pages changed at their second visit, and no others did."""
    from scrapy import Request
    from scrapy.utils.request import fingerprint

    from scrapy_gp4c.crawling.requests import page_key, to_stored
    from scrapy_gp4c.store.lmdb_store.store import Store
    from scrapy_gp4c.store.records import NewVisit

    spider = spider_class()
    requests = [Request(url, callback=spider.parse) for url in pages]
    with Store(path) as store:
        store.add_pages((page_key(fingerprint(r)), to_stored(r, spider)) for r in requests)
        for cycle in (1, 2):
            store.begin_cycle({"started": time.time()})
            for page, url in enumerate(pages):
                changed = f"//{SLOW_HOST}:" in url
                outcome = "first" if cycle == 1 else "changed" if changed else "unchanged"
                store.record(
                    NewVisit(page=page, time=time.time(), kind="other", outcome=outcome, fingerprint=page)
                )
            store.finish_cycle({"finished": time.time()})
        store.put_clusters(_across_hosts(len(pages)))


def _across_hosts(pages: int) -> StoredGroups:
    """Clusters that have pages of every host."""
    nobody = np.empty(0, np.intp)
    order = np.stack([np.roll(np.arange(CLUSTERS, dtype=np.int32), -cluster) for cluster in range(CLUSTERS)])
    number = np.arange(pages, dtype=np.int32) % CLUSTERS
    groups = PageGroups(number, order, Links(nobody, nobody, pages), "")
    return StoredGroups(groups, np.zeros(pages, np.uint8))


def main() -> int:
    """Print times and their ratio; return 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--delay-s", type=float, default=0.2, help="delay of the slow host (default: %(default)s)"
    )
    parser.add_argument("--runs", type=int, default=2, help="pairs of crawls (default: %(default)s)")
    parser.add_argument("--policy", default="top_k", help="what plans the crawl (default: %(default)s)")
    arguments = parser.parse_args()
    delays_s = arguments.delay_s, OTHER_DELAY_S
    print(machine())
    pairs: list[tuple[Crawled, Crawled]] = []
    with server(SLOW_PAGES, (SLOW_HOST, *OTHER_HOSTS)) as port, tempfile.TemporaryDirectory() as directory:
        for run in range(arguments.runs):
            store = str(Path(directory, f"run-{run}"))
            stock, ours = (
                in_fresh_process(crawl, port, delays_s, path, arguments.policy) for path in (None, store)
            )
            pairs.append((stock, ours))
    print(f"\n{arguments.policy}: {SLOW_PAGES} pages on a host with {delays_s[0]} s of delay, ", end="")
    print(f"others {delays_s[1]} s; medians of {len(pairs)}")
    print("crawl     other hosts done   all done")
    for name, crawls in zip(("stock", "add-on"), zip(*pairs, strict=True), strict=True):
        others_s, total_s = (statistics.median(times) for times in zip(*crawls, strict=True))
        print(f"{name:8}  {others_s:14.2f} s   {total_s:6.2f} s")
    total = median_ratio([(ours.total_s, stock.total_s) for stock, ours in pairs])
    ratios = sorted(printed(ours.others_s / stock.others_s, ".2f") for stock, ours in pairs)
    print(
        f"all pages: {total:.2f} of stock; other hosts, pair by pair: {', '.join(f'{r:.2f}' for r in ratios)}"
    )
    ratio = statistics.median(ratios)
    return exit_code(
        verdict("time of the other hosts with the add-on / stock", ratio, TARGET, at_least=False)
    )


if __name__ == "__main__":
    sys.exit(main())
