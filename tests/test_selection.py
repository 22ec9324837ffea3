"""Selection rules of the journal, section 4.2.3."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from training.selection import SELECTIONS, select

values = arrays(np.float64, st.integers(1, 20), elements=st.floats(-1, 1))


@given(values, values)
def test_rules_are_the_formulas(training, validation):
    """Best: T. Sum: T + V - sigma. Avg: (T + V)/2 - sigma. Sigma runs over all cycles of both sets."""
    t, v = statistics.fmean(training), statistics.fmean(validation)
    sigma = statistics.pstdev([*training, *validation])
    expected = {"best": t, "sum": t + v - sigma, "avg": (t + v) / 2 - sigma}
    assert set(SELECTIONS) == set(expected)
    for name, rule in SELECTIONS.items():
        assert rule(training, validation) == pytest.approx(expected[name], abs=1e-9)


def test_rules_choose_differently():
    """The best in training is not the best in both, and the steadiest is another one again."""
    fit = (np.array([0.9, 0.9]), np.array([0.3, 0.3]))
    high = (np.array([0.6, 1.1]), np.array([0.7, 1.2]))
    steady = (np.array([0.7, 0.7]), np.array([0.7, 0.7]))
    candidates = [fit, high, steady]
    assert select(candidates, "best") == 0
    assert select(candidates, "sum") == 1
    assert select(candidates, "avg") == 2


def test_the_first_of_equals_is_chosen():
    """Candidates come best first, so that a tie goes to the one with the higher fitness."""
    same = (np.array([0.5]), np.array([0.5]))
    assert select([same, same], "sum") == 0
