"""Order by counting, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.counting_sort import places_in_order

NUMBERS = st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 3), st.just(5 << 40)), max_size=40)


@given(st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]), NUMBERS, st.integers(0, 2**32))
def test_numbers_ascend_and_equal_ones_stay(dtype: type, numbers: list[int], seed: int) -> None:
    """Of any width, whichever bits differ; in the order that they have, or that another sort has left."""
    values = np.array([number % 2 ** (8 * np.dtype(dtype).itemsize) for number in numbers], dtype)
    assert places_in_order(values).tolist() == np.argsort(values, kind="stable").tolist()
    second = np.random.default_rng(seed).integers(0, 3, len(values)).astype(np.uint8)
    by_both = places_in_order(values, places_in_order(second))
    assert by_both.tolist() == np.lexsort((second, values)).tolist()
