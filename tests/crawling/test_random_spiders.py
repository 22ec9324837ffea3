"""Spiders at random against an oracle: no change is lost, and no item has data of an earlier cycle."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from scrapy.exceptions import DropItem
from twisted.internet.threads import deferToThread

from scrapy_gp4c import visit
from scrapy_gp4c.signals import page_changed, page_new
from tests.support.loopback import ADDONS, QUIET, Site, crawl, html

LISTS, ITEMS, CYCLES, CLEAN = 3, 12, 8, 3


class Random(Spider):
    """Hands the day on by what the test says, and fails where it says."""

    name = "random"
    site: Site
    day: int
    way: str
    bad: dict[str, str]
    withdraws = False
    posts = False
    """Whether items are completed by a POST."""

    async def start(self) -> AsyncIterator[Any]:
        self.items: list[tuple[str, int, int]] = []
        self.seen: list[tuple[str, int]] = []
        self.asked: set[str] = set()
        self.events: list[str] = []
        for number in range(LISTS):
            yield self.ask(self.site.url(f"/list/{number}"), self.parse_list)

    def ask(self, url: str, callback: Any) -> Request:
        """Ask for a page with what there is today."""
        if self.way == "cb_kwargs":
            return Request(url, callback, cb_kwargs={"day": self.day})
        if self.way == "meta":
            return Request(url, callback, meta={"day": self.day})
        return Request(url, callback, headers={"X-Day": str(self.day)})

    def today(self, response: Any, day: int | None) -> int:
        """The day that the request of a response has."""
        value = {"cb_kwargs": day, "meta": response.meta.get("day")}.get(self.way)
        return int(response.request.headers["X-Day"] if value is None else value)

    def parse_list(self, response: Any, day: int | None = None) -> Iterator[Any]:
        for link in response.css("a::attr(href)").getall():
            self.asked.add(link)
            yield self.ask(response.urljoin(link), self.parse_item)

    def parse_item(self, response: Any, day: int | None = None) -> Iterator[Any]:
        """Yield an item of a page that changed, unless it fails."""
        path = "/" + response.url.split("/", 3)[3]
        page = visit(response)
        if b"captcha" in response.body:
            if self.withdraws:
                page.withdraw("captcha")
            return
        version = int(response.css("p::text").re_first(r"version(\d+)x"))
        self.seen.append((path, version))
        how = self.bad.get(path)
        if how == "callback":
            raise ValueError("a selector")
        if page.is_new or page.changed:
            item = {"item": (path, version, self.today(response, day)), "how": how}
            if self.posts:
                url, kwargs = self.site.url("/post"), {"item": item}
                yield FormRequest(url, self.parse_post, method="POST", cb_kwargs=kwargs, dont_filter=True)
            else:
                yield item
        if how == "late":
            raise ValueError("after the item")

    def parse_post(self, response: Any, item: Any) -> Iterator[Any]:
        yield item

    def note_event(self, event: Any) -> None:
        self.events.append("/" + event.url.split("/", 3)[3])


class Pipeline:
    """Keeps items, drops them, or fails."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        for signal_of_page in (page_new, page_changed):
            crawler.signals.connect(crawler.spider.note_event, signal_of_page)
        return cls(crawler)

    def process_item(self, item: Any) -> Any:
        if item["how"] == "pipeline":
            raise OSError("the database is away")
        self.crawler.spider.items.append(item["item"])
        if item["how"] == "drop":
            raise DropItem("seen")
        return item


def refusal(status: int) -> Any:
    """A page that is a captcha, or an error which a site that refuses a crawler sends."""

    def page(request: Any) -> bytes:
        request.setResponseCode(status)
        return html("please solve this captcha " + "and prove that you are human " * 10).encode()

    return page


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_no_change_is_lost_and_no_item_is_of_yesterday(seed: int, site: Site, store_path: Path) -> None:
    """Whatever fails or is refused: a page that was visited is delivered as it is now, with data of today."""
    draw = random.Random(seed)
    settings = {
        "GP4C_POLICY": draw.choice([None, "top_k", "rounds(rounds=3)"]),
        "GP4C_WARMUP_VISITS": draw.choice([0, 1, 2]),
        "GP4C_SKIP_UNCHANGED": draw.random() < 0.5,
        "GP4C_REDELIVER": 1_000,
        "GP4C_GONE_AFTER": 255,
        "CONCURRENT_REQUESTS": draw.choice([1, 4, 16]),
        "ITEM_PIPELINES": {Pipeline: 1},
        "GP4C_PANEL": draw.choice([0.0, 0.2]),
    }
    settings["RETRY_ENABLED"] = draw.random() < 0.5
    way, withdraws = draw.choice(["cb_kwargs", "meta", "headers"]), draw.random() < 0.5
    posts, site.pages["/post"] = draw.random() < 0.3, html("done")
    versions = {f"/item/{number}": 1 for number in range(ITEMS)}
    delivered: dict[str, int] = {}
    for day in range(1, CYCLES + CLEAN + 1):
        is_clean = day > CYCLES
        for path in versions:
            if day > 1 and not is_clean and draw.random() < 0.3:
                versions[path] += 1
        places: list[list[str]] = [[] for _ in range(LISTS)]  # items move from list to list
        for path in versions:
            places[draw.randrange(LISTS)].append(path)
        for number, paths in enumerate(places):
            site.pages[f"/list/{number}"] = html(f"the list {number} of day{day}x", paths)
        for path, version in versions.items():
            site.pages[path] = html(f"what is said of {path} in version{version}x " + f"word{version}x " * 30)
        share = 0.0 if is_clean else draw.choice([0.0, 0.0, 0.3, 1.0])  # of answers that are none: captchas,
        refused = {path for path in versions if draw.random() < share}  # and errors, also of the site
        for path in sorted(refused):
            site.pages[path] = refusal(draw.choice([200, 200, 403, 404, 429, 500, 503]))
        bad = {
            path: draw.choice(["callback", "late", "pipeline", "drop"])
            for path in versions
            if not is_clean and draw.random() < 0.25
        }
        crawl_settings = {**settings, "GP4C_BUDGET": 1.0 if is_clean else draw.choice([0.3, 0.6, 1.0])}
        arguments = {"day": day, "way": way, "bad": bad, "withdraws": withdraws, "posts": posts}
        crawler = await crawl(Random, store_path, crawl_settings, site=site, **arguments)
        spider: Any = crawler.spider
        assert {of for path, _, of in spider.items if path in spider.asked} <= {day}  # others as stored
        got = {path: version for path, version, _ in spider.items}
        for path, version in spider.seen:
            if bad.get(path) in (None, "drop") and delivered.get(path) != version:
                assert got.get(path) == version, (day, path)
        used = {path: version for path, version in got.items() if bad.get(path) in (None, "drop")}
        assert len(got) == len(spider.items)
        events = [path for path in spider.events if "/item/" in path and path not in refused]
        assert sorted(events) == sorted(used)
        delivered |= used
    assert delivered == versions


class Mortal(Random):
    """A spider that writes down what it asks for, and whose process is killed at some moment."""

    name = "mortal"
    file: Any
    moment: str
    lives: int
    """So many moments of that kind come before the one of the kill."""

    def may_die(self, moment: str) -> None:
        """Kill this process if it is time."""
        if moment == self.moment:
            self.lives -= 1
            if self.lives < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def parse_list(self, response: Any, day: int | None = None) -> Iterator[Any]:
        for request in super().parse_list(response, day):
            self.may_die("link")
            self.file.write(json.dumps({"asked": "/" + request.url.split("/", 3)[3]}) + "\n")
            yield request

    def parse_item(self, response: Any, day: int | None = None) -> Iterator[Any]:
        self.may_die("callback")
        yield from super().parse_item(response, day)
        self.may_die("end of callback")


class MortalPipeline(Pipeline):
    """Writes items to a file, as a database would."""

    def process_item(self, item: Any) -> Any:
        spider = self.crawler.spider
        spider.may_die("before the item")
        super().process_item(item)
        spider.file.write(json.dumps({"item": item["item"]}) + "\n")
        spider.may_die("after the item")
        return item


MOMENTS = ["link", "callback", "end of callback", "before the item", "after the item"]
MORTAL = """
import json, sys
from types import SimpleNamespace
from scrapy.utils.reactor import install_reactor
install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
from scrapy.crawler import AsyncCrawlerProcess
from tests.crawling.test_random_spiders import Mortal, MortalPipeline
settings, arguments, url, path = map(json.loads, sys.argv[1:])
process = AsyncCrawlerProcess({**settings, "ITEM_PIPELINES": {MortalPipeline: 1}})
site = SimpleNamespace(url=lambda path: url + path)
process.crawl(Mortal, site=site, file=open(path, "a", buffering=1), **arguments)
process.start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_no_change_is_lost_when_runs_are_killed(seed: int, site: Site, tmp_path: Path) -> None:
    """At any moment of a callback or pipeline; what is delivered has the data of the run that delivers it."""
    draw = random.Random(seed)
    settings = {
        "ADDONS": ADDONS, "GP4C_STORE": str(tmp_path / "store"), "GP4C_WARMUP_VISITS": draw.choice([0, 1]),
        "GP4C_SKIP_UNCHANGED": draw.random() < 0.5, "GP4C_REDELIVER": 1_000, "GP4C_SHARED_ARGS": "day lives",
        "CONCURRENT_REQUESTS": draw.choice([1, 4]), "LOG_LEVEL": "ERROR", **QUIET,
    }  # fmt: skip
    way, file = draw.choice(["cb_kwargs", "meta", "headers"]), tmp_path / "items"
    versions, delivered, kills = {f"/item/{number}": 1 for number in range(ITEMS)}, set[Any](), 0
    for day in range(1, CYCLES + CLEAN + 1):
        is_clean = day > CYCLES
        for path in versions:
            versions[path] += day > 1 and not is_clean and draw.random() < 0.3
            site.pages[path] = html(f"{path} in version{versions[path]}x " + f"word{versions[path]}x " * 30)
        for number in range(LISTS):
            site.pages[f"/list/{number}"] = html(
                f"the list {number} of day{day}x", list(versions)[number::LISTS]
            )
        bad = {
            path: draw.choice(["callback", "late", "pipeline"]) for path in versions if draw.random() < 0.2
        }
        arguments = {
            "day": day, "way": way, "bad": {} if is_clean else bad, "lives": draw.randrange(ITEMS),
            "moment": "" if is_clean else draw.choice(MOMENTS),
        }  # fmt: skip
        budget = 1.0 if is_clean else draw.choice([0.5, 1.0])
        run_arguments = [{**settings, "GP4C_BUDGET": budget}, arguments, site.url(""), str(file)]
        file.write_text("")
        run = subprocess.Popen(
            [sys.executable, "-c", MORTAL, *map(json.dumps, run_arguments)], cwd=Path.cwd()
        )
        code = await deferToThread(run.wait)
        kills += code == -signal.SIGKILL
        assert code in (0, -signal.SIGKILL)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        asked = {line["asked"] for line in lines if "asked" in line}
        items = [line["item"] for line in lines if "item" in line]
        assert {of for path, _, of in items if path in asked} <= {day}
        delivered.update((path, version) for path, version, _ in items)
    assert kills >= 2
    assert delivered.issuperset(versions.items())
