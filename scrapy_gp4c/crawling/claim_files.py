"""Reader of sitemaps and feeds: URLs with the times at which they claim to have changed.

Both formats are foreign XML of any size. A push parser reads them without building a tree, follows no entity,
fetches nothing, and stops at limits of bytes, entries and time. It may run in any thread.
"""

import re
import time
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import isnan, nan
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import lxml.etree
import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ClaimFileError

MAX_UNPACKED_BYTES: Final = 50 * 2**20
"""Most bytes of a sitemap, unpacked, by its protocol (sitemaps.org)."""
MAX_FEED_BYTES: Final = 5 * 2**20
MAX_ENTRIES: Final = 50_000
"""Most URLs of a sitemap, by its protocol, or of a feed."""
MAX_SECONDS: Final = 2.0
"""Most processor time for a file, so that a busy machine reads as much as an idle one."""
MAX_TEXT: Final = 2_083
"""Longest URL or date in characters."""
MAX_TAG_BYTES: Final = 16 * 2**10
"""Longest tag: the parser has all attributes of a tag in memory at once."""
MAX_DEPTH: Final = 64
CHUNK_BYTES: Final = 32 * 2**10
"""Bytes that are read between two checks of the time limit."""
HEAD_BYTES: Final = 2_048
"""Bytes at the start of a body in which the first element is looked for."""
GZIP_MAGIC: Final = b"\x1f\x8b\x08"
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
"""``changefreq`` -> seconds for which a page claims to stay as it is."""

_UTF_16: Final = re.compile(rb"(\xff\xfe|[^\0]\0)|(\xfe\xff|\0[^\0])")
"""Start of a text in UTF-16, little or big endian: a byte order mark, or an ASCII character."""
_ROOT: Final = re.compile(rb"<(?:\w+:)?(urlset|sitemapindex|rss|feed|rdf)[\s>]", re.IGNORECASE)
_XML_START: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?!html|!doctype\s+html)", re.IGNORECASE)
_LONG_TAG: Final = re.compile(rb"<[^<>!?][^<>]{%d}" % MAX_TAG_BYTES)
_MONTH: Final = re.compile(r"\d{4}(-\d\d)?")

_ENTRIES: Final = frozenset({"url", "sitemap", "item", "entry"})
_LOCATIONS: Final = frozenset({"loc", "link"})
_DATES: Final = ("updated", "modified", "lastmod", "published", "pubdate", "date", "issued")
"""Elements with a date, the most telling first. Sources: sitemaps.org, RSS 2.0, RFC 4287, Dublin Core."""
_TEXTS: Final = _LOCATIONS | {*_DATES, "changefreq"}


class FileClaims(NamedTuple):
    """Claims of a sitemap or feed: when its pages changed, and how often they do."""

    urls: list[str]
    changed_s: npt.NDArray[np.float64]
    """``[U]``: time of the last change, s since 1970; NaN: not claimed."""
    period_s: npt.NDArray[np.float64]
    """``[U]``: seconds for which the page claims to stay as it is; NaN: not claimed."""
    unreadable: list[str]
    """Dates of entries that cannot be read."""
    stopped: str | None = None
    """Limit that ended the reading early; None: the file was read to its end."""


def kind_of(body: bytes, url: str) -> str | None:
    """Return the kind of a body by its first element: ``sitemap``, ``feed``, or None for neither."""
    if body.startswith(GZIP_MAGIC):
        path = urlsplit(url).path.lower()
        return "sitemap" if path.endswith(".xml.gz") or "sitemap" in path else None
    head = as_utf8(body[:HEAD_BYTES])
    root = _ROOT.search(head) if _XML_START.match(head) else None
    if root is None:
        return None
    return "sitemap" if root[1].lower() in (b"urlset", b"sitemapindex") else "feed"


def read_claims(kind: str, body: bytes, url: str) -> FileClaims:
    """Return what a sitemap, an index of sitemaps, or a feed says of pages.

    ``kind``: by `kind_of`; ``url``: of the file, against which relative links are resolved. Raises
    ClaimFileError for a body that is too large or is no XML of such a kind.
    """
    end_s = time.thread_time() + MAX_SECONDS
    limit = MAX_UNPACKED_BYTES if kind == "sitemap" else MAX_FEED_BYTES
    if len(body) > limit:
        raise ClaimFileError(f"expected at most {limit:,} bytes; found {len(body):,}")
    collector = _Collector()
    parser: Any = lxml.etree.XMLParser(
        target=collector, resolve_entities=False, no_network=True, load_dtd=False, recover=True,
        huge_tree=False, remove_comments=True, remove_pis=True,
    )  # fmt: skip
    stopped = None
    try:
        for chunk in _chunks(body, limit):
            if time.thread_time() > end_s:
                stopped = f"reading took more than {MAX_SECONDS:g} s of processor time"
                break
            parser.feed(chunk)
        else:
            parser.close()
    except _Full as full:
        stopped = str(full)
    except (lxml.etree.LxmlError, OSError, EOFError, zlib.error, UnicodeError, ValueError) as error:
        if isinstance(error, ClaimFileError):
            raise
        if not collector.roots:
            raise ClaimFileError(f"it is not XML: {error}"[:300]) from error
        stopped = f"what follows cannot be read: {error}"
    if stopped and not collector.roots:
        raise ClaimFileError(stopped)
    if not collector.roots & {"urlset", "sitemapindex", "rss", "feed", "rdf"}:
        raise ClaimFileError(f"expected a {kind}; found the element {min(collector.roots, default='none')!r}")
    return collector.claims(url, stopped)


def _chunks(body: bytes, limit: int) -> Iterator[bytes]:
    """Yield a body in chunks, unpacked, in UTF-8 where it was UTF-16. Raises _Full beyond `limit` bytes."""
    text = as_utf8(body)
    unpacked: Iterator[bytes] = (
        text[first : first + CHUNK_BYTES] for first in range(0, len(text), CHUNK_BYTES)
    )
    if body.startswith(GZIP_MAGIC):
        unpacked = _unpacked(body)
    size, before = 0, b""
    for chunk in unpacked:
        size += len(chunk)
        if size > limit:
            raise _Full(f"it has more than {limit:,} bytes unpacked")
        # A tag may span chunks: its attributes are counted over the seam, too.
        seam = before[-MAX_TAG_BYTES:] + chunk
        if _LONG_TAG.search(seam):
            raise _Full(f"a tag is longer than {MAX_TAG_BYTES:,} bytes")
        before = seam
        yield chunk


def _unpacked(body: bytes) -> Iterator[bytes]:
    """Yield the unpacked content of a gzip file in small chunks: a bomb is never in memory as a whole."""
    position = 0
    while body.startswith(GZIP_MAGIC, position):
        stream = zlib.decompressobj(wbits=31)
        while not stream.eof:
            if not (packed := stream.unconsumed_tail):
                packed = body[position : position + CHUNK_BYTES]  # each member costs a copy of what is left
                position += len(packed)
            chunk = stream.decompress(packed, CHUNK_BYTES)
            if not (chunk or packed or stream.eof):
                raise _Full("it lacks its end")
            yield chunk
        position -= len(stream.unused_data)  # to a further member, or padding


def as_utf8(body: bytes) -> bytes:
    """Return a UTF-16 text in UTF-8, without its XML declaration; any other body as it is."""
    if (begin := _UTF_16.match(body)) is None:
        return body
    text = body.decode("utf-16-le" if begin[1] else "utf-16-be", "replace").removeprefix("\ufeff")
    return re.sub(r"^\s*<\?xml[^>]*\?>", "", text, count=1).encode()


class _Full(Exception):  # noqa: N818
    """Raised at a limit that ends the reading of a file; what was read until then counts."""


class _Collector:
    """Parser target of lxml that collects URLs, dates and frequencies of a file's entries.

    Names are compared without prefix and case. The first ``<link>`` of an entry is its URL: its text in RSS,
    its ``href`` in Atom if ``rel`` is missing or ``alternate`` (RFC 4287, section 4.2.7.2).
    """

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self._urls: list[str] = []
        self._dates: list[str | None] = []
        self._frequencies: list[str | None] = []
        self._entry: dict[str, str] | None = None
        self._entry_depth = 0
        self._element: str | None = None
        self._text: list[str] = []
        self._text_size = 0
        self._depth = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Full(f"elements are nested deeper than {MAX_DEPTH}")
        name = tag.rpartition("}")[2].rpartition(":")[2].lower()
        if self._depth == 1:
            self.roots.add(name)
        elif self._entry is None:
            if name in _ENTRIES:
                self._entry, self._entry_depth = {}, self._depth
                item_url = next((value for key, value in attributes.items() if key.endswith("}about")), None)
                if item_url:  # RSS 1.0 has the URL of an item as rdf:about, too
                    self._entry["about"] = item_url[:MAX_TEXT]
        elif self._depth == self._entry_depth + 1 and name in _TEXTS:
            self._element, self._text, self._text_size = name, [], 0
            if (
                name == "link"
                and attributes.get("href")
                and attributes.get("rel", "alternate") == "alternate"
            ):
                self._entry.setdefault("link", attributes["href"])

    def data(self, text: str) -> None:
        if self._element is not None and self._text_size <= MAX_TEXT:
            self._text.append(text[: MAX_TEXT + 1])  # a piece for each entity: `&amp;` of a URL is one
            self._text_size += len(text)

    def end(self, tag: str) -> None:
        del tag
        self._depth -= 1
        if self._element is not None and self._entry is not None and self._depth == self._entry_depth:
            text = "".join(self._text).strip()
            if text and len(text) <= MAX_TEXT:
                self._entry.setdefault(self._element, text)
            self._element = None
        elif self._entry is not None and self._depth < self._entry_depth:
            self._finish(self._entry)
            self._entry = None

    def close(self) -> None:
        """Do nothing at the end of the document; lxml requires the method."""

    def _finish(self, entry: dict[str, str]) -> None:
        url = entry.get("loc") or entry.get("link") or entry.get("about")
        if url:
            if len(self._urls) >= MAX_ENTRIES:
                raise _Full(f"it has more than {MAX_ENTRIES:,} entries")
            self._urls.append(url)
            self._dates.append(next((entry[name] for name in _DATES if name in entry), None))
            self._frequencies.append(entry.get("changefreq"))

    def claims(self, base: str, stopped: str | None) -> FileClaims:
        """Return the claims of all entries, but for URLs that cannot be resolved against `base`."""
        rows = []
        for row, url in enumerate(self._urls):
            try:
                self._urls[row] = urljoin(base, url)
            except ValueError:
                continue
            rows.append(row)
        dates = [self._dates[row] for row in rows]
        changed_s = np.array([seconds_of(date) if date else nan for date in dates])
        frequencies = [self._frequencies[row] for row in rows]
        period_s = np.array(
            [PERIOD_S.get(frequency.lower(), nan) if frequency else nan for frequency in frequencies]
        )
        unreadable = [
            date for date, at_s in zip(dates, changed_s.tolist(), strict=True) if date and isnan(at_s)
        ]
        return FileClaims([self._urls[row] for row in rows], changed_s, period_s, unreadable, stopped)


def seconds_of(text: str) -> float:
    """Return the time of a date in a sitemap or feed, s since 1970; NaN for another text.

    ISO 8601 as W3C restricts it, or a date as in mails; without a zone UTC. A month or a day stands for its
    end, because a page that changed in it may have done so after a visit in it.
    """
    try:
        if len(text) > 10:
            return _seconds(datetime.fromisoformat(text))
        if _MONTH.fullmatch(text):
            first = datetime.fromisoformat(f"{text}-01" if text[4:] else f"{text}-12-01")
            return _seconds((first + timedelta(days=31)).replace(day=1)) - 1.0
        return _seconds(datetime.fromisoformat(text)) + DAY_S - 1.0
    except (ValueError, OverflowError):
        return mail_seconds_of(text)


def mail_seconds_of(text: str) -> float:
    """Return the time of a date in a mail or header (RFC 9110, 5.6.7), s since 1970, or NaN."""
    try:
        return _seconds(parsedate_to_datetime(text))
    except (ValueError, OverflowError, TypeError, IndexError):
        return nan


def _seconds(date: datetime) -> float:
    return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
