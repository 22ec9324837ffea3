"""The k best of all pages of a replay, found in memory that is used again: see `scoring.ranking.top_k`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring.ranking import best_k, in_order

Rows = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]

FEW: Final = 2_000
"""Rows up to which compiling what sorts them takes longer than it saves."""
SPARE: Final = 16
"""Times k: so many rows are kept in mind, among which the next k may be."""


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
        self.begin()

    def begin(self) -> None:
        """What was selected before tells nothing of what comes."""
        self._likely: Rows | None = None

    def best(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """Rows of the k best, best first: by score descending, then ties ascending, then row.

        ``scores``: float64 ``[P]``, not NaN; ``ties_of(rows)``: numbers that decide among equal scores. As
        `scrapy_gp4c.scoring.ranking.top_k`, which needs the ties of all. The second time and later it is the
        faster the less the scores have changed.
        """
        if k <= 0:
            return np.empty(0, np.uint32)
        if self._likely is None:
            chosen = self._first(scores, k, ties_of)
            self._likely = chosen[:0]
        else:
            chosen = self._again(scores, k, ties_of)
        if k < FEW:
            return chosen[in_order(scores[chosen], lambda rows: ties_of(chosen[rows]))]
        ties = np.asarray(ties_of(chosen), np.uint64)
        return np.asarray(chosen[self._in_order(scores[chosen], ties)])

    def _first(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """The k best, ascending."""
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
        return chosen

    def _again(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """The k best, ascending; others that come near them are kept in mind."""
        rows = self._above_likely(scores, k)
        if rows is None:
            most = min(SPARE * k, len(scores))
            certain, maybe = self._highest(scores, most, self._counts, self._bins, self._above, self._among)
            rows = np.concatenate((self._above[:certain], self._among[:maybe]))
            rows.sort()
        own = scores[rows]
        among = np.arange(len(rows))
        if k < len(rows):
            among = np.flatnonzero(own >= np.partition(own, len(own) - k)[len(own) - k])
        if k < len(among):
            among = among[best_k(own[among], ties_of(rows[among]), k)]
        is_left = np.ones(len(rows), np.bool_)
        is_left[among] = False
        likely, own = rows[is_left], own[is_left]
        if len(likely) > SPARE * k:
            likely = likely[own >= np.partition(own, len(own) - SPARE * k)[len(own) - SPARE * k]]
        self._likely = likely[: SPARE * k]
        return rows[among]

    def _above_likely(self, scores: Floats, k: int) -> Rows | None:
        """Rows that score at least what most of the likely ones do, ascending: the k best, and more.

        None where these are too few.
        """
        assert self._likely is not None
        own = scores[self._likely]
        if len(own) < k:
            return None
        lowest = min(len(own) // 8, len(own) - k)
        least = np.partition(own, lowest)[lowest]
        return None if least == -np.inf else np.flatnonzero(scores >= least).astype(np.uint32)
