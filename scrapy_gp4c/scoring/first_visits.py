"""Terminals of pages before their first visit: how links led to them, and what their finders are like.

OPIC (Abiteboul, Preda & Cobéna 2003) gives every page cash, which its visit shares among its links. Its way
is that of finders here, so that a page's cash is what a visit to each page on the way left it. Links of
further pages set a bit each, by a hash of the linking page: their number follows from the bits that are not
set (Whang, Vander-Zanden & Taylor 1990), however often a page that links is visited.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.scoring import discovery, rates
from scrapy_gp4c.scoring.ranking import GOLDEN

Formula = Callable[[Mapping[str, Array], int], Array]


def _terminal(name: str, meaning: str) -> tuple[tuple[str, ...], Formula, str]:
    return (name,), lambda state, cycle: state[name], f"before a first visit: {meaning}"


TERMINALS: Final = {
    "link_depth": _terminal("link_depth", "links from a start page to it"),
    "cash": _terminal("cash", "its share of the cash that OPIC gives start pages"),
    "finder_rate": _terminal("finder_rate", "change rate of the page that found it"),
    "finder_brought": _terminal("finder_brought", "new pages per cycle of the page that found it"),
    "waited": _terminal("waited", "cycles since it became known"),
    "inlinks": _terminal("inlinks", "pages that link to it, as far as they were visited"),
    "inlink_sites": _terminal("inlink_sites", "sites of these pages"),
    "anchor": _terminal("anchor", "share of the words of the query log in the best text of a link to it"),
}
"""Terminal -> columns, formula, meaning: see `scrapy_gp4c.scoring.terminals.Terminal`.

Each is a column that a crawl makes for pages that wait for their first visit, see `columns_of_links`.
"""
COUNTED: Final = ("inlinks", "inlink_sites", "anchor")
"""Terminals for which a crawl notes every link to a page that waits."""
REPLAYED: Final = tuple(name for name in TERMINALS if name not in COUNTED)
"""Terminals that every history of growth tells; for the others it has to have links."""
COLUMNS: Final[dict[str, str]] = {
    "link_bits": "<u8",  # a bit for each page that links to the page, while it waits for its first visit
    "link_site_bits": "<u8",  # a bit for each site of these pages
    "anchor": "<f2",  # share of the words of the query log in the best text of a link
}
"""Column name -> little-endian dtype."""
FINDER: Final = ("E", "T", "brought_sum", "brought_cycles")
"""Columns that are read of finders."""
MOST_LINKS: Final = 1_000
"""Longest way from a start page that is followed."""


def bit_of(key: Array) -> npt.NDArray[np.uint8]:
    """Position from 0 to 63 of the bit that stands for each of some pages or sites, by their keys."""
    return ((np.asarray(key, np.uint64) * np.uint64(GOLDEN)) >> np.uint64(58)).astype(np.uint8)


def counted_bits(bits: Array) -> Floats:
    """Numbers of distinct keys, each of which has set one of 64 bits, by linear counting: ``[P]``.

    At least 1: every page has a finder.
    """
    clear = 64 - np.unpackbits(bits.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1).sum(1)
    return np.asarray(np.maximum(1.0, np.rint(64 * np.log(64 / np.maximum(clear, 0.5)))))


def counted_links(columns: Mapping[str, Array]) -> dict[str, Array]:
    """Columns of the terminals in `COUNTED`, ``[N]`` each; ``columns``: with `COLUMNS`."""
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
    """Columns of `REPLAYED`, of pages that wait for their first visit, ``[N]`` each.

    ``pages``: ids ``[N]``; ``found_by``: column of all pages, ``[P]``; ``entered``: of these, ``[N]``;
    ``finders(ids)``: the columns `FINDER` of some pages, ids ascending.
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
    """Key of the site of each."""
    finder: Array
    """Finder of each, as the column ``found_by`` has it."""
    entered: Array
    """Cycle in which each became known."""
    drawn: Array
    """Random number of each in this cycle."""


def by_turns(waiting: WaitingPages, cycle: int) -> Array:
    """All pages that may have their first visit, in order: the first of each site, then the second of each.

    Within a site, the pages that found others take turns, too; ties go to the page that was known earlier,
    then to the smaller draw. ``cycle``: the one that is planned.
    """
    site = np.unique(waiting.site, return_inverse=True)[1]
    entered = np.clip(waiting.entered.astype(np.int64), 0, cycle)
    of_finder = turns_of((waiting.drawn, entered), (waiting.finder, site))
    turn = turns_of((waiting.drawn, entered, of_finder), (site,))
    return np.asarray(waiting.pages[np.lexsort((waiting.drawn, entered, turn))])


SHARE: Final = 0.5
"""Share of the remaining first visits that one site, or the links of one page, may take as they come."""


class FirstVisits:
    """Counts the first visits of a cycle, and of each finder where there is a cap.

    Links come one by one, and a page may have 100,000 of them: with a cap, a finder takes half of what is
    left, and its other pages wait until all else is done. Then they come by turns.
    """

    def __init__(self, sites_of: Callable[[Sequence[int]], list[int]], most: int | None) -> None:
        """``sites_of(pages)``: site of each page; ``most``: cap of the cycle, None: no cap."""
        self._sites_of = sites_of
        self._waiting: list[tuple[int, int, int]] = []  # page, site, finder
        self._of_finder: Counter[int] = Counter()
        self._most = most
        self._visits = 0

    def count(self, pages: Sequence[int]) -> None:
        """Count pages that are planned or were visited."""
        self._visits += len(pages)

    @property
    def has_waiting(self) -> bool:
        """Whether pages wait for their turn, and the cap has room for one."""
        return bool(self._waiting) and self._most is not None and self._visits < self._most

    def takes(self, page: int, finder: int | None = None) -> bool:
        """Count a further first visit, unless a cap is reached, or the page has to wait for its turn.

        ``finder``: None where it is the page's turn.
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
        """Pages that have waited for their turn, as many as the caps allow."""
        page, site, finder = (np.array(column) for column in zip(*self._waiting, strict=True))
        order = np.arange(len(page), dtype=np.uint64)
        waiting = WaitingPages(page, site, finder, np.zeros(len(page)), order)
        self._waiting = []
        return [page for page in by_turns(waiting, 1).tolist() if self.takes(page)]


def best_first(scores: Floats, site: Array, drawn: Array, most: int | None) -> Ints:
    """Positions of a cycle's first visits, best first; a site has more than half where others have no more.

    ``drawn``: random numbers, which decide among equal scores, ``[P]``; ``most``: cap, None: none.
    """
    turn = turns_of((drawn, -scores), (site,))
    is_beyond = turn >= (np.inf if most is None else math.ceil(SHARE * most))
    return np.lexsort((drawn, -scores, is_beyond))[:most]


def turns_of(order: tuple[Array, ...], group: tuple[Array, ...]) -> Ints:
    """Place of each row within its group, ``[P]``; ``order``, ``group``: keys, the last one first."""
    rows = np.lexsort((*order, *group))
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = np.logical_or.reduce([key[rows][1:] != key[rows][:-1] for key in group])
    starts = np.flatnonzero(is_first)
    turn = np.empty(len(rows), np.int64)
    turn[rows] = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
    return turn
