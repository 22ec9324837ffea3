"""How useful a text is to a query: the scoring functions S of Pandey & Olston 2005, section 6.1.3.

The score of a text for a query of terms t is sum_t u(q, t) s(t), and 0 unless every term occurs: s(t) is its
score for the query of that term alone, u(q, t) the term's share in the query.

* ``tfidf``, as Lucene's classic similarity: sum_t sqrt(tf) idf^2 / (sqrt(length) sqrt(sum_t idf^2)), with
  idf = 1 + ln(N / (df + 1)).
* ``bm25``, as Lucene: sum_t idf tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length)), with k1 = 1.2,
  b = 0.75 and idf = ln(1 + (N - df + 0.5) / (df + 0.5)).
* ``inlinks``: a number of the page, whatever its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]

K1: Final = 1.2
B: Final = 0.75


class Statistics(NamedTuple):
    """What scores need of a collection; kept from one refit to the next."""

    pages: int
    """N."""
    document_frequency: Ints
    """``[T]``: pages that have each term."""
    mean_length: float
    """Tokens of a page, mean."""


class Postings(NamedTuple):
    """Occurrences, each of one term in one text: arrays ``[E]``."""

    term: Ints
    tf: Ints
    """How often the term stands there; 0: not at all."""
    length: Ints
    """Tokens of the text."""
    importance: Floats | float = 1.0
    """Of the text's page, above 0."""


def _tfidf_idf(statistics: Statistics) -> Floats:
    found: Floats = 1.0 + np.log(max(statistics.pages, 1) / (statistics.document_frequency + 1.0))
    return found


def _bm25_idf(statistics: Statistics) -> Floats:
    df = statistics.document_frequency.astype(np.float64)
    found: Floats = np.log1p((statistics.pages - df + 0.5) / (df + 0.5))
    return found


def _tfidf(postings: Postings, statistics: Statistics) -> Floats:
    length = np.maximum(postings.length, 1)
    found: Floats = _tfidf_idf(statistics)[postings.term] * np.sqrt(postings.tf) / np.sqrt(length)
    return found


def _bm25(postings: Postings, statistics: Statistics) -> Floats:
    relative = postings.length / max(statistics.mean_length, 1.0)
    tf = postings.tf.astype(np.float64)
    saturated = tf * (K1 + 1.0) / (tf + K1 * (1.0 - B + B * relative))
    found: Floats = _bm25_idf(statistics)[postings.term] * saturated
    return found


def _inlinks(postings: Postings, statistics: Statistics) -> Floats:
    found: Floats = np.where(postings.tf > 0, postings.importance, 0.0)
    return found


def _lengthwise(terms: Ints, statistics: Statistics) -> Floats:
    idf = _tfidf_idf(statistics)[terms]
    found: Floats = idf / np.sqrt(np.square(idf).sum())
    return found


def _summed(terms: Ints, statistics: Statistics) -> Floats:
    return np.ones(len(terms))


def _shared(terms: Ints, statistics: Statistics) -> Floats:
    return np.full(len(terms), 1.0 / len(terms))


class Scoring(NamedTuple):
    """A scoring function in its two parts."""

    single: Callable[[Postings, Statistics], Floats]
    """s: ``[E]``, the score of each occurrence for the query of its term alone."""
    share: Callable[[Ints, Statistics], Floats]
    """u: ``[terms]``, the share of each term in the query of all these."""


SCORINGS: Final[dict[str, Scoring]] = {
    "tfidf": Scoring(_tfidf, _lengthwise),
    "bm25": Scoring(_bm25, _summed),
    "inlinks": Scoring(_inlinks, _shared),
}
"""Name -> scoring function."""
BY_TEXT: Final = ("tfidf", "bm25")
"""Those that read nothing but the text."""
