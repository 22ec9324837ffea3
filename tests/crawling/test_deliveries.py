"""Deliveries: a visit counts when it was used; what was not is delivered again."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import CloseSpider, DropItem
from scrapy.extensions.feedexport import FeedExporter
from scrapy.http import Response

from scrapy_gp4c import visit
from scrapy_gp4c.store.opening import open_store
from tests.support.loopback import Listed, Site, crawl, html, outcomes
from tests.support.served import served

ALL = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1, "GP4C_DISCOVERY": 0.5}
PAGES = 4
PATHS = [f"/{number}" for number in range(PAGES)]


class Failing(Spider):
    """Yields the text of pages that changed; it fails where and how the test says."""

    name = "failing"
    site: Site
    how = ""
    where = "/1"

    async def start(self) -> AsyncIterator[Any]:
        self.seen: dict[str, Any] = {}
        self.items: list[str] = []
        for path in PATHS:
            yield Request(self.site.url(path))

    def parse(self, response: Any) -> Iterator[Any]:
        """Yield an item of a page that changed."""
        page = visit(response)
        path = "/" + response.url.rpartition("/")[2]
        self.seen[path] = (page.outcome, page.is_new, page.changed, page.previous_text)
        bad = path == self.where
        if bad and self.how == "callback":
            raise ValueError("a selector that is none")
        if bad and self.how == "close":
            raise CloseSpider("enough")
        if page.is_new or page.changed:
            text: Any = response.css("p::text").get()
            yield {"path": path, "text": object() if bad and self.how == "not JSON" else text}
        if bad and self.how == "late":
            raise ValueError("after the item")
        if bad and self.how == "withdraw":
            page.withdraw("captcha")
        if bad and self.how in ("yes", "no"):
            page.changed = self.how == "yes"


class Pipeline:
    """Keeps items, unless it fails."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        self = cls()
        self.crawler = crawler  # type: ignore[attr-defined]
        return self

    def process_item(self, item: Any) -> Any:
        spider = self.crawler.spider  # type: ignore[attr-defined]
        if item["path"] == spider.where and spider.how == "pipeline":
            raise OSError("the database is away")
        if item["path"] == spider.where and spider.how == "drop":
            raise DropItem("not wanted")
        spider.items.append(item["path"])
        return item


SETTINGS = {**ALL, "ITEM_PIPELINES": {Pipeline: 1}}


def serve(site: Site, version: int, paths: list[str] = PATHS) -> None:
    """Serve pages of a version."""
    for path in paths:
        site.pages[path] = html(f"version {version} of {path} with " + "words " * 20)


async def cycle(site: Site, path: Path, how: str = "", **settings: Any) -> Any:
    """Crawl once; the spider."""
    return (await crawl(Failing, path, {**SETTINGS, **settings}, site=site, how=how)).spider


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("how", ["callback", "late", "pipeline", "close"])
async def test_a_change_that_was_not_used_is_delivered_again(
    how: str, skip: bool, site: Site, store_path: Path
) -> None:
    """In the next cycle, though the page is as it was when the callback or pipeline failed."""
    settings = {"GP4C_SKIP_UNCHANGED": skip}
    serve(site, 1)
    assert sorted((await cycle(site, store_path, **settings)).items) == PATHS
    serve(site, 2)
    await cycle(site, store_path, how, **settings)
    assert outcomes(store_path, 2)["/1"] == ["changed"]  # of statistics it is a visit as any
    spider = await cycle(site, store_path, **settings)
    assert spider.seen["/1"][:3] == ("changed", False, True)
    assert "/1" in spider.items
    assert outcomes(store_path, 3)["/1"] == ["unchanged"]
    spider = await cycle(site, store_path, **settings)
    assert "/1" not in spider.items
    assert spider.seen.get("/1", ("unchanged",))[0] == "unchanged"
    with open_store(store_path) as store:
        assert store.verify() == []


@pytest.mark.parametrize("how", ["callback", "pipeline"])
async def test_a_new_page_that_was_not_used_is_new_again(how: str, site: Site, store_path: Path) -> None:
    """Until it was used once."""
    serve(site, 1)
    await cycle(site, store_path, how)
    spider = await cycle(site, store_path, how)
    assert spider.seen["/1"][:3] == ("first", True, True)
    spider = await cycle(site, store_path)
    assert spider.seen["/1"][:3] == ("first", True, True)
    assert spider.items == ["/1"]
    assert (await cycle(site, store_path)).items == []


@pytest.mark.parametrize("gone_after", [1, 3])
async def test_a_page_that_was_away_in_between_is_delivered(
    gone_after: int, site: Site, store_path: Path
) -> None:
    """A 404 between a failed callback and the page's return loses no item, and a gone page is not due."""
    settings = {"GP4C_GONE_AFTER": gone_after}
    serve(site, 1)
    await cycle(site, store_path, "callback", **settings)
    del site.pages["/1"]
    serve(site, 2, ["/2"])
    await crawl(Failing, store_path, {**SETTINGS, **settings}, site=site, how="callback", where="/2")
    site.log.clear()
    serve(site, 1)
    spider = await cycle(site, store_path, **settings)
    assert site.hits["GET", "/1"] == 1
    assert spider.seen["/1"][:3] == ("first", True, True)
    assert "/1" in spider.items


@pytest.mark.parametrize("requests", [1, 16])
async def test_a_change_is_delivered_after_a_block_that_was_noticed_late(
    requests: int, site: Site, store_path: Path
) -> None:
    """The first pages with the block's text count as changed, and were delivered, until others have it."""
    settings = {"CONCURRENT_REQUESTS": requests}
    serve(site, 1)
    await cycle(site, store_path, **settings)
    serve(site, 2)
    await cycle(site, store_path, "callback", **settings)
    site.pages.update(dict.fromkeys(PATHS, html("please prove that you are human " * 10)))
    await cycle(site, store_path, **settings)
    assert outcomes(store_path, 3)["/1"] == ["doubtful"]
    serve(site, 2)
    spider = await cycle(site, store_path, **settings)
    assert spider.seen["/1"][:3] == ("changed", False, True)
    assert spider.items == ["/1"]


class WaitingExporter(FeedExporter):
    """A project's own feeds, whose method is a coroutine."""

    async def item_scraped(self, item: Any, spider: Any) -> None:
        super().item_scraped(item, spider)


async def test_an_item_that_its_feed_does_not_take_is_delivered_again(
    site: Site, store_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that JSON has not, or a feed on a file system that nobody can write to."""
    feed = tmp_path / "feed.jsonl"
    for version, how in ((1, ""), (2, "not JSON"), (2, "no directory"), (2, "")):
        serve(site, version)
        feeds = tmp_path / "feed.jsonl" / "below" if how == "no directory" else feed
        settings = {
            "FEEDS": {feeds: {"format": "jsonlines", "overwrite": False}},
            "EXTENSIONS": {FeedExporter: None, FeedExporter if how else WaitingExporter: 0},
        }
        await cycle(site, store_path, how, **settings)
        assert ("/1 is not in its feed (" in caplog.text) == bool(how)
        caplog.clear()
    items = [json.loads(line) for line in feed.read_text().splitlines()]
    assert Counter(item["path"] for item in items) == dict.fromkeys(PATHS, 2)


class Posting(Spider):
    """Completes the items of changed pages by a POST."""

    name = "posting"
    how = ""

    async def start(self) -> AsyncIterator[Any]:
        self.items: list[str] = []
        yield Request(self.site.url("/"))

    def parse(self, response: Any) -> Iterator[Any]:
        if visit(response).is_new or visit(response).changed:
            text = response.css("p::text").get()
            url = "http://127.0.0.1:1/" if self.how == "connection" else self.site.url("/api")
            yield FormRequest(url, self.complete, formdata={"q": "1"}, cb_kwargs={"text": text})

    def complete(self, response: Any, text: str) -> None:
        if self.how == "callback":
            raise ValueError("a price that is none")
        self.items.append(text[:9])


@pytest.mark.parametrize("how", ["callback", "status", "connection", "unsent"])
async def test_a_visit_is_delivered_when_the_requests_of_its_callback_are(
    how: str, site: Site, store_path: Path
) -> None:
    """A change whose item needs a POST comes again if that fails, or is not sent at all."""
    answers = {"status": 200}

    def api(request: Any) -> bytes:
        request.setResponseCode(answers["status"])
        return b"{}"

    site.pages["/api"] = api
    seen = []
    for version, way in ((1, ""), (2, how), (2, ""), (2, "")):
        site.pages["/"] = html(f"version {version} of it with " + "words " * 20)
        answers["status"] = 503 if way == "status" else 200
        settings = {**ALL, "RETRY_ENABLED": False, "CLOSESPIDER_PAGECOUNT": int(way == "unsent")}
        seen.append((await crawl(Posting, store_path, settings, site=site, how=way)).spider.items)
    assert seen == [["version 1"], [], ["version 2"], []]


class Broken(Listed):
    """A spider whose start fails."""

    name = "broken"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.url)  # type: ignore[attr-defined]
        raise KeyError("no more")


async def test_a_start_that_fails_is_one_error(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Scrapy sends the signal of a failed callback for it too, without a response."""
    serve(site, 1)
    await crawl(Broken, store_path, url=site.url("/1"))
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == [
        "scrapy.core.engine"
    ]
    assert outcomes(store_path, 1) == {"/1": ["first"]}


async def test_a_dropped_item_was_used(site: Site, store_path: Path) -> None:
    """By a pipeline that did not want it."""
    serve(site, 1)
    await cycle(site, store_path, "drop")
    assert (await cycle(site, store_path)).seen["/1"][0] == "unchanged"


async def test_it_is_due_whatever_its_score(site: Site, store_path: Path) -> None:
    """Outside the budget of one page."""
    settings = {"GP4C_BUDGET": 1, "GP4C_DISCOVERY": 0.0, "GP4C_SCORE_FUNCTION": "t"}
    serve(site, 1)
    for _ in range(2):
        await cycle(site, store_path, **settings)
    serve(site, 2)
    spider = await cycle(site, store_path, "callback", **{**settings, "GP4C_BUDGET": 1.0})
    assert len(spider.seen) == PAGES
    for number in (4, 5):
        spider = await cycle(site, store_path, "callback" if number == 4 else "", **settings)
        assert spider.seen["/1"][0] == "changed"
        assert len(spider.seen) <= 2
    assert spider.items == ["/1"]


async def test_a_page_that_always_fails_counts_as_delivered(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After three visits, with one error that names it."""
    serve(site, 1)
    for _ in range(3):
        await cycle(site, store_path, "callback")
    errors = [
        record.getMessage() for record in caplog.records if "counts as delivered" in record.getMessage()
    ]
    assert len(errors) == 1
    assert site.url("/1") in errors[0]
    assert (await cycle(site, store_path)).seen["/1"][0] == "unchanged"


async def test_the_text_before_is_that_which_was_used(site: Site, store_path: Path) -> None:
    """Not that of the visit that failed."""
    pytest.importorskip("zstandard")
    settings = {"GP4C_ARCHIVE": True}
    serve(site, 1)
    await cycle(site, store_path, **settings)
    serve(site, 2)
    await cycle(site, store_path, "callback", **settings)
    spider = await cycle(site, store_path, **settings)
    assert "version 1 of /1" in spider.seen["/1"][3]
    assert "version 2 of /0" in (await cycle(site, store_path, **settings)).seen["/0"][3]


async def test_a_spider_withdraws_an_answer(site: Site, store_path: Path) -> None:
    """A captcha is no change, nor is the page after it; the page is due again soon."""
    serve(site, 1)
    await cycle(site, store_path)
    site.pages["/1"] = html("are you human?")
    await cycle(site, store_path, "withdraw")
    assert outcomes(store_path, 2)["/1"] == ["error"]
    serve(site, 1)
    spider = await cycle(site, store_path, GP4C_BUDGET=1, GP4C_DISCOVERY=0.0)
    assert spider.seen["/1"][0] == "unchanged"
    assert spider.items == []


class Retrying(Failing):
    """Asks once more by Scrapy's own function where the site was busy."""

    name = "retrying"

    def parse(self, response: Any) -> Any:
        if b"busy" in response.body:
            return get_retry_request(response.request, spider=self, reason="busy")
        return super().parse(response)


@pytest.mark.parametrize("skip", [False, True])
async def test_an_answer_for_which_the_callback_asks_again_is_not_the_page(
    skip: bool, site: Site, store_path: Path
) -> None:
    """Else a site that is busy at first would be unchanged for ever, and its pages would be skipped."""
    asked: Counter[str] = Counter()

    def page(request: Any) -> bytes:
        path = request.uri.decode()
        asked[path] += 1
        busy = f"busy{path[1:]} " * 20  # of its own, else it would be doubted as a block is
        return html(busy if asked[path] % 2 else f"version {site.version} of {path}").encode()

    site.pages = dict.fromkeys(PATHS, page)
    for day, site.version in enumerate((1, 1, 2, 2), 1):
        settings = {**SETTINGS, "GP4C_SKIP_UNCHANGED": skip}
        spider: Any = (await crawl(Retrying, store_path, settings, site=site, how="")).spider
        assert sorted(spider.items) == (PATHS if day in (1, 3) else []), day
        outcome = {1: "first", 3: "changed"}.get(day, "unchanged")
        assert outcomes(store_path, day) == {path: [outcome] for path in PATHS}


@pytest.mark.parametrize(("how", "outcome"), [("yes", "changed"), ("no", "unchanged")])
async def test_a_spider_knows_better(how: str, outcome: str, site: Site, store_path: Path) -> None:
    """Whether a page changed."""
    serve(site, 1)
    await cycle(site, store_path)
    if how == "no":
        serve(site, 2)
    await cycle(site, store_path, how)
    assert outcomes(store_path, 2)["/1"] == [outcome]
    assert (await cycle(site, store_path)).seen["/1"][0] == "unchanged"
    with open_store(store_path) as store:
        assert store.verify() == []


class Asking(Spider):
    """Asks for all kinds of responses."""

    name = "asking"
    site: Site

    async def start(self) -> AsyncIterator[Any]:
        self.seen: dict[str, Any] = {}
        yield Request(self.site.url("/0"))
        yield Request(self.site.url("/1"), meta={"gp4c": False})
        yield FormRequest(self.site.url("/2"), formdata={"a": "b"})

    def parse(self, response: Response) -> None:
        page = visit(response)
        assert page is visit(response) is response.meta["gp4c"]
        assert page.get("nothing") is None
        self.seen[response.url[-2:]] = (
            page.managed, page.is_new, page.changed, page.unchanged, page.previous_text, page.diff(),
            page.distance,
        )  # fmt: skip
        page.withdraw()
        page.changed = True


async def test_every_response_has_a_visit(site: Site, store_path: Path) -> None:
    """Of a POST and of what opted out, one that is not managed; without the scheduler as well."""
    serve(site, 1)
    free = (False, True, None, False, None, "", None)
    crawler = await crawl(Asking, store_path, ALL, site=site)
    assert crawler.spider.seen == {"/0": (True, True, None, False, None, "", None), "/1": free, "/2": free}
    crawl_settings = {**ALL, "SCHEDULER": "scrapy.core.scheduler.Scheduler"}
    crawler = await crawl(Asking, store_path, crawl_settings, site=site)
    assert crawler.spider.seen == dict.fromkeys(("/0", "/1", "/2"), free)
    assert visit(Response("http://h/")).managed is False


KILLED = """
import sys, time
from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy_gp4c import visit

class Killed(Spider):
    name = "killed"
    async def start(self):
        for number in range(30):
            yield Request(f"{sys.argv[1]}/{number}")
    def parse(self, response):
        page = visit(response)
        if page.is_new or page.changed:
            yield {"url": response.url}

if __name__ == "__main__":
    process = AsyncCrawlerProcess({
        "ADDONS": {"scrapy_gp4c.Addon": 500}, "GP4C_STORE": sys.argv[2], "LOG_LEVEL": "ERROR",
        "FEEDS": {sys.argv[3]: {"format": "jsonlines", "batch_item_count": int(sys.argv[5])}},
        "GP4C_SKIP_UNCHANGED": sys.argv[4] == "1",
        "GP4C_BUDGET": 1.0, "CONCURRENT_REQUESTS": 4, "TELNETCONSOLE_ENABLED": False,
    })
    process.crawl(Killed)
    process.start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("skip", ["0", "1"])
@pytest.mark.parametrize(("delay_s", "batch"), [(0.9, 0), (1.1, 0), (1.3, 0), (1.5, 0), (1.3, 7)])
def test_a_killed_crawl_loses_no_item(delay_s: float, batch: int, skip: str, tmp_path: Path) -> None:
    """Of thirty pages that answer slowly: killed, and run until a run ends, every item is in the feed."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    feed = tmp_path / ("%(batch_time)s-%(batch_id)d.jsonl" if batch else "items.jsonl")

    def slow_page(path: str) -> str:
        time.sleep(0.03)
        return f"<html><body><p>the page {path} has words</p></body></html>"

    with served(slow_page, {"ETag": '"1"'}) as url:
        command = [sys.executable, str(script), url, str(tmp_path / "store"), str(feed), skip, str(batch)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        for _ in range(2):
            process = subprocess.Popen(command, env=environment)
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 0
        items: Counter[str] = Counter()
        for line in "\n".join(path.read_text() for path in tmp_path.glob("*.jsonl")).splitlines():
            try:
                items[json.loads(line)["url"]] += 1
            except ValueError:  # torn by a kill
                continue
        assert sorted(items) == sorted(f"{url}/{number}" for number in range(30))
