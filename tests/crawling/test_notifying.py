"""Notices of real crawls: messages, a command, a feed and metrics at the end of each cycle."""

import json
import logging
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from scrapy_gp4c.archive.differences import differences
from scrapy_gp4c.crawling import notifying
from scrapy_gp4c.crawling.notifying import recent_events
from scrapy_gp4c.notices import receivers
from scrapy_gp4c.notices.events import PageEvent
from scrapy_gp4c.notices.feeds import FEED_EVENTS
from scrapy_gp4c.notices.outbox import DIRECTORY, Outbox
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.notices.test_sending import Hook, hook
from tests.support.loopback import Listed, Site, crawl, html, outcomes

__all__ = ["hook"]
PATHS = [f"/{number}" for number in range(4)]


async def test_a_crawl_tells_of_changed_new_and_gone_pages(
    site: Site, store_path: Path, tmp_path: Path, hook: Hook
) -> None:
    """The second cycle tells once, with the words that changed; the first tells nobody."""

    class Watching(Listed):
        name = "watching"
        start_urls: ClassVar[list[str]] = []

    lines = tmp_path / "lines"
    script = f"import sys; open({str(lines)!r}, 'a').write(sys.stdin.read())"
    settings = {
        "GP4C_NOTIFY": [hook.url],
        "GP4C_ON_CHANGE": f'{sys.executable} -c "{script}"',
        "GP4C_FEED": str(tmp_path / "{spider}" / "changes.json"),  # else the next spider's would replace it
        "GP4C_METRICS": str(tmp_path / "{spider}.prom"),
        "GP4C_ARCHIVE": True,
        "GP4C_GONE_AFTER": 1,
        "GP4C_BUDGET": 1.0,
    }
    site.pages.update({path: html(f"the price of {path} is 10 euros, as it was last week") for path in PATHS})
    Watching.start_urls = [site.url(path) for path in PATHS]
    await crawl(Watching, store_path, settings)
    assert hook.received == []
    site.pages["/1"] = html("the price of /1 is 12 euros, as it was last week")
    site.pages["/new"] = html("a page that is new")
    del site.pages["/2"]
    Watching.start_urls.append(site.url("/new"))
    await crawl(Watching, store_path, settings)
    (message,) = hook.received
    assert message["title"] == "watching: 1 new, 1 changed, 1 gone"
    assert "[-10-] {+12+}" in message["message"]
    events = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {(one["kind"], one["url"]) for one in events} == {
        ("changed", site.url("/1")),
        ("gone", site.url("/2")),
        ("failing", site.url("/2")),
        ("new", site.url("/new")),
    }
    feed = json.loads((tmp_path / "watching" / "changes.json").read_text())
    assert {item["title"] for item in feed["items"]} >= {f"changed: {site.url('/1')}"}
    assert 'gp4c_visits{outcome="changed",spider="watching"} 1.0' in (tmp_path / "watching.prom").read_text()


async def test_without_settings_no_event_is_made(
    site: Site, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its record nor a file: a crawl of which nobody is to be told costs and keeps no more."""

    def fail(*words: Any, **named: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(PageEvent, "__init__", fail)
    urls = [site.url(path) for path in PATHS]
    for version in range(2):
        site.pages = {path: html(f"version {version} of a page") for path in PATHS[version:]}
        await crawl(Listed, store_path, {"GP4C_BUDGET": 1.0}, start_urls=urls)
    assert {"/0": ["gone"], "/1": ["changed"]}.items() <= outcomes(store_path, 2).items()
    with Store(store_path, readonly=True) as store:
        assert not any("signalled" in record for record in store.cycles())
    assert not {DIRECTORY, FEED_EVENTS} & {file.name for file in store_path.iterdir()}


async def test_a_feed_reads_no_visits_of_earlier_cycles(
    site: Site, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of hourly cycles has millions of them; a file that is lost is made of them anew."""

    feed = tmp_path / "changes.json"
    settings = {"GP4C_FEED": str(feed), "GP4C_BUDGET": 1.0}
    passes: list[int] = []

    def counted(store: Any, *arguments: Any) -> Any:
        passes.append(store.last_cycle)
        return recent_events(store, *arguments)

    monkeypatch.setattr(notifying, "recent_events", counted)
    feeds = []
    for version in range(5):
        site.pages["/0"] = html(f"version {version} of a page")
        if version == 4:
            (store_path / FEED_EVENTS).unlink()
        await crawl(Listed, store_path, settings, start_urls=[site.url("/0")])
        feeds.append(json.loads(feed.read_text())["items"])
    assert passes == [1, 1, 4]  # the first cycle, the second, and the one after the loss
    assert [len(items) for items in feeds] == [0, 1, 2, 3, 4]
    assert feeds[4][1:] == feeds[3]


async def test_a_message_that_could_not_be_sent_is_sent_by_the_next_run(
    site: Site,
    store_path: Path,
    hook: Hook,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the receiver is down the crawl ends well, with one warning that hides its password.

    Differences are made of the pages that a message names: those of 10,000 changes took minutes.
    """

    settings = {"GP4C_NOTIFY": [hook.url], "GP4C_BUDGET": 1.0, "GP4C_ARCHIVE": True}
    hook.status = 503
    compared: list[str] = []

    def noted(before: str, after: str) -> Any:
        compared.append(after)
        return differences(before, after)

    monkeypatch.setattr(notifying, "differences", noted)
    monkeypatch.setattr(receivers, "NAMED_PAGES", 1)
    urls = [site.url(path) for path in PATHS]
    for version in range(2):
        site.pages.update({path: html(f"version {version} of a page") for path in PATHS})
        await crawl(Listed, store_path, settings, start_urls=urls)
    assert len(compared) == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([line for line in warnings if "will be sent again by the next run" in line]) == 1
    assert "secret" not in caplog.text
    assert len(list(Outbox(store_path).waiting())) == 1
    hook.status = 200
    await crawl(Listed, store_path, settings, start_urls=urls)
    (message,) = hook.received
    assert message["title"] == "listed: 4 changed"
    assert "[-0-] {+1+}" in message["message"]
    assert list(Outbox(store_path).waiting()) == []
