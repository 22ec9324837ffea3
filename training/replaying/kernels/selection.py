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


@njit(cache=True)
def highest(scores, k, counts, bins, above, among):
    """Rows whose score is certainly among the k highest, and those of which some are; how many of each.

    `counts`: int32 ``[BINS]``, `bins`: uint16 ``[P]``, for work. `above`, `among`: uint32 ``[P + 1]``,
    written to: every score of `above` is higher than those of `among`, and these than all others.
    """
    counts[:] = 0
    bits = scores.view(np.int64)
    for i in range(len(scores)):
        # In the order of these unsigned bits numbers are in order: negative ones are turned over.
        b = bits[i]
        if b == _SIGN:  # -0.0 is equal to 0.0
            b = np.int64(0)
        b = b ^ ((b >> 63) | _SIGN)
        bins[i] = np.uint16(np.uint64(b) >> np.uint64(SHIFT))
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
