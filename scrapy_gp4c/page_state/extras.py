"""Columns that most pages do without: kept block by block beside the others, where any page needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from scrapy_gp4c.page_state.columns import Array, Columns, unpack
from scrapy_gp4c.scoring import hints

EXTRAS: Final[dict[str, str]] = {**hints.COLUMNS}
"""Column name -> little-endian dtype; 0 where nothing is kept."""
EXTRA_BYTES: Final = sum(np.dtype(dtype).itemsize for dtype in EXTRAS.values())


def unpack_extras(kept: bytes | memoryview | None, rows: int) -> Columns:
    """Columns `EXTRAS`, each ``[rows]``, writable, of what is kept of a block; None: nothing.

    A block that has grown since is told with zeros for the pages that came later.
    """
    columns = {name: np.zeros(rows, dtype) for name, dtype in EXTRAS.items()}
    if kept is not None:
        for name, column in unpack(kept, EXTRAS).items():
            columns[name][: len(column)] = column
    return columns


def pack_extras(columns: Mapping[str, Array]) -> bytes:
    """Bytes of a block's columns `EXTRAS`, each ``[P]``; none where all are 0."""
    if not any(columns[name].any() for name in EXTRAS):
        return b""
    return b"".join(np.ascontiguousarray(columns[name], dtype).data for name, dtype in EXTRAS.items())
