"""Order of first visits: terminals of pages that wait for a first visit, and turns of their sites.

OPIC (Abiteboul, Preda & Cobéna 2003) gives every page cash, which a visit shares among the page's links. Here
a page gets cash only from its finder, the page on which it was first found, beginning at the start pages.
Each page that links to it sets one of 64 bits, by a hash of the linking page. The number of these pages
follows from the bits that are clear (Whang, Vander-Zanden & Taylor 1990), however often they are visited.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.scoring import discovery, rates
from scrapy_gp4c.scoring.expression import of_columns
from scrapy_gp4c.scoring.ranking import GOLDEN

TERMINALS: Final = of_columns(
    {
        "link_depth": "before a first visit: links from a start page to it",
        "cash": "before a first visit: its share of the cash that OPIC gives start pages",
        "finder_rate": "before a first visit: change rate of the page that found it",
        "finder_brought": "before a first visit: new pages per cycle of the page that found it",
        "waited": "before a first visit: cycles since it became known",
        "inlinks": "before a first visit: pages that link to it, as far as they were visited",
        "inlink_sites": "before a first visit: sites of these pages",
        "anchor": "before a first visit: share of the words of the query log in the best text of a link to "
        "it",
    }
)
"""Terminals of pages that wait for their first visit: columns by `columns_of_links` and `counted_links`."""
COUNTED: Final = ("inlinks", "inlink_sites", "anchor")
"""Terminals for which a crawl records every link to a page that waits for its first visit."""
REPLAYED: Final = tuple(name for name in TERMINALS if name not in COUNTED)
"""Terminals that a replay computes from finders alone; `COUNTED` ones need a history with links."""
COLUMNS: Final[dict[str, str]] = {
    "link_bits": "<u8",  # a bit for each page that links to the page, while it waits for its first visit
    "link_site_bits": "<u8",  # a bit for each site of these pages
    "anchor": "<f2",  # share of the words of the query log in the best text of a link
}
"""Column name -> little-endian dtype."""
FINDER: Final = ("E", "T", "brought_sum", "brought_cycles")
"""Columns of finders that `columns_of_links` reads."""
MOST_LINKS: Final = 1_000
"""Most links that `columns_of_links` follows from a page back to a start page."""


def bit_of(key: Array | int) -> Any:
    """Hash keys of pages or sites to bit positions from 0 to 63, for ``link_bits``; ``[N]`` or a scalar."""
    return ((np.asarray(key, np.uint64) * np.uint64(GOLDEN)) >> np.uint64(58)).astype(np.uint8)


def counted_bits(bits: Array) -> Floats:
    """Estimate how many distinct keys (see `bit_of`) set the bits of each 64-bit number: ``[P]``.

    By linear counting; at least 1, because every page has a finder.
    """
    clear = 64 - np.unpackbits(bits.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1).sum(1)
    return np.asarray(np.maximum(1.0, np.rint(64 * np.log(64 / np.maximum(clear, 0.5)))))


def counted_links(columns: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the terminals `COUNTED` of N pages, each ``[N]``, from the stored columns `COLUMNS`."""
    return {
        "inlinks": counted_bits(columns["link_bits"]),
        "inlink_sites": counted_bits(columns["link_site_bits"]),
        "anchor": columns["anchor"],
    }


def columns_of_links(
    pages: Array,
    found_by: Array,
    entered: Array,
    cycle: int,
    finders: Callable[[Ints], Mapping[str, Array]],
) -> dict[str, Array]:
    """Compute ``link_depth``, ``cash`` and the other terminals that follow from finders (`REPLAYED`).

    Each is ``[N]``. ``pages``: ids of pages that wait for their first visit, ``[N]``; ``found_by``: that
    column of all pages, ``[P]``; ``entered``: column of `pages`, ``[N]``; ``finders(ids)``: returns the
    columns `FINDER` (such as E and T) of pages, ids ascending.
    """
    finder = np.where(found_by == discovery.START, 0, found_by).astype(np.int64) - 1
    links = np.bincount(finder + 1, minlength=len(finder) + 1)[1:]
    depth, cash = np.zeros(len(pages)), np.ones(len(pages))
    node = finder[pages]
    for _ in range(MOST_LINKS):
        rows = np.flatnonzero(node >= 0)
        if not len(rows):
            break
        depth[rows] += 1
        cash[rows] /= links[node[rows]]
        node[rows] = finder[node[rows]]
    state = {name: np.zeros(len(pages)) for name in FINDER}
    known = np.flatnonzero(finder[pages] >= 0)
    ids, row = np.unique(finder[pages[known]], return_inverse=True)
    for name, column in finders(ids).items() if len(ids) else ():
        if name in state:
            state[name][known] = column[row]
    return {
        "link_depth": depth,
        "cash": cash,
        "finder_rate": rates.rate(state["E"], state["T"]),
        "finder_brought": discovery.rate(state, cycle),
        "waited": cycle - entered.astype(np.int64),
    }


class WaitingPages(NamedTuple):
    """Pages that wait for their first visit, ``[P]`` each."""

    pages: Array
    site: Array
    """Key of each page's site."""
    finder: Array
    """Column ``found_by``: page on which each was found, plus 1."""
    entered: Array
    """Cycle in which each page became known."""
    drawn: Array
    """Tie-breaking random number of each page in this cycle."""


def by_turns(waiting: WaitingPages, cycle: int) -> Array:
    """Order waiting pages round-robin by site: the first page of each site, then the second of each, ...

    Within a site, finders take turns likewise; ties go to the page that was known earlier, then to the
    smaller draw. ``cycle``: the one that is planned. Returns page ids.
    """
    site = np.unique(waiting.site, return_inverse=True)[1]
    entered = np.clip(waiting.entered.astype(np.int64), 0, cycle)
    of_finder = ranks_in_groups((waiting.drawn, entered), (waiting.finder, site))
    turn = ranks_in_groups((waiting.drawn, entered, of_finder), (site,))
    return np.asarray(waiting.pages[np.lexsort((waiting.drawn, entered, turn))])


SHARE: Final = 0.5
"""Largest share of the remaining first visits that one site, or the links of one page, take at once."""


class FirstVisits:
    """Counter of a cycle's first visits, which holds pages back where the cycle has a cap for them.

    A page may have 100,000 links. With a cap, the pages found on one page take at most half of the visits
    left; the others are held back until no other page waits. Then `next_turns` returns them, by turns.
    """

    def __init__(self, sites_of: Callable[[Sequence[int]], list[int]], most: int | None) -> None:
        """``sites_of(pages)``: returns the site of each page; ``most``: cap of the cycle, None: no cap."""
        self._sites_of = sites_of
        self._waiting: list[tuple[int, int, int]] = []  # page, site, finder
        self._of_finder: Counter[int] = Counter()
        self._most = most
        self._visits = 0

    def count(self, pages: Sequence[int]) -> None:
        """Count first visits to pages that are planned or were visited, without holding any back."""
        self._visits += len(pages)

    @property
    def has_waiting(self) -> bool:
        """Whether pages were held back, and the cap has room for one."""
        return bool(self._waiting) and self._most is not None and self._visits < self._most

    def takes(self, page: int, finder: int | None = None) -> bool:
        """Return whether `page` may be visited now, and count it if so.

        If its finder has had its share of the cycle's first visits, the page is held back until its turn. If
        the cycle has made all first visits, it waits for a later cycle. ``finder``: page on which it was
        found; None: the page was held back before, and it is its turn.
        """
        if self._most is not None:
            if self._visits >= self._most:
                return False
            if finder is not None:
                share = SHARE * (self._most - self._visits + self._of_finder[finder])
                if self._of_finder[finder] + 1 > share:
                    self._waiting.append((page, self._sites_of([page])[0], finder))
                    return False
                self._of_finder[finder] += 1
        self._visits += 1
        return True

    def next_turns(self) -> list[int]:
        """Return the pages that were held back, by turns, as many as the cap allows; count them."""
        page, site, finder = (np.array(column) for column in zip(*self._waiting, strict=True))
        order = np.arange(len(page), dtype=np.uint64)
        waiting = WaitingPages(page, site, finder, np.zeros(len(page)), order)
        self._waiting = []
        return [page for page in by_turns(waiting, 1).tolist() if self.takes(page)]


def best_first(scores: Floats, site: Array, drawn: Array, most: int | None) -> Ints:
    """Return the positions of the pages to visit first, best first; ``most``: their number, None: all.

    A site gets more than half of them only if other sites have too few pages. ``drawn``: random numbers,
    which decide among equal scores; all arrays ``[P]``.
    """
    turn = ranks_in_groups((drawn, -scores), (site,))
    is_beyond = turn >= (np.inf if most is None else math.ceil(SHARE * most))
    return np.lexsort((drawn, -scores, is_beyond))[:most]


def ranks_in_groups(order: tuple[Array, ...], group: tuple[Array, ...]) -> Ints:
    """Rank of each row in its group, from 0: ``[P]``.

    ``order``: columns to sort by, the last one first, as for `np.lexsort`; ``group``: equal in one group.
    """
    rows = np.lexsort((*order, *group))
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = np.logical_or.reduce([key[rows][1:] != key[rows][:-1] for key in group])
    starts = np.flatnonzero(is_first)
    turn = np.empty(len(rows), np.int64)
    turn[rows] = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
    return turn
