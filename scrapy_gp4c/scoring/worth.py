"""What refreshing a page's copy was worth to users: the columns and formulas of its terminals.

A measured visit has delta-Q_A, what the search index gained by it (`scrapy_gp4c.index.impact`), and its
value per cycle x = delta-Q_A / (cycles since the visit before). Pandey & Olston 2005, section 6.1.3, forecast
by the mean of x over all measured visits; windows and decay they name as what to try (footnote 4, 7.1).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

COLUMNS: Final[dict[str, str]] = {
    "dq_n": "<i4",  # measured visits
    "dq_sum": "<f8",  # sum of x over them
    "dq_last": "<f8",  # x of the last one
    "dq_recent": "<f8",  # sum of 2**((i - dq_n) / HALF_LIFE) * x over the visits i = 1..dq_n
}
"""Column name -> little-endian dtype; zeros before the first measured visit."""
HALF_LIFE: Final = 4
"""Measured visits after which one weighs half, in `dq_recent`."""
_FADE: Final = 0.5 ** (1 / HALF_LIFE)


def observe(state: MutableMapping[str, Array], gained: Array, gap_cycles: Array) -> None:
    """Add a visit to every row, in place; one that was not measured changes nothing.

    ``state``: columns of `COLUMNS` (those that the caller needs), each ``[P]``; ``gained``: delta-Q_A in ppm,
    NaN where nothing was measured, ``[P]``; ``gap_cycles``: cycles since the visit before, ``[P]``.
    """
    rows = np.flatnonzero(~np.isnan(gained))
    per_cycle = gained[rows] / np.maximum(gap_cycles[rows], 1)
    if "dq_n" in state:
        state["dq_n"][rows] += 1
    if "dq_sum" in state:
        state["dq_sum"][rows] += per_cycle
    if "dq_last" in state:
        state["dq_last"][rows] = per_cycle
    if "dq_recent" in state:
        state["dq_recent"][rows] = state["dq_recent"][rows] * _FADE + per_cycle


def _mean(state: Mapping[str, Array], cycle: int) -> Array:
    return np.asarray(state["dq_sum"] / np.maximum(state["dq_n"], 1))


def _last(state: Mapping[str, Array], cycle: int) -> Array:
    return state["dq_last"]


def _decayed(state: Mapping[str, Array], cycle: int) -> Array:
    weights = (1.0 - _FADE ** np.maximum(state["dq_n"], 1)) / (1.0 - _FADE)
    return np.asarray(state["dq_recent"] / weights)


FORMULAS: Final = {
    "dq_rate": (("dq_n", "dq_sum"), _mean, "search quality gained per cycle, in ppm: mean of its visits"),
    "dq_last": (("dq_last",), _last, "search quality gained per cycle, in ppm, by the last visit"),
    "dq_decay": (("dq_n", "dq_recent"), _decayed, "the same mean, recent visits weighing more"),
}
"""Terminal -> the columns it reads, its formula, its meaning."""
