"""The k best of all pages of a replay, found in memory that is used again: see `scoring.ranking.top_k`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring.ranking import (
    best_k,
    in_order,
    likely_cut,
    top_k,
)

Rows = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]

FEW: Final = 2_000
"""Rows up to which compiling what looks for the best, or sorts these, takes longer than it saves."""


class Selection:
    """Memory for selections among P pages."""

    def __init__(self, pages: int) -> None:
        """Take P."""
        from training.replaying.kernels import selection  # compiles: only when it is used

        self._kernels = selection
        self._counts = np.empty(selection.BINS, np.int32)
        self._bins = np.empty(pages, np.uint16)
        # One more: the kernels write every row before they know whether it counts.
        self._above, self._among = np.empty(pages + 1, np.uint32), np.empty(pages + 1, np.uint32)

    def best(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """Rows of the k best, best first: by score descending, then ties ascending, then row.

        ``scores``: float64 ``[P]``, not NaN; ``ties_of(rows)``: numbers that decide among equal scores. As
        `scrapy_gp4c.scoring.ranking.top_k`, which needs the ties of all.
        """
        if k <= 0:
            return np.empty(0, np.uint32)
        if len(scores) <= FEW:
            return top_k(scores, ties_of(np.arange(len(scores), dtype=np.uint32)), k).astype(np.uint32)
        chosen = self._chosen(scores, k, ties_of)
        ties = np.asarray(ties_of(chosen), np.uint64)
        if k < FEW:
            return chosen[in_order(scores[chosen], ties)]
        return np.asarray(chosen[self._kernels.in_order(scores[chosen], ties)])

    def _chosen(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """The k best, ascending."""
        rows = self._above_sample(scores, k)
        if rows is None:
            certain, maybe = self._kernels.highest(
                scores, k, self._counts, self._bins, self._above, self._among
            )
            above, among = self._above[:certain], self._among[:maybe]
        else:
            above, among = rows[:0], rows
        wanted = k - len(above)
        if wanted < len(among):
            own = scores[among]
            cut = np.partition(own, len(among) - wanted)[len(among) - wanted]
            higher, equal = among[own > cut], among[own == cut]
            wanted -= len(higher)
            if wanted < len(equal):
                # All of the lowest score are at the border, those above it are wanted.
                equal = equal[best_k(np.zeros(len(equal)), ties_of(equal), wanted)]
            among = np.concatenate((higher, equal))
        chosen = np.concatenate((above, among))
        chosen.sort()
        return chosen

    def _above_sample(self, scores: Floats, k: int) -> Rows | None:
        """Rows that score at least what about k do, ascending: the k best, and some more.

        None where a sample of the scores cannot tell that.
        """
        cut = likely_cut([scores], k)
        if cut is None:
            return None
        found = self._kernels.at_least(scores, cut, self._among)
        return self._among[:found] if k <= found <= 4 * k else None
