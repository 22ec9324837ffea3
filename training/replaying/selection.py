"""The k best of all pages of a replay, found in memory that is used again: see `scoring.ranking.top_k`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring.ranking import best_k, in_order

Rows = npt.NDArray[np.uint32]

FEW: Final = 2_000
"""Rows up to which compiling what sorts them takes longer than it saves."""


class Selection:
    """Memory for selections among P pages."""

    def __init__(self, pages: int) -> None:
        """Take P."""
        from training.replaying.kernels import selection  # compiles: only when it is used

        self._highest, self._in_order = selection.highest, selection.in_order
        self._counts = np.empty(selection.BINS, np.int32)
        self._bins = np.empty(pages, np.uint16)
        # One more: the kernel writes every row before it knows whether it counts.
        self._above, self._among = np.empty(pages + 1, np.uint32), np.empty(pages + 1, np.uint32)

    def best(
        self, scores: npt.NDArray[np.float64], k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]
    ) -> Rows:
        """Rows of the k best, best first: by score descending, then ties ascending, then row.

        ``scores``: float64 ``[P]``, not NaN; ``ties_of(rows)``: numbers that decide among equal scores. As
        `scrapy_gp4c.scoring.ranking.top_k`, which needs the ties of all.
        """
        if k <= 0:
            return np.empty(0, np.uint32)
        certain, maybe = self._highest(scores, k, self._counts, self._bins, self._above, self._among)
        among = self._among[:maybe]
        own = scores[among]
        wanted = k - certain
        if wanted < maybe:
            cut = np.partition(own, maybe - wanted)[maybe - wanted]
            keep = own >= cut
            among, own = among[keep], own[keep]
            if wanted < len(among):
                # All of the lowest score are at the border, those above it are wanted.
                kept = best_k(own, ties_of(among), wanted)
                among = among[kept]
        chosen = np.concatenate((self._above[:certain], among))
        chosen.sort()
        if k < FEW:
            return chosen[in_order(scores[chosen], lambda rows: ties_of(chosen[rows]))]
        ties = np.asarray(ties_of(chosen), np.uint64)
        return np.asarray(chosen[self._in_order(scores[chosen], ties)])
