"""New pages found in real crawls of a loopback site, by share of the budget for discovery.

    python -m benchmarks.discovery [--cycles 30]

- *sitemap*, *start page*: 100 pages, two new ones in every cycle, budget 5%; a SitemapSpider, a CrawlSpider.
  A seventh of the pages changes in every cycle;
- *list*: `LISTED` start URLs that link to nothing, whose pages change at rates of their own, budget 5%.

For each share: new pages of cycle 2 and later that were fetched in the cycle in which they appeared, the mean
delay in cycles (pages never fetched count until the end), visits for discovery from cycle 6 on as a share of
the budget, and changes per ranked visit. Every row is a process of its own.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Answer, address_of, in_fresh_process, machine, serve
from scrapy_gp4c.page_state.outcomes import CHANGED, KINDS
from scrapy_gp4c.store.opening import open_store

PAGES, NEW = 100, 2

LISTED = 2000
"""Number of pages in the list of start URLs."""


class Web:
    """A site in a thread; ``cycle`` is set from outside."""

    def __init__(self) -> None:
        """Start the server."""
        self.cycle = 1
        self.rate = np.random.default_rng(7).beta(0.5, 2.0, LISTED)
        (server,) = serve(lambda host, path: Answer(self.page(path).encode()))
        self.url = address_of(server)

    def page(self, path: str) -> str:
        """Text of a page in this cycle."""
        numbers = range(PAGES + NEW * (self.cycle - 1))
        if path.endswith(".xml"):
            urls = "".join(f"<url><loc>{self.url}/page/{n}</loc></url>" for n in reversed(numbers))
            return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'
        if path == "/":
            links = "".join(f'<a href="/page/{n}">page {n}</a> ' for n in reversed(numbers))
            return f"<html><body><h1>{len(numbers)} pages</h1>{links}</body></html>"
        number = int(path.rpartition("/")[2])
        version = self.cycle if number % 7 == 0 else 1
        if path.startswith("/list/"):
            draws = np.random.default_rng(number).random(self.cycle)
            version = int((draws < self.rate[number]).sum())
        text = f"page {number} tells what is new in version {version}. " * 9
        return f"<html><body><p>{text}</p></body></html>"


def crawls(kind: str, share: float, cycles: int, folder: str) -> None:
    """Run all cycles of one row of the table, in a fresh process."""
    from scrapy import Spider
    from scrapy.crawler import CrawlerRunner
    from scrapy.linkextractors import LinkExtractor
    from scrapy.spiders import CrawlSpider, Rule, SitemapSpider
    from scrapy.utils.reactor import install_reactor

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor
    from twisted.internet.defer import inlineCallbacks

    web = Web()

    class FromSitemap(SitemapSpider):
        name = "sitemap"
        sitemap_urls = (f"{web.url}/sitemap.xml",)

        def parse(self, response: Any) -> None:
            """Yield nothing."""

    class FromStart(CrawlSpider):
        name = "start page"
        start_urls = (f"{web.url}/",)
        rules = (Rule(LinkExtractor(), callback="want"),)

        def want(self, response: Any) -> None:
            """Yield nothing."""

    class FromList(Spider):
        name = "list"
        start_urls = tuple(f"{web.url}/list/{number}" for number in range(LISTED))

        def parse(self, response: Any) -> None:
            """Yield nothing."""

    spider = {"sitemap": FromSitemap, "start page": FromStart, "list": FromList}[kind]
    settings = {
        "ADDONS": {"scrapy_gp4c.Addon": 500},
        "GP4C_STORE": folder,
        "GP4C_DISCOVERY": share,
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
    }

    @inlineCallbacks
    def run() -> Any:
        for web.cycle in range(1, cycles + 1):
            yield CrawlerRunner(settings).crawl(spider)
        reactor.stop()

    reactor.callWhenRunning(run)
    reactor.run()


def row(kind: str, share: float, cycles: int) -> str:
    """Crawl a site of this kind with a share for discovery; return a row of the table."""
    with tempfile.TemporaryDirectory() as directory:
        folder = str(Path(directory, "store"))
        in_fresh_process(crawls, kind, share, cycles, folder)
        with open_store(folder, readonly=True) as store:
            records = store.cycles()
            urls = [request["url"] for request in store.requests(range(store.pages))]
            first: dict[int, int] = {}
            ranked = changed = 0
            for cycle, visits in store.visits():
                for page in visits["page"].tolist():
                    first.setdefault(page, cycle)
                chosen = visits[visits["kind"] == KINDS.index("ranked")]
                ranked += len(chosen)
                changed += int((chosen["outcome"] == CHANGED).sum())
    fetched = {int(url.rpartition("/")[2]): first[page] for page, url in enumerate(urls) if "/page/" in url}
    born = {number: 2 + (number - PAGES) // NEW for number in range(PAGES, PAGES + NEW * (cycles - 1))}
    delays = [fetched.get(number, cycles + 1) - cycle for number, cycle in born.items()]
    plans = [record["plan"] for record in records[5:]]
    hubs = sum(plan["hub"] for plan in plans) / sum(plan["hub"] + plan["budget"] for plan in plans)
    at_once = "-" if kind == "list" else f"{np.mean(np.array(delays) == 0):.0%}"
    delay = "-" if kind == "list" else f"{np.mean(delays):.2f}"
    rate = f"{changed / ranked:.3f} ({changed} of {ranked})"
    return f"| {kind} | {share:g} | {at_once} | {delay} | {hubs:.1%} | {rate} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=30, help="cycles of a row (default: %(default)s)")
    options = parser.parse_args()
    print(machine())
    print(
        "| spider | discovery | found at once | mean delay | hubs, of the budget | changes / ranked visit |"
    )
    print("|---|---|---|---|---|---|")
    for kind in ("sitemap", "start page", "list"):
        for share in (0.0, 0.1):
            print(row(kind, share, options.cycles), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
