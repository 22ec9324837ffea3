"""Terminals of pages before their first visit: how links led to them, and what their finders are like.

OPIC (Abiteboul, Preda & Cobéna 2003) gives every page cash, which its visit shares among its links. Each page
is known by one finder here, so that its cash is what a visit to each page on the way left it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.scoring import discovery, rates

Formula = Callable[[Mapping[str, Array], int], Array]


def _terminal(name: str, meaning: str) -> tuple[tuple[str, ...], Formula, str]:
    return (name,), lambda state, cycle: state[name], f"before a first visit: {meaning}"


TERMINALS: Final = {
    "link_depth": _terminal("link_depth", "links from a start page to it"),
    "cash": _terminal("cash", "its share of the cash that OPIC gives start pages"),
    "finder_rate": _terminal("finder_rate", "change rate of the page that found it"),
    "finder_brought": _terminal("finder_brought", "new pages per cycle of the page that found it"),
    "waited": _terminal("waited", "cycles since it became known"),
}
"""Terminal -> columns, formula, meaning: see `scrapy_gp4c.scoring.terminals.Terminal`.

Each is a column that a crawl makes for pages that wait for their first visit, see `columns_of_links`.
"""
FINDER: Final = ("E", "T", "brought_sum", "brought_cycles")
"""Columns that are read of finders."""
MOST_LINKS: Final = 1_000
"""Longest way from a start page that is followed."""


def columns_of_links(
    pages: Array, found_by: Array, entered: Array, cycle: int, finders: Callable[[Ints], Mapping[str, Array]]
) -> dict[str, Array]:
    """Columns of `TERMINALS`, of pages that wait for their first visit, ``[N]`` each.

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


SHARE: Final = 0.5
"""Share of the remaining first visits that one site, or the links of one page, may take as they come."""


def best_first(
    scores: Floats, site: Array, drawn: Array, most: int | None, most_of_site: int | None = None
) -> Ints:
    """Positions of a cycle's first visits, best first; a site has more than half where others have no more.

    ``drawn``: random numbers, which decide among equal scores, ``[P]``; ``most``, ``most_of_site``: caps,
    None: none.
    """
    turn = turns_of((drawn, -scores), (site,))
    is_beyond = turn >= (np.inf if most is None else math.ceil(SHARE * most))
    order = np.lexsort((drawn, -scores, is_beyond))
    if most_of_site is not None:
        order = order[turn[order] < most_of_site]
    return np.asarray(order[:most])


def turns_of(order: tuple[Array, ...], group: tuple[Array, ...]) -> Ints:
    """Place of each row within its group, ``[P]``; ``order``, ``group``: keys, the last one first."""
    rows = np.lexsort((*order, *group))
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = np.logical_or.reduce([key[rows][1:] != key[rows][:-1] for key in group])
    starts = np.flatnonzero(is_first)
    turn = np.empty(len(rows), np.int64)
    turn[rows] = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
    return turn
