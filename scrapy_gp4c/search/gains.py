"""Gain of search quality by a refreshed copy, delta-Q_A, estimated from a page's old and new text alone.

Pandey & Olston 2005, section 5. The queries of the log are replaced by Q', queries of one term each. The rank
function F of a term maps a page's score to its rank among the pages that have the term. It is approximated by
straight pieces on log-log scale, of equal length in log rank; three pieces take 20 bytes a term. By each term
of the log in the old or new text, the page moves from rank r1 to rank r2. What users gain by this page and by
the pages that it passes, summed over terms, is the estimate. I(r) is how often users look at rank r
(`inspection`). Lengths of arrays: T terms of the log, E occurrences of such terms in texts.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.search.measuring import SCORINGS, Postings, Statistics, inspection, inspection_sum

Ints = npt.NDArray[Any]

PIECES: Final = 3
_APART: Final = 1e-6
"""Relative distance to which equal scores are moved apart, because F needs an inverse."""


class Curves(NamedTuple):
    """The rank functions F of T terms: scores at some ranks among the pages that have the term."""

    results: npt.NDArray[np.int32]
    """``[T]``: n, number of pages that have the term."""
    score: npt.NDArray[np.float32]
    """``[T, pieces + 1]``: scores at the ranks n^(i / pieces), strictly falling; 0 for n = 0."""

    @property
    def knots(self) -> Floats:
        """Ranks at which `score` is given, n^(i / pieces): ``[T, pieces + 1]``."""
        parts = np.linspace(0.0, 1.0, self.score.shape[1])
        return np.maximum(self.results, 1)[:, None] ** parts


def fit(term: Ints, score: Floats, terms: int, pieces: int = PIECES) -> Curves:
    """Fit the rank function F of each term, by `pieces` straight pieces, to the scores of all its pages.

    ``term``, ``score``: of every pair of a term and a page that has it, ``[E]``; ``terms``: number of terms.
    """
    order = np.lexsort((-score, term))
    falling = score[order]
    results = np.bincount(term, minlength=terms).astype(np.int32)
    start = np.concatenate(([0], np.cumsum(results, dtype=np.int64)))[:-1]
    n = np.maximum(results, 1)
    knots = n[:, None] ** np.linspace(0.0, 1.0, pieces + 1)
    lower = np.clip(np.floor(knots * (1 + 1e-12)).astype(np.int64), 1, n[:, None])
    upper = np.minimum(lower + 1, n[:, None])
    if not len(falling):
        return Curves(results, np.zeros((terms, pieces + 1), np.float32))
    ends = [
        np.log(falling[np.minimum(start[:, None] + rank - 1, len(falling) - 1)]) for rank in (lower, upper)
    ]
    width = np.log(upper) - np.log(lower)
    along = np.divide(np.log(knots) - np.log(lower), width, out=np.zeros_like(width), where=width > 0)
    at_knots = np.exp(ends[0] + np.clip(along, 0.0, 1.0) * (ends[1] - ends[0])).astype(np.float32)
    for knot in range(1, pieces + 1):
        highest = at_knots[:, knot - 1] * np.float32(1.0 - _APART)
        at_knots[:, knot] = np.minimum(at_knots[:, knot], highest)
    at_knots[results == 0] = 0.0
    return Curves(results, at_knots)


class RankFunctions:
    """Evaluates the rank functions F of terms and their inverses, for E occurrences of terms at once."""

    def __init__(self, curves: Curves, term: Ints) -> None:
        """``term``: term number of each occurrence, ``[E]``."""
        self.n = curves.results[term].astype(np.int64)
        self._knots = np.log(curves.knots[term])
        scores = curves.score[term].astype(np.float64)
        self._scores = np.log(np.where(scores > 0.0, scores, 1.0))
        self._has_results = self.n > 0

    def rank_of(self, score: Floats) -> Floats:
        """F(s), rank of each score: ``[E]``; 1 above the best score, n below the lowest of n pages."""
        with np.errstate(divide="ignore"):
            log_score = np.log(score)
        beyond = np.maximum(self.n, 1).astype(np.float64)
        return self._interpolated(self._scores, self._knots, log_score, -1.0, beyond)

    def score_at(self, rank: Floats) -> Floats:
        """F^-1(r), score at each rank: ``[E]``; the lowest for ranks beyond the last, 0 if no page has it."""
        beyond = np.where(self._has_results, np.exp(self._scores[:, -1]), 0.0)
        return self._interpolated(self._knots, self._scores, np.log(np.maximum(rank, 1.0)), 1.0, beyond)

    def _interpolated(self, x: Floats, y: Floats, at: Floats, sign: float, beyond: Floats) -> Floats:
        """exp(y) where x is `at`, on the straight pieces between the knots (`x`, `y`): ``[E]``.

        ``x``, ``y``, ``at``: logarithms of ranks and scores; ``sign``: 1 if x rises from knot to knot, -1 if
        it falls; ``beyond``: results for `at` behind the last knot, ``[E]``.
        """
        for piece in range(x.shape[1] - 2, -1, -1):
            width = x[:, piece + 1] - x[:, piece]
            share = np.divide(at - x[:, piece], width, out=np.zeros_like(width), where=width != 0.0)
            value = np.exp(y[:, piece] + np.clip(share, 0.0, 1.0) * (y[:, piece + 1] - y[:, piece]))
            inside = self._has_results & (sign * at <= sign * x[:, piece + 1])
            beyond = np.where(inside, value, beyond)
        return beyond

    def shifted(self, first: Ints, last: Ints, by: int) -> Floats:
        """Usefulness that search loses (by = 1) or gains (by = 0) if pages at ranks first..last move by one.

        ``[E]``, 0 where first > last. It is the sum of (I(r - 1 + by) - I(r + by)) F^-1(r) over these ranks:
        with by = 1 pages sink from r to r + 1, with by = 0 those at r rise to r - 1. By parts (section
        5.1.2), with a = first and b = last, it is I(a - 1 + by) F^-1(a) - I(b + by) F^-1(b), less the sum of
        I(r + by) d(r) over r = a..b - 1. Here d(r), the fall of F^-1 from r to r + 1, is taken as its mean
        over the part of each piece that lies in a..b.
        """
        has_ranks = (first <= last) & (self.n > 0)
        first, last = np.where(has_ranks, first, 2), np.where(has_ranks, last, 2)
        before = self.score_at(first.astype(np.float64))
        total = inspection(first - 1 + by) * before
        cut = first
        inner = np.ceil(np.exp(self._knots[:, 1:-1]) * (1 - 1e-12)).astype(np.int64)
        for end in (*inner.T, last):
            end = np.clip(end, cut, last)
            after = self.score_at(end.astype(np.float64))
            looks = inspection_sum(end - 1 + by) - inspection_sum(cut - 1 + by)
            total -= looks * (before - after) / np.maximum(end - cut, 1)
            cut, before = end, after
        total -= inspection(last + by) * before
        return np.where(has_ranks, total, 0.0)


PPM: Final = 1e6
BLOCK: Final = 500_000
"""Number of ranks that `_ideal` handles at once."""


class Refit(NamedTuple):
    """Statistics of the indexed pages by which gains are estimated; recomputed every few cycles."""

    scoring: str
    """A name in `scrapy_gp4c.search.measuring.SCORINGS`."""
    statistics: Statistics
    curves: Curves
    frequency: Floats
    """``[T]``: `Workload.term_frequency`, of the single-term queries Q'."""
    ideal: float
    """Sum over terms of frequency * sum_{r <= n} I(r) F^-1(r): usefulness if all copies were current."""


def refit(
    scoring: str, frequency: Floats, postings: Postings, pages: int, mean_length: float, pieces: int = PIECES
) -> Refit:
    """Compute a `Refit` from the current copies; ``postings``: all occurrences of log terms in these.

    ``scoring``, ``frequency``: as in `Refit`; ``pages``, ``mean_length``: number of copies, and their mean
    length in words.
    """
    terms = len(frequency)
    document_frequency = np.bincount(postings.term, minlength=terms)
    statistics = Statistics(pages, document_frequency, mean_length)
    scores = SCORINGS[scoring].single(postings, statistics)
    curves = fit(postings.term, scores, terms, pieces)
    return Refit(scoring, statistics, curves, frequency, _ideal(curves, frequency))


def _ideal(curves: Curves, frequency: Floats) -> float:
    total = 0.0
    ends = np.cumsum(curves.results, dtype=np.int64)
    for terms in np.split(np.arange(len(ends)), np.flatnonzero(np.diff(ends // BLOCK)) + 1):
        n = curves.results[terms]
        term = np.repeat(terms, n)
        rank = np.arange(1.0, len(term) + 1) - np.repeat(np.cumsum(n) - n, n)
        total += float((frequency[term] * inspection(rank)) @ RankFunctions(curves, term).score_at(rank))
    return total


def term_impacts(curves: Curves, term: Ints, before: Floats, after: Floats) -> Floats:
    """Usefulness gained by each term of a changed text, not yet times the term's frequency: ``[E]``.

    It is at least 0, because to rank by the new text can only help. ``before``, ``after``: scores of the
    page's old and new text, ``[E]``; 0: the text lacks the term.

    The old rank r1 is rounded to the nearest; the new rank r2 is rounded towards r1, and not beyond it, so
    that only pages that were surely passed count.
    """
    functions = RankFunctions(curves, term)
    n = functions.n
    in_old, in_new = before > 0.0, after > 0.0
    r1 = np.rint(functions.rank_of(before)).astype(np.int64)
    exact = functions.rank_of(after)
    below = after < functions.score_at(n.astype(np.float64))
    entering = np.where(below | (n == 0), n + 1, np.ceil(exact * (1 - 1e-12))).astype(np.int64)
    up = np.minimum(np.ceil(exact * (1 - 1e-12)).astype(np.int64), r1)
    down = np.maximum(np.floor(exact * (1 + 1e-12)).astype(np.int64), r1)
    r2 = np.where(in_old, np.where(after > before, up, down), entering)
    rising = in_new & (~in_old | (after > before))
    sinking = in_old & (~in_new | (after < before))
    impacts = (np.where(in_new, inspection(r2), 0.0) - np.where(in_old, inspection(r1), 0.0)) * after
    lost = functions.shifted(np.where(rising, r2, 2), np.where(rising, np.where(in_old, r1 - 1, n), 1), 1)
    won = functions.shifted(np.where(sinking, r1 + 1, 2), np.where(sinking, np.where(in_new, r2, n), 1), 0)
    total = np.where(rising, impacts - lost, np.where(sinking, impacts + won, 0.0))
    return np.maximum(total, 0.0)  # but for rounding, none is below


class Refreshes(NamedTuple):
    """Occurrences of log terms in the old or new text of refreshed copies: arrays ``[E]``."""

    refresh: Ints
    """Number of the refreshed copy that each occurrence belongs to, from 0."""
    before: Postings
    """Postings of the old text, with tf 0 for a term that only the new one has."""
    after: Postings
    """Postings of the new text, the terms of `before` in their order."""


def impacts(known: Refit, refreshes: Refreshes, count: int) -> Floats:
    """Estimate the gain delta-Q_A of each of `count` refreshed copies, in ppm of `Refit.ideal`: ``[count]``.

    ``known``: statistics as of the last refit. All log terms in either text count, because a text's length
    changes the scores of all its terms.
    """
    single = SCORINGS[known.scoring].single
    term = refreshes.before.term
    before, after = (single(one, known.statistics) for one in (refreshes.before, refreshes.after))
    gained = known.frequency[term] * term_impacts(known.curves, term, before, after)
    total: Floats = np.bincount(refreshes.refresh, gained, count).astype(np.float64)
    return total * (PPM / known.ideal) if known.ideal > 0.0 else total
