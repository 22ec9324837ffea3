"""Hints: what passes through a crawl anyway is read for what it says of pages, whatever the spider does with
it.

Sitemaps and feeds speak for the pages of their own site, and for those of another whose robots.txt names the
sitemap. The headers of an answer speak for its page. What they claim is noted together with the visit that
brought it, so that both are in the store or neither; what they claim of pages that nobody knows is dropped.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from itertools import islice
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from scrapy.utils.sitemap import sitemap_urls_from_robots

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.hint_files import (
    Claims,
    HintsError,
    kind_of,
    mail_seconds_of,
    read_feed,
    read_sitemap,
)
from scrapy_gp4c.crawling.url_keys import UrlKeys
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.groups import place_of_url

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.http import Response

    from scrapy_gp4c.crawling.cycle import Cycle
    from scrapy_gp4c.crawling.rebuilding import Rebuilder

logger = logging.getLogger(__name__)

CLAIMS: Final = "gp4c/hints/claims"
UNKNOWN: Final = "gp4c/hints/unknown_urls"
FOREIGN: Final = "gp4c/hints/foreign_urls"
UNREADABLE: Final = "gp4c/hints/unreadable"
UNREADABLE_DATES: Final = "gp4c/hints/unreadable_dates"
FEEDS_NOT_READ: Final = "gp4c/hints/feeds_not_read"
"""Statistics: claims noted, and what was left out."""
MAX_NAMED: Final = 1_000
"""Sitemaps on other sites, named by robots.txt files, that are remembered."""

_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,12})", re.IGNORECASE)
_TELLING: Final = frozenset({b"Last-Modified", b"Cache-Control", b"Expires"})
"""Headers that say something of a page, as Scrapy spells them."""
_AT_ONCE: Final = re.compile(r"(?:^|[,\s])no-(?:cache|store)\b", re.IGNORECASE)


class Sites:
    """Tells the URLs of some sites, which mostly begin alike."""

    def __init__(self, sites: set[str]) -> None:
        """Take sites, see `scrapy_gp4c.page_state.groups`."""
        self._sites = sites
        self._last = ("", False)
        """What the last URL had before its path, and whether that is of the sites."""

    def have(self, url: str) -> bool:
        """Tell whether a URL is on one of the sites."""
        prefix, found = self._last
        if not prefix or not url.startswith(prefix):
            prefix = url[: url.find("/", 8) + 1]
            found = place_of_url(prefix or url).site in self._sites
            self._last = prefix, found
        return found


class HintReader:
    """Reads the hints of one run."""

    def __init__(self, cycle: Cycle, rebuilder: Rebuilder, spider: Spider) -> None:
        """Take the cycle that visits belong to, and who tells keys."""
        self._cycle = cycle
        self._spider = spider
        self._keys = UrlKeys(rebuilder)
        told = (record["sitemaps"] for record in reversed(cycle.store.cycles()) if "sitemaps" in record)
        self._named: dict[str, list[str]] = next(told, {})
        """URL of a sitemap -> other sites whose robots.txt names it: of this cycle and of those before."""

    def read(self, response: Response, page: int | None) -> None:
        """Note what a response says; ``page``: the one that it is a visit of, None: of none.

        Whatever is wrong with it is counted, and the first of its kind told; a visit never suffers by it.
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
        if _TELLING.isdisjoint(response.headers.keys()):  # as most answers
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
            messages.tell_first(self._cycle.stats, FEEDS_NOT_READ, line, {"spider": self._spider})

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
        own = Sites({place_of_url(response.url).site, *self._named.get(response.url, ())})
        noted: dict[str, list[npt.NDArray[Any]]] = {kind: [], "changefreq": []}
        for batch in claims:
            is_own = np.fromiter(map(own.have, batch.urls), np.bool_, len(batch.urls))
            urls = batch.urls if is_own.all() else [batch.urls[row] for row in np.flatnonzero(is_own)]
            pages = self._cycle.store.hints.find(self._keys.of(urls))
            self._count(FOREIGN, len(is_own) - len(urls))
            self._count(UNKNOWN, int((pages < 0).sum()))
            if batch.unreadable:
                what = f"{response.url} dates a page by what is no date"
                self._warn(UNREADABLE_DATES, what, batch.unreadable[0], len(batch.unreadable))
            changed_s = np.clip(batch.changed_s[is_own], 0.0, now_s)
            for values, into in ((changed_s, noted[kind]), (batch.period_s[is_own], noted["changefreq"])):
                told = (pages >= 0) & ~np.isnan(values)
                into.append(np.stack((pages[told].astype(np.float64), values[told])))
        for what, parts in noted.items():
            if parts:
                pages, values = np.concatenate(parts, axis=1)
                self._cycle.store.hints.note(pages.astype(np.uint32), what, values)
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
    """For how long an answer says to stay true (RFC 9111, section 4.2.1), s; None where it says nothing."""
    control = ",".join(value.decode("latin-1") for value in response.headers.getlist("Cache-Control"))
    if _AT_ONCE.search(control):
        return 0.0
    if (found := _MAX_AGE.search(control)) is not None:
        return float(found[1])
    expires = response.headers.get("Expires")
    if expires is None:
        return None
    date = response.headers.get("Date")
    until_s = mail_seconds_of(expires.decode("latin-1"))
    from_s = nan if date is None else mail_seconds_of(date.decode("latin-1"))
    # What is no date, such as the usual 0, means that it is over.
    return 0.0 if isnan(until_s) else max(0.0, until_s - (time.time() if isnan(from_s) else from_s))
