"""Sizes of pages: their classes, and what a lift is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.sizes import CLASSES, lifts, size_class


@given(st.integers(1, 2**32 - 1))
def test_a_class_is_half_a_power_of_two(size_bytes: int) -> None:
    """By exact comparison of squares."""
    number = int(size_class(size_bytes))
    assert 2 ** (number - 1) <= size_bytes**2 < 2**number
    assert 0 < number < CLASSES


def test_no_bytes_are_an_unknown_size() -> None:
    """Whose lift is 1, whatever was found; a class without visits begins there."""
    assert size_class([0, 1, 2**32 - 1]).tolist() == [0, 1, 64]
    expected, cycles = np.zeros((2, CLASSES))
    expected[[0, 3]], cycles[[0, 3]] = 50.0, 10.0
    assert lifts(expected, cycles, 0.7)[[0, 2]].tolist() == [1.0, 1.0]
    assert lifts(expected, cycles, 0.7)[3] == pytest.approx(53 / 10)
