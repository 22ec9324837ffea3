"""Signals and items of page events in real crawls, killed ones too."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from itemadapter import ItemAdapter
from scrapy import Spider

from scrapy_gp4c import PageChange, signals
from scrapy_gp4c.notices.events import PageEvent
from tests.support.killing import LIST, PAGES, Web, is_changing
from tests.support.loopback import Site, crawl, html, path_of
from tests.support.sources import ROOT


async def test_signals_are_sent_when_a_visit_counts(site: Site, store_path: Path) -> None:
    """To plain handlers and coroutines, once each; a visit whose callback fails sends none."""
    events: list[tuple[str, str]] = []
    details: list[PageEvent] = []

    class Listening(Spider):
        name = "listening"
        start_urls: ClassVar[list[str]] = []
        fails = False
        custom_settings: ClassVar[dict[str, Any]] = {"CONCURRENT_REQUESTS": 1}

        @classmethod
        def from_crawler(cls, crawler: Any, *words: Any, **named: Any) -> Any:
            spider = super().from_crawler(crawler, *words, **named)
            crawler.signals.connect(spider.note, signals.page_new)
            crawler.signals.connect(spider.note_later, signals.page_changed)
            for one in (signals.page_gone, signals.page_back, signals.page_failing):
                crawler.signals.connect(spider.note, one)
            return spider

        def note(self, event: PageEvent, spider: Spider) -> None:
            assert spider is self
            details.append(event)
            events.append((event.kind, path_of(event.url)))

        async def note_later(self, event: PageEvent) -> None:
            await asyncio.sleep(0)
            details.append(event)
            events.append((event.kind, path_of(event.url)))

        def parse(self, response: Any) -> None:
            if self.fails:
                raise ValueError

    Listening.start_urls = [site.url("/a"), site.url("/b")]
    settings = {"GP4C_BUDGET": 1.0, "GP4C_GONE_AFTER": 1, "GP4C_ARCHIVE": True}
    settings["GP4C_RULES"] = [{"match": "*/a", "weight": 3}]
    site.pages["/a"] = lambda request: request.redirect(b"/moved") or b""
    seen = []
    for day in range(5):
        Listening.fails = day == 1
        site.pages["/moved"] = html(f"version {day} of page a")
        site.pages.pop("/b", None)
        if day != 2:
            site.pages["/b"] = html("page b")
        events.clear()
        await crawl(Listening, store_path, settings, section="city", password="hidden")
        seen.append(sorted(events))
    changed = ("changed", "/a")
    assert seen[:3] == [[("new", "/a"), ("new", "/b")], [], [changed, ("failing", "/b"), ("gone", "/b")]]
    assert all(changed in day for day in seen[3:])
    of_b = next(event for event in details if event.kind == "gone")
    assert (of_b.status, of_b.error, of_b.arguments) == (404, None, {"section": "city"})
    last = details[-1]
    assert last.diff is not None
    assert "[-3-] {+4+}" in last.diff[0]
    assert last.previous_time is not None
    assert (last.weight, last.final_url) == (3.0, site.url("/moved"))


async def test_events_go_through_pipelines_and_feeds_as_items(
    site: Site, store_path: Path, tmp_path: Path
) -> None:
    """A pipeline may change them, and a feed may have them alone; the engine waits for a slow pipeline."""

    class Items(Spider):
        name = "items"
        start_urls: ClassVar[list[str]] = []

        def parse(self, response: Any) -> Any:
            yield {"url": response.url}

    class Marking:
        async def process_item(self, item: Any) -> Any:
            await asyncio.sleep(0.05)
            if isinstance(item, PageChange):
                ItemAdapter(item)["spider"] = f"marked {item.spider}"
            return item

    paths = ["/0", "/1", "/2"]
    Items.start_urls = [site.url(path) for path in paths]
    settings = {
        "GP4C_CHANGE_ITEMS": True,
        "GP4C_BUDGET": 1.0,
        "GP4C_GONE_AFTER": 1,
        "ITEM_PIPELINES": {Marking: 100},
        "FEEDS": {
            str(tmp_path / "%(time)s.jsonl"): {
                "format": "jsonlines",
                "item_classes": ["scrapy_gp4c.PageChange"],
            }
        },
    }
    for day in range(3):
        site.pages.update({path: html(f"version {day * (path == '/1')} of {path}") for path in paths[:2]})
        site.pages["/2"] = html("page two")
        if day == 2:
            del site.pages["/2"]
        await crawl(Items, store_path, settings)
    rows = [json.loads(line) for file in sorted(tmp_path.glob("*.jsonl")) for line in file.open()]
    events = [(row["cycle"], row["kind"], path_of(row["url"]), row["spider"]) for row in rows]
    assert sorted(events[:3]) == [(1, "new", path, "marked items") for path in paths]
    assert sorted(events[3:]) == [
        (2, "changed", "/1", "marked items"),
        (3, "changed", "/1", "marked items"),
        (3, "failing", "/2", "marked items"),
        (3, "gone", "/2", "marked items"),
    ]


KILLED = """
import asyncio, os, sys
from scrapy import Spider, Request
from scrapy.crawler import AsyncCrawlerProcess
from scrapy_gp4c import PageChange, signals

def note(file, event):
    with open(file, "a") as lines:
        lines.write(f"{event.cycle} {event.kind} {event.url}\\n")

class Pipeline:
    async def process_item(self, item):
        await asyncio.sleep(0.1)
        note(sys.argv[4], item)
        return item

class Killed(Spider):
    name = "killed"
    @classmethod
    def from_crawler(cls, crawler, *words, **named):
        spider = super().from_crawler(crawler, *words, **named)
        for one in (signals.page_new, signals.page_changed):
            crawler.signals.connect(spider.note, one)
        return spider
    async def note(self, event):
        await asyncio.sleep(0.1)
        note(sys.argv[3], event)
    async def start(self):
        yield Request(f"{sys.argv[1]}/list")
    def parse(self, response):
        yield from response.follow_all(css="a")

def crawl():
    process = AsyncCrawlerProcess({
        "ADDONS": {"scrapy_gp4c.Addon": 500}, "GP4C_STORE": sys.argv[2], "LOG_LEVEL": "ERROR",
        "GP4C_BUDGET": 1.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4, "TELNETCONSOLE_ENABLED": False,
        "GP4C_CHANGE_ITEMS": True, "ITEM_PIPELINES": {Pipeline: 100},
        "GP4C_ON_CHANGE": f"tee -a {sys.argv[5]}",
    })
    process.crawl(Killed)
    process.start()

for line in sys.stdin:  # forks start faster than programs
    pid = os.fork()
    if not pid:
        crawl()
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_a_killed_crawl_loses_no_signal_no_item_and_no_notice(tmp_path: Path) -> None:
    """Killed at fifty moments of several cycles, a crawl sends the events of all changes at least once.

    A command is told of them in the order of their visits.
    """
    script, web, rng = tmp_path / "killed.py", Web(), random.Random(1)
    script.write_text(KILLED)
    site, files = web.url.removesuffix("/list"), (tmp_path / "signals", tmp_path / "items")
    notices = tmp_path / "notices"
    command = [sys.executable, str(script), site, str(tmp_path / "store"), *map(str, files), str(notices)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    kills = 0
    try:
        while kills < 50:
            web.version += 1
            is_over = False
            while not is_over:
                web.log.clear()
                # Some are killed as they send notices, and some not at all.
                requests = rng.choice([*range(1, PAGES + 2), *[PAGES + 1] * 10, *[PAGES + 20] * 10])
                delay_s = rng.uniform(0, 0.6)
                parent.stdin.write("\n")
                parent.stdin.flush()
                pid = int(parent.stdout.readline())
                with suppress(ProcessLookupError):
                    while len(web.log) < requests:
                        os.kill(pid, 0)
                        time.sleep(0.001)
                    time.sleep(delay_s)
                    os.kill(pid, signal.SIGKILL)
                is_over = int(parent.stdout.readline()) == 0
                kills += not is_over
    finally:
        parent.kill()
        parent.wait()
        web.close()
    for file in files:
        sent = {tuple(line.split()) for line in file.read_text().splitlines()}  # of each page: cycle, kind
        for path in filter(is_changing, LIST):
            kinds = Counter(kind for _, kind, url in sent if url == f"{site}{path}")
            # Of the last version, the next run may still send the event.
            assert kinds["new"] == 1
            assert kinds["changed"] >= web.version - 2
    told = {}
    for line in notices.read_text().splitlines():
        event = json.loads(line)
        told.setdefault((event["url"], event["kind"], event["cycle"]), (event["cycle"], event["time"]))
    assert list(told.values()) == sorted(told.values())
    changes = Counter(url for url, kind, _ in told if kind == "changed")
    assert all(changes[f"{site}{path}"] >= web.version - 2 for path in filter(is_changing, LIST))
