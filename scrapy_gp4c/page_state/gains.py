"""What visits gained users of a search, as records, and what they do to the columns of their pages."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import worth

GAIN: Final = np.dtype(
    [
        ("page", "<u4"),
        ("gap_cycles", "<i4"),  # since the visit before; 0 for a first fetch, which the columns leave out
        ("ppm", "<f4"),  # delta-Q_A, see `scrapy_gp4c.index.impact`
    ]
)
"""A measured visit; one that is not among the gains of its cycle was not measured."""
NO_GAINS: Final = np.empty(0, GAIN)


def observe(
    columns: MutableMapping[str, npt.NDArray[Any]], rows: npt.NDArray[np.intp], gains: npt.NDArray[Any]
) -> None:
    """Add the measured visits of a cycle to `worth.COLUMNS`, in place.

    ``columns``: writable, each ``[P]``; ``rows``: row of each gain's page, ``[G]``, none twice; ``gains``:
    dtype `GAIN` ``[G]``.
    """
    counted = gains["gap_cycles"] > 0
    rows, gains = rows[counted], gains[counted]
    state = {name: columns[name][rows] for name in worth.COLUMNS}
    worth.observe(state, gains["ppm"], gains["gap_cycles"])
    for name, column in state.items():
        columns[name][rows] = column
