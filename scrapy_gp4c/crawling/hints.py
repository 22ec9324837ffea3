"""Hints: claims of sitemaps, feeds and headers about pages, read from responses that pass through a crawl.

Sitemaps and feeds speak for the pages of their own site, and for those of another whose robots.txt names the
sitemap. The headers of an answer speak for its page. Claims are noted together with the visit that brought
them, so that both are in the store or neither; claims about unknown pages are dropped. Sitemaps are read by
Scrapy's own reader, feeds by feedparser (the extra ``hints``), which is imported when the first feed passes.
Neither follows entities or fetches anything.
"""

from __future__ import annotations

import calendar
import io
import logging
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from math import isnan, nan
from operator import itemgetter
from time import struct_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import numpy as np
import numpy.typing as npt
from scrapy.utils.gz import gunzip, gzip_magic_number
from scrapy.utils.sitemap import Sitemap, sitemap_urls_from_robots

from scrapy_gp4c.crawling.admission import log_first
from scrapy_gp4c.errors import HintsError, StoreError
from scrapy_gp4c.page_state.groups import place_of_url

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.http import Response

    from scrapy_gp4c.crawling.cycle import Cycle
    from scrapy_gp4c.crawling.requests import Rebuilder

logger = logging.getLogger(__name__)

# Statistics of claims that were noted, and of what was left out.
CLAIMS: Final = "gp4c/hints/claims"
UNKNOWN: Final = "gp4c/hints/unknown_urls"
FOREIGN: Final = "gp4c/hints/foreign_urls"
UNREADABLE: Final = "gp4c/hints/unreadable"
UNREADABLE_DATES: Final = "gp4c/hints/unreadable_dates"
FEEDS_NOT_READ: Final = "gp4c/hints/feeds_not_read"
MAX_NAMED: Final = 1_000
"""Sitemaps on other sites, named by robots.txt files, that are remembered."""

_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,12})", re.IGNORECASE)
_HINTING_HEADERS: Final = frozenset({b"Last-Modified", b"Cache-Control", b"Expires"})  # as Scrapy spells them
_AT_ONCE: Final = re.compile(r"(?:^|[,\s])no-(?:cache|store)\b", re.IGNORECASE)
MAX_SITEMAP_BYTES: Final = 50 * 2**20
"""Limit of the sitemap protocol, unpacked."""
MAX_FEED_BYTES: Final = 5 * 2**20
BATCH: Final = 4_096
HEAD_BYTES: Final = 2_048
"""Beginning of a body in which the first element of a sitemap or feed is looked for."""
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


class _Sites:
    """A set of sites; most URLs of a file begin alike, so that the last one's answer is remembered."""

    def __init__(self, sites: set[str]) -> None:
        self._sites = sites
        self._last = ("", False)  # the last URL up to its path, and whether that is of the sites

    def have(self, url: str) -> bool:
        """Tell whether a URL is on one of the sites."""
        prefix, is_ours = self._last
        if not prefix or not url.startswith(prefix):
            prefix = url[: url.find("/", 8) + 1]
            is_ours = place_of_url(prefix or url).site in self._sites
            self._last = prefix, is_ours
        return is_ours


class HintReader:
    """Reads the hints of one run."""

    def __init__(self, cycle: Cycle, rebuilder: Rebuilder, spider: Spider) -> None:
        """Take the cycle that visits belong to, and what makes keys of URLs."""
        self._cycle = cycle
        self._spider = spider
        self._keys_of = rebuilder.url_keys
        named = (record["sitemaps"] for record in reversed(cycle.store.cycles()) if "sitemaps" in record)
        self._named: dict[str, list[str]] = next(named, {})
        """URL of a sitemap -> other sites whose robots.txt names it, in this cycle and before."""

    def read(self, response: Response, page: int | None) -> None:
        """Note the claims of a response; ``page``: the page that it is a visit of, None if it is no visit.

        Whatever is wrong with them is counted, and the first case logged; a visit never suffers by it.
        """
        cycle = self._cycle
        if cycle.failure is not None or "cached" in response.flags:
            return
        try:
            if page is not None:
                self._read_headers(response, page)
            if response.status == 200:
                self._read_body(response)
        except StoreError as error:
            cycle.failure = error
        except Exception as error:
            self._warn(UNREADABLE, f"The hints in {response} cannot be read", error)

    def _read_headers(self, response: Response, page: int) -> None:
        if _HINTING_HEADERS.isdisjoint(response.headers.keys()):  # as most answers
            return
        pages, changed = np.array([page], np.uint32), response.headers.get("Last-Modified")
        if changed is not None and not isnan(changed_s := mail_seconds_of(changed.decode("latin-1"))):
            self._cycle.store.hints.note(pages, "modified", np.clip([changed_s], 0.0, time.time()))
        if (span_s := span_of(response)) is not None:
            self._cycle.store.hints.note(pages, "expires", np.array([span_s]))

    def _read_body(self, response: Response) -> None:
        kind = kind_of(response)
        if kind is None:
            path = response.url.lower()
            if "robots.txt" not in path and "sitemap" not in path:
                return
            path = urlsplit(path).path
            if path == "/robots.txt":
                self._read_robots(response)
            elif "sitemap" in path and path.endswith((".xml", ".xml.gz")):
                self._warn(UNREADABLE, f"The sitemap {response.url} is not read", "it is no sitemap")
            return
        try:
            self._note(kind, response, read_sitemap(response) if kind == "sitemap" else read_feed(response))
        except HintsError as error:
            self._warn(UNREADABLE, f"The {kind} {response.url} is not read", error)
        except ImportError:
            line = "Feeds are not read for hints: install `scrapy-gp4c[hints]`, or set GP4C_HINTS to False."
            log_first(self._cycle.stats, FEEDS_NOT_READ, line, {"spider": self._spider})

    def _read_robots(self, response: Response) -> None:
        site = place_of_url(response.url).site
        named = {
            url
            for url in islice(sitemap_urls_from_robots(response.body, response.url), MAX_NAMED)
            if place_of_url(url).site != site and site not in self._named.get(url, ())
        }
        if named and sum(map(len, self._named.values())) + len(named) <= MAX_NAMED:
            self._named |= {url: [*self._named.get(url, ()), site] for url in named}
            self._cycle.store.amend_record(sitemaps=self._named)

    def _note(self, kind: str, response: Response, claims: Iterator[Claims]) -> None:
        """Note all claims of a file at once: a kill leaves all of them or none."""
        now_s = time.time()
        local_sites = _Sites({place_of_url(response.url).site, *self._named.get(response.url, ())})
        noted: dict[str, list[npt.NDArray[Any]]] = {kind: [], "changefreq": []}
        for batch in claims:
            is_local = np.fromiter(map(local_sites.have, batch.urls), np.bool_, len(batch.urls))
            urls = batch.urls if is_local.all() else [batch.urls[row] for row in np.flatnonzero(is_local)]
            pages = self._cycle.store.hints.find(self._keys_of(urls))
            self._count(FOREIGN, len(is_local) - len(urls))
            self._count(UNKNOWN, int((pages < 0).sum()))
            if batch.unreadable:
                what = f"{response.url} dates a page by what is no date"
                self._warn(UNREADABLE_DATES, what, batch.unreadable[0], len(batch.unreadable))
            changed_s = np.clip(batch.changed_s[is_local], 0.0, now_s)
            for values, rows in ((changed_s, noted[kind]), (batch.period_s[is_local], noted["changefreq"])):
                has_claim = (pages >= 0) & ~np.isnan(values)
                rows.append(np.stack((pages[has_claim].astype(np.float64), values[has_claim])))
        for claim_kind, rows in noted.items():
            if rows:
                pages, values = np.concatenate(rows, axis=1)
                self._cycle.store.hints.note(pages.astype(np.uint32), claim_kind, values)
                self._count(CLAIMS, len(pages))

    def _count(self, name: str, count: int) -> None:
        if count:
            self._cycle.stats.inc_value(name, count)

    def _warn(self, name: str, what: str, why: object, count: int = 1) -> None:
        if not self._cycle.stats.get_value(name):
            logger.warning(
                "%s: %.200s. (Further ones: stat %s)", what, why, name, extra={"spider": self._spider}
            )
        self._count(name, count)


def span_of(response: Response) -> float | None:
    """Freshness lifetime that an answer states (RFC 9111, section 4.2.1), s; None where it states none."""
    control = ",".join(value.decode("latin-1") for value in response.headers.getlist("Cache-Control"))
    if _AT_ONCE.search(control):
        return 0.0
    if (max_age := _MAX_AGE.search(control)) is not None:
        return float(max_age[1])
    expires = response.headers.get("Expires")
    if expires is None:
        return None
    date = response.headers.get("Date")
    until_s = mail_seconds_of(expires.decode("latin-1"))
    from_s = nan if date is None else mail_seconds_of(date.decode("latin-1"))
    # What is no date, such as the usual 0, means that it is over.
    return 0.0 if isnan(until_s) else max(0.0, until_s - (time.time() if isnan(from_s) else from_s))


# --- sitemaps and feeds


class Claims(NamedTuple):
    """Claims of a sitemap or feed about pages."""

    urls: list[str]
    changed_s: npt.NDArray[np.float64]
    """Times of the last changes, ``[U]``, s since 1970; NaN without claim."""
    period_s: npt.NDArray[np.float64]
    """Times for which pages are said to stay as they are, ``[U]``, s; NaN without claim."""
    unreadable: list[str]
    """Dates that are none."""


def kind_of(response: Response) -> str | None:
    """Kind of a response by its first element: ``sitemap``, ``feed``, or None for any other."""
    body = response.body
    if gzip_magic_number(response):
        path = urlsplit(response.url).path.lower()
        return "sitemap" if path.endswith(".xml.gz") or "sitemap" in path else None
    head = body[:HEAD_BYTES]
    if not _LEADING.match(head):
        return None
    element = _FIRST.search(head)
    if element is None:
        return None
    return "sitemap" if element[1].lower() in (b"urlset", b"sitemapindex") else "feed"


def read_sitemap(response: Response) -> Iterator[Claims]:
    """Yield the claims of a sitemap, or of an index of sitemaps; raises HintsError for what is none."""
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
    """Time of a date in a sitemap, s since 1970; NaN for what is no date.

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
    """Time of a date as in mails and headers (RFC 9110, section 5.6.7), s since 1970; NaN for none."""
    try:
        return _seconds(parsedate_to_datetime(text))
    except (ValueError, OverflowError, TypeError, IndexError):
        return nan


def _seconds(date: datetime) -> float:
    return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()


def read_feed(response: Response) -> Iterator[Claims]:
    """Yield the claims of a feed about its entries; raises HintsError, or ImportError without feedparser."""
    if len(response.body) > MAX_FEED_BYTES:
        raise HintsError(f"expected at most {MAX_FEED_BYTES:,} bytes; found {len(response.body):,}")
    import feedparser

    try:
        feed = feedparser.parse(io.BytesIO(response.body), sanitize_html=False, resolve_relative_uris=False)
    except Exception as error:  # of any parser below it
        raise HintsError(f"it cannot be read: {error!r}") from error
    entries, urls = [], []
    for entry in feed.entries:
        with suppress(ValueError):  # a link that is no URL
            if entry.get("link"):
                urls.append(urljoin(response.url, entry["link"]))
                entries.append(entry)
    dates = [_date_of(entry) for entry in entries]
    changed_s = np.array([nan if date is None else date[1] for date in dates])
    unreadable = [date[0] for date in dates if date is not None and isnan(date[1])]
    yield Claims(urls, changed_s, np.full(len(urls), nan), unreadable)


def _date_of(entry: Mapping[str, object]) -> tuple[str, float] | None:
    """Text and time of an entry's date, NaN for a text that is no date; None: it has no date."""
    fields = dict(entry)  # feedparser's own look-up takes one date for another, and warns of it
    for name in ("updated", "published"):
        if fields.get(name):
            parsed = fields.get(f"{name}_parsed")
            time_s = float(calendar.timegm(parsed)) if isinstance(parsed, struct_time) else nan
            return str(fields[name]), time_s
    return None
