"""Ranking: the k best of many scores, in one array or in a stream of blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

SLACK_ROWS: Final = 16_384
"""Rows beyond 2k by which a stream may grow before it is compacted, four times."""


def best_k(scores: npt.NDArray[np.float64], ties: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """Positions of the k best, ascending: the set that `top_k` puts in order.

    ``scores`` float64 ``[P]`` finite; ``ties`` any ordered dtype ``[P]``. O(P). The result has
    ``min(k, P)`` entries.
    """
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    if k >= len(scores):
        return np.arange(len(scores))
    cut = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > cut)
    equal = np.flatnonzero(scores == cut)
    wanted = k - len(above)
    if wanted < len(equal):
        # Ties may hold equal values too (hash collisions): a stable sort falls back on position.
        tie_cut = np.partition(ties[equal], wanted - 1)[wanted - 1]
        equal = equal[ties[equal] <= tie_cut]
        equal = equal[np.argsort(ties[equal], kind="stable")][:wanted]
    chosen = np.concatenate((above, equal))
    chosen.sort()
    return chosen


def top_k(scores: npt.NDArray[np.float64], ties: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """Positions of the k best, best first: by score descending, then `ties` ascending, then position.

    ``scores`` float64 ``[P]`` finite; ``ties`` any ordered dtype ``[P]``. O(P + k log k). The result has
    ``min(k, P)`` entries.
    """
    chosen = best_k(scores, ties, k)
    order = np.lexsort((ties[chosen], -scores[chosen]))
    return np.asarray(chosen[order], dtype=np.int64)


class Best:
    """The k best pages of a stream of scored blocks, in memory of O(k)."""

    def __init__(self, k: int, slack_rows: int = SLACK_ROWS) -> None:
        """Keep `k`; ``slack_rows``: what a stream may grow by until it is compacted, see `SLACK_ROWS`."""
        self._k = k
        self._slack_rows = slack_rows
        self._columns: list[tuple[npt.NDArray[Any], ...]] = []
        self._rows = 0
        self._cut: tuple[float, int] | None = None
        self.cut: tuple[float, int] | None = None
        """After `result`: score and tie of the last of the k best."""

    def add(
        self,
        scores: npt.NDArray[np.float64],
        ties: npt.NDArray[np.uint64],
        pages: npt.NDArray[np.uint32],
    ) -> None:
        """Take a block: float64, uint64 and uint32 ``[rows]``."""
        block: tuple[npt.NDArray[Any], ...] = (scores, ties, pages)
        if self._cut is not None:
            score, tie = self._cut
            keep = np.flatnonzero((scores > score) | ((scores == score) & (ties < tie)))
            block = tuple(column[keep] for column in block)
        self._columns.append(block)
        self._rows += len(block[0])
        if self._rows > 2 * self._k + 4 * self._slack_rows:
            self._compact()

    def _merged(self) -> tuple[npt.NDArray[Any], ...]:
        if len(self._columns) == 1:  # a replay has all its pages in one block
            return self._columns[0]
        return tuple(np.concatenate(column) for column in zip(*self._columns, strict=True))

    def _compact(self) -> None:
        merged = self._merged()
        kept = best_k(merged[0], merged[1], self._k)
        self._columns = [tuple(column[kept] for column in merged)]
        self._rows = len(kept)
        scores, ties, _ = self._columns[0]
        if len(kept) == self._k > 0:
            cut = scores.min()
            self._cut = (float(cut), int(ties[scores == cut].max()))

    def result(self, k: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        """Return pages and scores of the k best, best first."""
        if not self._columns:
            return np.empty(0, np.uint32), np.empty(0)
        scores, ties, pages = self._merged()
        order = top_k(scores, ties, k)
        if len(order):
            self.cut = float(scores[order[-1]]), int(ties[order[-1]])
        return pages[order], scores[order]
