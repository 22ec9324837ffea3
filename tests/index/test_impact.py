"""The estimator of delta-Q_A, against sums over ranks one by one and against exact changes of quality."""

from __future__ import annotations

from math import ceil, exp, floor, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.index.curves import Curves, Results, fit
from scrapy_gp4c.index.impact import Refreshes, impacts, refit, term_impacts
from scrapy_gp4c.index.quality import ZETA, quality_change, usefulness
from scrapy_gp4c.index.scores import Postings

SCORES = st.integers(1, 40).map(lambda score: score / 8)


def looks(rank: float) -> float:
    """I, with I(inf) = 0."""
    return 0.0 if rank == inf else rank**-1.5 / ZETA


class Plain:
    """F of one term and the impact of a move, by loops over ranks."""

    def __init__(self, n: int, scores: list[float]) -> None:
        self.n, self.scores = n, [log(score) for score in scores] if n else []
        self.knots = [log(n) * i / (len(scores) - 1) for i in range(len(scores))] if n else []

    def rank(self, score: float) -> float:
        """F."""
        if not self.n or log(score) >= self.scores[0]:
            return 1.0
        for i in range(len(self.knots) - 1):
            if log(score) >= self.scores[i + 1]:
                part = (self.scores[i] - log(score)) / (self.scores[i] - self.scores[i + 1])
                return exp(self.knots[i] + part * (self.knots[i + 1] - self.knots[i]))
        return float(self.n)

    def score(self, rank: int) -> float:
        """The inverse of F."""
        for i in range(len(self.knots) - 1):
            width = self.knots[i + 1] - self.knots[i]
            if log(rank) <= self.knots[i + 1] + 1e-12:
                part = (log(rank) - self.knots[i]) / width if width else 0.0
                return exp(self.scores[i] + part * (self.scores[i + 1] - self.scores[i]))
        return exp(self.scores[-1])

    def level(self, rank: int, first: int, last: int) -> float:
        """F^-1 of a rank in first..last, where between the ends of a piece's part it falls evenly."""
        inner = [ceil(exp(knot) - 1e-9) for knot in self.knots[1:-1]]
        ends = sorted({first, last, *(knot for knot in inner if first < knot < last)})
        low = max(end for end in ends if end <= rank)
        if low == last:
            return self.score(last)
        high = min(end for end in ends if end > low)
        fall = self.score(low) - self.score(high)
        return self.score(low) - fall * (rank - low) / (high - low)

    def impact(self, s1: float, s2: float) -> float:
        """The page's own gain and those of all that it passes."""
        if s1 == s2:
            return 0.0
        r1 = round(self.rank(s1)) if s1 else inf
        if s2 > s1:
            r2 = ceil(self.rank(s2) - 1e-9)
            if s1:
                r2 = min(r2, r1)
            elif not self.n or s2 < self.score(self.n):
                r2 = self.n + 1
            last = r1 - 1 if s1 else self.n
            others = -sum((looks(r) - looks(r + 1)) * self.level(r, r2, last) for r in range(r2, last + 1))
            return (looks(r2) - looks(r1)) * s2 + others
        r2 = max(floor(self.rank(s2) + 1e-9), r1) if s2 else inf
        last = r2 if s2 else self.n
        others = sum((looks(r - 1) - looks(r)) * self.level(r, r1 + 1, last) for r in range(r1 + 1, last + 1))
        return (looks(r2) - looks(r1)) * s2 + others


def curve(scores: list[float], pieces: int) -> Curves:
    """F fitted to the results of one term."""
    return fit(np.zeros(len(scores), np.int64), np.array(scores), 1, pieces)


@given(
    st.one_of(st.lists(SCORES, max_size=5), st.lists(SCORES, min_size=30, max_size=120)),
    st.sampled_from([2, 3, 6]),
    st.one_of(st.just(0.0), SCORES),
    st.one_of(st.just(0.0), SCORES),
)
def test_impacts_are_the_sums_over_ranks(scores: list[float], pieces: int, s1: float, s2: float) -> None:
    """By parts and without a loop, for no result, few, ties, and across pieces; never negative."""
    curves = curve(scores, pieces)
    plain = Plain(len(scores), curves.score[0].astype(float).tolist())
    results = Results(curves, np.zeros(1, np.int64))
    if s1:
        assert results.rank_of(np.array([s1]))[0] == pytest.approx(plain.rank(s1), rel=1e-9)
    found = term_impacts(curves, np.zeros(1, np.int64), np.array([s1]), np.array([s2]))[0]
    wanted = plain.impact(s1, s2)
    assert wanted >= -1e-12
    assert found >= 0.0
    assert found == pytest.approx(wanted, abs=1e-9)


class PerRank(Curves):
    """F with a piece from every rank to the next."""

    @property
    def knots(self) -> np.ndarray:
        """Ranks 1, 2, ..., n."""
        return np.arange(1.0, self.score.shape[1] + 1)[None, :]


@given(st.sets(st.integers(1, 500), min_size=3, max_size=12), st.data())
def test_a_piece_per_rank_is_exact(distinct: set[int], data: st.DataObject) -> None:
    """A page that enters, rises, sinks or leaves among distinct scores: its change of eq. 6."""
    *others, s1, s2 = data.draw(st.permutations(sorted(distinct)))
    s1, s2 = data.draw(st.sampled_from([(s1, s2), (0, s2), (s1, 0)]))
    copies = np.array([[*others, s1]], float)
    live = np.array([[*others, s2]], float)
    exact = quality_change(copies, live, np.ones(1), len(others)) * usefulness(live, live, np.ones(1))
    results = np.sort(copies[copies > 0])[::-1]
    curves = PerRank(np.array([len(results)], np.int32), results[None, :])
    found = term_impacts(curves, np.zeros(1, np.int64), np.array([float(s1)]), np.array([float(s2)]))
    assert found[0] == pytest.approx(exact, abs=1e-9)


def test_impacts_of_pages_sum_up_the_terms_in_ppm_of_the_ideal() -> None:
    """Two refreshes: one text loses a term and is shorter, the other one stays as it was."""
    held = Postings(np.array([0, 0, 1]), np.array([1, 4, 1]), np.array([4, 8, 8]))
    known = refit("tfidf", np.array([0.75, 0.25]), held, 2, 6.0)
    scores = np.array([[1.0, 1.0], [0.0, 1.0]])  # of terms 0 and 1 with idf: see below
    idf = 1 + np.log(2 / (np.array([2, 1]) + 1))
    scores *= idf[:, None] * np.array([[np.sqrt(1 / 4), np.sqrt(4 / 8)], [0, np.sqrt(1 / 8)]])
    assert known.ideal == pytest.approx(usefulness(scores, scores, known.frequency), rel=1e-5)
    before = Postings(np.array([0, 1, 0]), np.array([4, 1, 1]), np.array([8, 8, 4]))
    after = Postings(np.array([0, 1, 0]), np.array([4, 0, 1]), np.array([7, 7, 4]))
    found = impacts(known, Refreshes(np.array([0, 0, 1]), before, after), 2)
    assert found[1] == 0.0
    live = np.array([[scores[0, 0], idf[0] * np.sqrt(4 / 7)], [0.0, 0.0]])
    exact = quality_change(scores, live, known.frequency, 1) * usefulness(live, live, known.frequency)
    assert found[0] == pytest.approx(exact / known.ideal * 1e6, abs=1e-3)


def test_without_results_there_is_nothing_to_measure() -> None:
    """A refit on nothing has no ideal; what enters then is worth what users see of it."""
    nothing = np.empty(0, np.int64)
    known = refit("bm25", np.ones(1), Postings(nothing, nothing, nothing), 0, 0.0)
    assert known.ideal == 0.0
    found = term_impacts(known.curves, np.zeros(1, np.int64), np.zeros(1), np.full(1, 2.0))[0]
    assert found == pytest.approx(looks(1) * 2.0)
