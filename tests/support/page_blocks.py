"""Blocks of page columns for property tests."""

import numpy as np
from hypothesis import strategies as st

from scrapy_gp4c.page_state.columns import COLUMNS, Columns


@st.composite
def blocks_of_pages(draw: st.DrawFn, least: int = 0) -> Columns:
    """Columns of ``least`` to 5 rows: each random bytes, small numbers or one repeated value, without NaN."""
    rows = draw(st.integers(least, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = {}
    for name, dtype in COLUMNS.items():
        values = np.frombuffer(rng.bytes(rows * np.dtype(dtype).itemsize), dtype).copy()
        if values.dtype.kind == "f":
            values[~np.isfinite(values)] = -0.0
        else:
            values >>= values.dtype.type(draw(st.sampled_from((0, 0, 8, 16, 24, 48))) % (8 * values.itemsize))
        if rows and draw(st.booleans()):
            values[:] = values[0]
        columns[name] = values
    return columns
