"""Hints: claims of sitemaps, feeds, robots.txt and headers, read from responses that pass."""

import asyncio
import gzip
import json
import logging
import random
import signal
import time
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.spiders import SitemapSpider
from twisted.internet.defer import Deferred

from scrapy_gp4c.crawling.hints import NamedSitemaps, span_of
from scrapy_gp4c.page_state.claims import WHAT
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.claims import Oracle
from tests.support.growing import brought, columns
from tests.support.killing import LIST, PAGES, Recorded, Web, Worker, is_changing
from tests.support.loopback import Listed, Site, crawl, html, path_of, stats

TRUE = [f"/true/{number}" for number in range(6)]
SILENT = [f"/silent/{number}" for number in range(3)]
XML = "http://www.sitemaps.org/schemas/sitemap/0.9"


class SitemapListed(SitemapSpider):
    """Visits what the sitemaps name."""

    name = "listed"

    def parse(self, response: Any) -> None:
        """Want nothing."""


def sitemap(entries: dict[str, float | str | None]) -> bytes:
    """A sitemap: URL -> time, s since 1970, or text of its date."""

    def dated(when: float | str | None) -> str:
        text = formatdate(when, usegmt=True) if isinstance(when, float) else when
        return "" if text is None else f"<lastmod>{text}</lastmod>"

    urls = "".join(f"<url><loc>{url}</loc>{dated(when)}</url>" for url, when in entries.items())
    return f'<urlset xmlns="{XML}">{urls}</urlset>'.encode()


def stored_hints(path: Path) -> dict[str, dict[str, int]]:
    """Path of a page -> its columns of claims."""
    with Store(path, readonly=True) as store:
        assert store.verify() == []
        found = {}
        for first, block in store.blocks():
            for row in range(len(block["n"])):
                url = store.request(first + row)["url"]
                found[path_of(url)] = {name: block[name][row].item() for name in hints.COLUMNS}
    return found


def claims(path: Path) -> dict[int, list[tuple[str, str, int]]]:
    """Cycle -> path, kind, value of the claims that were new in it."""
    with Store(path, readonly=True) as store:
        results: dict[int, list[tuple[str, str, int]]] = {}
        for cycle, rows in store.claims_of_cycles():
            for row in rows:
                url = store.request(int(row["page"]))["url"]
                results.setdefault(cycle, []).append(
                    (path_of(url), hints.KINDS[row["kind"]], int(row["value"]))
                )
    return {cycle: sorted(rows) for cycle, rows in results.items()}


async def test_a_true_sitemap_is_believed(site: Site, store_path: Path) -> None:
    """A page that it dates after the last visit is visited before others; it claims what was new, and no
    more."""
    changed_s = dict.fromkeys(TRUE, 1.0e9)
    version = dict.fromkeys([*TRUE, *SILENT], 1)

    class Asking(Listed):
        name = "asking"

        async def start(self) -> Any:
            yield Request(site.url("/sitemap.xml"), meta={"gp4c": False})
            for path in (*TRUE, *SILENT):
                yield Request(site.url(path))

    settings = {
        "GP4C_SCORE_FUNCTION": "hinted",
        "GP4C_POLICY": "top_k",
        "GP4C_BUDGET": 2,
        "GP4C_WARMUP_VISITS": 3,
    }
    for cycle in range(1, 9):
        if cycle > 1:
            path = TRUE[cycle % 2]
            changed_s[path] = time.time() - 0.001
            version[path] += 1
        for path, number in version.items():
            site.pages[path] = html(f"{path} tells {'another tale ' * number} in version {number}")
        entries: dict[str, float | str | None] = {site.url(path): None for path in SILENT}
        entries |= {
            site.url(path): when if when > 1.1e9 else "2001-09-09" for path, when in changed_s.items()
        }
        exact = {
            url: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) + f"{when % 1:.6f}"[1:] + "Z"
            for url, when in entries.items()
            if isinstance(when, float)
        }
        site.pages["/sitemap.xml"] = sitemap({**entries, **exact})
        site.log.clear()
        crawler = await crawl(Asking, store_path, settings)
        if cycle > 5:
            assert TRUE[(cycle - 1) % 2] in site.fetched(), "claimed in the cycle before"
            assert stats(crawler)["hints/claims"] == len(TRUE)
    page_claims = claims(store_path)
    first = {row[:2] for cycle in (1, 2) for row in page_claims[cycle] if row[1] == "sitemap"}
    assert first == {(path, "sitemap") for path in TRUE}
    assert [row[:2] for row in page_claims[7] if row[1] == "sitemap"] == [(TRUE[1], "sitemap")]
    assert all(not columns["claims"] for path, columns in stored_hints(store_path).items() if path in SILENT)
    with Store(store_path, readonly=True) as store:
        (row,) = store.trust()
    counts = row["counts"][hints.KINDS.index("sitemap")]
    assert counts[1, 1] > counts[1, 0]
    assert counts[0, 0] > 5 * counts[0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
async def test_a_large_sitemap_is_read_beside_the_reactor(site: Site, store_path: Path, packed: bool) -> None:
    """Its claims are noted with its visit; meanwhile no turn of the reactor takes long."""
    urls = [site.url(f"/{number}") for number in range(30_000)]
    urls[17] = site.url("/page")
    body = sitemap(dict.fromkeys(urls, "2020-01-01"))
    path = "/sitemap.xml.gz" if packed else "/sitemap.xml"
    site.pages |= {path: gzip.compress(body) if packed else body, "/page": html("words of a page")}
    Listed.start_urls = [site.url("/page"), site.url(path)]
    longest_s, stop = 0.0, False

    async def watch() -> None:
        nonlocal longest_s
        while not stop:
            before_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - before_s)

    await crawl(Listed, store_path)
    watching = asyncio.ensure_future(watch())
    crawler = await crawl(Listed, store_path)
    stop = True
    await Deferred.fromFuture(watching)
    assert stats(crawler)["hints/claims"] == 1
    assert stats(crawler)["hints/unknown_urls"] == 29_999
    assert stored_hints(store_path)["/page"]["claims"] != 0
    assert longest_s < 0.25


async def test_headers_are_heard(site: Site, store_path: Path) -> None:
    """Last-Modified is the page's newest claim, max-age says for how many cycles it stays true."""

    def page(request: Any) -> bytes:
        request.setHeader("Last-Modified", "Tue, 03 Feb 2026 04:05:06 GMT")
        request.setHeader("Cache-Control", "public, max-age=100000")
        return html("a page with headers").encode()

    site.pages |= {"/a": page, "/b": html("a page without")}
    Listed.start_urls = [site.url("/a"), site.url("/b")]
    for _ in range(3):
        await crawl(Listed, store_path)
    result = stored_hints(store_path)
    modified = 1 << hints.KINDS.index("modified")
    assert result["/a"]["claims"] == modified, "an old date is no unseen change"
    assert result["/a"]["fresh"] == hints.LONGEST + 1
    assert (result["/b"]["claims"], result["/b"]["fresh"]) == (0, 0)


@pytest.mark.parametrize(
    ("headers", "span_s"),
    [
        ({}, None),
        ({"Cache-Control": "private"}, None),
        ({"Cache-Control": "max-age=60"}, 60.0),
        ({"Cache-Control": "s-maxage=5, Max-Age = 60"}, 60.0),
        ({"Cache-Control": ["public", "max-age=60"]}, 60.0),
        ({"Cache-Control": "max-age=60, no-store"}, 0.0),
        ({"Cache-Control": "max-age=-1"}, None),
        ({"Expires": "0"}, 0.0),
        ({"Expires": "Tue, 03 Feb 2026 05:00:00 GMT", "Date": "Tue, 03 Feb 2026 04:00:00 GMT"}, 3600.0),
        ({"Expires": "Tue, 03 Feb 1970 05:00:00 GMT"}, 0.0),
        ({"Cache-Control": "max-age=7", "Expires": "0"}, 7.0),
    ],
)
def test_for_how_long_an_answer_stays_true(headers: dict[str, Any], span_s: float | None) -> None:
    """RFC 9111, section 4.2.1: max-age before Expires."""
    assert span_of(Response("http://h/", headers=headers)) == span_s


async def test_only_the_own_site_is_spoken_for_unless_robots_name_the_sitemap(store_path: Path) -> None:
    """A sitemap of one host cannot claim anything of another's pages; names beyond the limits are counted."""
    site = Site(hosts=("127.0.0.1", "127.0.0.2"))
    ours, other = site.url("/own"), site.url("/other", "127.0.0.2")
    site.pages |= {"/own": html("one page"), "/other": html("another page"), "/robots.txt": "User-agent: *"}
    site.pages["/sitemap.xml"] = sitemap({ours: "2026-01-01", other: "2026-01-01"})
    everything = {"GP4C_BUDGET": 1.0}
    SitemapListed.sitemap_urls = (site.url("/sitemap.xml"),)
    await crawl(SitemapListed, store_path, everything)
    crawler = await crawl(SitemapListed, store_path, {"ROBOTSTXT_OBEY": True, **everything})
    assert stats(crawler)["hints/foreign_urls"] == 1
    assert [columns["claims"] for columns in stored_hints(store_path).values()] == [0, 1, 0]
    names = f"Sitemap: {site.url('/sitemap.xml')}\nSitemap: {site.url('/long' + 'g' * 3_000)}\n"
    site.pages["/robots.txt"] = f"User-agent: *\n{names}"
    SitemapListed.sitemap_urls = (site.url("/robots.txt", "127.0.0.2"),)
    crawler = await crawl(SitemapListed, store_path, everything)
    assert stats(crawler)["hints/names_left_out"] == 1
    SitemapListed.sitemap_urls = (site.url("/sitemap.xml"),)
    crawler = await crawl(SitemapListed, store_path, everything)
    assert "hints/foreign_urls" not in stats(crawler)
    assert stored_hints(store_path)["/other"]["claims"] == 1
    await site.close()


BAD = {
    "year 0": "0000-01-01T00:00:00Z",
    "words": "the day before yesterday",
    "future": "9999-12-31T23:59:59Z",
    "future in a zone": "2999-01-01T00:00:00+14:00",
    "long ago": "0001-01-01",
    "no zone": "2026-01-01T00:00:00",
}


async def test_bad_dates_are_counted_and_a_future_one_is_now(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for all; the other claims of the file count."""
    paths = {f"/{number}": text for number, text in enumerate(BAD.values())}
    site.pages |= {path: html(f"page {path}") for path in paths}
    site.pages["/sitemap.xml"] = sitemap({site.url(path): text for path, text in paths.items()})
    SitemapListed.sitemap_urls = (site.url("/sitemap.xml"),)
    await crawl(SitemapListed, store_path)
    caplog.clear()
    crawler = await crawl(SitemapListed, store_path)
    assert stats(crawler)["hints/unreadable_dates"] == 2
    assert stats(crawler)["hints/claims"] == 4
    warnings = [record for record in caplog.records if "is no date" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].levelno == logging.WARNING
    result = stored_hints(store_path)
    assert [result[path]["claims"] & 1 for path in paths] == [0, 0, 1, 1, 1, 1]
    with Store(store_path, readonly=True) as store:
        assert store.last_cycle == 2


async def test_claims_of_unknown_pages_leave_nothing_behind(site: Site, store_path: Path) -> None:
    """However many there are: they are counted, and neither store nor log grows."""
    site.pages |= {"/sitemap.xml": sitemap({site.url(f"/{n}"): "2026-01-01" for n in range(1_500)})}
    Listed.start_urls = [site.url("/sitemap.xml")]
    for _ in range(2):
        crawler = await crawl(Listed, store_path)
        assert stats(crawler)["hints/unknown_urls"] == 1_500
    with Store(store_path, readonly=True) as store:
        assert store.pages == 1
        assert list(store.claims_of_cycles()) == []


async def test_unreadable_files_are_one_warning_and_cost_no_visit(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HTML called a sitemap, a sitemap that ends in its middle, gzip that is none."""
    site.pages |= {
        "/sitemap.xml": html("not found, says this page"),
        "/half.xml": sitemap({site.url("/sitemap.xml"): "2026-01-01"})[:-30],
        "/sitemap.xml.gz": b"\x1f\x8b\x08 no gzip",
        "/loop.xml": sitemap({site.url("/loop.xml"): "2026-01-01"}).replace(b"urlset", b"sitemapindex"),
    }
    Listed.start_urls = [site.url(path) for path in site.pages]
    for _ in range(2):
        caplog.clear()
        crawler = await crawl(Listed, store_path)
    assert stats(crawler)["hints/unreadable"] == 2
    assert len([one for one in caplog.records if "is not read" in one.getMessage()]) == 1
    with Store(store_path, readonly=True) as store:
        assert store.cycles()[-1]["outcomes"]["unchanged"] == 4
        assert store.verify() == []


async def test_what_passes_beside_the_visits_is_read_too(site: Site, store_path: Path) -> None:
    """A sitemap that the spider fetches without the add-on's doing speaks for known pages."""

    class Beside(Listed):
        name = "beside"

        async def start(self) -> Any:
            yield Request(site.url("/a"))
            yield Request(site.url("/feed"), meta={"gp4c": False}, dont_filter=True)

    site.pages["/a"] = html("a page")
    site.pages["/feed"] = (
        '<?xml version="1.0"?><rss version="2.0"><channel><item>'
        f"<link>{site.url('/a')}</link><pubDate>{formatdate(1.7e9)}</pubDate></item></channel></rss>"
    )
    for _ in range(2):
        crawler = await crawl(Beside, store_path)
    assert stats(crawler)["hints/claims"] == 1
    assert stored_hints(store_path)["/a"]["claims"] == 1 << hints.KINDS.index("feed")


def test_claims_told_between_cycles_are_due_in_the_next(tmp_path: Path) -> None:
    """At once, in blocks of any size; while a cycle is open they wait for its end."""
    with Store(tmp_path / "s") as store:
        store.add_pages((number + 1, {"url": f"http://h/{number}"}) for number in range(5))
        store.begin_cycle({"started": 1.0})
        store.finish_cycle({})
        store.claim_changes(np.array([3, 1, 3]), 2.0)
        store.claim_changes(np.array([4]), 2.0)
        (block,) = [block for _, block in store.blocks()]
        assert block["claims"].tolist() == [0, 0x44, 0, 0x44, 0x44]
        assert block["claimed_cycle"].tolist() == [0, 2, 0, 2, 2]
        store.begin_cycle({"started": 3.0})
        store.claim_changes(np.array([0]), 4.0)
        (block,) = [block for _, block in store.blocks()]
        assert block["claims"][0] == 0
        store.finish_cycle({})
        (block,) = [block for _, block in store.blocks()]
        assert (block["claims"][0], block["claimed_cycle"][0]) == (0x44, 2)
        result = [(cycle, rows.tolist()) for cycle, rows in store.claims_of_cycles()]
        assert result == [(1, [(1, 2, 2), (3, 2, 2)]), (1, [(4, 2, 2)]), (2, [(0, 2, 2)])]
        assert store.verify() == []


GROWTH = ("brought_sum", "brought_cycles", "brought_cycle")


@pytest.mark.slow
def test_kill_9_leaves_whole_sitemaps_and_right_counts(web: Web, worker: Worker) -> None:
    """Two sitemaps, of which one lies, in crawls that are killed at random: claims, trust and growth
    agree."""
    changed_s = time.time()

    def sitemap(is_true: bool) -> bytes:
        base = web.url.removesuffix("/list")
        dates = {path: (changed_s if is_changing(path) else 1e9) if is_true else time.time() for path in LIST}
        entries = "".join(
            f"<url><loc>{base}{path}</loc>"
            f"<lastmod>{datetime.fromtimestamp(when, UTC).isoformat()}</lastmod></url>"
            for path, when in dates.items()
            if is_true or int(path[1:]) % 3 == 0
        )
        return f"<urlset>{entries}</urlset>".encode()

    web.files = {"/a.xml": lambda: sitemap(True), "/b.xml": lambda: sitemap(False)}
    listed = {"/a.xml": PAGES, "/b.xml": len(range(0, PAGES, 3))}
    settings = {"GP4C_SCORE_FUNCTION": "hinted + 0.1 * random", "GP4C_POLICY": "top_k"}
    moments = random.Random(18)
    kills = partly = complete = 0
    while kills < 14 or (not complete and kills < 50):  # which moments are met is a matter of time
        web.log.clear()
        if kills % 4 == 3:
            worker.begin(settings, kill_in_fold=moments.randrange(4))
        else:
            worker.kill_after(web, moments.randrange(PAGES // 2), moments.uniform(0.0, 0.03), settings)
        kills += worker.wait() == -signal.SIGKILL
        if not worker.store.exists():
            continue
        state = Recorded(worker.store)
        if state.open_cycle is None:
            web.version += 1
            changed_s = time.time()
        with Store(worker.store, readonly=True) as store:
            if not store.last_cycle:
                continue
            noted = store.notes()
            count = int((noted["what"] == WHAT.index("sitemap")).sum())
            expected = sum(listed[path] for path in listed if path in state.visited_paths)
            if state.open_cycle is not None:
                assert count == expected, "claims of a sitemap and its visit are committed together"
                complete += expected > 0
                partly += expected == 0
    assert worker.begin(settings)
    assert worker.wait() == 0
    assert Recorded(worker.store).open_cycle is None
    with Store(worker.store) as store:
        Oracle.of(store).agrees(store)
        assert brought(store) == columns(store, *GROWTH)
        (trust,) = store.trust()
        assert trust["counts"].sum() > 0
        assert store.verify() == []
        ages = np.concatenate([block["age_first"] for _, block in store.blocks()])
        assert ages.any(), "pages that the true sitemap dates before the crawl"
        assert np.any([rows["kind"] == 0 for _, rows in store.claims_of_cycles()][-1])
    assert complete


def test_names_of_sitemaps_are_bounded() -> None:
    """By length, by site, in all; the least recently useful go first, so that honest sites come back."""
    named = NamedSitemaps({})
    assert not named.add("evil", [f"http://other/{'x' * 100_000}/{number}" for number in range(300)])
    assert named.sites == {}
    assert named.add("honest", ["http://cdn/honest.xml"])
    for host in range(40):
        named.add(f"evil{host}", [f"http://other/{host}/{number}/{'x' * 60}" for number in range(300)])
        named.use("http://cdn/honest.xml")
    assert sum(map(len, named.sites.values())) <= 1_000
    assert len(json.dumps(named.sites)) < 2**18
    assert all(sum(f"evil{host}" in sites for sites in named.sites.values()) <= 50 for host in range(40))
    assert named.use("http://cdn/honest.xml") == ["honest"]
    for host in range(40):
        named.add(f"evil{host}", [f"http://third/{host}/{number}/{'x' * 60}" for number in range(300)])
    assert named.use("http://cdn/honest.xml") == []
    assert named.add("honest", ["http://cdn/honest.xml"])
    assert named.use("http://cdn/honest.xml") == ["honest"]
    assert not NamedSitemaps(named.sites).add("honest", ["http://cdn/honest.xml"])
