"""Budgets: their floor and their text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.policies.budget import budget_pages, read_budget


@given(st.integers(0, 1000), st.integers(0, 10**6))
def test_a_decimal_share_gives_the_floor_of_the_fraction_that_is_written(
    thousandths: int, pages: int
) -> None:
    """Binary rounding neither costs a page nor gives one; a share above 0 of some pages is one at least."""
    floor = Fraction(thousandths, 1000) * pages // 1
    assert budget_pages(thousandths / 1000, pages) == max(floor, int(thousandths > 0 < pages))


@given(st.integers(1, 10**9), st.integers(0, 10**8))
def test_a_count_is_capped_by_the_pages_there_are(count: int, pages: int) -> None:
    """Nobody visits more pages than there are."""
    assert budget_pages(count, pages) == min(count, pages)


@pytest.mark.parametrize(
    ("text", "budget"), [("5", 5), (" 5 ", 5), ("1", 1), ("1.0", 1.0), ("0.05", 0.05), ("5e-2", 0.05)]
)
def test_a_decimal_point_makes_a_share(text: str, budget: float) -> None:
    """``1`` is one page, ``1.0`` are all."""
    found = read_budget(text)
    assert found == budget
    assert type(found) is type(budget)


@pytest.mark.parametrize("text", ["", "5%", "many", "1.0.0"])
def test_what_is_no_number_is_no_budget(text: str) -> None:
    """The caller makes its own message of it."""
    with pytest.raises(ValueError, match="could not convert"):
        read_budget(text)
