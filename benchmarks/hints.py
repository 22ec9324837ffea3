"""Value of hints by their accuracy, and the cost of reading them.

    python -m benchmarks.hints [--pages 500] [--seeds 5]

*Value*: five sites whose pages change at rates of their own; a sitemap each: one true, one that dates all
pages now, one that never moves, one whose dates appear up to 5 cycles late, one without dates. A crawl with
a budget of 5% by ``hinted`` and one by ``p`` (the same without hints) are replayed; the pages of each site
are ranked by either score in either crawl's state, and that ranking's NDCG is the one of the table, from
cycle 6 after the warm-up on. Last: changes per visit of the whole crawl.

*Cost*: processor time of reading a sitemap of 50,000 known URLs, claims and all, by that of Scrapy's own
reader alone; medians of pairs.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from typing import Final

import numpy as np
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.http import XmlResponse
from scrapy.settings import Settings as ScrapySettings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.sitemap import Sitemap

from benchmarks.common import exit_code, machine, median_ratio, printed, verdict
from scrapy_gp4c.arrays import Array
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.hints import HintReader
from scrapy_gp4c.crawling.requests import Rebuilder
from scrapy_gp4c.page_state.claims import DATED_CLAIM
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import open_store
from training.histories.growth import NO_FINDER, GrowthHistory
from training.histories.history import ChangeHistory
from training.replaying.growth import HUBS, GrowthCrawl, GrowthReplay

SITES: Final = ("true", "always now", "never moves", "late", "none")
SCORES: Final = ("hinted", "p")
WARMUP, SETTLED, BUDGET = 2, 6, 0.05
URLS: Final = 50_000


def web_of(seed: int, pages: int, cycles: int) -> GrowthHistory:
    """Random web of `SITES` with ``pages`` pages each, and the claims of their sitemaps by cycle."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(len(SITES)), pages)
    changed = rng.random((cycles, len(site))) < rng.beta(0.4, 3.0, len(site))
    claims = []
    for name, cycle, page in (
        (SITES[site[page]], cycle, page) for cycle in range(cycles + 1) for page in range(len(site))
    ):
        moved = cycle > 0 and changed[cycle - 1, page]
        if cycle == 0 and name != "none":
            claims.append((0, page, 0, 0))
        elif name == "always now" or (name == "true" and moved):
            claims.append((cycle, page, 0, cycle))
        elif name == "late" and moved:
            claims.append((cycle + (late := int(rng.integers(1, 6))), page, 0, cycle + late))
    dated = np.array([claim for claim in claims if claim[0] <= cycles], DATED_CLAIM)
    history = ChangeHistory(changed, site.astype(np.int32), site_names=list(SITES))
    none = np.zeros(len(site), np.int32)
    return GrowthHistory(history, none, none + NO_FINDER, dated)


def ndcg(scores: Array, outdated: Array, visits: int) -> float:
    """NDCG of the ``visits`` pages of highest score; NaN where none is outdated."""
    weights = 1.0 / np.log2(np.arange(visits) + 2.0)
    best = weights[: min(visits, int(outdated.sum()))].sum()
    hits = outdated[np.argsort(-scores, kind="stable")[:visits]]
    return float((weights * hits).sum() / best) if best else float("nan")


def crawled(grown: GrowthHistory, score: str) -> tuple[dict[tuple[str, str], float], float]:
    """Mean NDCG by site and score in the states of a crawl, and its changes per visit."""
    crawl = GrowthCrawl(BUDGET, functions.load(score), table.load("top_k"), functions.load(HUBS), 0.0, WARMUP)
    history = grown.history
    web = GrowthReplay(grown, crawl)
    until = np.vstack([np.zeros(history.pages, int), np.cumsum(history.changed, axis=0)])
    everyone = np.arange(history.pages, dtype=np.uint32)
    ndcgs: dict[tuple[str, str], list[float]] = {(site, one): [] for site in SITES for one in SCORES}
    visited = changed = 0.0
    for cycle in range(1, history.cycles + 1):
        web.open(cycle)
        values = terminals.compute(SCORES, web.rows(everyone).state, cycle)
        outdated = until[cycle] > until[web.state["last_cycle"], everyone]
        visits = web.cycle(cycle)
        if cycle < WARMUP + SETTLED:
            continue
        visited, changed = visited + visits[0], changed + visits[1]
        for number, site in enumerate(SITES):
            rows = history.site == number
            for one in SCORES:
                ndcgs[site, one].append(ndcg(values[one][rows], outdated[rows], int(BUDGET * rows.sum())))
    return {key: float(np.nanmean(values)) for key, values in ndcgs.items()}, changed / max(1.0, visited)


def compare_ndcg(pages: int, cycles: int, seeds: int) -> bool:
    """Print the NDCG of rankings with and without hints, by sitemap; return whether the targets hold."""
    values_of: dict[tuple[str, str], list[float]] = {}
    rates: dict[str, list[float]] = {score: [] for score in SCORES}
    for seed in range(seeds):
        grown = web_of(seed, pages, cycles)
        for score in SCORES:
            site_means, rate = crawled(grown, score)
            rates[score].append(rate)
            for key, value in site_means.items():
                values_of.setdefault(key, []).append(value)
    means = {key: float(np.mean(values)) for key, values in values_of.items()}
    print("| sitemap | NDCG by `hinted` | by `p` | ratio |")
    print("|---|---|---|---|")
    ratios = {}
    for site in SITES:
        by_hints, by_rate = (means[site, score] for score in SCORES)
        ratios[site] = printed(by_hints / by_rate, ".3f")
        print(f"| {site} | {by_hints:.3f} | {by_rate:.3f} | {ratios[site]:.3f} |")
    rate = {score: float(np.mean(values)) for score, values in rates.items()}
    hinted, unhinted = rate.values()
    print(f"| changes / visit, all | {hinted:.3f} | {unhinted:.3f} | {hinted / unhinted:.3f} |")
    holds = verdict("true sitemap, NDCG by that without hints", ratios["true"], 1.5, at_least=True)
    least = min(ratios[site] for site in SITES[1:])
    return verdict("the worst of the others", least, 0.99, at_least=True) and holds


class Listed(Spider):
    """Spider that reads a sitemap."""

    name = "listed"


def cost(runs: int) -> bool:
    """Print the ratio of processor times; return whether the target holds."""
    urls = [f"http://example.com/section/{number % 97}/article-{number}.html" for number in range(URLS)]
    dated = (
        f"<url><loc>{url}</loc><lastmod>2026-05-{number % 28 + 1:02}"
        f"T10:{number % 60:02}:{number // 60 % 60:02}Z</lastmod></url>"
        for number, url in enumerate(urls)
    )
    xml = "http://www.sitemaps.org/schemas/sitemap/0.9"
    body = f'<?xml version="1.0"?><urlset xmlns="{xml}">{"".join(dated)}</urlset>'.encode()
    crawler = Crawler(Listed)
    crawler.request_fingerprinter = RequestFingerprinter()
    rebuilder = Rebuilder(crawler, Listed(), Credentials(()))
    response = XmlResponse("http://example.com/sitemap.xml", body=body)
    with tempfile.TemporaryDirectory() as folder, open_store(folder) as store:
        store.add_pages(
            (int(key), {"url": url}) for key, url in zip(rebuilder.url_keys(urls), urls, strict=True)
        )
        stats = MemoryStatsCollector(crawler)
        reader = HintReader(Cycle(store, Settings.load(ScrapySettings()), stats), rebuilder, Listed())
        pairs = []
        for _ in range(runs):
            start = time.process_time()
            reader.read(response, None, asyncio.run(reader.read_file(response)))
            store.commit()
            middle = time.process_time()
            assert len([entry["loc"] for entry in Sitemap(body)]) == URLS
            pairs.append((middle - start, time.process_time() - middle))
        noted = stats.get_value("gp4c/hints/claims")
        assert noted == runs * URLS, noted
    print(f"Scrapy's reader: {np.median([scrapy for _, scrapy in pairs]):.2f} s of processor time")
    return verdict(
        "reading a sitemap and its claims, by Scrapy's reader", median_ratio(pairs), 1.5, at_least=False
    )


CYCLES = 40
RUNS = 15
"""Number of pairs of readings of the sitemap."""


def main() -> int:
    """Print value and cost of hints; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=500, help="of each site (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="webs (default: %(default)s)")
    options = parser.parse_args()
    print(machine())
    holds = compare_ndcg(options.pages, CYCLES, options.seeds)
    return exit_code(cost(RUNS), holds)


if __name__ == "__main__":
    sys.exit(main())
