"""Budgets: how many pages a cycle may visit, as a share of the known pages or as a count; pure."""

from __future__ import annotations

import math


def budget_pages(budget: int | float, pages: int) -> int:
    """Visits per cycle, k: floor(budget * pages + 1e-9) for a share (float), min(budget, pages) for a count.

    The 1e-9 makes 29% of 100 pages 29 although 0.29 * 100 is 28.999999999999996 in floating point. A share
    above 0 is at least one visit, if there is a page: 5% of 15 pages would visit none for ever.
    """
    if isinstance(budget, int):
        return min(budget, pages)
    return min(pages, max(math.floor(budget * pages + 1e-9), int(budget > 0.0)))


def read_budget(text: str) -> int | float:
    """A whole number without a decimal point is a count of pages, any other number a share.

    Raises ValueError for what is no number; whether the number can be used is for the caller to say.
    """
    try:
        return int(text)
    except ValueError:
        return float(text)
