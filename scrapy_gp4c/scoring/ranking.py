"""Ranking: the k best of many scores, in one array or in a stream of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

TiesOf = Callable[[npt.NDArray[np.intp]], npt.NDArray[np.uint64]]
"""Tie-breaking numbers of some rows of a block: drawing them for all pages costs more than most scores."""
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
    return chosen[in_order(scores[chosen], lambda rows: ties[chosen[rows]])]


def in_order(scores: npt.NDArray[np.float64], ties_of: TiesOf) -> npt.NDArray[np.int64]:
    """Positions, best first, as `top_k` sorts all: ``scores`` float64 ``[P]`` finite."""
    ranked = -scores
    order = np.argsort(ranked)
    ranked = ranked[order]
    equal = ranked[1:] == ranked[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if len(tied):
        # Sorting by one number takes a tenth of the time that two take: place and tie in 64 bits.
        place = np.cumsum(np.append(False, ~equal))[tied].astype(np.uint64)
        rows = order[tied]
        ties = ties_of(rows).astype(np.uint64)
        bits = int(place[-1]).bit_length() + int(ties.max()).bit_length()
        mixed = place << np.uint64(64 - int(place[-1]).bit_length()) if place[-1] else place
        mixed |= ties >> np.uint64(max(0, bits - 64))
        by_both = np.argsort(mixed)
        mixed = mixed[by_both]
        if (mixed[1:] == mixed[:-1]).any():  # what was cut off decides
            by_both = np.lexsort((rows, ties, place))
        order[tied] = rows[by_both]
    return np.asarray(order, np.int64)


class _Part(NamedTuple):
    """Some rows of a block."""

    scores: npt.NDArray[np.float64]
    pages: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.intp] | None
    """None: all of the block."""
    ties_of: TiesOf

    def only(self, keep: npt.NDArray[np.intp]) -> _Part:
        rows = keep if self.rows is None else self.rows[keep]
        return _Part(self.scores[keep], self.pages[keep], rows, self.ties_of)


class Ranked(NamedTuple):
    """Pages in order, best first."""

    pages: npt.NDArray[np.uint32]
    """``[rows]``."""
    scores: npt.NDArray[np.float64]
    """``[rows]``."""
    ties: npt.NDArray[np.uint64]
    """``[rows]``."""


class Best:
    """The k best pages of a stream of scored blocks, in memory of O(k).

    Ties are asked for only where they may decide.
    """

    def __init__(self, k: int, slack_rows: int = SLACK_ROWS) -> None:
        """Keep `k`; ``slack_rows``: what a stream may grow by until it is compacted, see `SLACK_ROWS`."""
        self._k = k
        self._slack_rows = slack_rows
        self._parts: list[_Part] = []
        self._rows = 0
        self._cut: tuple[float, int] | None = None

    def add(self, scores: npt.NDArray[np.float64], ties_of: TiesOf, pages: npt.NDArray[np.uint32]) -> None:
        """Take a block: float64 ``[rows]``, the ties of given rows, and uint32 ``[rows]``."""
        part = _Part(scores, pages, None, ties_of)
        if self._cut is not None:
            score, tie = self._cut
            keep = scores > score
            equal = np.flatnonzero(scores == score)
            if len(equal):
                keep[equal[ties_of(equal) < np.uint64(tie)]] = True
            part = part.only(np.flatnonzero(keep))
        self._parts.append(part)
        self._rows += len(part.scores)
        if self._rows > 2 * self._k + 4 * self._slack_rows:
            self._compact()

    def _candidates(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Scores, ties and pages of all rows that may be among the k best."""
        parts = self._parts
        if self._rows > self._k > 0:
            scores = np.concatenate([part.scores for part in parts])
            cut = np.partition(scores, self._rows - self._k)[self._rows - self._k]
            parts = [part.only(np.flatnonzero(part.scores >= cut)) for part in parts]
        rows = (np.arange(len(part.scores)) if part.rows is None else part.rows for part in parts)
        ties = [part.ties_of(own) for part, own in zip(parts, rows, strict=True)]
        return (
            np.concatenate([part.scores for part in parts]),
            np.concatenate(ties),
            np.concatenate([part.pages for part in parts]),
        )

    def _compact(self) -> None:
        scores, ties, pages = self._candidates()
        kept = best_k(scores, ties, self._k)
        scores, ties = scores[kept], ties[kept]
        self._parts = [_Part(scores, pages[kept], None, ties.__getitem__)]
        self._rows = len(kept)
        if len(kept) == self._k > 0:
            cut = scores.min()
            self._cut = (float(cut), int(ties[scores == cut].max()))

    def result(self, k: int) -> Ranked:
        """Return the k best, best first."""
        if not self._parts:
            return Ranked(np.empty(0, np.uint32), np.empty(0), np.empty(0, np.uint64))
        scores, ties, pages = self._candidates()
        order = top_k(scores, ties, k)
        return Ranked(pages[order], scores[order], ties[order])
