"""Order of whole numbers, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.order import places_in_order

FAR = 2**63
NUMBERS = st.lists(
    st.one_of(
        st.integers(0, 2**64 - 1),
        st.integers(0, 3),
        st.just(5 << 40),
        st.integers(FAR, FAR + 100),  # which differ in bits that have no room where others are 0
    ),
    max_size=40,
)


@given(st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]), NUMBERS)
def test_numbers_ascend_and_equal_ones_stay(dtype: type, numbers: list[int]) -> None:
    """Of any width, whichever bits differ."""
    values = np.array([number % 2 ** (8 * np.dtype(dtype).itemsize) for number in numbers], dtype)
    before = values.copy()
    assert places_in_order(values).tolist() == np.argsort(values, kind="stable").tolist()
    assert (values == before).all()


@given(st.integers(2, 5_000), st.integers(1, 70), st.integers(0, 2**32))
def test_numbers_that_differ_in_few_bits_are_in_order(count: int, values: int, seed: int) -> None:
    """Whether those bits find room beside a place or not."""
    generator = np.random.default_rng(seed)
    numbers = np.append(generator.integers(FAR, FAR + values, count, np.uint64), np.uint64(0))
    assert places_in_order(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
