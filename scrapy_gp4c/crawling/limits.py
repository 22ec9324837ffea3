"""How many pages a store takes: against crawler traps, whose links never end."""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import Any, Final

import numpy as np

from scrapy_gp4c.page_state.groups import Place, place_of_url
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import StoredRequest

logger = logging.getLogger(__name__)

TOO_MANY: Final = "gp4c/skipped/too_many_pages"
"""Statistic of the requests that are dropped as no further page is remembered."""
RECENT_PAGES: Final = 1_000
"""New pages of which the warning tells the directory that has most."""


class Limits:
    """Counts pages, in all and of each site, and says when there are too many; nothing stored is deleted."""

    def __init__(self, store: PageStore, most: int, most_of_site: int, extra: dict[str, Any]) -> None:
        """Count what is there, where a site may have reached its limit; ``extra``: for log lines.

        In a smaller store the pages found from now on are counted alone: a site has at most twice its limit.
        """
        self._store = store
        self._most, self._most_of_site = most, most_of_site
        self._extra = extra
        self._of_site: Counter[int] = Counter()
        self._recent: deque[Place] = deque(maxlen=RECENT_PAGES)
        self._warned: set[str] = set()
        if store.pages >= most_of_site:
            self._count()

    def _count(self) -> None:
        """Count what is stored: by the directories of pages, the open cycle's new ones by their URLs."""
        sites, number = np.unique(self._store.directories()["site"], return_inverse=True)
        pages = np.zeros(len(sites), np.int64)
        for _, columns in self._store.blocks({"group"}):
            pages += np.bincount(number[columns["group"]], minlength=len(sites))
        self._of_site.update(dict(zip(sites.tolist(), pages.tolist(), strict=True)))
        new = np.fromiter(self._store.new_pages(), np.int64)
        self._of_site.update(place_of_url(stored["url"]).site_key for stored in self._store.requests(new))

    def takes(self, stored: StoredRequest) -> bool:
        """Count a new page unless there are too many; the first time for a site, a warning names the trap."""
        place = place_of_url(stored["url"])
        if self._store.pages >= self._most:
            self._warn("", f"GP4C_MAX_PAGES = {self._most:,}", "the store")
            return False
        if self._of_site[place.site_key] >= self._most_of_site:
            self._warn(place.site, f"GP4C_MAX_PAGES_PER_SITE = {self._most_of_site:,}", place.site)
            return False
        self._of_site[place.site_key] += 1
        self._recent.append(place)
        return True

    def _warn(self, site: str, limit: str, full: str) -> None:
        if site in self._warned:
            return
        self._warned.add(site)
        directories = Counter(place for place in self._recent if site in ("", place.site))
        trap = "".join(
            f", mostly in {place.site}/{place.directory}" for place, _ in directories.most_common(1)
        )
        logger.warning(
            "No further page of %s is remembered or fetched: it has reached %s%s. Keep the spider out of "
            "what is no content (rules, allowed paths, DEPTH_LIMIT), or raise the limit. (Requests dropped: "
            "stat %s)",
            full,
            limit,
            trap,
            TOO_MANY,
            extra=self._extra,
        )
