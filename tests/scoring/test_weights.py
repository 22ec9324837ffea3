"""Weights: what is one, and what says what is wrong with the rest."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.weights import MAX_WEIGHT, are_weights, read_weight


@given(st.one_of(st.integers(), st.floats(), st.fractions(), st.floats(0, 2e6), st.integers(-3, 2_000_000)))
def test_numbers_from_0_to_a_million_are_weights(number: Any) -> None:
    """And nothing else: not NaN, not infinity, not what is too large."""
    if 0 <= number <= MAX_WEIGHT:
        weight = read_weight(number)
        assert weight == float(number)
        assert math.copysign(1.0, weight) == 1.0
        assert are_weights(np.array([weight]))
    else:
        with pytest.raises(ValueError, match="expected a number from 0 to 1,000,000 as weight; found"):
            read_weight(number)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (True, "found True"),
        (None, "found None"),
        ("3.0", "found '3.0'"),
        (Decimal(3), "found Decimal"),
        ([3.0], r"found \[3.0\]"),
        (3 + 0j, "found"),
        (1e308, "found 1e[+]308"),
        (float("nan"), "found nan"),
        (np.bool_(True), "found"),
    ],
)
def test_what_is_no_weight_is_named(wrong: object, message: str) -> None:
    """Whatever a spider puts there."""
    with pytest.raises(ValueError, match=message):
        read_weight(wrong)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_long_number_is_not_written_out(sign: int) -> None:
    """Python itself refuses to, from 4,300 digits on."""
    with pytest.raises(ValueError, match="as weight; found a whole number of many digits"):
        read_weight(sign * 10**5_000)


@pytest.mark.parametrize("number", [np.float32(0.5), np.int64(3), Fraction(1, 2), -0.0, 1_000_000])
def test_numbers_of_other_libraries_are_weights(number: Any) -> None:
    """As long as they are real ones."""
    assert read_weight(number) == float(number)


def test_the_terminal_is_the_column() -> None:
    """On both clocks, in any cycle."""
    state = {"weight": np.array([1.0, 0.0, 0.1])}
    for clock in terminals.CLOCKS:
        assert terminals.compute(["w"], state, 7, clock)["w"].tolist() == [1.0, 0.0, 0.1]
