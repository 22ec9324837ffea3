"""Feeds of page events: JSON Feed 1.1 for a file ``*.json``, else Atom (RFC 4287)."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.notices.events import SUMMARY, PageEvent
from scrapy_gp4c.store.atomic_files import write

_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2
_YEAR_9999_S: Final = 253_370_764_800.0
ENTRIES: Final = 200
"""Most entries of a feed: its newest events."""
FEED_EVENTS: Final = "feed_events.json"
"""Name of the file of `FeedEvents` in the store's directory."""


class FeedEvents:
    """File `FEED_EVENTS` of a store with its newest `ENTRIES` events, so that a feed reads no visits."""

    def __init__(self, store_path: Path) -> None:
        self._path = store_path / FEED_EVENTS

    def read(self, last_cycle: int, pages: int) -> list[PageEvent] | None:
        """Read the newest events up to `last_cycle`; None: the caller has to take them from the visits.

        None is returned if the file is missing, or of another cycle or number of the store's `pages`.
        """
        try:
            record = json.loads(self._path.read_text("utf-8"))
            if (record["cycle"], record["pages"]) != (last_cycle, pages):
                return None
            return [
                PageEvent(**{**one, "diff": one["diff"] and tuple(one["diff"])}) for one in record["events"]
            ]
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def add(self, cycle: int, before: list[PageEvent], events: list[PageEvent], pages: int) -> None:
        """Write the newest of all events: those of earlier cycles, `before`, and those of `cycle`.

        ``pages``: as for `read`.
        """
        newest = [asdict(event) for event in [*before, *events][-ENTRIES:]]
        write(self._path, json.dumps({"cycle": cycle, "pages": pages, "events": newest}).encode())


def write_feed(path: Path, spider: str, store_id: str, events: Iterable[PageEvent]) -> int:
    """Write the newest of `events` as a feed to the file `path`; returns the number of entries.

    ``*.json`` is a JSON Feed, all else Atom. Raises SettingsError where feedgen is missing.
    """
    entries = list(events)[-ENTRIES:][::-1]
    text = _json_feed(spider, entries) if path.suffix == ".json" else _atom(spider, store_id, entries)
    write(path, text)
    return len(entries)


def _title(event: PageEvent) -> str:
    return f"{SUMMARY[event.kind]}: {event.url}"


def _id(event: PageEvent) -> str:
    return uuid5(NAMESPACE_URL, f"{event.url} {event.spider} {event.cycle} {event.kind}").urn


def _content(event: PageEvent) -> str:
    words = [f"<p>{escape(SUMMARY[event.kind])} (cycle {event.cycle}, change {event.changes})</p>"]
    if event.diff:
        words.append(f"<pre>{escape(chr(10).join(event.diff))}</pre>")
    return "".join(words)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0.0), _YEAR_9999_S), UTC)  # of a clock that was wrong


def _json_feed(spider: str, entries: list[PageEvent]) -> bytes:
    document = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": f"Changes found by {spider}",
        "items": [
            {
                "id": _id(event),
                "url": event.url,
                "title": _title(event),
                "content_html": _content(event),
                "date_published": _time(event.time).isoformat(),
                "tags": [event.kind],
            }
            for event in entries
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode(errors="replace")


def _atom(spider: str, store_id: str, entries: list[PageEvent]) -> bytes:
    if find_spec("feedgen") is None:
        raise SettingsError(
            "an Atom feed needs feedgen: pip install 'scrapy-gp4c[notify]', or name the feed *.json"
        )
    from feedgen.feed import FeedGenerator

    feed = FeedGenerator()
    feed.id(uuid5(NAMESPACE_URL, store_id).urn)
    feed.title(f"Changes found by {spider}")
    feed.author(name=spider)
    feed.updated(_time(entries[0].time if entries else 0.0))
    for event in entries:
        entry = feed.add_entry(order="append")
        entry.id(_id(event))
        entry.title(_printable(_title(event)))
        entry.link(href=event.url)
        entry.updated(_time(event.time))
        entry.category(term=event.kind)
        entry.content(_printable(_content(event)), type="html")
    return feed.atom_str(pretty=True)


def _printable(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
