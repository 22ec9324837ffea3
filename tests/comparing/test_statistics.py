"""Intervals, paired tests and duels, against worked examples and against scipy called another way."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from training.comparing import statistics
from training.comparing.statistics import rank_correlation

ONE = np.array(
    [[0.70, 0.50, 0.60], [0.72, 0.52, 0.61], [0.69, 0.49, 0.60], [0.71, 0.53, 0.59], [0.73, 0.50, 0.60]]
)
OTHER = np.array(
    [[0.66, 0.51, 0.60], [0.67, 0.55, 0.61], [0.66, 0.51, 0.60], [0.68, 0.55, 0.59], [0.69, 0.53, 0.60]]
)


def test_duel_by_hand() -> None:
    """In the example the first function wins cycle 1, loses cycle 2 and ties in cycle 3.

    Differences of cycle 1: 4, 5, 3, 3, 4 hundredths: mean 3.8, deviation sqrt(0.7), t = 3.8 / sqrt(0.7 / 5) =
    10.2 > 2.776. Of cycle 2: -1, -3, -2, -2, -3: mean -2.2, t = -2.2 / sqrt(0.7 / 5) = -5.88.
    """
    result = statistics.duel(ONE, OTHER)
    assert (result.victories, result.losses, result.ties) == (1, 1, 1)
    assert result.gain == pytest.approx((0.710 - 0.672) / 0.672)
    assert result.loss == pytest.approx((0.508 - 0.530) / 0.530)
    t = 3.8 / math.sqrt(0.7 / 5)
    assert statistics.p_values(ONE, OTHER)[0] == pytest.approx(2 * stats.t.sf(t, 4), rel=1e-6)
    assert statistics.p_values(ONE, OTHER)[2] == 1.0


@given(
    arrays(np.float64, (5, 4), elements=st.floats(0, 1).map(lambda x: round(x, 3))),
    arrays(np.float64, (5, 4), elements=st.floats(0, 1).map(lambda x: round(x, 3))),
)
def test_duel_is_antisymmetric(one: np.ndarray, other: np.ndarray) -> None:
    """What one wins the other loses, and every cycle is counted once."""
    ours, theirs = statistics.duel(one, other), statistics.duel(other, one)
    assert (ours.victories, ours.losses) == (theirs.losses, theirs.victories)
    assert ours.victories + ours.losses + ours.ties == 4
    assert all(0.0 <= p <= 1.0 for p in statistics.p_values(one, other))


@given(arrays(np.float64, (5, 6), elements=st.floats(0, 1).map(lambda x: round(x, 3))))
def test_intervals_agree_with_scipy(values: np.ndarray) -> None:
    """The interval is the one that scipy gives for a t distribution of the sample's mean and error."""
    sample = values.ravel()
    result = statistics.mean(values)
    if np.ptp(sample) > 0:
        low, high = stats.t.interval(0.95, len(sample) - 1, loc=sample.mean(), scale=stats.sem(sample))
        assert result.mean - result.half_width == pytest.approx(low)
        assert result.mean + result.half_width == pytest.approx(high)
    else:
        assert result.half_width == pytest.approx(0.0, abs=1e-12)


def test_overall_pairs_folds() -> None:
    """The overall difference pairs fold means, as five numbers and not as fifteen."""
    difference, p = statistics.overall(ONE, OTHER)
    pairs = (ONE - OTHER).mean(axis=1)
    assert difference.mean == pytest.approx(pairs.mean())
    assert p == pytest.approx(stats.ttest_rel(ONE.mean(axis=1), OTHER.mean(axis=1)).pvalue)


def test_single_fold_is_all_ties() -> None:
    """With one fold there is nothing to test a cycle with; overall the cycles are the pairs."""
    assert statistics.duel(ONE[:1], OTHER[:1]).ties == 3
    assert 0.0 < statistics.overall(ONE[:1], OTHER[:1])[1] < 1.0


def test_correlation() -> None:
    """A line has correlation 1, a constant none."""
    assert statistics.correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert math.isnan(statistics.correlation([1, 2, 3], [5, 5, 5]))


def test_what_is_written_keeps_its_last_bit() -> None:
    """Tables round the standard error before they multiply, evaluations after: files stay as they were."""
    rng = np.random.default_rng(1)
    for size in range(2, 60):
        sample = rng.random(size)
        point = stats.t.ppf(0.975, size - 1)
        assert statistics.mean(sample).half_width == point * stats.sem(sample)
        unrounded = statistics.half_width(sample, error_first=False)
        assert unrounded == point * sample.std(ddof=1) / math.sqrt(size)


def test_a_selection_by_the_outcome_is_told_by_permutations() -> None:
    """Unrelated halves that are mostly 0: over pages that gained in either, negative, as is their null.

    Over pages that gained in both halves they are near 0; related halves differ from their null in both.
    """
    rng = np.random.default_rng(3)

    def gains(related: bool) -> tuple[np.ndarray, np.ndarray]:
        level = rng.exponential(size=1500) * (rng.random(1500) < 0.3)
        one, other = (level * rng.exponential(size=1500) for _ in range(2))
        return one, other if related else rng.permutation(other)

    for related in (False, True):
        one, other = gains(related)
        either = rank_correlation(one, other, lambda x, y: (x > 0) | (y > 0), 199)
        both = rank_correlation(one, other, lambda x, y: (x > 0) & (y > 0), 199)
        assert either.null_high < -0.3
        assert abs(both.null_mean) < 0.05
        if related:
            assert either.p == both.p == 1 / 200
            assert both.spearman > 0.2
        else:
            assert either.spearman < -0.3  # what "do not forecast" was read from
            assert either.p > 0.01
            assert both.p > 0.01


@given(arrays(np.float64, st.tuples(st.just(2), st.integers(3, 30)), elements=st.integers(0, 5).map(float)))
def test_rank_correlation_agrees_with_scipy(values: np.ndarray) -> None:
    """Scipy's Spearman correlation of the selected pairs; nan where one side is constant."""
    result = rank_correlation(*values, lambda x, y: np.ones(len(x), bool), 9)
    assert result.selected == values.shape[1]
    if np.ptp(values[0]) == 0 or np.ptp(values[1]) == 0:
        assert np.isnan(result.spearman)
    else:
        assert result.spearman == pytest.approx(stats.spearmanr(*values).statistic, abs=1e-9)
