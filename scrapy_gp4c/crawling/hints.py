"""Hints: what sitemaps, feeds and headers claim of changes of pages, read from a crawl's responses.

Sitemaps and feeds speak for the pages of their own site; a sitemap also for sites whose robots.txt names it.
The headers of an answer speak for its page. Claims are noted together with the visit that brought them, so
that both are in the store or neither; claims about unknown pages are dropped. Files are read in a thread, and
their pages are looked up a slice at a time.
"""

import logging
import re
import time
from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import isnan, nan
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from scrapy import Spider
from scrapy.http import Response
from scrapy.utils.sitemap import sitemap_urls_from_robots

from scrapy_gp4c.crawling.admission import log_first
from scrapy_gp4c.crawling.claim_files import (
    MAX_TEXT,
    FileClaims,
    as_utf8,
    kind_of,
    mail_seconds_of,
    read_claims,
)
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.requests import Rebuilder
from scrapy_gp4c.crawling.scrapy_internals import awaitable
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.groups import place_of_url

# Statistics of claims that were noted, and of what was left out.
UNREADABLE: Final = "gp4c/hints/unreadable"
MAX_NAMED: Final = 1_000
"""Most remembered pairs of a sitemap and another site whose robots.txt names it."""
MAX_NAMED_BY_SITE: Final = 50
"""Most remembered sitemaps that the robots.txt of one site names."""
MAX_NAMED_BYTES: Final = 2**17
"""Largest size of all remembered sitemap URLs together: the record of every cycle has them."""

_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,12})", re.IGNORECASE)
_HINTING_HEADERS: Final = frozenset({b"Last-Modified", b"Cache-Control", b"Expires"})  # as Scrapy spells them
_is_html: Final = re.compile(rb"\s*<(?:!doctype\s+)?html\b", re.IGNORECASE).match
"""Whether a body begins as an HTML page, as most do: it needs no further look for a sitemap or feed."""
_AT_ONCE: Final = re.compile(r"(?:^|[,\s])no-(?:cache|store)\b", re.IGNORECASE)
SLICE: Final = 2_000
"""Number of URLs whose pages are looked up in one turn of the reactor."""


class PageClaims(NamedTuple):
    """Claims of one sitemap or feed about known pages: when they changed, and how often they do."""

    kind: str
    """``sitemap`` or ``feed``."""
    pages: npt.NDArray[np.int64]
    """``[U]``: number of each page; -1 for one that is unknown, or of another site."""
    changed_s: npt.NDArray[np.float64]
    period_s: npt.NDArray[np.float64]


class NamedSitemaps:
    """Sitemaps that robots.txt files of other sites name; the least recently useful ones are forgotten."""

    def __init__(self, sites: dict[str, list[str]]) -> None:
        self.sites = dict(sites)
        """URL of a sitemap -> other sites whose robots.txt names it."""

    def use(self, url: str) -> list[str]:
        """Return the sites whose pages a sitemap may speak for besides its own, and mark it as useful now."""
        sites = self.sites.pop(url, None)
        if sites is None:
            return []
        self.sites[url] = sites
        return sites

    def add(self, site: str, urls: Iterable[str]) -> bool:
        """Remember the sitemaps, by `urls`, that a site's robots.txt names; returns whether any is new."""
        is_new = False
        short = (url for url in urls if len(url) <= MAX_TEXT)
        for url in list(dict.fromkeys(islice(short, MAX_NAMED_BY_SITE))):
            sites = self.use(url)
            if site not in sites:
                self.sites[url], is_new = [*sites, site], True
        local = [url for url, sites in self.sites.items() if site in sites]
        for url in local[:-MAX_NAMED_BY_SITE]:
            self.sites[url] = [one for one in self.sites[url] if one != site]
            if not self.sites[url]:
                del self.sites[url]
        while sum(map(len, self.sites.values())) > MAX_NAMED or self._bytes() > MAX_NAMED_BYTES:
            del self.sites[next(iter(self.sites))]
        return is_new

    def _bytes(self) -> int:
        return sum(len(url) + sum(map(len, sites)) for url, sites in self.sites.items())


class HintReader:
    """Reads hints, what sitemaps, feeds and headers say of pages, from the responses of one run."""

    def __init__(self, cycle: Cycle, rebuilder: Rebuilder, spider: Spider) -> None:
        self._cycle = cycle
        self._spider = spider
        self._keys_of = rebuilder.url_keys
        self._named = NamedSitemaps(cycle.store.newest_value("sitemaps", {}))
        self._thread: ThreadPoolExecutor | None = None

    async def read_file(self, response: Response) -> PageClaims | None:
        """Return the claims of a sitemap or feed, read in a thread; None: it is neither, or unreadable."""
        if not _is_read(response) or self._cycle.failure is not None or _is_html(response.body):
            return None
        if (kind := kind_of(response.body, response.url)) is None:
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "gp4c-claims")
        try:
            claims = await awaitable(self._thread.submit(read_claims, kind, response.body, response.url))
            self._warn_of_parts(kind, response, claims)
            sites = {place_of_url(response.url).site, *self._named.use(response.url)}
            pages = np.full(len(claims.urls), -1)
            for first in range(0, len(pages), SLICE):
                rows = slice(first, first + SLICE)
                pages[rows] = self._find_of_sites(claims.urls[rows], sites)
                await awaitable(self._thread.submit(time.sleep, 0))  # gives the reactor a turn
        except StoreError as error:
            self._cycle.failure = error
            return None
        except Exception as error:
            self._warn(UNREADABLE, f"The {kind} {response.url} is not read", error)
            return None
        return PageClaims(kind, pages, claims.changed_s, claims.period_s)

    def close(self) -> None:
        """Cancel the files that still wait to be read."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    def read(self, response: Response, page: int | None, claims: PageClaims | None = None) -> None:
        """Store what a response says of when pages change, by its headers, or as sitemap, feed or robots.txt.

        ``page``: of which it is a visit, None if it is no visit; ``claims``: result of `read_file`. Errors in
        headers and robots.txt are counted, and the first is logged; the visit goes on.
        """
        cycle = self._cycle
        if cycle.failure is not None or "cached" in response.flags:
            return
        try:
            if page is not None:
                self._read_headers(response, page)
            if claims is not None:
                self._note(claims)
            elif _is_read(response):
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
            self._cycle.store.note_many(pages, "modified", np.clip([changed_s], 0.0, time.time()))
        if (span_s := span_of(response)) is not None:
            self._cycle.store.note_many(pages, "expires", np.array([span_s]))

    def _read_body(self, response: Response) -> None:
        """Read a robots.txt; warn of a file that is called a sitemap and is none."""
        url = response.url.lower()
        if "robots.txt" not in url and "sitemap" not in url:
            return
        if kind_of(response.body, response.url) is not None:  # `read_file` has warned of it
            return
        path = urlsplit(url).path
        if path == "/robots.txt":
            self._read_robots(response)
        elif "sitemap" in path and path.endswith((".xml", ".xml.gz")):
            self._warn(UNREADABLE, f"The sitemap {response.url} is not read", "it is no sitemap")

    def _read_robots(self, response: Response) -> None:
        site = place_of_url(response.url).site
        lines = islice(sitemap_urls_from_robots(as_utf8(response.body), response.url), MAX_NAMED)
        urls = {url: None for url in lines if place_of_url(url).site != site}
        if self._named.add(site, urls):
            self._cycle.store.amend_record(sitemaps=self._named.sites)
        if left_out := sum(site not in self._named.sites.get(url, ()) for url in urls):
            limits = f"of at most {MAX_TEXT:,} characters, and {MAX_NAMED_BY_SITE} a site"
            line = f"Of the sitemaps on other sites that {response.url} names, {left_out} are not believed"
            self._warn("gp4c/hints/names_left_out", line, f"expected are names {limits}", left_out)

    def _warn_of_parts(self, kind: str, response: Response, claims: FileClaims) -> None:
        """Warn of a file that is read in part only, and of dates that are none."""
        if claims.stopped is not None:
            self._warn(
                "gp4c/hints/cut_short", f"Of the {kind} {response.url} only a part is read", claims.stopped
            )
        if claims.unreadable:
            message = f"{response.url} dates a page by a text that is no date"
            self._warn(
                "gp4c/hints/unreadable_dates", message, repr(claims.unreadable[0]), len(claims.unreadable)
            )

    def _find_of_sites(self, urls: list[str], sites: Container[str]) -> npt.NDArray[np.int64]:
        """Return the pages of URLs, ``[U]``; -1: unknown, or not of the `sites` that the file speaks for."""
        is_local = np.array([place_of_url(url).site in sites for url in urls], np.bool_)
        pages = np.full(len(urls), -1)
        pages[is_local] = found = self._find([urls[row] for row in np.flatnonzero(is_local)])
        self._count("gp4c/hints/foreign_urls", len(urls) - len(found))
        self._count("gp4c/hints/unknown_urls", int((found < 0).sum()))
        return pages

    def _find(self, urls: list[str]) -> npt.NDArray[np.int64]:
        """Return the pages of URLs, ``[U]``, also those stored under URLs before a move; -1: unknown."""
        find, moves = self._cycle.store.find_many, self._cycle.moves
        pages = find(self._keys_of(urls)).astype(np.int64)
        if moves.rules:
            old = [(row, name) for row in np.flatnonzero(pages < 0) for name in moves.old_names(urls[row])]
            old_pages = find(self._keys_of([name for _, name in old]))
            for (row, _), page in zip(old, old_pages.tolist(), strict=True):
                pages[row] = max(page, pages[row])
        return pages

    def _note(self, claims: PageClaims) -> None:
        """Note all claims of a file at once: a kill leaves all of them or none."""
        known = np.unique(claims.pages[(claims.pages >= 0) & (claims.pages < self._cycle.store.merged_pages)])
        gone = self._cycle.store.columns_of(known.astype(np.uint32), {"gone"})["gone"]
        for page in known[gone > 0].tolist():
            self._cycle.note_link(page)
        changed_s = np.clip(claims.changed_s, 0.0, time.time())
        for claim_kind, values in ((claims.kind, changed_s), ("changefreq", claims.period_s)):
            is_claim = (claims.pages >= 0) & ~np.isnan(values)
            pages = claims.pages[is_claim].astype(np.uint32)
            self._cycle.store.note_many(pages, claim_kind, values[is_claim])
            self._count("gp4c/hints/claims", len(pages))

    def _count(self, name: str, count: int) -> None:
        if count:
            self._cycle.stats.inc_value(name, count)

    def _warn(self, name: str, what: str, why: object, count: int = 1) -> None:
        line, extra = f"{what}: {str(why)[:200]}.", {"spider": self._spider}
        log_first(self._cycle.stats, name, line, extra, logging.WARNING, count)


def _is_read(response: Response) -> bool:
    return response.status == 200 and "cached" not in response.flags


def span_of(response: Response) -> float | None:
    """Return the freshness lifetime of a response (RFC 9111, section 4.2.1), s; None where it has none."""
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
    # A text that is no date, such as the usual 0, means that it has expired.
    return 0.0 if isnan(until_s) else max(0.0, until_s - (time.time() if isnan(from_s) else from_s))
