"""Scores of texts for queries, and how often users look at a rank (Pandey & Olston 2005, sections 3, 6.1.3).

The score of a text for a query of terms t is sum_t u(q, t) s(t), and 0 unless every term occurs: s(t) is its
score for the query of that term alone, u(q, t) the term's share in the query.

* ``tfidf``, as Lucene's classic similarity: sum_t sqrt(tf) idf^2 / (sqrt(length) sqrt(sum_t idf^2)), with
  idf = 1 + ln(N / (df + 1)).
* ``bm25``, as Lucene: sum_t idf tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length)), with k1 = 1.2,
  b = 0.75 and idf = ln(1 + (N - df + 0.5) / (df + 0.5)).
* ``inlinks``: mean over terms of the page's importance, that is this number if all terms occur.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats

Ints = npt.NDArray[Any]

K1: Final = 1.2
B: Final = 0.75


class Statistics(NamedTuple):
    """Number of texts in a collection, their mean length, and how many have each term, for scores."""

    pages: int
    """N, number of pages."""
    document_frequency: Ints
    """``[T]``: number of pages that have each term."""
    mean_length: float
    """Mean number of tokens per page."""


class Postings(NamedTuple):
    """Occurrences of terms in texts, one for each pair of term and text: arrays ``[E]``."""

    term: Ints
    """Number of the term."""
    tf: Ints
    """Occurrences of the term in the text; 0: none."""
    length: Ints
    """Tokens of the text."""
    importance: Floats | float = 1.0
    """Importance of the text's page, above 0."""


def _tfidf_idf(statistics: Statistics) -> Floats:
    return 1.0 + np.log(max(statistics.pages, 1) / (statistics.document_frequency + 1.0))


def _bm25_idf(statistics: Statistics) -> Floats:
    df = statistics.document_frequency.astype(np.float64)
    return np.log1p((statistics.pages - df + 0.5) / (df + 0.5))


def _tfidf(postings: Postings, statistics: Statistics) -> Floats:
    length = np.maximum(postings.length, 1)
    return _tfidf_idf(statistics)[postings.term] * np.sqrt(postings.tf) / np.sqrt(length)


def _bm25(postings: Postings, statistics: Statistics) -> Floats:
    relative = postings.length / max(statistics.mean_length, 1.0)
    tf = postings.tf.astype(np.float64)
    saturated = tf * (K1 + 1.0) / (tf + K1 * (1.0 - B + B * relative))
    return _bm25_idf(statistics)[postings.term] * saturated


def _inlinks(postings: Postings, statistics: Statistics) -> Floats:
    return np.where(postings.tf > 0, postings.importance, 0.0)


def _lengthwise(terms: Ints, statistics: Statistics) -> Floats:
    idf = _tfidf_idf(statistics)[terms]
    return idf / np.sqrt(np.square(idf).sum())


def _summed(terms: Ints, statistics: Statistics) -> Floats:
    return np.ones(len(terms))


def _shared(terms: Ints, statistics: Statistics) -> Floats:
    return np.full(len(terms), 1.0 / len(terms))


class Scoring(NamedTuple):
    """A scoring function as the functions s and u of the module's docstring."""

    single: Callable[[Postings, Statistics], Floats]
    """s: returns the score of each occurrence for the query of its term alone, ``[E]``."""
    share: Callable[[Ints, Statistics], Floats]
    """u: returns the factor of each term in the query of all the given terms, ``[terms]``."""


SCORINGS: Final[dict[str, Scoring]] = {
    "tfidf": Scoring(_tfidf, _lengthwise),
    "bm25": Scoring(_bm25, _summed),
    "inlinks": Scoring(_inlinks, _shared),
}
"""Name -> scoring function."""


ZETA: Final = 2.6123753486854883
"""zeta(3/2): the sum of r^-3/2 over all ranks r >= 1."""
_TABLE: Final = 10_000
_SUMS: Final = np.concatenate(([0.0], np.cumsum(np.arange(1, _TABLE + 1, dtype=np.float64) ** -1.5)))


def inspection(rank: npt.NDArray[Any]) -> Floats:
    """I(r) = r^-3/2 / zeta(3/2): probability that a user looks at rank r, from 1 (eq. 2); I(inf) = 0."""
    return np.asarray(rank, np.float64) ** -1.5 / ZETA


def inspection_sum(last: npt.NDArray[Any]) -> Floats:
    """Sum of I(r) over the ranks 1..last (0 for last <= 0), without a loop over them.

    Up to 10,000 it is read from a table; beyond, the sum of r^-3/2 from i to j is taken as
    2 (1 / sqrt(i - 1/2) - 1 / sqrt(j + 1/2)) (section 5.1.2), with a relative error below 1e-9.
    """
    ranks = np.maximum(np.asarray(last, np.int64), 0)
    beyond = 2.0 * (_TABLE + 0.5) ** -0.5 - 2.0 * (np.maximum(ranks, _TABLE) + 0.5) ** -0.5
    return (_SUMS[np.minimum(ranks, _TABLE)] + beyond) / ZETA
