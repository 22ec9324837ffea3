"""Value of refreshing a page's copy for users of a search engine: records, page columns and terminals.

A measured visit has delta-Q_A, the gain of the search index (`scrapy_gp4c.search.gains`), and a value per
cycle x = delta-Q_A / (cycles since the visit before). Pandey & Olston 2005, section 6.1.3, forecast by the
mean of x over all measured visits; they name windows and decay as things to try (footnote 4, 7.1).
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.scoring.expression import Terminal, of_column

COLUMNS: Final[dict[str, str]] = {
    "dq_n": "<i4",  # measured visits
    "dq_sum": "<f8",  # sum of x over them
    "dq_last": "<f8",  # x of the last one
    "dq_recent": "<f8",  # sum of 2**((i - dq_n) / HALF_LIFE) * x over the visits i = 1..dq_n
}
"""Column name -> little-endian dtype; zeros before the first measured visit."""
HALF_LIFE: Final = 4
"""Number of later measured visits that halves a visit's weight in `dq_recent`."""
_FADE: Final = 0.5 ** (1 / HALF_LIFE)


def observe(state: MutableMapping[str, Array], gained: Array, gap_cycles: Array) -> None:
    """Add a visit to every row of the columns, in place; rows that were not measured stay.

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


def _decayed(state: Mapping[str, Array], cycle: int) -> Array:
    weights = (1.0 - _FADE ** np.maximum(state["dq_n"], 1)) / (1.0 - _FADE)
    return np.asarray(state["dq_recent"] / weights)


TERMINALS: Final = {
    "dq_rate": Terminal(
        ("dq_n", "dq_sum"), _mean, "search quality gained per cycle, in ppm: mean of its visits"
    ),
    "dq_last": Terminal(
        ("dq_last",), of_column("dq_last"), "search quality gained per cycle, in ppm, by the last visit"
    ),
    "dq_decay": Terminal(("dq_n", "dq_recent"), _decayed, "the same mean, recent visits weighing more"),
}


GAIN: Final = np.dtype(
    [
        ("page", "<u4"),
        ("gap_cycles", "<i4"),  # since the visit before; 0 for a first fetch, which the columns leave out
        ("ppm", "<f4"),  # delta-Q_A, see `scrapy_gp4c.search.gains`
    ]
)
"""A visit whose gain of search quality was measured."""


def observe_gains(
    columns: MutableMapping[str, npt.NDArray[Any]], rows: npt.NDArray[np.intp], gains: npt.NDArray[Any]
) -> None:
    """Add the measured visits of a cycle, as the store has them, to `COLUMNS`, in place; see `observe`.

    ``columns``: writable, each ``[P]``; ``rows``: row of each gain's page, ``[G]``, none twice; ``gains``:
    dtype `GAIN` ``[G]``.
    """
    counted = gains["gap_cycles"] > 0
    rows, gains = rows[counted], gains[counted]
    state = {name: columns[name][rows] for name in COLUMNS}
    observe(state, gains["ppm"], gains["gap_cycles"])
    for name, column in state.items():
        columns[name][rows] = column
