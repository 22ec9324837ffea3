"""Visits in real crawls, beside Scrapy's own middlewares: caches, compression, media, robots.txt."""

import gzip
import subprocess
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy import Request, Spider, signals
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling import visits
from scrapy_gp4c.fingerprint import PageReading, read, worker_process
from scrapy_gp4c.scheduler import RecrawlScheduler
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Listed, Pages, Site, crawl, html, outcomes, path_of, stats

WORDS = "a page with a text of more than a few words on nothing in particular that rarely changes at all"


class One(Spider):
    """Requests one page."""

    name = "one"
    url = ""

    async def start(self) -> AsyncIterator[Any]:
        self.results: list[Any] = []
        yield Request(self.url, errback=self.failed)

    def parse(self, response: Any) -> Iterator[Any]:
        """Keep what we are told; give an item with an image."""
        self.results.append(response.meta["gp4c"]["outcome"])
        yield {"file_urls": [response.urljoin("/image")]}

    def failed(self, failure: Any) -> None:
        self.results.append(failure.type.__name__)


async def test_a_cached_response_is_no_observation(site: Site, store_path: Path, tmp_path: Path) -> None:
    """What HttpCacheMiddleware replays is not the page as it is now: no visit, but the callback is called."""
    site.pages["/"] = html(WORDS)
    crawl_settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache"), "GP4C_BUDGET": 1.0}
    for cycle in range(1, 5):
        crawler = await crawl(One, store_path, crawl_settings, url=site.url())
        assert outcomes(store_path, cycle) == ({"/": ["first"]} if cycle == 1 else {})
        assert crawler.spider.results == ["first" if cycle == 1 else "excluded"]
    assert site.hits["GET", "/"] == 1


async def test_a_page_that_alternates_is_named(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it came back twice to the text before its last change; new texts each time are changes."""
    texts = ["an early bird", "a late bird", "a third bird", "no bird"]
    for cycle, (first, second) in enumerate([(0, 0), (1, 1), (0, 2), (1, 3)], 1):
        site.pages = {"/": html(f"{texts[first]} {WORDS}"), "/b": html(f"{texts[second]} {WORDS}")}
        for path in site.pages:
            await crawl(One, store_path / path.replace("/", "s"), {"GP4C_BUDGET": 1.0}, url=site.url(path))
        assert ("has come back 2 times" in caplog.text) == (cycle == 4)
    assert f"{site.url('/b')} has come back" not in caplog.text


async def test_what_splash_renders_is_asked_for_without_validators(site: Site, store_path: Path) -> None:
    """It passes them on to the site, and renders an empty page of a 304."""
    validators: list[str | None] = []

    def page(request: ServerRequest) -> bytes:
        validators.append(request.getHeader("If-None-Match"))
        request.setHeader(b"ETag", b'"1"')
        return html(WORDS).encode()

    class Rendered(Listed):
        name = "rendered"

        async def start(self) -> Any:
            yield Request(site.url("/"), meta={"splash": {"endpoint": "render.html"}})
            yield Request(site.url("/plain"))

    site.pages = {"/": page, "/plain": page}
    for _ in range(2):
        await crawl(Rendered, store_path, {"GP4C_SKIP_UNCHANGED": True, "GP4C_BUDGET": 1.0})
    assert sorted(map(str, validators)) == ['"1"', "None", "None", "None"]


async def test_validators_that_a_server_refuses_are_no_end_of_a_page(site: Site, store_path: Path) -> None:
    """Very long ones are never sent back, and after a failure none is."""
    asked: dict[str, list[str | None]] = {"/long": [], "/refused": []}

    def page(request: ServerRequest) -> bytes:
        path = request.path.decode()
        etag = request.getHeader("If-None-Match")
        asked[path].append(etag and etag[:3])
        if etag is not None:
            request.setResponseCode(400)
            return b"Request Header Or Cookie Too Large"
        request.setHeader("ETag", '"' + ("e" * 9_000 if path == "/long" else "1") + '"')
        return html(WORDS).encode()

    site.pages = {"/long": page, "/refused": page}
    found: dict[str, list[str]] = {}
    for cycle in (1, 2, 3):
        for path in site.pages:
            await crawl(One, store_path / path[1:], {"GP4C_SKIP_UNCHANGED": True}, url=site.url(path))
            found.setdefault(path, []).extend(outcomes(store_path / path[1:], cycle)[path])
    assert found == {
        "/long": ["first", "unchanged", "unchanged"],
        "/refused": ["first", "error", "unchanged"],
    }
    assert asked == {"/long": [None] * 3, "/refused": [None, '"1"', None]}


async def test_a_damaged_pdf_is_not_said_to_take_long(site: Site, store_path: Path) -> None:
    """Its bytes are compared, as those of any PDF without text, whatever type it is sent as."""
    site.pages["/"] = "%PDF-1.7 " + html(WORDS)
    crawler = await crawl(One, store_path, url=site.url())
    assert outcomes(store_path, 1) == {"/": ["first"]}
    assert "too_slow" not in stats(crawler)


async def test_large_pages_whose_reader_is_killed_are_errors(
    site: Site, store_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """None is doubted, so that the site is not left alone for it; one line says so, without a traceback."""
    paths = [f"/{number}" for number in range(8)]
    site.pages = {path: html("".join(f"<p>{path} word{n}</p>" for n in range(9_000))) for path in paths}
    await crawl(Pages, store_path, site=site)
    for path in paths:
        site.pages[path] = html("".join(f"<p>{path} other{n}</p>" for n in range(9_000)))

    def killed() -> Any:
        return subprocess.Popen(["sh", "-c", "kill -9 $$"], stdin=-1, stdout=-1)

    monkeypatch.setattr(worker_process, "_start", killed)
    crawler = await crawl(Pages, store_path, {"GP4C_BUDGET": 1.0}, site=site)
    assert outcomes(store_path, 2) == {path: ["error"] for path in paths}
    assert stats(crawler)["not_read"] == len(paths)
    lines = [record for record in caplog.records if "is not read" in record.getMessage()]
    assert len(lines) == 1
    assert not any(record.exc_info for record in caplog.records)


async def test_a_page_whose_watched_part_is_not_found_in_time_is_an_error(
    site: Site, store_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All of it would be another text than the part before: a change that is none."""
    site.pages["/"] = html("<p class=price>1</p>" + "<p>word</p>" * 9_000)
    settings = {"GP4C_RULES": [{"match": "*", "watch": ".price"}], "GP4C_BUDGET": 1.0}
    await crawl(One, store_path, settings, url=site.url())
    site.pages["/"] = html("<p class=price>2</p>" + "<p>word</p>" * 9_000)

    def silent() -> Any:
        return subprocess.Popen(["sh", "-c", "cat > /dev/null"], stdin=-1, stdout=-1)

    monkeypatch.setattr(worker_process, "_start", silent)
    monkeypatch.setattr(worker_process, "TIMEOUT_S", 0)
    await crawl(One, store_path, settings, url=site.url())
    assert outcomes(store_path, 2) == {"/": ["error"]}
    assert "takes too long to find. Its visit is an error" in caplog.text


async def test_compression_is_no_change(site: Site, store_path: Path) -> None:
    """The same page with and without gzip has the same fingerprint: we see it decoded."""
    served = {"gzip": False}

    def page(request: ServerRequest) -> bytes:
        body = html(WORDS).encode()
        if served["gzip"]:
            request.setHeader(b"Content-Encoding", b"gzip")
            return gzip.compress(body)
        return body

    site.pages["/"] = page
    await crawl(One, store_path, url=site.url())
    served["gzip"] = True
    crawler = await crawl(One, store_path, url=site.url())
    assert crawler.spider.results == ["unchanged"]
    with Store(store_path, readonly=True) as store:
        (_, first), (_, second) = store.visits()
    assert first["fingerprint"][0] == second["fingerprint"][0]
    assert first["distance"][0] == 255
    assert second["distance"][0] == 0


async def test_media_and_robots_txt_are_no_pages(site: Site, store_path: Path, tmp_path: Path) -> None:
    """Images of a pipeline and robots.txt are fetched as ever, and are not remembered as pages."""
    site.pages = {"/": html(WORDS), "/image": b"\x89PNG", "/robots.txt": b"User-agent: *\nAllow: /\n"}
    crawl_settings = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "ROBOTSTXT_OBEY": True}
    for cycle in (1, 2, 3):
        site.log.clear()
        crawl_settings["FILES_STORE"] = str(tmp_path / f"files{cycle}")
        crawler = await crawl(One, store_path, crawl_settings, url=site.url())
        assert sorted(site.log) == [("GET", "/"), ("GET", "/image"), ("GET", "/robots.txt")]
        assert outcomes(store_path, cycle).keys() == {"/"}
        assert stats(crawler)["visited"] == 1
    with Store(store_path, readonly=True) as store:
        assert store.pages == 1


async def test_without_our_scheduler_it_does_nothing(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """When the user keeps another scheduler, the middleware lets everything pass, and a warning says so."""
    site.pages["/"] = html(WORDS)

    class Plain(One):
        def parse(self, response: Any) -> None:
            self.results.append(response.meta["gp4c"]["managed"])

    crawl_settings = {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}
    crawler = await crawl(Plain, store_path, crawl_settings, url=site.url())
    assert crawler.spider.results == [False]
    assert not store_path.exists()
    assert caplog.text.count("because SCHEDULER is scrapy.core.scheduler.Scheduler") == 1


async def test_without_our_middleware_visits_end_as_errors(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """When the user disables the middleware, no page is left without an outcome, and a warning says so."""
    site.pages["/"] = html(WORDS)

    class Plain(One):
        def parse(self, response: Any) -> None:
            self.results.append(response.status)

    crawl_settings = {"DOWNLOADER_MIDDLEWARES": {"scrapy_gp4c.middleware.FingerprintMiddleware": None}}
    crawler = await crawl(Plain, store_path, crawl_settings, url=site.url())
    assert crawler.spider.results == [200]
    assert outcomes(store_path, 1) == {"/": ["error"]}
    assert caplog.text.count("DOWNLOADER_MIDDLEWARES leaves out") == 1


def raw(head: str, body: str) -> Callable[[ServerRequest], None]:
    """A page that is sent as it is, and ends with the connection."""

    def page(request: ServerRequest) -> None:
        transport = request.channel.transport
        transport.write(f"{head}\r\nContent-Type: text/html\r\n\r\n{body}".encode())
        transport.loseConnection()

    return page


async def test_a_body_that_ends_with_the_connection_is_a_page(site: Site, store_path: Path) -> None:
    """HTTP/1.0 says no length: such a server's pages are judged as all others are."""
    for cycle, (text, outcome) in enumerate([(WORDS, "first"), (WORDS, "unchanged"), ("new", "changed")], 1):
        site.pages["/"] = raw("HTTP/1.0 200 OK", html(text))
        await crawl(One, store_path, {"GP4C_WARMUP_VISITS": 3}, url=site.url())
        assert outcomes(store_path, cycle) == {"/": [outcome]}


async def test_a_body_that_lacks_its_end_is_an_error(site: Site, store_path: Path) -> None:
    """Where Scrapy lets it pass; without, it never arrives."""
    site.pages["/"] = raw("HTTP/1.1 200 OK\r\nContent-Length: 9999", html(WORDS))
    crawler = await crawl(One, store_path, {"DOWNLOAD_FAIL_ON_DATALOSS": False}, url=site.url())
    assert outcomes(store_path, 1) == {"/": ["error"]}
    assert crawler.spider.results == ["error"]


class Many(Spider):
    """Requests pages and keeps what came of each."""

    name = "many"
    urls: tuple[str, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        self.results: dict[str, str] = {}
        for url in self.urls:
            yield Request(url)

    def parse(self, response: Any) -> None:
        self.results[response.url] = response.meta["gp4c"]["outcome"]


LARGE = {
    f"/{number}": f"<html><body>{f'word{number} and more ' * 12_000}</body></html>" for number in range(6)
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the pages that are read in the reactor's turns."""
    paths: list[str] = []

    def noted(response: Any, features: Any = None, **more: bool) -> PageReading:
        paths.append(path_of(response.url))
        return read(response, features, **more)

    monkeypatch.setattr(visits, "read", noted)
    return paths


@pytest.mark.slow
async def test_large_pages_are_fingerprinted_beside_the_reactor(
    site: Site, store_path: Path, made: list[str]
) -> None:
    """None in the reactor's turns, beside small ones; each has the outcome and the callback as ever.

    Nor is a page fingerprinted whose bytes are those of the visit before.
    """
    site.pages.update(LARGE)
    site.pages["/small"] = html(WORDS)
    urls = tuple(site.url(path) for path in (*LARGE, "/small"))
    for cycle in (1, 2, 3):
        if cycle == 3:
            site.pages["/3"] = LARGE["/3"].replace("more", "less")
        crawler = await crawl(Many, store_path, {"GP4C_BUDGET": 1.0}, urls=urls)
        expected = dict.fromkeys(urls, "first" if cycle == 1 else "unchanged")
        if cycle == 3:
            expected[site.url("/3")] = "changed"
        assert crawler.spider.results == expected
        assert outcomes(store_path, cycle) == {path_of(url): [end] for url, end in expected.items()}
    assert made == ["/small"]


async def test_bytes_that_are_the_same_need_no_fingerprint(
    site: Site, store_path: Path, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that stay, differ in a date, change and change back: what is recorded is the same."""
    texts = [WORDS, WORDS, WORDS + " anew", WORDS, WORDS]
    urls = tuple(site.url(path) for path in ("/same", "/dated", "/other", "/empty"))
    recorded = []
    for path in (store_path, tmp_path / "without"):
        for hour, text in enumerate(texts):
            dated = html(f"{WORDS} {hour:02}:30")
            site.pages |= {"/same": html(WORDS), "/dated": dated, "/other": html(text), "/empty": b""}
            await crawl(Many, path, {"GP4C_BUDGET": 1.0, "CONCURRENT_REQUESTS": 1}, urls=urls)
        with Store(path, readonly=True) as store:
            names = ["page", "outcome", "distance", "fingerprint", "bytes"]
            urls_of = [request["url"] for request in store.requests(range(store.pages))]
            of_cycles = [np.sort(rows, order="page")[names].tolist() for _, rows in store.visits()]
            recorded.append((urls_of, of_cycles))
        if path == store_path:
            # The page that has changed back is asked for once more.
            assert Counter(made) == {"/same": 1, "/dated": 5, "/other": 4, "/empty": 1}
            monkeypatch.setattr(visits, "known_judgement", lambda *_: None)
    assert recorded[0] == recorded[1]


def words_of(response: Any) -> list[str]:
    """What counts to a user."""
    return ["nothing", "else"]


async def test_the_same_bytes_under_other_settings_have_another_fingerprint(
    site: Site, store_path: Path, made: list[str]
) -> None:
    """With another GP4C_FEATURES, or Content-Type, it is made anew; for the user's own features always."""

    def page(request: ServerRequest) -> bytes:
        request.setHeader("Content-Type", served["kind"])
        return html(f"{WORDS}</p><main>and more</main><p>").encode()

    site.pages["/"] = page
    served = {"kind": ""}
    main, dotted = "scrapy_gp4c.fingerprint.main_features", "tests.crawling.test_visits.words_of"
    for kind, features, times, outcome in (
        ("text/html", None, 1, "first"),
        ("text/html", None, 1, "unchanged"),
        ("text/html", main, 2, "changed"),
        ("text/html", main, 2, "unchanged"),
        ("text/plain", main, 3, "changed"),
        ("text/html", None, 4, "changed"),
        ("text/html", dotted, 5, "changed"),
        ("text/html", dotted, 6, "unchanged"),
        ("text/html", None, 8, "changed"),  # back at its earlier text, it is asked for once more
        ("text/html", None, 8, "unchanged"),
    ):
        served["kind"] = kind
        crawler = await crawl(Many, store_path, {"GP4C_FEATURES": features}, urls=(site.url(),))
        assert crawler.spider.results == {site.url(): outcome}
        assert len(made) == times


async def test_a_run_that_closes_waits_for_its_large_pages(site: Site, store_path: Path) -> None:
    """Closed while their fingerprints are made: all that were fetched have their outcomes, none is lost."""
    site.pages.update(LARGE)
    urls = tuple(site.url(path) for path in LARGE)
    before = {*threading.enumerate()}
    crawler = await crawl(Many, store_path, {"CLOSESPIDER_PAGECOUNT": 1}, urls=urls)
    ends = outcomes(store_path, 1)
    assert len(ends) == len(site.fetched())
    assert {tuple(end) for end in ends.values()} == {("first",)}
    assert len(crawler.spider.results) == len(ends)
    threads = {*threading.enumerate()} - before
    assert not [thread for thread in threads if thread.name.startswith("gp4c")]


async def test_a_charset_that_is_none_of_text_is_no_error(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Small and large pages that call themselves hex_codec have fingerprints; no setting is blamed."""

    def served(body: str) -> Any:
        def page(request: ServerRequest) -> bytes:
            request.setHeader("Content-Type", "text/html; charset=hex_codec")
            return body.encode()

        return page

    site.pages.update({"/small": served(html(WORDS)), "/large": served(LARGE["/0"])})
    others = {"METAREFRESH_ENABLED": False}  # Scrapy's own fails with such pages
    for cycle in (1, 2):
        await crawl(Many, store_path, others, urls=(site.url("/small"), site.url("/large")))
        end = ["first" if cycle == 1 else "unchanged"]
        assert outcomes(store_path, cycle) == {"/small": end, "/large": end}
    assert "GP4C_FEATURES" not in caplog.text


class Menu(Spider):
    """Follows all links of every page, by a callback that waits or by a usual one."""

    name = "menu"
    custom_settings = {"GP4C_WARMUP_VISITS": 0, "GP4C_BUDGET": 1.0}
    url = ""
    waits = False

    async def start(self) -> AsyncIterator[Any]:
        callback = self.parse_waiting if self.waits else self.parse
        yield Request(self.url, callback=callback)

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"url": response.url}
        yield from response.follow_all(css="a", callback=self.parse)

    async def parse_waiting(self, response: Any) -> AsyncIterator[Any]:
        yield {"url": response.url}
        for request in response.follow_all(css="a", callback=self.parse_waiting):
            yield request


class Behind:
    """A spider middleware nearer to the engine than ours."""

    seen = 0

    def process_spider_output(self, response: Any, result: Any) -> Iterator[Any]:
        for one in result:
            type(self).seen += isinstance(one, Request)
            yield one

    async def process_spider_output_async(self, response: Any, result: Any) -> AsyncIterator[Any]:
        async for one in result:
            type(self).seen += isinstance(one, Request)
            yield one


@pytest.fixture
def enqueued(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts by URL what reaches the scheduler."""
    counts: Counter[str] = Counter()
    enqueue = RecrawlScheduler.enqueue_request

    def counted(self: RecrawlScheduler, request: Request) -> bool:
        counts[request.url] += 1
        return enqueue(self, request)

    monkeypatch.setattr(RecrawlScheduler, "enqueue_request", counted)
    return counts


PAGES = 6


@pytest.fixture
def menu(site: Site) -> str:
    """Pages that all link to all of them; returns the URL of the first."""
    names = [f"/{number}" for number in range(PAGES)]
    site.pages.update({name: html(f"{WORDS} {name}", names) for name in names})
    return site.url("/0")


@pytest.mark.parametrize("waits", [False, True])
async def test_links_to_pages_of_this_run_go_no_further(
    menu: str, store_path: Path, enqueued: Counter[str], waits: bool
) -> None:
    """The scheduler is not asked again for a page that a response before has linked to; each is counted."""
    for cycle in (1, 2):
        enqueued.clear()
        crawler = await crawl(Menu, store_path, url=menu, waits=waits)
        assert crawler.stats is not None
        assert crawler.stats.get_value("item_scraped_count") == PAGES
        counts = stats(crawler)
        dropped = counts["skipped/duplicate"] + counts.get("skipped/not_planned", 0)
        assert dropped == PAGES * PAGES + 1 - PAGES  # the plan waits for what the first page links to
        assert {len(outcomes_of_page) for outcomes_of_page in outcomes(store_path, cycle).values()} == {1}
        assert len(enqueued) == PAGES
        assert sum(enqueued.values()) < PAGES * PAGES / 2
        assert crawler.stats.get_value("request_depth_max") == 2  # as without the add-on


@pytest.mark.parametrize(
    ("signal", "waits"), [(signals.request_scheduled, False), (signals.request_dropped, True)]
)
async def test_whoever_listens_to_scrapys_signals_hears_of_every_link(
    menu: str, store_path: Path, signal: object, waits: bool
) -> None:
    """As without the add-on: of each request that is scheduled, and of each that is dropped."""
    heard: Counter[str] = Counter()

    class Listening(Menu):
        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(lambda request: heard.update([request.url]), signal, weak=False)
            return spider

    crawler = await crawl(Listening, store_path, url=menu, waits=waits)
    asked = PAGES * PAGES + (signal is signals.request_scheduled)
    assert sum(heard.values()) == asked - (PAGES - 1) * (signal is signals.request_dropped)
    assert stats(crawler)["skipped/duplicate"] == PAGES * PAGES - (PAGES - 1)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_middleware_nearer_to_the_engine_sees_every_link(
    menu: str, store_path: Path, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may send them elsewhere, or count them."""
    monkeypatch.setattr(Behind, "seen", 0)
    crawler = await crawl(Menu, store_path, {"SPIDER_MIDDLEWARES": {Behind: 543}}, url=menu, waits=waits)
    assert Behind.seen == PAGES * PAGES
    assert stats(crawler)["skipped/duplicate"] == PAGES * PAGES - (PAGES - 1)
