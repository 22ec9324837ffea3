"""Groups of pages, and what the visits to them found: sites, path prefixes, directories.

A page keeps the number of its directory. What is kept of a directory is where it is and, for each of the
last 8 cycles in which it was visited, three sums; those of a site or of the crawl are sums over directories.
All of them are exact in any order of summation, so that a crawl and a replay come to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.places import PREFIXES
from scrapy_gp4c.scoring.rates import whole_units

Array = npt.NDArray[Any]

KEPT_CYCLES: Final = 8
"""Finished cycles of which the visits to groups are kept."""

GROUP: Final = np.dtype(
    [("key", "<u8"), ("site", "<u8"), *[(f"prefix_{n}", "<u8") for n in range(1, PREFIXES + 1)]]
)
"""A directory by the numbers of `scrapy_gp4c.page_state.places.Place.keys`."""
GROUP_VISITS: Final = np.dtype(
    [
        ("group", "<u4"),  # number of the directory
        ("visits", "<u4"),  # judged
        ("found", "<u4"),  # changes
        ("predicted", "<f8"),  # changes expected, whole units of `scrapy_gp4c.scoring.rates.UNIT`
    ]
)
"""What a cycle's visits to one directory found."""
NO_VISITS: Final = np.empty(0, GROUP_VISITS)


@dataclass(frozen=True)
class Directories:
    """Directories 0..G-1, and how they make up sites 0..S-1."""

    site: npt.NDArray[np.intp]
    """``[G]``: number of the site."""
    sites: int
    unnamed: bool = False
    """Whether only sites are known: each is taken for one directory."""

    def __len__(self) -> int:
        return len(self.site)


def directories(keys_of_sites: Array) -> Directories:
    """Directories of sites that are told apart by any keys, ``[G]``."""
    keys, number = np.unique(keys_of_sites, return_inverse=True)
    return Directories(number.astype(np.intp, copy=False), len(keys))


def count_visits(groups: Array, changed: Array, predicted: Array | None) -> npt.NDArray[Any]:
    """What judged visits tell of the directories visited: dtype `GROUP_VISITS`, by number.

    ``groups``: of each visit, ``[V]``; ``changed``: bool ``[V]``; ``predicted``: the probability of that
    before the visit, ``[V]``; None: nobody asks for it. The one update of groups, as `terminals.observe` is
    that of pages.
    """
    if not len(groups):
        return NO_VISITS
    visits = np.bincount(groups)
    found = np.bincount(groups[changed], minlength=len(visits))
    numbers = np.flatnonzero(visits > 0)  # of numbers it takes five times as long
    expected = 0.0 if predicted is None else np.bincount(groups, whole_units(predicted))[numbers]
    return _table(numbers, visits[numbers], found[numbers], expected)


def count_changes(groups: Array, changed: Array) -> npt.NDArray[Any]:
    """`count_visits` where nothing is predicted, and some pages are in no group (a negative number)."""
    known = groups >= 0
    return count_visits(groups[known], changed[known], None)


def add_up(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One table of several, dtype `GROUP_VISITS`: of the parts of a cycle, or of several cycles."""
    joined = np.concatenate([NO_VISITS, *parts])
    if len(parts) < 2 or not len(joined):
        return joined
    group = joined["group"]
    numbers = np.flatnonzero(np.bincount(group) > 0)
    return _table(
        numbers, *(np.bincount(group, joined[name])[numbers] for name in ("visits", "found", "predicted"))
    )


def _table(numbers: Array, visits: Array, found: Array, predicted: Array | float) -> npt.NDArray[Any]:
    table = np.empty(len(numbers), GROUP_VISITS)
    table["group"], table["visits"], table["found"], table["predicted"] = numbers, visits, found, predicted
    return table
