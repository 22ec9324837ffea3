"""Loops of the dense engine: buckets, the order of the best pages, and sums by group.

All pages of a bucket enter it at once. From then on pages only leave it: these stay in its list, and
`BucketMemory.bucket_of` marks them as gone.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from training.replaying.kernels.bits import mix
from training.replaying.kernels.memory import Array

SHIFT = 48
"""Bits of a score below the highest 16, by which scores are counted: sign, exponent, first digits."""
BINS = 1 << (64 - SHIFT)
_SIGN = np.int64(-(2**63))


DIGIT_BITS = 11
_DIGITS = 1 << DIGIT_BITS
FIRST_PASSES = 3
"""Digits of the first sort of scores."""
_FEW = 48
"""Most ties for which sorting in place is fastest."""


@njit(cache=True)
def ordered_bits(b):
    """Bits of a float, given as int64, whose order is that of the numbers."""
    if b == _SIGN:  # -0.0 is equal to 0.0
        b = np.int64(0)
    return np.uint64(b ^ ((b >> 63) | _SIGN))  # negative numbers are turned over


@njit(cache=True)
def bin_of(b):
    """Bin of a score with these bits; higher scores, higher bins."""
    return np.uint16(ordered_bits(b) >> np.uint64(SHIFT))


@njit(cache=True, nogil=True)
def at_least(values, least, rows):
    """Count of values that are not below `least`; their rows are written to `rows`: ``[P + 1]``."""
    count = 0
    for i in range(len(values)):
        rows[count] = i
        count += values[i] >= least
    return count


@njit(cache=True)
def in_order(scores, ties):
    """Positions, best first: by score descending, then ties ascending, then position; int64 ``[P]``.

    `scores`: float64 ``[P]``, not NaN; `ties`: uint64 ``[P]``. A radix sort: a third of the time of
    `np.lexsort`.
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
    """Keys and places, sorted by the bits from `low` to `high`; stable."""
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


@njit(cache=True)
def _straightened(keys, places):
    """Sort keys that are nearly in order, in place, stably; False: they are too far from it."""
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


@njit(cache=True)
def _settle(places, ties):
    """Sort places of equal score by their ties, in place, stably."""
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


BUCKETS, TAIL, SIZES = range(3)
"""Buckets with those that are empty, and entries of the arena in use."""
OWN, DIRECTORY = range(2)
BEGIN, END = range(2)
_FINE = 1024


class BucketMemory(NamedTuple):
    """Buckets of P pages, C of them, at most P."""

    bucket_of: Array
    """int32 ``[P]``; -1 of a page that has left its bucket, unless all others have, too"""
    shares: Array
    """int32 ``[P, 2]``, C rows of it in use: state and directory of each bucket's pages"""
    count: Array
    """int32 ``[P]``, likewise: pages of each bucket"""
    listed: Array
    """int32 ``[P, 2]``, likewise: where the list of its pages begins in `arena`, and ends"""
    arena: Array
    """uint32 ``[2 P]``"""
    sizes: Array
    """int64 ``[SIZES]``"""


@njit(cache=True)
def take_out(pages, buckets, memory, shares):
    """Take pages out of their `buckets`; writes these buckets' shares to `shares`, int32 ``[visits, 2]``."""
    bucket_of, count, of_buckets = memory.bucket_of, memory.count, memory.shares
    for i in range(len(buckets)):
        bucket = buckets[i]
        count[bucket] -= 1
        shares[i, OWN] = of_buckets[bucket, OWN]
        shares[i, DIRECTORY] = of_buckets[bucket, DIRECTORY]
    for i in range(len(buckets)):
        if count[buckets[i]]:
            bucket_of[pages[i]] = -1


@njit(cache=True)
def put_in(pages, number, directory, memory):
    """Put pages that are in no bucket into those of their states, which no page was in before.

    ``number``, ``directory``: states and directories, ``[visits]``. Empty buckets are used again.
    """
    shares, of_bucket, listed, sizes = memory.shares, memory.count, memory.listed, memory.sizes
    size = 4
    while size < 2 * len(pages):
        size *= 2
    table = np.zeros(size, np.int32)  # 0: free; else one more than the number of a new bucket
    keys = np.empty(len(pages), np.int64)
    count = np.zeros(len(pages), np.int32)
    target = np.empty(len(pages), np.int32)
    new = 0
    for i in range(len(pages)):
        key = np.int64(directory[i]) << 32 | np.int64(number[i])
        at = np.int64(mix(np.uint64(key)) & np.uint64(size - 1))
        while table[at] and keys[table[at] - 1] != key:
            at = (at + 1) & (size - 1)
        if not table[at]:
            keys[new] = key
            new += 1
            table[at] = new
        target[i] = table[at] - 1
        count[target[i]] += 1
    made = np.empty(new, np.int32)
    next_at = np.empty(new, np.int32)
    buckets, tail = sizes[BUCKETS], sizes[TAIL]
    bucket = 0
    for i in range(new):
        while bucket < buckets and of_bucket[bucket]:
            bucket += 1
        made[i] = bucket
        next_at[i] = tail
        shares[bucket, OWN] = keys[i] & 0xFFFFFFFF
        shares[bucket, DIRECTORY] = keys[i] >> 32
        of_bucket[bucket] = count[i]
        listed[bucket, BEGIN] = tail
        tail += count[i]
        listed[bucket, END] = tail
        bucket += 1
    sizes[BUCKETS] = max(buckets, bucket)
    sizes[TAIL] = tail
    bucket_of, arena = memory.bucket_of, memory.arena
    for i in range(len(pages)):
        group = target[i]
        bucket_of[pages[i]] = made[group]
        arena[next_at[group]] = pages[i]
        next_at[group] += 1


@njit(cache=True)
def border(scores, count, k):
    """Lowest score, a bin's start, at which the best buckets hold at least k pages; k: at most all pages."""
    pages = np.zeros(BINS, np.int32)
    bits = scores.view(np.int64)
    for bucket in range(len(scores)):
        pages[bin_of(bits[bucket])] += count[bucket]
    lowest = BINS - 1
    while pages[lowest] < k:
        k -= pages[lowest]
        lowest -= 1
    start = np.uint64(lowest) << np.uint64(SHIFT)
    is_negative = not start >> np.uint64(63)
    start = ~start if is_negative else start ^ np.uint64(1 << 63)
    return np.array([start], np.uint64).view(np.float64)[0]


@njit(cache=True)
def reaching(scores, count, least, rows):
    """Write to `rows` the buckets that score at least `least`; returns counts of buckets and pages."""
    reached = 0
    pages = 0
    for bucket in range(len(scores)):
        rows[reached] = bucket
        is_in = (scores[bucket] >= least) & (count[bucket] > 0)
        reached += is_in
        pages += is_in * count[bucket]
    return reached, pages


@njit(cache=True)
def narrowed(rows, scores, count, k):
    """Move the buckets that hold the k best pages to the front of `rows`; returns their number.

    They hold at most a quarter more pages, but for ties with the last; k: at least 1, at most the pages.
    """
    bits = scores.view(np.int64)
    lowest, highest = ~np.uint64(0), np.uint64(0)
    for bucket in rows:
        score_bits = ordered_bits(bits[bucket])
        lowest = min(lowest, score_bits)
        highest = max(highest, score_bits)
    most = max(1, k // 4)
    pages = np.empty(_FINE, np.int32)
    while True:  # each time in the bin that the last of them is in
        shift = np.uint64(0)
        while (highest - lowest) >> shift >= np.uint64(_FINE):
            shift += np.uint64(1)
        pages[:] = 0
        for bucket in rows:
            score_bits = ordered_bits(bits[bucket])
            if lowest <= score_bits <= highest:
                pages[np.int64((score_bits - lowest) >> shift)] += count[bucket]
        border = _FINE - 1
        while pages[border] < k:
            k -= pages[border]
            border -= 1
        lowest += np.uint64(border) << shift
        highest = lowest + ((np.uint64(1) << shift) - np.uint64(1))
        if shift == np.uint64(0) or pages[border] <= most:
            break
    kept_rows = 0
    for bucket in rows:
        rows[kept_rows] = bucket
        kept_rows += ordered_bits(bits[bucket]) >= lowest
    return kept_rows


@njit(cache=True)
def spread(buckets, scores, memory, pages, of_pages, bucket_of_pages):
    """Write the pages of some buckets, their scores and buckets, each ``[P + 1]``; returns their number."""
    bucket_of, count, arena, listed = memory.bucket_of, memory.count, memory.arena, memory.listed
    written = 0
    for bucket in buckets:
        begin, end = listed[bucket, BEGIN], listed[bucket, END]
        is_whole = end - begin == count[bucket]
        for at in range(begin, end):
            pages[written] = arena[at]
            of_pages[written] = scores[bucket]
            bucket_of_pages[written] = bucket
            written += is_whole or bucket_of[arena[at]] == bucket
    return written


MOST = np.finfo(np.float64).max


@njit(cache=True)
def multiply(one, of_one, other, of_other, out):
    """Write ``one[of_one] * other[of_other]``, products of two tables, to `out`; whether all are finite."""
    are_finite = True
    for page in range(len(out)):
        product = one[of_one[page]] * other[of_other[page]]
        are_finite &= abs(product) <= MOST
        out[page] = product
    return are_finite


@njit(cache=True)
def add(group, changes, attempts, sign, site, of_directory, of_site):
    """Add `sign` times `changes` of visits, `attempts`, to sums by directory and by site.

    ``group``: directory of each entry; ``site``: of each directory; ``of_directory``, ``of_site``: changes
    and visits.
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
