"""Scores of pages, of what they share with others."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

MOST = np.finfo(np.float64).max


@njit(cache=True)
def multiply(one, of_one, other, of_other, out):
    """``one[of_one] * other[of_other]``: two tables, and where each page's number stands in them.

    Returns whether all are finite.
    """
    are_finite = True
    for page in range(len(out)):
        own = one[of_one[page]] * other[of_other[page]]
        are_finite &= abs(own) <= MOST
        out[page] = own
    return are_finite
