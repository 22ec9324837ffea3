"""Which new pages get their first visit in a cycle: as many as the caps allow, the sites by turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import notes
from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.page_state.places import place_of_url
from scrapy_gp4c.store.page_store import PageStore

Pages = npt.NDArray[np.uint32]


def by_turns(pages: Pages, site: npt.NDArray[np.intp], most: int | None, most_of_site: int | None) -> Pages:
    """The pages to visit first, in order: the first of each site, then the second of each, and so on.

    ``pages``: uint32 ``[P]``, in order of discovery; ``site``: numbers of their sites ``[P]``; ``most``,
    ``most_of_site``: caps, None: none. A site with many pages thus takes no turn of another.
    """
    if most is None and most_of_site is None:
        return pages
    by_site = np.argsort(site, kind="stable")
    starts = np.flatnonzero(np.diff(site[by_site], prepend=-1))
    turn = np.empty(len(pages), np.int64)
    turn[by_site] = np.arange(len(pages)) - np.repeat(starts, np.diff(starts, append=len(pages)))
    order = np.argsort(turn, kind="stable")
    if most_of_site is not None:
        order = order[turn[order] < most_of_site]
    return pages[order[:most]]


class NewPages:
    """Counts the first visits of a cycle, and of each site where there is a cap on these."""

    def __init__(self, store: PageStore, most: int | None, most_of_site: int | None) -> None:
        """Take the caps; None: none."""
        self._store = store
        self._most, self._most_of_site = most, most_of_site
        self._visits = 0
        self._of_site: Counter[int] = Counter()

    def count(self, pages: Sequence[int]) -> None:
        """Count pages that are planned or were visited."""
        self._visits += len(pages)
        if self._most_of_site is not None:
            urls = (stored["url"] for stored in self._store.requests(pages))
            self._of_site.update(place_of_url(url).site_key for url in urls)

    def takes(self, page: int) -> bool:
        """Count a further first visit, unless a cap is reached."""
        if self._most is not None and self._visits >= self._most:
            return False
        if self._most_of_site is not None:
            site = place_of_url(self._store.request(page)["url"]).site_key
            if self._of_site[site] >= self._most_of_site:
                return False
            self._of_site[site] += 1
        self._visits += 1
        return True


class NewCounts(NamedTuple):
    """What the record of a cycle says of its new pages."""

    all: int
    by_hubs: int


def found_by_hubs(store: PageStore) -> NewCounts:
    """Count the pages that became known in the open cycle, and those that visits to hubs found."""
    visits = store.open_visits()
    brought = notes.brought(store.notes(), store.pages)
    hubs = visits["page"][visits["kind"] == KINDS.index("hub")]
    return NewCounts(sum(1 for _ in store.new_pages()), int(brought[hubs].sum()))
