"""What sitemaps and feeds claim: URLs with the times at which they say to have changed.

Sitemaps are read by Scrapy's own reader, feeds by feedparser (the extra ``hints``), which is imported when
the first feed passes. Neither follows entities or fetches anything.
"""

from __future__ import annotations

import calendar
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from math import isnan, nan
from operator import itemgetter
from time import struct_time
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import numpy as np
import numpy.typing as npt
from scrapy.utils.gz import gunzip, gzip_magic_number
from scrapy.utils.sitemap import Sitemap

if TYPE_CHECKING:
    from scrapy.http import Response

MAX_SITEMAP_BYTES: Final = 50 * 2**20
"""Most that the protocol of sitemaps allows, unpacked."""
MAX_FEED_BYTES: Final = 5 * 2**20
BATCH: Final = 4_096
HEAD_BYTES: Final = 2_048
"""In these the first element of a sitemap or feed is looked for."""
DAY_S: Final = 86_400.0
PERIOD_S: Final = {
    "always": 0.0,
    "hourly": 3_600.0,
    "daily": DAY_S,
    "weekly": 7 * DAY_S,
    "monthly": 30 * DAY_S,
    "yearly": 365 * DAY_S,
    "never": 1e9,
}
"""``changefreq`` -> for how long a page is said to stay as it is, s."""

_FIRST: Final = re.compile(rb"<(?:\w+:)?(urlset|sitemapindex|rss|feed|rdf)[\s>]", re.IGNORECASE)
_LEADING: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?!html|!doctype\s+html)", re.IGNORECASE)
_MONTH: Final = re.compile(r"\d{4}(-\d\d)?")


class HintsError(ValueError):
    """What was to be read cannot be; the text says why."""


class Claims(NamedTuple):
    """What is said of some pages."""

    urls: list[str]
    changed_s: npt.NDArray[np.float64]
    """``[U]``: when each changed, s since 1970; NaN: nothing is said of it."""
    period_s: npt.NDArray[np.float64]
    """``[U]``: for how long it is said to stay as it is, s; NaN: nothing is said of it."""
    unreadable: list[str]
    """Dates that say no time."""


def kind_of(response: Response) -> str | None:
    """Tell whether a response is a sitemap or a feed, by its first element: ``sitemap``, ``feed``, or
    None."""
    body = response.body
    if gzip_magic_number(response):
        path = urlsplit(response.url).path.lower()
        return "sitemap" if path.endswith(".xml.gz") or "sitemap" in path else None
    head = body[:HEAD_BYTES]
    if not _LEADING.match(head):
        return None
    found = _FIRST.search(head)
    if found is None:
        return None
    return "sitemap" if found[1].lower() in (b"urlset", b"sitemapindex") else "feed"


def read_sitemap(response: Response) -> Iterator[Claims]:
    """Yield what a sitemap, or an index of sitemaps, says; raises HintsError for what is none."""
    body = response.body
    try:
        if gzip_magic_number(response):
            body = gunzip(body, max_size=MAX_SITEMAP_BYTES)
        if len(body) > MAX_SITEMAP_BYTES:
            raise HintsError(f"expected at most {MAX_SITEMAP_BYTES:,} bytes; found {len(body):,}")
        sitemap = Sitemap(body)
        if sitemap.type not in ("urlset", "sitemapindex"):
            raise HintsError(f"expected urlset or sitemapindex; found {sitemap.type!r}")
        entries = filter(itemgetter("loc"), sitemap)
        while True:
            # Lists of texts alone: tuples and dictionaries would keep Python's collector busy.
            urls: list[str] = []
            dates: list[str | None] = []
            frequencies: list[str | None] = []
            for entry in islice(entries, BATCH):
                urls.append(entry["loc"])
                dates.append(entry.get("lastmod"))
                frequencies.append(entry.get("changefreq"))
            if not urls:
                return
            changed_s = np.array([seconds_of(date) if date else nan for date in dates])
            period_s = np.array([PERIOD_S.get(one.lower(), nan) if one else nan for one in frequencies])
            unreadable = [date for row in np.flatnonzero(np.isnan(changed_s)) if (date := dates[row])]
            yield Claims(urls, changed_s, period_s, unreadable)
    except (SyntaxError, StopIteration, OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, HintsError):
            raise
        raise HintsError(f"it cannot be read: {error!r}") from error


def seconds_of(text: str) -> float:
    """The time that a date of a sitemap stands for, s since 1970; NaN for what is none.

    ISO 8601 as W3C restricts it, or a date as in mails; without a zone UTC. A month or a day stands for its
    end, because a page that changed in it may have done so after a visit in it.
    """
    try:
        if len(text) > 10:
            return _seconds(datetime.fromisoformat(text))
        if _MONTH.fullmatch(text):
            year, month = int(text[:4]), int(text[5:] or 12)
            return _seconds(datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)) - 1.0
        return _seconds(datetime.fromisoformat(text)) + DAY_S - 1.0
    except (ValueError, OverflowError):
        return mail_seconds_of(text)


def mail_seconds_of(text: str) -> float:
    """The time of a date as in mails and headers (RFC 9110, section 5.6.7), s since 1970; NaN for none."""
    try:
        return _seconds(parsedate_to_datetime(text))
    except (ValueError, OverflowError, TypeError, IndexError):
        return nan


def _seconds(date: datetime) -> float:
    return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()


def read_feed(response: Response) -> Iterator[Claims]:
    """Yield what a feed says of its entries; raises HintsError, or ImportError without feedparser."""
    if len(response.body) > MAX_FEED_BYTES:
        raise HintsError(f"expected at most {MAX_FEED_BYTES:,} bytes; found {len(response.body):,}")
    import feedparser

    try:
        found = feedparser.parse(io.BytesIO(response.body), sanitize_html=False, resolve_relative_uris=False)
    except Exception as error:  # of any parser below it
        raise HintsError(f"it cannot be read: {error!r}") from error
    entries, urls = [], []
    for entry in found.entries:
        with suppress(ValueError):  # a link that is no URL
            if entry.get("link"):
                urls.append(urljoin(response.url, entry["link"]))
                entries.append(entry)
    dates = [_date_of(entry) for entry in entries]
    changed_s = np.array([nan if date is None else date[1] for date in dates])
    unreadable = [date[0] for date in dates if date is not None and isnan(date[1])]
    yield Claims(urls, changed_s, np.full(len(urls), nan), unreadable)


def _date_of(entry: Mapping[str, object]) -> tuple[str, float] | None:
    """Text and time of the date of an entry, NaN for a text that says no time; None: it has no date."""
    fields = dict(entry)  # feedparser's own look-up takes one date for another, and warns of it
    for name in ("updated", "published"):
        if fields.get(name):
            parsed = fields.get(f"{name}_parsed")
            time_s = float(calendar.timegm(parsed)) if isinstance(parsed, struct_time) else nan
            return str(fields[name]), time_s
    return None
