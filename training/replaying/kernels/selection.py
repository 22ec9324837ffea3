"""Find the rows of the highest scores, without sorting the others."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

SHIFT = 48
"""Scores are counted by their highest 16 bits: sign, exponent, and the first bits behind it."""
BINS = 1 << (64 - SHIFT)
_SIGN = np.int64(-(2**63))


DIGIT_BITS = 11
_DIGITS = 1 << DIGIT_BITS
FIRST_PASSES = 3
"""Digits by which scores are sorted at first."""
_FEW = 48
"""Ties up to which sorting in place is fastest."""


@njit(cache=True)
def ordered_bits(b):
    """Bits of a float, given as int64, so that numbers are in the order of these."""
    if b == _SIGN:  # -0.0 is equal to 0.0
        b = np.int64(0)
    return np.uint64(b ^ ((b >> 63) | _SIGN))  # negative numbers are turned over


@njit(cache=True)
def bin_of(b):
    """Where a score of these bits is counted; the higher, the higher."""
    return np.uint16(ordered_bits(b) >> np.uint64(SHIFT))


def start_of_bin(number):
    """The lowest number that is counted there: float, if any finite one is."""
    lowest = np.uint64(number) << np.uint64(SHIFT)
    is_negative = not lowest >> np.uint64(63)
    return float((~lowest if is_negative else lowest ^ np.uint64(1 << 63)).view(np.float64))


@njit(cache=True)
def highest(scores, k, counts, bins, above, among):
    """Rows whose score is certainly among the k highest, and those of which some are; how many of each.

    `counts`: int32 ``[BINS]``, `bins`: uint16 ``[P]``, for work. `above`, `among`: uint32 ``[P + 1]``,
    written to: every score of `above` is higher than those of `among`, and these than all others.
    """
    counts[:] = 0
    bits = scores.view(np.int64)
    for i in range(len(scores)):
        bins[i] = bin_of(bits[i])
    for i in range(len(scores)):
        counts[bins[i]] += 1
    left = k
    border = BINS - 1
    while border > 0 and counts[border] < left:
        left -= counts[border]
        border -= 1
    certain = 0
    maybe = 0
    for i in range(len(scores)):
        above[certain] = i
        among[maybe] = i
        own = bins[i]
        certain += own > border
        maybe += own == border
    return certain, maybe


@njit(cache=True, nogil=True)
def at_least(values, least, rows):
    """How many values are not below `least`; their rows, ascending, are written to `rows`: ``[P + 1]``."""
    found = 0
    for i in range(len(values)):
        rows[found] = i
        found += values[i] >= least
    return found


@njit(cache=True)
def in_order(scores, ties):
    """Places, best first: by score descending, then ties ascending, then place; int64 ``[P]``.

    `scores`: float64 ``[P]``, not NaN; `ties`: uint64 ``[P]``.
    """
    n = len(scores)
    keys = np.empty(n, np.uint64)
    bits = scores.view(np.int64)
    lowest, highest = ~np.uint64(0), np.uint64(0)
    for i in range(n):
        keys[i] = ~ordered_bits(bits[i])
        lowest = min(lowest, keys[i])
        highest = max(highest, keys[i])
    width = np.int64(0)
    for i in range(n):
        keys[i] -= lowest
    while width < 64 and n and (highest - lowest) >> np.uint64(width):
        width += 1
    places = np.arange(n)
    # Few scores are equal in so many bits and differ in the others.
    low = max(0, width - FIRST_PASSES * DIGIT_BITS)
    keys, places = _by_digits(keys, places, low, width)
    if low and not _straightened(keys, places):
        keys, places = _by_digits(keys, places, 0, width)
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and keys[stop] == keys[start]:
            stop += 1
        if stop - start > 1:
            _settle(places[start:stop], ties)
        start = stop
    return places


@njit(cache=True)
def _by_digits(keys, places, low, high):
    """Keys and their places, sorted by the bits from `low` to `high`; equal ones stay in order."""
    n = len(keys)
    passes = (high - low + DIGIT_BITS - 1) // DIGIT_BITS
    others, other_places = np.empty(n, np.uint64), np.empty(n, np.int64)
    counts = np.zeros((passes, _DIGITS), np.int32)
    mask = np.uint64(_DIGITS - 1)
    for i in range(n):
        for which in range(passes):
            counts[which, np.int64((keys[i] >> np.uint64(low + DIGIT_BITS * which)) & mask)] += 1
    for which in range(passes):
        at = counts[which]
        shift = np.uint64(low + DIGIT_BITS * which)
        if n == 0 or at[np.int64((keys[0] >> shift) & mask)] == n:
            continue  # all have the same digit
        before = 0
        for digit in range(_DIGITS):
            of_digit = at[digit]
            at[digit] = before
            before += of_digit
        for i in range(n):
            digit = np.int64((keys[i] >> shift) & mask)
            place = at[digit]
            at[digit] = place + 1
            others[place] = keys[i]
            other_places[place] = places[i]
        keys, others = others, keys
        places, other_places = other_places, places
    return keys, places


@njit(cache=True)
def _straightened(keys, places):
    """Sort what is nearly in order, in place; False: it is too far from it, and is still not in order.

    Places of equal keys stay in order.
    """
    left = 8 * len(keys)
    for i in range(1, len(keys)):
        key, place = keys[i], places[i]
        at = i
        while at > 0 and keys[at - 1] > key:
            keys[at], places[at] = keys[at - 1], places[at - 1]
            at -= 1
            left -= 1
        keys[at], places[at] = key, place
        if left < 0:
            return False
    return True


@njit(cache=True)
def _settle(places, ties):
    """Sort places of equal score by their ties, in place; places of equal ties stay in order."""
    if len(places) > _FEW:
        own = places.copy()
        places[:] = own[np.argsort(ties[own], kind="mergesort")]
        return
    for i in range(1, len(places)):
        place = places[i]
        at = i
        while at > 0 and ties[places[at - 1]] > ties[place]:
            places[at] = places[at - 1]
            at -= 1
        places[at] = place
