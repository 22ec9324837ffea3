"""What refreshes were worth: terminals against the list of measured visits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.refresh_value import (
    COLUMNS,
    HALF_LIFE,
    TERMINALS,
    observe,
)

VISITS = st.lists(st.tuples(st.just(float("nan")) | st.floats(-1e3, 1e6), st.integers(0, 30)), max_size=12)
"""What each visit gained (NaN: not measured) and its gap in cycles."""


def state_of(rows: int) -> dict[str, np.ndarray]:
    return {name: np.zeros(rows, dtype) for name, dtype in COLUMNS.items()}


def values_of(visits: list[tuple[float, int]]) -> dict[str, float]:
    """The terminals of one page after its visits, observed one by one."""
    state = state_of(1)
    for gained, gap in visits:
        observe(state, np.array([gained]), np.array([gap]))
    return {name: float(formula(state, 1)[0]) for name, (_, formula, _) in TERMINALS.items()}


@given(VISITS)
def test_terminals_are_means_over_measured_visits(visits: list[tuple[float, int]]) -> None:
    """Plain, of the last one, and with weights that halve every few visits; 0 before the first."""
    result = values_of(visits)
    x = [gained / max(gap, 1) for gained, gap in visits if gained == gained]
    weights = [2.0 ** (-age / HALF_LIFE) for age in reversed(range(len(x)))]
    scale = max(map(abs, x), default=0.0)
    assert result["dq_rate"] == pytest.approx(sum(x) / len(x) if x else 0.0, abs=1e-9 * scale)
    assert result["dq_last"] == (x[-1] if x else 0.0)
    decayed = sum(w * value for w, value in zip(weights, x, strict=True)) / sum(weights) if x else 0.0
    assert result["dq_decay"] == pytest.approx(decayed, abs=1e-9 * scale)


@given(st.floats(0.0, 1e6), st.integers(1, 30))
def test_equal_visits_have_their_value_for_every_mean(gained: float, visits: int) -> None:
    """However many there were: the weights of the decayed mean add up to 1."""
    assert values_of([(gained, 2)] * visits) == pytest.approx(dict.fromkeys(TERMINALS, gained / 2))


def test_pages_are_observed_side_by_side() -> None:
    """One that was not measured keeps what it had; a gap of no cycle counts as one."""
    state = state_of(3)
    observe(state, np.array([6.0, np.nan, 4.0]), np.array([3, 1, 0]))
    observe(state, np.array([np.nan, np.nan, 8.0]), np.array([1, 1, 2]))
    assert state["dq_n"].tolist() == [1, 0, 2]
    assert state["dq_sum"].tolist() == [2.0, 0.0, 8.0]
    assert state["dq_last"].tolist() == [2.0, 0.0, 4.0]


@given(st.sampled_from(sorted(TERMINALS)), VISITS)
def test_a_terminal_reads_the_columns_that_it_names(name: str, visits: list[tuple[float, int]]) -> None:
    """A replay keeps just these."""
    columns, formula, _ = TERMINALS[name]
    some = {column: np.zeros(1, COLUMNS[column]) for column in columns}
    for gained, gap in visits:
        observe(some, np.array([gained]), np.array([gap]))
    assert float(formula(some, 1)[0]) == values_of(visits)[name]
