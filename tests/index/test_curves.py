"""F and its inverse: knots at the scores of their ranks, monotone between, sums without a loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.index.curves import Curves, Results, fit
from scrapy_gp4c.index.quality import ZETA

SCORES = st.lists(st.integers(1, 400).map(lambda score: score / 8), max_size=40)
SOME = st.lists(st.integers(1, 400).map(lambda score: score / 8), min_size=1, max_size=40)


def curve(scores: list[float], pieces: int = 3) -> Curves:
    """F of one term."""
    return fit(np.zeros(len(scores), np.int64), np.array(scores, np.float64), 1, pieces)


def results(scores: list[float], asked: int = 1) -> Results:
    """F of the same term, asked so often."""
    return Results(curve(scores), np.zeros(asked, np.int64))


@given(SOME, st.integers(1, 6))
def test_knots_are_scores_at_ranks_equally_far_apart(scores: list[float], pieces: int) -> None:
    """From the first to the last on log scale; a knot between two ranks lies between their scores."""
    found, n = curve(scores, pieces), len(scores)
    assert found.results.tolist() == [n]
    assert found.score.shape == found.knots.shape == (1, pieces + 1)
    falling = sorted(scores, reverse=True)
    for i, (knot, score) in enumerate(zip(found.knots[0], found.score[0], strict=True)):
        assert knot == pytest.approx(n ** (i / pieces))
        rank = min(max(int(knot * (1 + 1e-12)), 1), n)
        # Ties are drawn apart by a millionth each.
        assert falling[min(rank, n - 1)] * (1 - 1e-5) <= score <= falling[rank - 1] * (1 + 1e-6)
    assert (np.diff(found.score[0]) < 0).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 99)), max_size=30), st.randoms())
def test_terms_are_fitted_each_by_itself(pairs: list[tuple[int, int]], random) -> None:
    """Whatever order the pairs come in; a term that no page has is 0 throughout."""
    together = fit(np.array([t for t, _ in pairs], np.int64), np.array([float(s) for _, s in pairs]), 5)
    shuffled = list(pairs)
    random.shuffle(shuffled)
    other = fit(np.array([t for t, _ in shuffled], np.int64), np.array([float(s) for _, s in shuffled]), 5)
    assert (together.score == other.score).all()
    for term in range(5):
        alone = curve([float(score) for of, score in pairs if of == term])
        assert together.results[term] == alone.results[0]
        assert together.score[term].tolist() == alone.score[0].tolist()
    assert not together.score[4].any()


@given(SOME, st.floats(0.01, 100.0), st.floats(1.001, 2.0))
def test_a_higher_score_is_at_no_later_rank(scores: list[float], score: float, times: float) -> None:
    """Ranks run from 1 to n, the ends for scores beyond those of all results."""
    asked = results(scores, 3)
    lower, higher, zero = asked.rank_of(np.array([score, score * times, 0.0]))
    assert 1.0 <= higher <= lower <= zero * (1 + 1e-12)
    assert zero == len(scores)
    first = float(asked.score_at(np.ones(3))[0])
    assert asked.rank_of(np.array([first * 1.01] * 3)).tolist() == [1.0] * 3


@given(SOME, st.floats(0.0, 1.0))
def test_the_inverse_is_one(scores: list[float], along: float) -> None:
    """The rank of the score at a rank is that rank again; scores fall."""
    rank = np.array([1.0 + along * (len(scores) - 1)])
    asked = results(scores)
    score = asked.score_at(rank)
    assert asked.rank_of(score)[0] == pytest.approx(rank[0], rel=1e-6)
    assert asked.score_at(rank + 0.5)[0] <= score[0]
    beyond = asked.score_at(np.array([10.0 * len(scores)]))
    assert beyond[0] == pytest.approx(asked.score_at(np.array([float(len(scores))]))[0], rel=1e-5)


def test_a_power_law_is_kept_as_it_is() -> None:
    """It is a straight line on log-log scale: three pieces tell every rank of a thousand."""
    ranks = np.arange(1.0, 1001.0)
    scores = 50.0 * ranks**-0.7
    asked = results(scores.tolist(), 1000)
    assert asked.score_at(ranks) == pytest.approx(scores, rel=1e-3)
    assert asked.rank_of(scores) == pytest.approx(ranks, rel=2e-3)


@given(SCORES, st.integers(1, 45), st.integers(1, 45), st.sampled_from((0, 1)))
def test_shifts_are_sums_over_ranks(scores: list[float], first: int, last: int, by: int) -> None:
    """(I(r - 1 + by) - I(r + by)) F^-1(r) rank by rank, F^-1 falling evenly within each piece's part."""
    if by == 0:
        first = max(first, 2)  # nobody rises above rank 1
    last = min(last, max(len(scores), 1))
    found = results(scores).shifted(np.array([first]), np.array([last]), by)[0]
    if not scores or first > last:
        assert found == 0.0
        return
    ranks = np.arange(first, last + 1)
    looks = ((ranks - 1.0 + by) ** -1.5 - (ranks + 0.0 + by) ** -1.5) / ZETA
    inner = np.ceil(curve(scores).knots[0, 1:-1] * (1 - 1e-12))
    ends = np.unique(np.clip([first, *inner, last], first, last)).astype(float)
    level = np.interp(ranks, ends, results(scores, len(ends)).score_at(ends))
    assert found == pytest.approx(looks @ level, rel=1e-9, abs=1e-12)


def test_no_results_have_no_scores() -> None:
    """Whoever comes first would be at rank 1; nothing moves."""
    for asked in (results([]), Results(fit(np.array([1]), np.array([2.0]), 2), np.array([0]))):
        assert asked.n.tolist() == [0]
        assert asked.rank_of(np.array([3.0])).tolist() == [1.0]
        assert asked.score_at(np.array([1.0])).tolist() == [0.0]
        assert asked.shifted(np.array([1]), np.array([9]), 1).tolist() == [0.0]
