"""Pages of a store that may be removed: gone, kept out by a rule, not seen for long, or of lost hosts.

The outcomes of the last visits decide; nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.page_state.columns import Columns, stages
from scrapy_gp4c.page_state.outcomes import ERROR, EXCLUDED
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import StoredRequest

IsOffsite = Callable[[str], bool]
"""Function that says whether the spider may not visit a host (without port)."""

LOST_AFTER: Final = 3
"""Failed visits in a row, of every page, after which a host counts as vanished."""


@dataclass(frozen=True)
class RemovableHost:
    """Host whose pages are visited in vain."""

    host: str
    """Host name, with its port if that is not the scheme's own."""
    pages: int
    why: str


def wildcard(pattern: str) -> re.Pattern[str]:
    """A pattern for whole URLs, in which only ``*`` stands for any text."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def matching(store: Store, pattern: str, shown: Callable[[str], str]) -> Bools:
    """Whether the URL of each page, as `shown`, matches a pattern: bool ``[P]``."""
    fits, requests = wildcard(pattern).fullmatch, store.each_request(np.arange(store.merged_pages))
    return np.array([fits(shown(request["url"])) is not None for request in requests], np.bool_)


def of_host(store: Store, host: str) -> Bools:
    """Whether each page is of a host, given with its port if that is not the scheme's own: bool ``[P]``."""
    sites, number = _sites(store)
    return np.asarray(np.array([site == host.lower() for site in sites], np.bool_)[number])


def gone(store: Store, settings: Settings) -> Bools:
    """Whether each page is gone, and not visited any more: bool ``[P]``."""
    return _by_block(store, lambda block: stages(block, settings.warmup_visits, settings.gone_after).gone)


def not_seen_since(store: Store, time: float) -> Bools:
    """Whether each page was visited, but brought no copy since a time (s since 1970): bool ``[P]``.

    A page without any copy counts from the cycle in which it became known.
    """
    ends = np.full(store.last_cycle + 1, np.inf)
    for record in store.cycles():
        if record["cycle"] <= store.last_cycle and record.get("finished") is not None:
            ends[record["cycle"]] = record["finished"]

    def unseen(block: Columns) -> Bools:
        seen = np.where(block["last_cycle"] > 0, block["last_cycle"], np.maximum(block["entered"], 1))
        known = (block["last_cycle"] > 0) | (block["last_attempt"] > 0)
        return np.asarray(known & (ends[np.where(known, seen, 0)] < time))

    return _by_block(store, unseen)


def kept_out(store: Store, is_offsite: IsOffsite) -> Bools:
    """Whether robots.txt or a middleware kept each page out last, or it is off-site: bool ``[P]``.

    What came from a cache counts as excluded too, and is none of these: it has a body.
    """
    excluded = _by_block(store, lambda block: (block["outcome"] == EXCLUDED) & (block["failures"] > 0))
    if excluded.any():
        attempt = _by_block(store, lambda block: block["last_attempt"], np.int32)
        refused = np.zeros_like(excluded)
        for cycle, visits in store.visits(int(attempt[excluded].min())):
            empty = visits["page"][(visits["outcome"] == EXCLUDED) & (visits["bytes"] == 0)]
            refused[empty[attempt[empty] == cycle]] = True
        excluded &= refused
    sites, number = _sites(store)
    offsite = np.array([is_offsite(urlsplit(f"//{host}").hostname or "") for host in sites], np.bool_)
    pages = np.flatnonzero(offsite[number] & ~excluded)
    excluded[pages] = [not _goes_anywhere(request) for request in store.each_request(pages)]
    return excluded


def _goes_anywhere(request: StoredRequest) -> bool:
    """Whether Scrapy lets a request leave the allowed domains, as it does start requests."""
    return bool(request.get("dont_filter") or request.get("meta", {}).get("allow_offsite"))


def removable_hosts(store: Store, is_offsite: IsOffsite) -> list[RemovableHost]:
    """Hosts all of whose pages fail, and those with pages that a rule keeps out; with most pages first."""
    sites, number = _sites(store)
    excluded = np.bincount(number[kept_out(store, is_offsite)], minlength=len(sites))
    tried = _by_block(store, lambda block: block["last_attempt"] > 0)
    lost = _by_block(store, lambda block: (block["failures"] >= LOST_AFTER) & (block["outcome"] == ERROR))
    visited, failing = (np.bincount(number[pages], minlength=len(sites)) for pages in (tried, lost))
    pages = np.bincount(number, minlength=len(sites))
    hosts = []
    for site, host in enumerate(sites):
        if visited[site] and failing[site] == visited[site]:
            hosts.append(RemovableHost(host, int(pages[site]), "vanished"))
        elif excluded[site]:
            hosts.append(RemovableHost(host, int(excluded[site]), "excluded"))
    return sorted(hosts, key=lambda one: (-one.pages, one.host))


def _by_block(
    store: Store, of_block: Callable[[Columns], Array], dtype: npt.DTypeLike = np.bool_
) -> npt.NDArray[Any]:
    """Values of all pages, ``[P]``."""
    values = np.zeros(store.merged_pages, dtype)
    for first, block in store.blocks():
        values[first : first + len(block["n"])] = of_block(block)
    return values


def _sites(store: Store) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Hosts of the pages, and the number of each page's host, ``[P]``."""
    keys, of_directory = np.unique(store.directories()["site"], return_inverse=True)
    number = _by_block(store, lambda block: of_directory[block["group"]], np.intp)
    names = store.site_names(keys.tolist())
    return [names.get(key, "") for key in keys.tolist()], number
