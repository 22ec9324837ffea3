"""Options of several commands: what their texts mean."""

from __future__ import annotations

import pytest

from scrapy_gp4c.errors import HistoryError
from training.comparing.evaluation import cycles_of
from training.replaying.metrics import parse_budget


def test_cycles_are_counted_from_1_and_both_ends_belong_to_the_part() -> None:
    """39:57 are the journal's test days; an end left out is the history's own."""
    assert cycles_of("39:57", 57) == slice(38, 57)
    assert cycles_of("3:", 9) == slice(2, 9)
    assert cycles_of(":3", 9) == slice(0, 3)
    assert cycles_of(":", 9) == slice(0, 9)
    for text in ("0:4", "5:4", "1:10", "4", "a:b", "-1:3", "1:2:3"):
        with pytest.raises(HistoryError, match=r"--cycles: expected A:B.*1 <= A <= B <= 9"):
            cycles_of(text, 9)


def test_a_budget_is_a_share_or_a_count() -> None:
    """The point decides: 1.0 is everything, 1 is one page."""
    assert (parse_budget("1"), parse_budget("1.0"), parse_budget("0.05")) == (1, 1.0, 0.05)
    assert isinstance(parse_budget("1"), int)
    with pytest.raises(HistoryError, match="--budget: expected a share such as"):
        parse_budget("5%")
