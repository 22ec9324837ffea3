"""Exported results of crawls, and the differences of two of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from scrapy_gp4c.store import export
from scrapy_gp4c.store.opening import open_store

TIMES: Final = ("started", "finished", "seen_min")


class LeftBehind(NamedTuple):
    """Result of a way of crawling."""

    pages: dict[str, dict[str, Any]]
    """URL -> what its line of the export says."""
    records: list[dict[str, Any]]


class Visit(NamedTuple):
    """Differences of two results."""

    pages: Counter[str]
    """Field of a line -> pages whose lines differ in it; pages that only one has are ``page``."""
    records: Counter[str]
    """Field of a record -> cycles."""

    def and_also(self, other: Visit) -> Visit:
        """The most of either."""
        return Visit(self.pages | other.pages, self.records | other.records)

    def beyond(self, other: Visit) -> list[str]:
        """Fields that differ here, and not there."""
        return sorted((self.pages.keys() - other.pages.keys()) | (self.records.keys() - other.records.keys()))


def left_in(store: Path) -> LeftBehind:
    """Read what a store exports; a page's finder by its URL, not by the number of its line."""
    with open_store(store, readonly=True) as opened:
        if problems := opened.verify():
            raise RuntimeError(f"{store}: {problems[0]}")
        first, *rows = export.lines(opened)
    urls, pages = [], []
    for row in rows:
        _, url, bits, details = row.split("\t")
        urls.append(url)
        pages.append({**json.loads(details), "bits": bits})
    for page in pages:
        if isinstance(number := page.get("found_by"), int):
            page["found_by"] = urls[number - 1]
        request = page.get("request", {})
        page["referer"] = request.get("headers", {}).pop("Referer", None)
        page["depth"] = request.get("meta", {}).pop("depth", None)
    records = json.loads(first.removeprefix("# "))["cycles"]
    for record in records:
        rounds = [one for one in record["rounds"] if one["planned"]]
        record["rounds"] = [one["planned"] for one in rounds]
        record["seen"] = [one["seen"] for one in rounds]
    return LeftBehind(dict(zip(urls, pages, strict=True)), records)


def compare(one: LeftBehind, other: LeftBehind) -> Visit:
    """Return in how many pages and cycles which fields differ, but for times."""
    pages = Counter(page=len(one.pages.keys() ^ other.pages.keys()))
    for url in one.pages.keys() & other.pages.keys():
        pages.update(_differing(one.pages[url], other.pages[url]))
    records = Counter(cycles=abs(len(one.records) - len(other.records)))
    for first, second in zip(one.records, other.records, strict=False):
        records.update(_differing(first, second))
    return Visit(+pages, +records)


def in_records(one: LeftBehind, other: LeftBehind) -> Iterator[str]:
    """Differences of the records of each cycle, but for times: a line with both values."""
    for cycle, (first, second) in enumerate(zip(one.records, other.records, strict=False), start=1):
        for name in _differing(first, second):
            yield f"cycle {cycle}, {name}: {first.get(name)} | {second.get(name)}"


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    names = one.keys() | other.keys()
    return [name for name in names if name not in TIMES and one.get(name) != other.get(name)]


def listed(counts: Counter[str]) -> str:
    """A line of what differs."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"
