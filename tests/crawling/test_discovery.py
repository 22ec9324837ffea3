"""Discovery in real crawls: hubs are visited for what they bring, new pages fetched when they appear."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider

from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Listed, Site, crawl, html, outcomes, stats

PAGES, NEW_PER_CYCLE = 100, 2


class FromSitemap(SitemapSpider):
    """Visits what the sitemap names."""

    name = "sitemap"

    def parse(self, response: Any) -> None:
        """Want nothing."""


class FromStart(CrawlSpider):
    """Follows the links of the start page."""

    name = "start"
    rules = (Rule(LinkExtractor(), callback="want_nothing"),)

    def want_nothing(self, response: Any) -> None:
        """Want nothing."""


def grow(site: Site, cycle: int) -> None:
    """A site of 100 pages that gains two in every cycle; the newest are listed first."""
    paths = [f"/page/{number}" for number in range(PAGES + NEW_PER_CYCLE * (cycle - 1))]
    for number, path in enumerate(paths):
        version = cycle if number % 7 == 0 else 1
        site.pages[path] = html(f"page {number} tells its story of {number * 37} words, in version {version}")
    site.pages["/"] = html("all pages", paths[::-1], title=f"{len(paths)} pages")
    urls = "".join(f"<url><loc>{site.url(path)}</loc></url>" for path in paths[::-1])
    site.pages["/sitemap.xml"] = (
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'.encode()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("spider", "cycles"), [(FromSitemap, 30), (FromStart, 9)])
async def test_every_new_page_is_fetched_in_the_cycle_in_which_it_appears(
    spider: Any, cycles: int, site: Site, store_path: Path
) -> None:
    """100 pages, two new ones a cycle, a budget of 5%: whatever lists them is visited in every cycle."""
    spider.sitemap_urls, spider.start_urls = [site.url("/sitemap.xml")], [site.url("/")]
    for cycle in range(1, cycles + 1):
        grow(site, cycle)
        crawler = await crawl(spider, store_path)
        newest = [f"/page/{PAGES + NEW_PER_CYCLE * (cycle - 1) - n}" for n in range(1, NEW_PER_CYCLE + 1)]
        page_outcomes = outcomes(store_path, cycle)
        assert [page_outcomes.get(path) for path in newest] == [["first"]] * NEW_PER_CYCLE, cycle
    assert stats(crawler)["new_pages"] == NEW_PER_CYCLE
    with Store(store_path) as store:
        assert store.verify() == []
        record = store.cycles()[-1]
        assert (record["plan"]["hub"], record["new"], record["new_by_hubs"]) == (1, 2, 2)
        (visits,) = [visits for number, visits in store.visits() if number == cycles]
        assert "hub" in [KINDS[kind] for kind in visits["kind"][:8]]  # of the first that are under way


@pytest.mark.slow
async def test_start_requests_that_bring_nothing_are_pages_like_any(site: Site, store_path: Path) -> None:
    """A list of 200 URLs, budget 5%: their warm-up tells that no share of it is for hubs."""
    Listed.start_urls = [site.url(f"/list/{number}") for number in range(200)]
    site.pages = {f"/list/{number}": f"page {number} of a list" for number in range(200)}
    for _ in range(6):
        await crawl(Listed, store_path, {"CONCURRENT_REQUESTS_PER_DOMAIN": 64})
    with Store(store_path) as store:
        plans = [record["plan"] for record in store.cycles()]
        assert [plan["hub"] for plan in plans] == [0] * 6
        assert [plan["ranked"] for plan in plans] == [0, 0, 0, 10, 10, 10]


class Linked(Spider):
    """Follows links with meta of other requests, and asks by POST."""

    name = "linked"

    def parse(self, response: Any) -> Iterator[Any]:
        """Follow the links; the API answers with further ones."""
        for link in response.css("a::attr(href)").getall():
            if link.startswith("/api"):
                yield Request(response.urljoin(link), method="POST", callback=self.parse)
            else:
                yield response.follow(link, meta={"gp4c_found_by": 99, "is_start_request": True})


async def test_a_new_page_knows_who_found_it(site: Site, store_path: Path) -> None:
    """Start requests nobody; else the page asked for: whatever it redirects to, through a POST, on a list."""

    def moved(request: Any) -> bytes:
        request.redirect(b"/target")
        return b""

    site.pages = {
        "/": html("start", ["/moved", "/list", "/api"]),
        "/moved": moved,
        "/target": html("target", ["/by-moved"]),
        "/list": html("list", ["/list?page=2", "/by-list", "/"]),
        "/list?page=2": html("list, further", ["/by-second"]),
        "/api": html("answer", ["/by-api"]),
    }
    for name in ("moved", "list", "second", "api"):
        site.pages[f"/by-{name}"] = html(f"found by {name}")
    Linked.start_urls = [site.url("/")]
    await crawl(Linked, store_path)
    with Store(store_path) as store:
        paths = ["/" + request["url"].split("/", 3)[3] for request in store.requests(range(store.pages))]
        rows = [store.page(page) for page in range(store.pages)]
        found_by = {
            path: "start" if row.found_by == START else paths[row.found_by - 1]
            for path, row in zip(paths, rows, strict=True)
        }
        assert {row.entered for row in rows} == {1}
    assert found_by == {
        "/": "start",
        "/moved": "/",
        "/list": "/",
        "/by-moved": "/moved",
        "/list?page=2": "/list",
        "/by-list": "/list",
        "/by-second": "/list?page=2",
        "/by-api": "/",
    }


async def test_urls_that_are_too_long_are_dropped_and_counted(site: Site, store_path: Path) -> None:
    """Scrapy's own limit, 2,083 characters, stands before the store."""
    site.pages = {"/": html("start", ["/a", "/b?" + "x" * 2_083])}
    Linked.start_urls = [site.url("/")]
    crawler = await crawl(Linked, store_path)
    assert crawler.stats is not None
    assert crawler.stats.get_value("urllength/request_ignored_count") == 1
    with Store(store_path) as store:
        assert store.pages == 2
