"""Feeds: Atom and JSON Feed, read back by readers of their own."""

import json
import re
from dataclasses import replace
from pathlib import Path

import feedparser
import lxml.etree
import pytest

from scrapy_gp4c.crawling.claim_files import kind_of, read_claims
from scrapy_gp4c.notices.feeds import ENTRIES, write_feed
from tests.notices.test_receivers import event

ATOM = "{http://www.w3.org/2005/Atom}"


def test_an_atom_feed_has_what_rfc_4287_demands(tmp_path: Path) -> None:
    """Feed and entries have one id, title and updated each (sections 4.1.1 and 4.1.2); ids are unique IRIs.

    Dates are those of RFC 3339 (section 3.3), content is escaped (4.1.3.3), and an entry has one link to its
    page (4.1.2).
    """
    path = tmp_path / "changes.xml"
    events = [
        event(
            url=f"http://h/{n}",
            diff=("<b> & [-old-] \x1b{+new \xa0\u200f\u05d0\U0001f469\u200d\U0001f4bb+}",),
        )
        for n in range(3)
    ]
    assert write_feed(path, "news", "store-1", events) == 3
    root = lxml.etree.parse(path).getroot()
    assert root.tag == f"{ATOM}feed"
    entries = root.findall(f"{ATOM}entry")
    for element in (root, *entries):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1
        assert element.findtext(f"{ATOM}id").startswith("urn:uuid:")
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", element.findtext(f"{ATOM}updated")
        )
    for entry in entries:
        (content,), (link,) = (entry.findall(f"{ATOM}{name}") for name in ("content", "link"))
        assert (content.get("type"), len(content), link.get("rel", "alternate")) == ("html", 0, "alternate")
    assert len({entry.findtext(f"{ATOM}id") for entry in entries}) == 3
    assert root.find(f"{ATOM}author/{ATOM}name") is not None
    assert entries[0].find(f"{ATOM}link").get("href") == "http://h/2"
    # Blanks, marks of direction and joined emoji stay; XML forbids the control character.
    shown = "\ufffd{+new \xa0\u200f\u05d0\U0001f469\u200d\U0001f4bb+}"
    assert shown in entries[0].findtext(f"{ATOM}content")
    assert not feedparser.parse(path.read_bytes()).bozo
    assert kind_of(path.read_bytes(), "http://h/feed") == "feed"
    assert read_claims("feed", path.read_bytes(), "http://h/feed").urls == [
        "http://h/2",
        "http://h/1",
        "http://h/0",
    ]


def test_a_json_feed_has_the_newest_events(tmp_path: Path) -> None:
    """Newest first, no more than a feed holds; written in place of the one before."""
    path = tmp_path / "changes.json"
    for count in (1, ENTRIES + 5):
        write_feed(path, "news", "store-1", [event(url=f"http://h/{number}") for number in range(count)])
    feed = json.loads(path.read_text())
    assert feed["version"] == "https://jsonfeed.org/version/1.1"
    assert len(feed["items"]) == ENTRIES
    assert feed["items"][0]["url"] == f"http://h/{ENTRIES + 4}"
    assert len({item["id"] for item in feed["items"]}) == ENTRIES


@pytest.mark.parametrize("name", ["changes.xml", "changes.json"])
def test_hostile_times_and_texts_do_not_end_a_feed(tmp_path: Path, name: str) -> None:
    """A lone surrogate of a page, and clocks of the year 9999 and before 1970."""
    hostile = event(diff=("\ud800<",))
    events = [
        replace(hostile, time=time_s, cycle=n) for n, time_s in enumerate((-1e9, 1e12, 253_402_300_799.9))
    ]
    assert write_feed(tmp_path / name, "news", "store-1", events) == 3
    assert (tmp_path / name).read_text("utf-8").count("9999-01-01") >= 2


@pytest.mark.parametrize("name", ["changes.xml", "changes.json"])
def test_a_feed_without_events_is_a_feed(tmp_path: Path, name: str) -> None:
    """Of a store whose second cycle has yet to come."""
    assert write_feed(tmp_path / name, "news", "store-1", []) == 0
    assert (tmp_path / name).stat().st_size > 50
