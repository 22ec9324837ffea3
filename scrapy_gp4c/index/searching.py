"""Searching the index of a crawl: which pages a query finds, and in which order."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.errors import QueryLogError
from scrapy_gp4c.index.database import connect, translated
from scrapy_gp4c.index.scores import SCORINGS, Postings, Statistics
from scrapy_gp4c.words.tokens import tokens

_WORDS: Final = "CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, texts, instance)"


class Hit(NamedTuple):
    """A page of the answer."""

    page: int
    score: float


class Answer(NamedTuple):
    """What a query finds."""

    terms: tuple[str, ...]
    pages: int
    """Indexed pages."""
    found: int
    """Those of them that have every term."""
    hits: list[Hit]
    """The best of these, best first, equal ones by page number."""


def search(path: Path, query: str, scoring: str, top: int) -> Answer:
    """Search an index, as the last finished cycle left it, beside a crawl or without.

    ``scoring``: of `scores.BY_TEXT`, with idf and mean length of the pages as they are. Raises
    SearchIndexError, and QueryLogError for a query without a letter or digit.
    """
    terms = tuple(dict.fromkeys(tokens(query)))
    if not terms:
        raise QueryLogError(f"expected words to search for; found no letter or digit in {query[:60]!r}")
    connection = connect(path, readonly=True)
    try:
        with translated(path):
            connection.execute(_WORDS)
            return _answer(connection, terms, scoring, top)
    finally:
        connection.close()


def _answer(connection: sqlite3.Connection, terms: tuple[str, ...], scoring: str, top: int) -> Answer:
    pages, mean_length = connection.execute(
        "SELECT count(*), avg(length) FROM pages WHERE length IS NOT NULL"
    ).fetchone()
    found: list[dict[int, int]] = [
        dict(connection.execute("SELECT doc, count(*) FROM temp.words WHERE term = ? GROUP BY doc", (term,)))
        for term in terms
    ]
    statistics = Statistics(pages, np.array([len(one) for one in found]), mean_length or 0.0)
    both = sorted(set.intersection(*map(set, found)))
    if not both:
        return Answer(terms, pages, 0, [])
    lengths = {
        page: length
        for page in both
        for (length,) in connection.execute("SELECT length FROM pages WHERE page = ?", (page,))
    }
    number = np.repeat(np.arange(len(terms)), len(both))
    tf = np.array([one[page] for one in found for page in both])
    length = np.tile(np.array([lengths[page] for page in both]), len(terms))
    function = SCORINGS[scoring]
    single = function.single(Postings(number, tf, length), statistics).reshape(len(terms), -1)
    scores = function.share(np.arange(len(terms)), statistics) @ single
    order = np.argsort(-scores, kind="stable")[:top]
    return Answer(terms, pages, len(both), [Hit(both[row], float(scores[row])) for row in order.tolist()])
