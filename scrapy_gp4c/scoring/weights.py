"""Weights of pages: 1 unless a request or an imported list gives another.

They weigh freshness and the change rate (Cho & Ntoulas 2002; Olston & Najork 2010, section 2; thesis 2.4).
Visits do not change them.
"""

from numbers import Real
from typing import Any, Final

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.scoring.expression import Terminal, of_column

COLUMNS: Final[dict[str, str]] = {"weight": "<f8"}
"""Column name -> little-endian dtype."""
DEFAULT_WEIGHT: Final = 1.0
MAX_WEIGHT: Final = 1e6
"""Largest weight: sums over all pages stay exact enough in float64."""

TERMINALS: Final = {
    "w": Terminal(
        ("weight",), of_column("weight"), "weight of the page, 1 unless a request or a list has said another"
    ),
}


def read_weight(value: Any) -> float:
    """Check a weight given by a user, a number from 0 to `MAX_WEIGHT`; raises ValueError otherwise."""
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    if not is_real or value < 0 or not value <= MAX_WEIGHT:  # the last is true of NaN
        raise ValueError(f"expected a number from 0 to {MAX_WEIGHT:,.0f} as weight; found {_shown(value)}")
    return float(value) + 0.0  # no -0.0


def _shown(value: object) -> str:
    is_long = isinstance(value, int) and value.bit_length() > 200  # Python refuses to print it
    return "a whole number of many digits" if is_long else repr(value)[:80]


def are_weights(values: Array) -> bool:
    """Whether all values of an array are valid weights."""
    return bool(((values >= 0) & (values <= MAX_WEIGHT)).all())
