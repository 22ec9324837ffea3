"""How much a page counts: its weight, 1 unless a request or an imported list has said another.

Weights are those of weighted freshness and of the weighted change rate (Cho & Ntoulas 2002; Olston & Najork
2010, section 2; thesis 2.4): what one page is worth by another. Nothing that is visited changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

COLUMNS: Final[dict[str, str]] = {"weight": "<f8"}
"""Column name -> little-endian dtype."""
USUAL: Final = 1.0
"""What pages weigh of which nobody has said it."""
MOST: Final = 1e6
"""The largest weight: whatever pages have, their sums are far from what float64 loses."""

TERMINALS: Final[dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Array], int], Array], str]]] = {
    "w": (
        ("weight",),
        lambda s, cycle: s["weight"],
        "weight of the page, 1 unless a request or a list has said another",
    ),
}
"""Terminal -> columns, formula, meaning: see `scrapy_gp4c.scoring.terminals.Terminal`."""


def usual(rows: int) -> npt.NDArray[np.float64]:
    """Weights of so many pages of which nobody has said any."""
    return np.full(rows, USUAL)


def read_weight(given: object) -> float:
    """A weight that somebody gave; raises ValueError, which says what was expected and found."""
    number = cast(float, given)
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= number <= MOST:
        is_long = isinstance(given, int) and given.bit_length() > 200
        found = "a whole number of many digits" if is_long else repr(given)[:80]
        raise ValueError(f"expected a number from 0 to {MOST:,.0f} as weight; found {found}")
    return float(number) + 0.0  # no -0.0


def are_weights(values: Array) -> bool:
    """Tell whether all of some numbers are weights."""
    return bool(((values >= 0) & (values <= MOST)).all())
