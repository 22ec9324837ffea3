"""Scoring functions in their two parts, against their formulas one occurrence at a time."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.search.measuring import (
    K1,
    SCORINGS,
    ZETA,
    B,
    Postings,
    Statistics,
    inspection,
    inspection_sum,
)
from tests.support.quality import quality, quality_change, usefulness

OCCURRENCES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 50), st.floats(0.1, 9.0)), max_size=6
)
"""Term, how often it stands there, tokens of the text, importance of the page."""


def postings_of(rows: list[tuple[int, int, int, float]]) -> Postings:
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
    result = SCORINGS[name].single(postings_of(rows), known)
    assert result.dtype == np.float64
    assert np.isfinite(result).all()
    assert not result[[tf == 0 for _, tf, _, _ in rows]].any()
    assert result.tolist() == pytest.approx([plain(name, row, known) for row in rows], rel=1e-12, abs=0)


@given(statistics(), st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
def test_shares_of_terms(known: Statistics, terms: list[int]) -> None:
    """bm25 adds up; inlinks come to the page's own number; tfidf's shares have length 1."""
    query = np.array(terms)
    assert SCORINGS["bm25"].share(query, known).tolist() == [1.0] * len(terms)
    assert SCORINGS["inlinks"].share(query, known).sum() == pytest.approx(1.0)
    idf = [1 + math.log(max(known.pages, 1) / (known.document_frequency[term] + 1)) for term in terms]
    result = SCORINGS["tfidf"].share(query, known)
    assert np.square(result).sum() == pytest.approx(1.0)
    assert result == pytest.approx(np.array(idf) / math.hypot(*idf))


PAGES = st.lists(st.lists(st.sampled_from("abc"), max_size=4), min_size=1, max_size=4)


@dataclass
class Collection:
    """Texts of copies and live pages, queries, and the scores that they make."""

    copies: list[list[str]]
    live: list[list[str]]
    queries: list[tuple[str, ...]]
    frequency: np.ndarray
    scoring: str

    @property
    def statistics(self) -> Statistics:
        df = np.array([sum(term in text for text in self.copies) for term in "abc"])
        return Statistics(len(self.copies), df, float(np.mean([len(text) for text in self.copies])))

    def score(self, text: list[str], query: tuple[str, ...], page: int) -> float:
        """S by its formula, from the words themselves."""
        if not set(query) <= set(text):
            return 0.0
        n, df, mean = self.statistics
        if self.scoring == "inlinks":
            return float(1 + page % 2)
        total = 0.0
        squares = sum((1 + np.log(n / (df["abc".index(term)] + 1))) ** 2 for term in query)
        for term in query:
            tf, of_term = text.count(term), df["abc".index(term)]
            if self.scoring == "tfidf":
                idf = 1 + np.log(n / (of_term + 1))
                total += np.sqrt(tf) * idf**2 / (np.sqrt(len(text)) * np.sqrt(squares))
            else:
                idf = np.log(1 + (n - of_term + 0.5) / (of_term + 0.5))
                total += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(text) / max(mean, 1.0)))
        return total

    def scores(self, texts: list[list[str]]) -> np.ndarray:
        """The same of all queries and pages by `SCORINGS`: ``[Q, P]``."""
        scoring, out = SCORINGS[self.scoring], np.zeros((len(self.queries), len(texts)))
        for q, query in enumerate(self.queries):
            terms = np.array(["abc".index(term) for term in query])
            share = scoring.share(terms, self.statistics)
            for p, text in enumerate(texts):
                if set(query) <= set(text):
                    tf = np.array([text.count(term) for term in query])
                    length = np.full(len(terms), len(text))
                    single = scoring.single(Postings(terms, tf, length, 1.0 + p % 2), self.statistics)
                    out[q, p] = share @ single
        return out

    def plain_usefulness(self, copies: np.ndarray, live: np.ndarray) -> float:
        total = 0.0
        for q in range(len(self.queries)):
            answer = sorted(
                (p for p in range(len(self.copies)) if copies[q, p] > 0), key=lambda p: -copies[q, p]
            )
            for rank, page in enumerate(answer, start=1):
                total += self.frequency[q] * rank**-1.5 / ZETA * live[q, page]
        return total


@st.composite
def collections(draw) -> Collection:
    """Small ones, with ties, queries of several terms, empty pages and pages that are gone."""
    copies = draw(PAGES)
    live = [draw(st.one_of(st.just(text), st.lists(st.sampled_from("abc"), max_size=4))) for text in copies]
    queries = draw(
        st.lists(st.sets(st.sampled_from("abc"), min_size=1).map(lambda q: tuple(sorted(q))), min_size=1)
    )
    counts = draw(st.lists(st.integers(1, 9), min_size=len(queries), max_size=len(queries)))
    frequency = np.array(counts) / sum(counts)
    return Collection(copies, live, queries, frequency, draw(st.sampled_from(list(SCORINGS))))


@given(collections())
def test_scores_quality_and_its_changes_are_as_defined(one: Collection) -> None:
    """Eqs. 1 to 7 against loops; at most 1, 1 in sync; changes one after the other sum up to the whole."""
    copies, live = one.scores(one.copies), one.scores(one.live)
    for texts, table in ((one.copies, copies), (one.live, live)):
        plain = [[one.score(text, query, p) for p, text in enumerate(texts)] for query in one.queries]
        assert table == pytest.approx(np.array(plain), rel=1e-12, abs=0)
    ideal = one.plain_usefulness(live, live)
    assert usefulness(copies, live, one.frequency) == pytest.approx(
        one.plain_usefulness(copies, live), abs=1e-12
    )
    result = quality(copies, live, one.frequency)
    assert result <= 1.0 + 1e-12
    assert quality(live, live, one.frequency) == 1.0
    if ideal:
        assert result == pytest.approx(one.plain_usefulness(copies, live) / ideal, abs=1e-12)
        now, total = copies.copy(), 0.0
        for page in range(len(one.copies)):
            total += quality_change(now, live, one.frequency, page)
            now[:, page] = live[:, page]
        assert result + total == pytest.approx(1.0, abs=1e-12)


def test_inspection_sums_to_one_and_is_summed_without_a_loop() -> None:
    """To beyond the table, where the integral takes over."""
    ranks = np.arange(1, 60_001)
    plain = np.cumsum(inspection(ranks))
    assert inspection_sum(np.arange(0, 3)).tolist() == pytest.approx([0.0, plain[0], plain[1]], rel=1e-14)
    for last in (9_999, 10_000, 10_001, 20_000, 60_000):
        assert inspection_sum(np.array(last)) == pytest.approx(plain[last - 1], rel=1e-11)
    assert inspection_sum(np.array(10**15)) == pytest.approx(1.0, abs=1e-7)


def test_the_example_of_the_documentation() -> None:
    """docs/lab/user-centric.md: five pages, one query, copies refreshed one after the other."""
    once = np.ones(1)
    copies, live = np.array([[5.0, 4.0, 3.0, 2.0, 0.0]]), np.array([[5.0, 1.0, 3.0, 4.5, 2.0]])
    assert usefulness(copies, live, once) * ZETA == pytest.approx(6.4934, abs=5e-5)
    assert usefulness(live, live, once) * ZETA == pytest.approx(7.5078, abs=5e-5)
    assert quality(copies, live, once) == pytest.approx(0.8649, abs=5e-5)
    assert quality_change(copies, live, once, 1) == pytest.approx(0.0744, abs=5e-5)
    gains = []
    for page in (3, 1, 4):
        gains.append(quality_change(copies, live, once, page))
        copies[:, page] = live[:, page]
    assert gains == pytest.approx([0.0886, 0.0180, 0.0286], abs=5e-5)
    assert quality(copies, live, once) == 1.0
