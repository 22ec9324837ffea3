"""F and its inverse: knots at the scores of their ranks, monotone between, sums without a loop."""

from math import ceil, exp, floor, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.search.gains import (
    Curves,
    RankFunctions,
    Refreshes,
    fit,
    impacts,
    refit,
    term_impacts,
)
from scrapy_gp4c.search.measuring import ZETA, Postings
from tests.support.quality import quality_change, usefulness

SCORES = st.lists(st.integers(1, 400).map(lambda score: score / 8), max_size=40)
SOME = st.lists(st.integers(1, 400).map(lambda score: score / 8), min_size=1, max_size=40)


def curve(scores: list[float], pieces: int = 3) -> Curves:
    return fit(np.zeros(len(scores), np.int64), np.array(scores, np.float64), 1, pieces)


def results(scores: list[float], asked: int = 1) -> RankFunctions:
    """F of the same term, asked so often."""
    return RankFunctions(curve(scores), np.zeros(asked, np.int64))


@given(SOME, st.integers(1, 6))
def test_knots_are_scores_at_ranks_equally_far_apart(scores: list[float], pieces: int) -> None:
    """From the first to the last on log scale; a knot between two ranks lies between their scores."""
    result, n = curve(scores, pieces), len(scores)
    assert result.results.tolist() == [n]
    assert result.score.shape == result.knots.shape == (1, pieces + 1)
    falling = sorted(scores, reverse=True)
    for i, (knot, score) in enumerate(zip(result.knots[0], result.score[0], strict=True)):
        assert knot == pytest.approx(n ** (i / pieces))
        rank = min(max(int(knot * (1 + 1e-12)), 1), n)
        # Ties are drawn apart by a millionth each.
        assert falling[min(rank, n - 1)] * (1 - 1e-5) <= score <= falling[rank - 1] * (1 + 1e-6)
    assert (np.diff(result.score[0]) < 0).all()


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
    result = results(scores).shifted(np.array([first]), np.array([last]), by)[0]
    if not scores or first > last:
        assert result == 0.0
        return
    ranks = np.arange(first, last + 1)
    looks = ((ranks - 1.0 + by) ** -1.5 - (ranks + 0.0 + by) ** -1.5) / ZETA
    inner = np.ceil(curve(scores).knots[0, 1:-1] * (1 - 1e-12))
    ends = np.unique(np.clip([first, *inner, last], first, last)).astype(float)
    level = np.interp(ranks, ends, results(scores, len(ends)).score_at(ends))
    assert result == pytest.approx(looks @ level, rel=1e-9, abs=1e-12)


def test_no_results_have_no_scores() -> None:
    """Whoever comes first would be at rank 1; nothing moves."""
    for asked in (results([]), RankFunctions(fit(np.array([1]), np.array([2.0]), 2), np.array([0]))):
        assert asked.n.tolist() == [0]
        assert asked.rank_of(np.array([3.0])).tolist() == [1.0]
        assert asked.score_at(np.array([1.0])).tolist() == [0.0]
        assert asked.shifted(np.array([1]), np.array([9]), 1).tolist() == [0.0]


EIGHTHS = st.integers(1, 40).map(lambda score: score / 8)


def looks(rank: float) -> float:
    """I, with I(inf) = 0."""
    return 0.0 if rank == inf else rank**-1.5 / ZETA


class Plain:
    """F of one term and the impact of a move, by loops over ranks."""

    def __init__(self, n: int, scores: list[float]) -> None:
        self.n, self.scores = n, [log(score) for score in scores] if n else []
        self.knots = [log(n) * i / (len(scores) - 1) for i in range(len(scores))] if n else []

    def rank(self, score: float) -> float:
        if not self.n or log(score) >= self.scores[0]:
            return 1.0
        for i in range(len(self.knots) - 1):
            if log(score) >= self.scores[i + 1]:
                part = (self.scores[i] - log(score)) / (self.scores[i] - self.scores[i + 1])
                return exp(self.knots[i] + part * (self.knots[i + 1] - self.knots[i]))
        return float(self.n)

    def score(self, rank: int) -> float:
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


@given(
    st.one_of(st.lists(EIGHTHS, max_size=5), st.lists(EIGHTHS, min_size=30, max_size=120)),
    st.sampled_from([2, 3, 6]),
    st.one_of(st.just(0.0), EIGHTHS),
    st.one_of(st.just(0.0), EIGHTHS),
)
def test_impacts_are_the_sums_over_ranks(scores: list[float], pieces: int, s1: float, s2: float) -> None:
    """By parts and without a loop, for no result, few, ties, and across pieces; never negative."""
    curves = curve(scores, pieces)
    plain = Plain(len(scores), curves.score[0].astype(float).tolist())
    results = RankFunctions(curves, np.zeros(1, np.int64))
    if s1:
        assert results.rank_of(np.array([s1]))[0] == pytest.approx(plain.rank(s1), rel=1e-9)
    result = term_impacts(curves, np.zeros(1, np.int64), np.array([s1]), np.array([s2]))[0]
    wanted = plain.impact(s1, s2)
    assert wanted >= -1e-12
    assert result >= 0.0
    assert result == pytest.approx(wanted, abs=1e-9)


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
    result = term_impacts(curves, np.zeros(1, np.int64), np.array([float(s1)]), np.array([float(s2)]))
    assert result[0] == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(("pages", "times"), [(2, 2.0), (3, 2.5), (4, 3.0), (10, 5.8)])
def test_a_page_that_leaves_equal_ones_is_taken_for_the_first(pages: int, times: float) -> None:
    """It gains more than the mean over its true ranks; one that joins them gains what it should."""
    equal, term, one, none = curve([1.0] * pages), np.zeros(1, np.int64), np.ones(1), np.zeros(1)
    exact = [looks(rank) - looks(pages) for rank in range(1, pages + 1)]
    assert term_impacts(equal, term, one, none)[0] / np.mean(exact) == pytest.approx(times, abs=0.05)
    assert term_impacts(equal, term, none, one)[0] == pytest.approx(looks(pages + 1), abs=1e-5)


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
    result = impacts(known, Refreshes(np.array([0, 0, 1]), before, after), 2)
    assert result[1] == 0.0
    live = np.array([[scores[0, 0], idf[0] * np.sqrt(4 / 7)], [0.0, 0.0]])
    exact = quality_change(scores, live, known.frequency, 1) * usefulness(live, live, known.frequency)
    assert result[0] == pytest.approx(exact / known.ideal * 1e6, abs=1e-3)


def test_without_results_there_is_nothing_to_measure() -> None:
    """A refit on nothing has no ideal; what enters then is worth what users see of it."""
    nothing = np.empty(0, np.int64)
    known = refit("bm25", np.ones(1), Postings(nothing, nothing, nothing), 0, 0.0)
    assert known.ideal == 0.0
    result = term_impacts(known.curves, np.zeros(1, np.int64), np.zeros(1), np.full(1, 2.0))[0]
    assert result == pytest.approx(looks(1) * 2.0)
