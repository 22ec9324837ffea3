"""Scoring functions in their two parts, against their formulas one occurrence at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.index.scores import BY_TEXT, K1, SCORINGS, B, Postings, Statistics

OCCURRENCES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 50), st.floats(0.1, 9.0)), max_size=6
)
"""Term, how often it stands there, tokens of the text, importance of the page."""


def postings_of(rows: list[tuple[int, int, int, float]]) -> Postings:
    """Columns of the rows."""
    term, tf, length, importance = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Postings(
        np.array(term, np.int32), np.array(tf, np.int32), np.array(length, np.int32), np.array(importance)
    )


@st.composite
def statistics(draw: st.DrawFn) -> Statistics:
    """Of collections from none to many pages; no term is on more pages than there are."""
    pages = draw(st.integers(0, 1_000))
    df = draw(st.lists(st.integers(0, pages), min_size=3, max_size=3))
    return Statistics(pages, np.array(df), draw(st.floats(0.0, 100.0)))


def plain(name: str, row: tuple[int, int, int, float], known: Statistics) -> float:
    """S for the query of one term, by the formula in the module's text."""
    term, tf, length, importance = row
    df = int(known.document_frequency[term])
    if name == "inlinks":
        return importance if tf else 0.0
    if name == "tfidf":
        idf = 1 + math.log(max(known.pages, 1) / (df + 1))
        return math.sqrt(tf) * idf**2 / (math.sqrt(max(length, 1)) * math.sqrt(idf**2))
    idf = math.log(1 + (known.pages - df + 0.5) / (df + 0.5))
    return idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / max(known.mean_length, 1.0)))


@given(st.sampled_from(sorted(SCORINGS)), OCCURRENCES, statistics())
def test_single_scores_are_as_defined(
    name: str, rows: list[tuple[int, int, int, float]], known: Statistics
) -> None:
    """For empty collections, terms on every page and texts without tokens too; 0 where a term is not."""
    found = SCORINGS[name].single(postings_of(rows), known)
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert not found[[tf == 0 for _, tf, _, _ in rows]].any()
    assert found.tolist() == pytest.approx([plain(name, row, known) for row in rows], rel=1e-12, abs=0)


@given(statistics(), st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
def test_shares_of_terms(known: Statistics, terms: list[int]) -> None:
    """bm25 adds up; inlinks come to the page's own number; tfidf's shares have length 1."""
    query = np.array(terms)
    assert SCORINGS["bm25"].share(query, known).tolist() == [1.0] * len(terms)
    assert SCORINGS["inlinks"].share(query, known).sum() == pytest.approx(1.0)
    idf = [1 + math.log(max(known.pages, 1) / (known.document_frequency[term] + 1)) for term in terms]
    found = SCORINGS["tfidf"].share(query, known)
    assert np.square(found).sum() == pytest.approx(1.0)
    assert found == pytest.approx(np.array(idf) / math.hypot(*idf))


@given(st.sampled_from(BY_TEXT), st.integers(1, 8), st.integers(1, 40), st.integers(0, 98))
def test_more_of_a_term_in_less_text_is_better(name: str, tf: int, length: int, df: int) -> None:
    """And a rare term counts for more than a common one; importance changes nothing."""
    known = Statistics(100, np.array([df, df + 1]), 20.0)
    rows = [(0, tf, length, 1.0), (0, tf + 1, length, 1.0), (0, tf, length + 1, 1.0), (1, tf, length, 1.0)]
    usual, more, longer, common = SCORINGS[name].single(postings_of(rows), known)
    assert longer < usual < more
    assert common < usual
    important = SCORINGS[name].single(postings_of([(0, tf, length, 7.0)]), known)
    assert important.tolist() == [usual]


def test_an_importance_for_all_is_that_of_each() -> None:
    """The default of postings is a single number."""
    found = SCORINGS["inlinks"].single(
        Postings(np.array([0, 1]), np.array([2, 0]), np.array([5, 5])), Statistics(2, np.ones(2), 5.0)
    )
    assert found.tolist() == [1.0, 0.0]
