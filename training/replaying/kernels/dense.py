"""Loops of the dense engine: the order of the best pages, and sums by group."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

import numpy as np

from training.replaying.kernels.compiling import outer

_SIGN = np.int64(-(2**63))


DIGIT_BITS = 11
_DIGITS = 1 << DIGIT_BITS
FIRST_PASSES = 3
"""Digits of the first sort of scores."""
_FEW = 48
"""Most ties for which sorting in place is fastest."""


@outer
def ordered_bits(b):
    """Convert the bits of a float, int64 `b`, to an unsigned number; these have the order of the floats."""
    if b == _SIGN:  # -0.0 is equal to 0.0
        b = np.int64(0)
    return np.uint64(b ^ ((b >> 63) | _SIGN))  # negative numbers are turned over


@outer
def at_least(values, least, rows):
    """Write the rows of `values` that are not below `least` to `rows`, ``[P + 1]``; returns their number."""
    count = 0
    for i in range(len(values)):
        rows[count] = i
        count += values[i] >= least
    return count


@outer
def in_order(scores, ties):
    """Positions of pages, the highest scores first; equal ones by ties, then position: int64 ``[P]``.

    `scores`: float64 ``[P]``, not NaN; `ties`: uint64 ``[P]``. Takes a third of the time of `np.lexsort`.
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


@outer
def _by_digits(keys, places, low, high):
    """Return keys, and `places` in the same order, sorted by the keys' bits from `low` to `high`; stable."""
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
            target = at[digit]
            at[digit] = target + 1
            others[target] = keys[i]
            other_places[target] = places[i]
        keys, others = others, keys
        places, other_places = other_places, places
    return keys, places


@outer
def _straightened(keys, places):
    """Sort nearly ordered keys, and `places` with them, in place, stably; False: they are too unordered."""
    moves_left = 8 * len(keys)
    for i in range(1, len(keys)):
        key, position = keys[i], places[i]
        at = i
        while at > 0 and keys[at - 1] > key:
            keys[at], places[at] = keys[at - 1], places[at - 1]
            at -= 1
            moves_left -= 1
        keys[at], places[at] = key, position
        if moves_left < 0:
            return False
    return True


@outer
def _settle(places, ties):
    """Sort places (page numbers) of equal score by `ties` of the pages, in place, stably."""
    if len(places) > _FEW:
        unsorted = places.copy()
        places[:] = unsorted[np.argsort(ties[unsorted], kind="mergesort")]
        return
    for i in range(1, len(places)):
        position = places[i]
        at = i
        while at > 0 and ties[places[at - 1]] > ties[position]:
            places[at] = places[at - 1]
            at -= 1
        places[at] = position


MOST = np.finfo(np.float64).max


@outer
def multiply(one, of_one, other, of_other, out):
    """Write ``one[of_one] * other[of_other]``, products of two tables, to `out`; True if all are finite."""
    are_finite = True
    for page in range(len(out)):
        product = one[of_one[page]] * other[of_other[page]]
        are_finite &= abs(product) <= MOST
        out[page] = product
    return are_finite


@outer
def add(group, changes, attempts, sign, site, of_directory, of_site):
    """Add, `sign` times, numbers of changes and of visits (`attempts`) to sums by directory and by site.

    ``group``: directory of each entry; ``site``: site of each directory; ``of_directory``, ``of_site``: pairs
    of sums, changes and visits.
    """
    directory_found, directory_tried = of_directory
    site_found, site_tried = of_site
    for i in range(len(group)):
        directory = group[i]
        above = site[directory]
        directory_found[directory] += sign * changes[i]
        directory_tried[directory] += sign * attempts[i]
        site_found[above] += sign * changes[i]
        site_tried[above] += sign * attempts[i]
