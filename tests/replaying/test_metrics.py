"""Metrics: each formula against its definition in plain arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from training.replaying.metrics import (
    GAIN_BITS,
    FixedPointWeights,
    budget_pages,
    gain_sums,
    harmonic,
    measure,
)

PLAIN = FixedPointWeights.of(None, 10, 5)


def tallies(**counts):
    return {name: np.array([value], np.int64) for name, value in counts.items()}


def test_budget_examples():
    """29% of 100 pages are 29, a count is capped by the pages, and 1 is a count where 1.0 is a share."""
    assert 0.29 * 100 < 29
    assert budget_pages(0.29, 100) == 29
    assert budget_pages(500, 100) == 100
    assert budget_pages(1, 100) == 1
    assert budget_pages(1.0, 100) == 100
    assert budget_pages(np.int64(7), 100) == 7
    assert budget_pages(np.float64(0.07), 100) == 7


@given(st.integers(0, 3000))
def test_gains(k):
    """Rank 1 gains 1, rank r >= 2 gains 1 / ln(r + 1), falling; sums are exact to 2e-12."""
    expected = [1.0 if r == 1 else 1.0 / math.log(r + 1) for r in range(1, k + 1)]
    sums = gain_sums(k)
    assert len(sums) == k + 1
    assert sums[0] == 0
    result = np.ldexp(np.diff(sums).astype(float), -GAIN_BITS)
    np.testing.assert_allclose(result, expected, rtol=2e-12)
    assert (np.diff(result) < 0).all()
    assert sums[-1] / 2**GAIN_BITS == pytest.approx(math.fsum(expected), rel=2e-12, abs=0)


def test_harmonic_numbers():
    """H(0) = 0, H(1) = 1, H(4) = 25/12, and H(m) follows ln m + Euler's constant."""
    numbers = harmonic(1000)
    assert numbers[:3].tolist() == [0.0, 1.0, 1.5]
    assert numbers[4] == pytest.approx(25 / 12, rel=1e-15)
    assert numbers[1000] == pytest.approx(math.log(1000) + 0.5772156649 + 1 / 2000, abs=1e-7)


def test_ndcg_by_hand():
    """Changes at ranks 2 and 3 of 3, two pages pending: (1/ln 3 + 1/ln 4) / (1 + 1/ln 3)."""
    sums = gain_sums(3)
    result = measure(tallies(visited=3, changed=2, pending=2, dcg=sums[3] - sums[1]), PLAIN)
    expected = (1 / math.log(3) + 1 / math.log(4)) / (1 + 1 / math.log(3))
    assert result["ndcg"][0] == pytest.approx(expected, rel=1e-12)
    assert result["change_rate"][0] == 2 / 3


def test_ndcg_is_zero_when_nothing_is_pending():
    """Without a change to be found there is no ranking to praise: 0, not 0 / 0."""
    assert measure(tallies(visited=3, changed=0, pending=0, dcg=0), PLAIN)["ndcg"][0] == 0.0


def test_ideal_ends_at_the_budget():
    """With more pages pending than visits, all k visits changed is perfect: NDCG 1."""
    sums = gain_sums(4)
    assert measure(tallies(visited=4, changed=4, pending=9, dcg=sums[4]), PLAIN)["ndcg"][0] == 1.0


def test_unweighted_staleness():
    """Freshness and age divide by the pages, a penalty by the pages in its own unit."""
    unit = 2**PLAIN.penalty_bits
    result = measure(
        tallies(
            visited=2,
            changed=1,
            pending=4,
            stale_weight=3,
            age_weight=7,
            penalty=int(2.5 * unit),
            new=1,
            idle=2,
        ),
        PLAIN,
    )
    assert result["freshness"][0] == 0.7
    assert result["age"][0] == 0.7
    assert result["harmonic_staleness"][0] == 0.25
    assert result["new_pages"][0] == 0.5
    assert result["idle_pages"][0] == 1.0


@given(
    st.lists(st.floats(0, 1e9), min_size=1, max_size=50).filter(lambda values: sum(values) > 1e-100),
    st.integers(1, 400),
)
def test_fixed_point_weights(values, cycles):
    """Weights keep at least 1e-12 of their total, and no sum over pages and cycles overflows."""
    weights = FixedPointWeights.of(np.array(values), len(values), cycles)
    total = math.fsum(values)
    result = [math.ldexp(int(w), -weights.bits) for w in weights.fixed]
    np.testing.assert_allclose(result, values, rtol=0, atol=1e-12 * total)
    assert weights.total * (cycles + 1) < 2**62
    assert weights.penalty_total * harmonic(cycles)[-1] < 2**62


@pytest.mark.parametrize(
    "bad", [[1.0, -1.0], [1.0, math.nan], [math.inf, 1.0], [1.0], [1e308, 1e308], [5e-324, 0.0], [0.0, 0.0]]
)
def test_bad_weights(bad):
    """Weights must be finite, not negative, of a size that sums can have, one per page, not all zero."""
    with pytest.raises(HistoryError, match="weights"):
        FixedPointWeights.of(np.array(bad), 2, 5)
