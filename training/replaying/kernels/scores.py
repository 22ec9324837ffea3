"""Scores of pages, of what they share with others."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

from numba import njit


@njit(cache=True)
def multiply(one, of_one, other, of_other, out):
    """``one[of_one] * other[of_other]``: two tables, and where each page's number stands in them."""
    for page in range(len(out)):
        out[page] = one[of_one[page]] * other[of_other[page]]
