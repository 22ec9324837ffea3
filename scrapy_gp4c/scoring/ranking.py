"""Ranking: the k best of many scores, in one array or in a stream of blocks, and draws that break ties.

A draw is a pseudorandom number of a page in a cycle, a pure function of seed, cycle and page key.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)

_MIX_2: Final = np.uint64(0x94D049BB133111EB)

GOLDEN: Final = 0x9E3779B97F4A7C15


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Finaliser of SplitMix64 (Steele, Lea & Flood 2014): a bijection with good avalanche."""
    values = values ^ (values >> np.uint64(30))
    values *= _MIX_1
    values ^= values >> np.uint64(27)
    values *= _MIX_2
    values ^= values >> np.uint64(31)
    return values


@lru_cache(16)
def draw_salt(seed: int, cycle: int) -> np.uint64:
    """Number mixed into all draws of a seed and cycle, see `draws`."""
    stream = (seed * GOLDEN + cycle * 0xD1342543DE82EF95) % 2**64
    with np.errstate(over="ignore"):
        return np.uint64(mix(np.array([stream], dtype=np.uint64))[0])


def salted_draws(keys: npt.NDArray[np.uint64], salt: np.uint64) -> npt.NDArray[np.uint64]:
    """Draws of one cycle by its `draw_salt`: uint64 ``[P]``. Distinct keys draw distinct numbers."""
    with np.errstate(over="ignore"):
        return mix(mix(keys + np.uint64(GOLDEN)) ^ salt)


def draws_of(
    keys: npt.NDArray[np.uint64], salt: np.uint64
) -> Callable[[npt.NDArray[np.intp] | slice], npt.NDArray[np.uint64]]:
    """Return a function ``f(rows)`` that computes the draws of these rows of `keys`."""
    return lambda rows: salted_draws(keys[rows], salt)


def draws(keys: npt.NDArray[np.uint64], seed: int, cycle: int) -> npt.NDArray[np.uint64]:
    """Random numbers of pages, new in every cycle: uint64 ``[P]``.

    A pure function of seed, cycle and key: it needs no state and can be repeated in any order. ``keys``:
    uint64 ``[P]``, distinct per page.
    """
    return salted_draws(keys, draw_salt(seed, cycle))


class Purpose(IntEnum):
    """Random decisions about a page in a cycle, besides ties of its rank, each by a `drawn_for` draw."""

    FOLLOW = 1
    """Whether pages near a sample are visited."""
    NEIGHBOUR = 2
    """Order of pages that are equally near to a sample."""
    GROUP = 3
    """Order of equal groups: the highest draw of their pages would favour the large ones."""


def drawn_for(drawn: npt.NDArray[np.uint64], purpose: Purpose) -> npt.NDArray[np.uint64]:
    """Return draws for a purpose, derived from `drawn`, but independent of it and of other purposes."""
    with np.errstate(over="ignore"):
        return mix(drawn + np.uint64(purpose * GOLDEN % 2**64))


def uniform(drawn: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Convert draws to numbers in [0, 1), multiples of 2**-53."""
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53)


def places_in_order(numbers: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.intp]:
    """Return the positions that sort unsigned numbers, ``[P]``, as stable `np.argsort` does, but faster."""
    # Number and place are packed in 64 bits and sorted in place: np.lexsort takes three times as
    # long, which planning 10 million pages with a budget of 5% would notice by 14%.
    if len(numbers) < 2:
        return np.arange(len(numbers))
    keys = numbers.astype(np.uint64)
    lowest = keys.min()
    keys -= lowest
    place_bits = np.uint64((len(keys) - 1).bit_length())
    low_bits = np.uint64(max(0, int(keys.max()).bit_length() + int(place_bits) - 64))
    keys >>= low_bits  # so that both have room in 64 bits
    keys <<= place_bits
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    order = (keys & _ones(place_bits)).view(np.intp)
    if not low_bits:
        return order
    ordered = numbers[order]
    if (ordered[1:] < ordered[:-1]).any():  # what was left out decides among neighbours
        keys >>= place_bits
        is_alike = keys[1:] == keys[:-1]
        rows = np.flatnonzero(np.append(is_alike, False) | np.append(False, is_alike))
        group = np.append(True, ~is_alike).cumsum(dtype=np.uint64)[rows]
        low = ordered[rows].astype(np.uint64) - lowest & _ones(low_bits)
        order[rows] = order[rows[places_in_order(group << low_bits | low)]]
    return order


def _ones(bits: np.uint64) -> np.uint64:
    return np.uint64((1 << int(bits)) - 1)


TiesOf = Callable[[npt.NDArray[np.intp]], npt.NDArray[np.uint64]]
"""Function from rows of a block to their tie-breaking numbers, drawn only for rows that need them."""
SLACK_ROWS: Final = 16_384
"""Number of which `Best` collects 4 times as many rows, besides 2k, before it drops all but the k best."""
FEW_ROWS: Final = 1_024
"""Most rows for which `np.lexsort` is the fastest."""
LAST_DRAW: Final = np.uint64(2**64 - 1)
_SIGN_BIT: Final = np.int64(-(2**63))


def best_k(scores: npt.NDArray[np.float64], ties: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """Return the positions of the k best rows, ascending: the set of `top_k`, in O(P).

    ``scores`` float64 ``[P]`` finite; ``ties`` any ordered dtype ``[P]``. The result has ``min(k, P)``
    entries.
    """
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    if k >= len(scores):
        return np.arange(len(scores))
    cut = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = scores >= cut
    surplus = np.count_nonzero(above) - k
    if surplus:
        equal = np.flatnonzero(scores == cut)
        tied = ties[equal]
        tie_cut = np.partition(tied, len(tied) - surplus - 1)[len(tied) - surplus - 1]
        above[equal[tied > tie_cut]] = False
        # Ties may hold equal values too (hash collisions): position decides then.
        last = equal[tied == tie_cut]
        above[last[len(last) - (np.count_nonzero(above) - k) :]] = False
    return np.flatnonzero(above)


def top_k(scores: npt.NDArray[np.float64], ties: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """Return the positions of the k best rows: by score descending, then `ties` ascending, then position.

    ``scores`` float64 ``[P]`` finite; ``ties`` unsigned ``[P]``. O(P + k log k). The result has
    ``min(k, P)`` entries.
    """
    chosen = best_k(scores, ties, k)
    return chosen[in_order(scores[chosen], ties[chosen])[: max(k, 0)]]


def in_order(scores: npt.NDArray[np.float64], ties: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return all positions in the order of `top_k`; ``scores`` float64, finite; ``ties`` unsigned."""
    if len(scores) <= FEW_ROWS:
        return np.asarray(np.lexsort((ties, -scores)), np.int64)
    by_tie = places_in_order(ties.astype(np.uint64, copy=False))
    return by_tie[places_in_order(_falling(scores[by_tie]))]


def _falling(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """Convert scores to unsigned numbers that sort in the opposite order, by the bits of IEEE 754."""
    bits = (0.0 - scores).view(np.int64)  # no minus 0
    turned = bits >> 63
    turned |= _SIGN_BIT
    turned ^= bits
    return turned.view(np.uint64)


class Ranked(NamedTuple):
    """Pages with their scores and draws, each ``[rows]``."""

    pages: npt.NDArray[np.uint32]
    scores: npt.NDArray[np.float64]
    ties: npt.NDArray[np.uint64]
    """Draws: the lower one is better."""

    def only(self, rows: npt.NDArray[np.intp]) -> "Ranked":
        """Return the pages at positions `rows`, in this order."""
        return Ranked(self.pages[rows], self.scores[rows], self.ties[rows])


class Best:
    """The k best pages of a stream of scored blocks, in memory of O(k).

    Draws that break ties are computed only for rows that may be among the k best.
    """

    def __init__(self, k: int, slack_rows: int = SLACK_ROWS, cut: float | None = None) -> None:
        """``cut``: score below which pages are left out, so that fewer than k may be left."""
        self._k = k
        self._slack_rows = slack_rows
        self._parts: list[Ranked] = []
        self._rows = 0
        self._cut = None if cut is None else (cut, LAST_DRAW)

    def add(self, scores: npt.NDArray[np.float64], ties_of: TiesOf, pages: npt.NDArray[np.uint32]) -> None:
        """Add a block of pages with their scores, ``[rows]``; ``ties_of(rows)``: returns draws of rows."""
        if self._cut is None:
            ranked = Ranked(pages, scores, ties_of(np.arange(len(pages))))
        else:
            score, tie = self._cut
            rows = np.flatnonzero(scores >= score)
            ranked = Ranked(pages[rows], scores[rows], ties_of(rows))
            late = (ranked.scores == score) & (ranked.ties >= tie)
            if late.any():
                ranked = ranked.only(np.flatnonzero(~late))
        self._parts.append(ranked)
        self._rows += len(ranked.pages)
        if self._rows > 2 * self._k + 4 * self._slack_rows:
            self._compact()

    def _joined(self) -> Ranked:
        pages, scores, ties = zip(*self._parts, strict=True)
        return Ranked(np.concatenate(pages), np.concatenate(scores), np.concatenate(ties))

    def _compact(self) -> None:
        ranked = self._joined()
        ranked = ranked.only(best_k(ranked.scores, ranked.ties, self._k))
        if len(ranked.pages) == self._k > 0:
            lowest = ranked.scores.min()
            self._cut = float(lowest), ranked.ties[ranked.scores == lowest].max()
        self._parts, self._rows = [ranked], len(ranked.pages)

    def result(self, k: int) -> Ranked:
        """Return the `k` best of all pages added, best first; `k` is at most that of the constructor."""
        if not self._parts:
            return Ranked(np.empty(0, np.uint32), np.empty(0), np.empty(0, np.uint64))
        ranked = self._joined()
        return ranked.only(top_k(ranked.scores, ranked.ties, k))
