"""What a refreshed copy is worth: delta-Q_A, estimated from its old and its new text alone.

Pandey & Olston 2005, section 5.1. Per term of Q' in either text, the page moves in the answer from rank r1 to
r2; the estimate is what users gain from the page there and from the pages that it passes, by `curves`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.index.curves import PIECES, Curves, Results, fit
from scrapy_gp4c.index.quality import inspection
from scrapy_gp4c.index.scores import SCORINGS, Postings, Statistics

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]

PPM: Final = 1e6
BLOCK: Final = 500_000
"""Ranks handled at once."""


class Refit(NamedTuple):
    """What the estimator knows of a collection; brought up to date now and then."""

    scoring: str
    """A name of `scores.SCORINGS`."""
    statistics: Statistics
    curves: Curves
    frequency: Floats
    """``[T]``: of the single terms, Q'."""
    ideal: float
    """sum f sum_{r <= n} I(r) F^-1(r): the usefulness of copies in sync."""


def refit(
    scoring: str, frequency: Floats, postings: Postings, pages: int, mean_length: float, pieces: int = PIECES
) -> Refit:
    """Learn scores and ranks from the copies: ``postings`` are all occurrences of a term of Q' in a copy."""
    terms = len(frequency)
    document_frequency = np.bincount(postings.term, minlength=terms)
    statistics = Statistics(pages, document_frequency, mean_length)
    scores = SCORINGS[scoring].single(postings, statistics)
    curves = fit(postings.term, scores, terms, pieces)
    return Refit(scoring, statistics, curves, frequency, _ideal(curves, frequency))


def _ideal(curves: Curves, frequency: Floats) -> float:
    """Sum over terms and ranks, some hundred thousand ranks at a time."""
    total = 0.0
    ends = np.cumsum(curves.results, dtype=np.int64)
    for part in np.split(np.arange(len(ends)), np.flatnonzero(np.diff(ends // BLOCK)) + 1):
        n = curves.results[part]
        term = np.repeat(part, n)
        rank = np.arange(1.0, len(term) + 1) - np.repeat(np.cumsum(n) - n, n)
        total += float((frequency[term] * inspection(rank)) @ Results(curves, term).score_at(rank))
    return total


def term_impacts(curves: Curves, term: Ints, before: Floats, after: Floats) -> Floats:
    """The part of each term in delta-Q_A, not yet times its frequency: ``[E]``, none negative.

    ``before``, ``after``: scores s1, s2 of the page's old and new text, ``[E]``; 0: the term is not there.

    r1 is the nearest whole rank; r2 is rounded towards the old rank's side, so that no page counts as passed
    that is not: up to the next lower place, at most r1, where the score rose, down likewise.
    """
    results = Results(curves, term)
    n = results.n
    here, there = before > 0.0, after > 0.0
    r1 = np.rint(results.rank_of(before)).astype(np.int64)
    exact = results.rank_of(after)
    below = after < results.score_at(n.astype(np.float64))
    entering = np.where(below | (n == 0), n + 1, np.ceil(exact * (1 - 1e-12))).astype(np.int64)
    up = np.minimum(np.ceil(exact * (1 - 1e-12)).astype(np.int64), r1)
    down = np.maximum(np.floor(exact * (1 + 1e-12)).astype(np.int64), r1)
    r2 = np.where(here, np.where(after > before, up, down), entering)
    rising = there & (~here | (after > before))
    sinking = here & (~there | (after < before))
    own = (np.where(there, inspection(r2), 0.0) - np.where(here, inspection(r1), 0.0)) * after
    lost = results.shifted(np.where(rising, r2, 2), np.where(rising, np.where(here, r1 - 1, n), 1), 1)
    won = results.shifted(np.where(sinking, r1 + 1, 2), np.where(sinking, np.where(there, r2, n), 1), 0)
    total = np.where(rising, own - lost, np.where(sinking, own + won, 0.0))
    return np.maximum(total, 0.0)  # but for rounding, none is below


class Refreshes(NamedTuple):
    """Refreshed copies, and the occurrences of terms of Q' in either text of each: arrays ``[E]``."""

    refresh: Ints
    """Number of the refresh that each belongs to, from 0."""
    before: Postings
    """In the old text, with tf 0 for a term that only the new one has."""
    after: Postings
    """In the new text, the terms of `before` in their order."""


def impacts(known: Refit, refreshes: Refreshes, count: int) -> Floats:
    """delta-Q_A of every refresh, in ppm of the ideal at the last refit: ``[count]``.

    The sum over the terms of Q' in either text (the text's length moves the scores of all its terms).
    """
    single = SCORINGS[known.scoring].single
    term = refreshes.before.term
    before, after = (single(one, known.statistics) for one in (refreshes.before, refreshes.after))
    gained = known.frequency[term] * term_impacts(known.curves, term, before, after)
    total: Floats = np.bincount(refreshes.refresh, gained, count).astype(np.float64)
    return total * (PPM / known.ideal) if known.ideal > 0.0 else total
