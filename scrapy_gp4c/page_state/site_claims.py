"""What the claims of sites add to the odds that their pages changed: the columns `hints` gives a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import hints

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

KINDS_OF: Final[dict[str, tuple[int, ...]]] = {
    "hint_listed": hints.LISTED,
    "hint_span": (hints.EXPIRES, hints.CHANGEFREQ),
}
"""Column of a round -> the kinds of claims that it sums up."""


class SiteClaims:
    """What claims are worth in a cycle, by site."""

    def __init__(
        self, counts: Floats, pages: npt.NDArray[np.int64], cycle: int, everywhere: Array | None = None
    ) -> None:
        """Take what `hints.lifts` takes, for the sites 0..S-1, and the cycle that is planned."""
        self._lifts = hints.lifts(counts, pages, everywhere)
        self._cycle = cycle

    def column(self, name: str, site: Array, state: Mapping[str, Array]) -> Floats:
        """One column of `KINDS_OF`, ``[P]``; ``site``: of each page; ``state``: last_cycle,
        `hints.COLUMNS`."""
        return hints.lift_of(self._lifts, site, state, KINDS_OF[name], self._cycle)


def pages_with_claims(
    parts: Iterable[tuple[Array, Mapping[str, Array]]], sites: int, cycle: int
) -> npt.NDArray[np.int64]:
    """Count pages with claims by site, kind and whether these are unseen: ``[S, kinds, 2]``.

    ``parts``: site of each page and its columns, some pages at a time.
    """
    found = np.zeros((sites, len(hints.KINDS), 2), np.int64)
    for site, state in parts:
        for kind in range(len(hints.KINDS)):
            known = hints.has_claims(state, kind)
            if known.any():
                claimed = hints.is_claimed(state, kind, cycle)
                for one in (0, 1):
                    found[:, kind, one] += np.bincount(site[known & (claimed == one)], minlength=sites)
    return found
