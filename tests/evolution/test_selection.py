"""Selection rules of the journal, section 4.2.3."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from training.evolution.selection import SELECTIONS, SHORTER_ERRORS, guarded, select

values = arrays(np.float64, st.integers(1, 20), elements=st.floats(-1, 1))


def series(cycles: int) -> st.SearchStrategy[np.ndarray]:
    """Values of so many cycles."""
    return arrays(np.float64, cycles, elements=st.floats(-1, 1))


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


def as_good(values: np.ndarray, reference: np.ndarray, errors: float = 1.0) -> bool | None:
    """Not behind by more than so many standard errors of the difference; None: rounding decides."""
    lead = (values - reference).tolist()
    error = statistics.stdev(lead) / len(lead) ** 0.5 if len(lead) > 1 else 0.0
    margin = statistics.fmean(lead) + errors * error
    if abs(margin) < 1e-12 and any(lead):
        return None
    return margin > -1e-12


@given(
    st.integers(1, 12).flatmap(
        lambda cycles: st.tuples(
            st.lists(st.tuples(*2 * [series(cycles)]), min_size=1, max_size=6),
            st.lists(series(cycles), min_size=1, max_size=4),
        )
    ),
    st.lists(st.integers(1, 5), min_size=6, max_size=6),
)
def test_guarded_is_the_shortest_as_good_as_the_best_in_training_of_those_that_stand(case, nodes):
    """It stands who is behind the best named function in validation by at most one standard error.

    As good is who is behind in training and in validation by at most half of one.
    """
    candidates, named = case
    reference = max(named, key=np.mean)
    standing = [as_good(validation, reference) for _, validation in candidates]
    stand = [number for number, stands in enumerate(standing) if stands]
    chosen = guarded(candidates, named, nodes)
    if None in standing:
        return
    if not stand:
        assert candidates[chosen][1].mean() == max(validation.mean() for _, validation in candidates)
        return
    best = max(stand, key=lambda number: candidates[number][0].mean())
    good = [
        [as_good(candidates[number][part], candidates[best][part], SHORTER_ERRORS) for part in (0, 1)]
        for number in stand
    ]
    if any(None in pair for pair in good):
        return
    short = [number for number, pair in zip(stand, good, strict=True) if all(pair)]
    assert chosen in short
    fewest = min(nodes[number] for number in short)
    assert nodes[chosen] == fewest
    assert candidates[chosen][0].mean() == max(
        candidates[number][0].mean() for number in short if nodes[number] == fewest
    )


def test_guarded_prefers_the_shorter_only_where_the_difference_may_be_chance():
    """A lead beyond half a standard error over the shorter function is believed, in either part."""
    long = np.array([0.9, 0.8, 0.9, 0.8])
    level = np.array([0.95, 0.74, 0.95, 0.74])  # behind by 0.005, with a standard error of 0.032
    behind = np.array([0.88, 0.77, 0.88, 0.77])
    named = [np.full(4, 0.5)]
    assert guarded([(long, long), (level, level)], named, [9, 3]) == 1
    assert guarded([(long, long), (behind, long)], named, [9, 3]) == 0
    assert guarded([(long, long), (long - 1e-9, behind)], named, [9, 3]) == 0


def test_a_named_function_without_values_is_no_reference():
    """A reference of NaN, as a fitness of one's own may give, does not veto anything."""
    candidate = (np.array([0.5, 0.6]), np.array([0.4, 0.5]))
    assert guarded([candidate], [np.array([np.nan, np.nan]), np.array([0.1, 0.1])], [1]) == 0


@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf])
def test_a_candidate_without_values_is_not_chosen(missing):
    """Neither where a draw of the training part has none, nor where validation has none."""
    good, none = np.array([0.5, 0.6]), np.array([0.5, missing])
    assert guarded([(none, good), (good, good)], [good], [1, 9]) == 1
    assert guarded([(none, good), (none, good)], [good], [9, 1]) == 0
    if np.isnan(missing):
        assert guarded([(good, none), (good, good)], [good], [1, 9]) == 1
        assert guarded([(good, none), (good, good - 0.4)], [good], [1, 9]) == 1


def test_the_first_of_equals_is_chosen():
    """Candidates come best first, so that a tie goes to the one with the higher fitness."""
    same = (np.array([0.5]), np.array([0.5]))
    assert select([same, same], "sum") == 0
