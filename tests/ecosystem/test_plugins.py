"""Plugins of others, as the registry has them: four cycles each, of which the third finds changes."""

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from scrapy import Request, Spider

from scrapy_gp4c import visit
from tests.support.browser import CHROMIUM
from tests.support.loopback import ADDONS, Site, crawl, html, outcomes
from tests.support.sources import ROOT

pytestmark = pytest.mark.slow
ALL = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1, "RETRY_ENABLED": False}
PATHS = ["/1", "/2", "/3"]
HERE = __name__
OUTCOMES = ("first", "unchanged", "changed", "unchanged")


class Shop(Spider):
    """Yields the text of pages that are new or changed."""

    name = "shop"
    site: Site
    meta: dict[str, Any] = {}

    async def start(self) -> AsyncIterator[Any]:
        self.items: list[str] = []
        for path in PATHS:
            yield Request(self.site.url(path), meta=self.meta_of(path))

    def meta_of(self, path: str) -> dict[str, Any]:
        """``meta`` of a page's request."""
        return dict(self.meta)

    def parse(self, response: Any) -> Any:
        page = visit(response)
        if page.is_new or page.changed:
            self.items.append(response.css("p::text").get())
            return [{"url": response.url, "text": self.items[-1]}]
        return []


def serve(site: Site, cycle: int) -> None:
    """Serve the pages as they are in a cycle: another text from the third on."""
    for path in PATHS:
        site.pages[path] = html(f"version {1 if cycle < 3 else 2} of the page {path} in many words")


async def four_cycles(
    spider: type[Spider], site: Site, store_path: Path, settings: dict[str, Any], expected: Any = OUTCOMES
) -> list[Any]:
    """Crawl four times; each page has the expected outcomes, and its items."""
    crawlers = []
    for cycle in range(1, 5):
        serve(site, cycle)
        crawlers.append(await crawl(spider, store_path, {**ALL, **settings}, site=site))
        assert outcomes(store_path, cycle) == {path: [expected[cycle - 1]] for path in PATHS}, cycle
        wanted = 3 if expected[cycle - 1] in ("first", "changed") else 0
        assert len(crawlers[-1].spider.items) == wanted, cycle  # type: ignore[union-attr]
    return crawlers


# --- browsers


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize("skip", [False, True])
async def test_playwright(skip: bool, site: Site, store_path: Path) -> None:
    """Methods of pages, included pages, and skipped ones, none of which stays open."""
    pytest.importorskip("scrapy_playwright")
    from scrapy_playwright.page import PageMethod

    class Browser(Shop):
        name = "browser"

        def meta_of(self, path: str) -> dict[str, Any]:
            methods = [PageMethod("evaluate", "document.title = 'seen'")]
            return {
                "playwright": True,
                "playwright_include_page": path == "/1",
                "playwright_page_methods": methods,
            }

        async def parse(self, response: Any) -> Any:  # type: ignore[override]
            if "playwright_page" in response.meta:
                await response.meta["playwright_page"].close()
            assert response.css("title::text").get() == "seen"
            return super().parse(response)

    handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
    settings = {
        "DOWNLOAD_HANDLERS": {"http": handler},
        "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": CHROMIUM, "args": ["--no-sandbox"]},
        "PLAYWRIGHT_MAX_PAGES_PER_CONTEXT": 1,
        "GP4C_SKIP_UNCHANGED": skip,
    }  # fmt: skip
    for crawler in await four_cycles(Browser, site, store_path, settings):
        assert "log_count/ERROR" not in crawler.stats.get_stats()


# --- page objects and APIs


async def test_poet(site: Site, store_path: Path) -> None:
    """Page objects of responses and of `callback_for` are visits; that of a client says that it is none."""
    pytest.importorskip("scrapy_poet")
    from tests.ecosystem.poet_spiders import Client, Named, Objects

    addons = {"scrapy_poet.Addon": 300, **ADDONS}
    for number, spider in enumerate((Objects, Named)):
        await four_cycles(spider, site, store_path / str(number), {"ADDONS": addons})
    for cycle in range(1, 5):
        serve(site, cycle)
        crawler = await crawl(Client, store_path / "client", {**ALL, "ADDONS": addons}, site=site)
        assert crawler.spider.items == [False] * len(PATHS)
        assert len(site.log) > 0


async def test_zyte_api(site: Site, store_path: Path) -> None:
    """Pages and data that an API on loopback has fetched, by its add-on before or after ours."""
    pytest.importorskip("scrapy_zyte_api")

    class Extracting(Shop):
        name = "extracting"
        meta = {"zyte_api_automap": {"product": True}}

        def parse(self, response: Any) -> Any:
            page = visit(response)
            if page.is_new or page.changed:
                self.items.append(response.raw_api_response["product"]["name"])
            return []

    def extract(request: Any) -> bytes:
        query = json.loads(request.content.read())
        page = site.pages["/" + query["url"].rpartition("/")[2]]
        request.setHeader("Content-Type", "application/json")
        answer: dict[str, Any] = {"url": query["url"], "statusCode": 200}
        if query.get("httpResponseBody"):
            answer["httpResponseBody"] = base64.b64encode(str(page).encode()).decode()
            answer["httpResponseHeaders"] = [{"name": "Content-Type", "value": "text/html"}]
        elif query.get("product"):
            answer["product"] = {"name": str(page), "metadata": {"probability": time.time() % 1}}
        else:
            answer["browserHtml"] = page
        return json.dumps(answer).encode()

    for width in (400, 600):
        site.pages["/v1/extract"] = extract
        settings = {
            "ADDONS": {**ADDONS, "scrapy_zyte_api.Addon": width},
            "ZYTE_API_URL": site.url("/v1/"), "ZYTE_API_KEY": "none",
        }  # fmt: skip
        for spider in (Shop, Extracting):
            await four_cycles(spider, site, store_path / spider.name / str(width), settings)
        assert not [path for _, path in site.log if path in PATHS]


# --- filters of seen pages


async def test_deltafetch(site: Site, store_path: Path, tmp_path: Path) -> None:
    """It drops the spider's requests of pages that gave items; the plan visits them all the same."""
    deltafetch = pytest.importorskip("scrapy_deltafetch")

    class DeltaFetch(deltafetch.DeltaFetch):  # type: ignore[misc, name-defined]
        async def process_spider_output_async(self, response: Any, result: Any, spider: Any = None) -> Any:
            """Do what Scrapy since 2.17 asks of middlewares."""
            entries = [entry async for entry in result]
            for entry in self.process_spider_output(
                response, entries, response.request and self._crawler.spider
            ):
                yield entry

        @classmethod
        def from_crawler(cls, crawler: Any) -> Any:
            self = super().from_crawler(crawler)
            self._crawler = crawler
            return self

    settings = {
        "SPIDER_MIDDLEWARES": {DeltaFetch: 100},
        "DELTAFETCH_ENABLED": True, "DELTAFETCH_DIR": str(tmp_path / "seen"),
    }  # fmt: skip
    await four_cycles(Shop, site, store_path, settings)


class Redis:
    """As much of a Redis server as a filter of duplicates asks for."""

    seen: dict[str, set[str]] = {}

    def sadd(self, key: str, value: str) -> int:
        """Add; 1 when it is new."""
        is_new = value not in self.seen.setdefault(key, set())
        self.seen[key].add(value)
        return int(is_new)

    def delete(self, key: str) -> None:
        self.seen.pop(key, None)


async def test_redis_dupefilter(site: Site, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has seen in an earlier run is planned all the same."""
    dupefilter = pytest.importorskip("scrapy_redis.dupefilter")
    monkeypatch.setattr(dupefilter, "get_redis_from_settings", lambda settings: Redis())
    monkeypatch.setattr(dupefilter.defaults, "DUPEFILTER_KEY", "seen")
    await four_cycles(Shop, site, store_path, {"DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter"})


# --- others


async def test_spidermon(site: Site, store_path: Path) -> None:
    """Monitors of items and of statistics, some of them the add-on's."""
    pytest.importorskip("spidermon")
    settings = {
        "EXTENSIONS": {"spidermon.contrib.scrapy.extensions.Spidermon": 500}, "SPIDERMON_ENABLED": True,
        "SPIDERMON_SPIDER_CLOSE_MONITORS": ("tests.ecosystem.monitors.Suite",),
        "ITEM_PIPELINES": {"spidermon.contrib.scrapy.pipelines.ItemValidationPipeline": 800},
        "SPIDERMON_VALIDATION_SCHEMAS": [str(Path(__file__).with_name("item.json"))],
    }  # fmt: skip
    for crawler in await four_cycles(Shop, site, store_path, settings):
        assert "log_count/ERROR" not in crawler.stats.get_stats()


async def test_impersonate(site: Site, store_path: Path) -> None:
    """Its own downloader."""
    pytest.importorskip("scrapy_impersonate")

    class Browserlike(Shop):
        name = "browserlike"
        meta = {"impersonate": "chrome"}

    handler = "scrapy_impersonate.ImpersonateDownloadHandler"
    await four_cycles(Browserlike, site, store_path, {"DOWNLOAD_HANDLERS": {"http": handler}})


async def test_http_cache(site: Site, store_path: Path, tmp_path: Path) -> None:
    """The policy of the standard compares; the one that always answers itself is said to hide changes."""
    settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "standard")}
    policy = "scrapy.extensions.httpcache.RFC2616Policy"
    await four_cycles(Shop, site, store_path / "1", {**settings, "HTTPCACHE_POLICY": policy})
    settings["HTTPCACHE_DIR"] = str(tmp_path / "dummy")
    for cycle in range(1, 5):
        serve(site, cycle)
        crawler = await crawl(Shop, store_path / "2", {**ALL, **settings}, site=site)
        assert len(outcomes(store_path / "2", cycle)) == (len(PATHS) if cycle == 1 else 0)
        assert crawler.stats.get_value("gp4c/from_cache", 0) == (0 if cycle == 1 else len(PATHS))


async def test_jobdir_and_files(site: Site, store_path: Path, tmp_path: Path) -> None:
    """Files of items are no pages, and a queue on disk is one."""
    site.pages["/file"] = b"%PDF"

    class Filed(Shop):
        name = "filed"

        def parse(self, response: Any) -> Any:
            return [{**item, "file_urls": [self.site.url("/file")]} for item in super().parse(response)]

    settings = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "FILES_STORE": str(tmp_path / "files"),
        "JOBDIR": str(tmp_path / "job"),
    }  # fmt: skip
    await four_cycles(Filed, site, store_path, settings)
    assert list((tmp_path / "files").rglob("full/*"))


# --- scrapyd

SETTINGS = """
BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
ADDONS = {"scrapy_gp4c.Addon": 500}
GP4C_BUDGET = 1.0
GP4C_WARMUP_VISITS = 1
TELNETCONSOLE_ENABLED = False
"""
SCRAPYD_SPIDER = """
import scrapy
from scrapy_gp4c import visit
class Shop(scrapy.Spider):
    name = "shop"
    def __init__(self, url=None, **kwargs):
        super().__init__(**kwargs)
        self.url = url
    async def start(self):
        for number in range(10):
            yield scrapy.Request(f"{self.url}/{number}")
    def parse(self, response):
        page = visit(response)
        if page.is_new or page.changed:
            yield {"url": response.url}
"""


def ask(address: str, **data: str) -> Any:
    with urlopen(address, urlencode(data).encode() if data else None, timeout=20) as answer:
        return json.load(answer)


def documented(action: str, data: Path, **more: str) -> dict[str, str]:
    """Data of a documented call of scrapyd, for the project shop and a store in a directory."""
    page = (ROOT / "docs" / "your-spider.md").read_text("utf-8")
    call = re.search(rf"^curl http://localhost:6800/{action}.json (.*)$", page, re.MULTILINE)
    assert call is not None
    words = shlex.split(call[1].replace("/data", str(data)).replace("news", "shop"))
    return dict(word.split("=", 1) for word in words if word != "-d") | more


def test_scrapyd(tmp_path: Path) -> None:
    """A deployed project by the documented calls: scheduled, cancelled, resumed; versions share one store."""
    pytest.importorskip("scrapyd")
    pytest.importorskip("scrapyd_client")
    port, served = free_port(), free_port()
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    project, home = tmp_path / "project", tmp_path / "home"
    (project / "shop").mkdir(parents=True)
    home.mkdir()
    (project / "scrapy.cfg").write_text(
        f"[settings]\ndefault = shop.settings\n[deploy]\nurl = http://127.0.0.1:{port}/\nproject = shop\n"
    )
    (project / "shop" / "__init__.py").touch()
    (project / "shop" / "settings.py").write_text(SETTINGS)
    (project / "shop" / "spiders.py").write_text(SCRAPYD_SPIDER)
    (home / "scrapyd.conf").write_text(
        f"[scrapyd]\nhttp_port = {port}\nbind_address = 127.0.0.1\npoll_interval = 0.5\n"
        "items_dir = items\nlogs_dir = logs\n"
    )
    server = subprocess.Popen([sys.executable, "-c", SLOW_SERVER, str(served)])
    with (home / "log").open("w") as log:
        daemon = subprocess.Popen(
            [Path(sys.executable).with_name("scrapyd")], cwd=home, env=environment, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_until(lambda: ask(url + "daemonstatus.json")["status"] == "ok")

        def deploy(version: str) -> None:
            command = [Path(sys.executable).with_name("scrapyd-deploy"), "--version", version]
            subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True, timeout=60)

        deploy("1")
        jobs = []
        for turn in range(6):
            arguments = documented("schedule", tmp_path / "data", url=f"http://127.0.0.1:{served}")
            if turn == 4:  # another version, whose callback has another name, beside the one before
                renamed = SCRAPYD_SPIDER.replace("def parse(", "def parse_page(").replace(
                    "Request(", "Request(callback=self.parse_page, url="
                )
                (project / "shop" / "spiders.py").write_text(renamed)
                deploy("2")
            if turn == 5:
                arguments["_version"] = "1"
            job = ask(url + "schedule.json", **arguments)["jobid"]
            jobs.append(job)
            if turn == 1:
                log = home / "logs" / "shop" / "shop" / f"{job}.log"
                wait_until(lambda log=log: "Crawled (200)" in log.read_text())
                ask(url + "cancel.json", **documented("cancel", tmp_path, job=job))
            wait_until(
                lambda job=job: (
                    job in {one["id"] for one in ask(url + "listjobs.json?project=shop")["finished"]}
                )
            )
        logs = [(home / "logs" / "shop" / "shop" / f"{job}.log").read_text() for job in jobs]
        assert not [
            line for text in logs for line in text.splitlines() if " ERROR: " in line or "Traceback" in line
        ]
        assert "is interrupted; the next run resumes it" in logs[1]
        assert "is interrupted; the next run resumes it" not in logs[2]
        assert all("finished: 10 visited, 0 changed" in text for text in logs[3:])
        assert [path.name for path in (tmp_path / "data").iterdir()] == ["shop"]
        items = [
            json.loads(line)["url"] for path in home.rglob("*.jl") for line in path.read_text().splitlines()
        ]
        assert len(set(items)) == 10
    finally:
        for process in (daemon, server):
            process.send_signal(signal.SIGTERM)
            process.wait()


SLOW_SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.2)
        body = f"<html><body><p>the page {self.path} has words</p></body></html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def free_port() -> int:
    """A port that nobody listens on."""
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def wait_until(holds: Any, limit_s: float = 60.0) -> None:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("it does not come to hold")
