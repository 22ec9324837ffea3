"""The search index of a crawl: the texts of all pages, in SQLite's FTS5, and the gains of search quality.

The texts of visits are first written to a table of staged texts. At the end of a cycle one transaction moves
them into the index and estimates the gain of each over the text it replaces (`scrapy_gp4c.search.gains`). The
statistics for that are recomputed every few cycles. A kill at any point loses nothing.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import QueryLogError, SearchIndexError
from scrapy_gp4c.search.gains import Curves, Refit, Refreshes, impacts, refit
from scrapy_gp4c.search.measuring import SCORINGS, Postings, Statistics
from scrapy_gp4c.search.queries import Workload
from scrapy_gp4c.sqlite_files import SqliteKind
from scrapy_gp4c.words.tokens import tokens

Ints = npt.NDArray[np.int32]

_PAIR: Final = np.dtype([("term", "<i4"), ("tf", "<i4")])


class Counts(NamedTuple):
    """How often the terms of the query log occur in a text."""

    term: Ints
    """``[E]``: numbers of the log's terms that occur, ascending."""
    tf: Ints
    """``[E]``: how often each occurs, at least once."""
    length: int
    """Number of all words of the text, also those of no query."""

    def packed(self) -> bytes:
        """Pack `term` and `tf` into bytes, little-endian, without `length`."""
        pairs = np.empty(len(self.term), _PAIR)
        pairs["term"], pairs["tf"] = self.term, self.tf
        return pairs.tobytes()


NOTHING: Final = Counts(np.empty(0, np.int32), np.empty(0, np.int32), 0)
"""Counts of a text that is missing."""


def counts_of(words: bytes, number: Mapping[bytes, int]) -> Counts:
    """Count a query log's terms in a text.

    ``words``: the text's tokens in UTF-8, joined by blanks; ``number``: term in UTF-8 -> its number.
    """
    all_words = words.split(b" ") if words else []
    known = np.array([number[word] for word in all_words if word in number], np.int32)
    tf = np.bincount(known).astype(np.int32)
    term = tf.nonzero()[0].astype(np.int32)
    return Counts(term, tf[term], len(all_words))


def unpacked(packed: bytes, length: int) -> Counts:
    """Return the counts that `Counts.packed` packed; ``length``: number of all words of the text."""
    pairs = np.frombuffer(packed, _PAIR)
    return Counts(pairs["term"], pairs["tf"], length)


def joined_counts(texts: Sequence[tuple[bytes, int]]) -> tuple[Ints, Ints, Ints]:
    """Join the (packed counts, length) of many texts to arrays ``[E]``: terms, tf, length of the text."""
    pairs = np.frombuffer(b"".join(packed for packed, _ in texts), _PAIR)
    sizes = np.fromiter((len(packed) // _PAIR.itemsize for packed, _ in texts), np.intp, len(texts))
    lengths = np.fromiter((length for _, length in texts), np.int32, len(texts))
    return pairs["term"], pairs["tf"], np.repeat(lengths, sizes)


class ComparedTerms(NamedTuple):
    """Counts of terms in pairs of an old and a new text; each array ``[E]``.

    A pair has each term of either text once, terms ascending; tf is 0 for the text that lacks it.
    """

    pair: npt.NDArray[np.intp]
    """Number of the pair that the term belongs to."""
    term: Ints
    tf: Ints
    """How often the term occurs in the old text."""
    length: Ints
    """Words of the old text."""
    new_tf: Ints
    new_length: Ints


def compared(pairs: Sequence[tuple[Counts, Counts]]) -> ComparedTerms:
    """Align the term counts of pairs of texts; ``pairs``: counts of the old and of the new text."""
    terms = 1 + max(
        (int(counts.term[-1]) for both in pairs for counts in both if len(counts.term)), default=0
    )
    keys, tfs = [], []
    for side in (0, 1):
        counts = [both[side] for both in pairs]
        number = np.repeat(np.arange(len(pairs)), [len(one.term) for one in counts])
        keys.append(number * terms + np.concatenate([np.empty(0, np.int32), *(one.term for one in counts)]))
        tfs.append(np.concatenate([np.empty(0, np.int32), *(one.tf for one in counts)]))
    either = np.union1d(*keys)
    pair, term = np.divmod(either, terms)
    columns = []
    for side in (0, 1):
        tf = np.zeros(len(either), np.int32)
        tf[np.searchsorted(either, keys[side])] = tfs[side]
        columns += [tf, np.array([both[side].length for both in pairs], np.int32)[pair]]
    return ComparedTerms(pair, term.astype(np.int32), *columns)


_TABLES: Final = """
CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE pages (
    page INTEGER PRIMARY KEY, key INTEGER NOT NULL, fingerprint INTEGER, length INTEGER, counts BLOB);
CREATE TABLE staged (
    page INTEGER PRIMARY KEY, key INTEGER NOT NULL, cycle INTEGER NOT NULL, fingerprint INTEGER NOT NULL,
    known INTEGER, words TEXT NOT NULL, length INTEGER NOT NULL, counts BLOB NOT NULL);
CREATE TABLE gains (page INTEGER PRIMARY KEY, cycle INTEGER NOT NULL, ppm REAL NOT NULL);
CREATE VIRTUAL TABLE texts USING fts5(words, tokenize='ascii', columnsize=0);
"""
"""``words`` are tokens joined by blanks: FTS5's tokeniser ``ascii`` splits them only there."""
FILE: Final = SqliteKind(
    "search index",
    SearchIndexError,
    application=int.from_bytes(b"gp4c", "big"),
    version=1,
    tables=_TABLES,
    how_made="set GP4C_QUERY_LOG to a log of queries, and crawl.",
    synchronous="FULL",
    cache_kib=65_536,
)


def check_index(path: Path) -> str:
    """Return the problem of the search index at `path`; "" if it is sound or does not exist."""
    if not path.exists():
        return ""
    try:
        with closing(FILE.connect(path, readonly=True)) as connection, FILE.translated(path):
            (first, *_) = connection.execute("PRAGMA integrity_check").fetchone()
            if first != "ok":
                raise FILE.unusable(path, f"is damaged: {first}")
            for table in ("pages", "staged"):
                rows = connection.execute(f"SELECT counts, length FROM {table} WHERE counts NOT NULL")
                for packed, length in rows:
                    unpacked(packed, length)
            connection.execute("SELECT sum(length(words)) FROM texts").fetchone()
    except SearchIndexError as error:
        return str(error)
    return ""


BATCH: Final = 256
"""Texts that are moved into the index, or counted, at a time."""
_STAGED: Final = (
    "SELECT page, key, fingerprint, known, words, length, counts FROM staged "
    "WHERE cycle = ? AND page > ? ORDER BY page LIMIT ?"
)
SIGN: Final = 2**63
"""Offset by which keys and fingerprints are stored lower, because SQLite's integers are signed."""


_Row = tuple[int, int, int, int | None, str, int, bytes]
"""Page, key, fingerprint, fingerprint of the copy before, words, length and packed counts of a text."""
_STAGE: Final = (
    "INSERT OR REPLACE INTO staged (cycle, page, key, fingerprint, known, words, length, counts) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class Arrival(NamedTuple):
    """Text that a visit fetched, to be staged for the index."""

    page: int
    key: int
    """Page key, uint64, by which the index notices that the page id has gone to another page."""
    fingerprint: int
    """Fingerprint of the text, uint64."""
    known: int | None
    """Fingerprint of the copy before, uint64; None: there was none."""
    words: bytes
    """Tokens of the text in UTF-8, a blank between each two."""


class VisitGains(NamedTuple):
    """Estimated gains of search quality by the visits of a cycle, in ppm, by page."""

    page: npt.NDArray[np.int64]
    ppm: npt.NDArray[np.float64]


def digest(workload: Workload, scoring: str) -> str:
    """Return a digest of the query log and the scoring, which tells whether gains are comparable."""
    queries = zip(workload.queries, workload.frequency.tolist(), strict=True)
    return hashlib.sha256(repr([scoring, workload.terms, *queries]).encode()).hexdigest()[:32]


class SearchIndex:
    """The search index in a store's directory, open for writing by the crawl that writes to the store."""

    def __init__(self, path: Path, store_id: str, workload: Workload, scoring: str) -> None:
        """Open or create the index; another `workload` or `scoring` than before drops all statistics.

        Raises SearchIndexError for one that is damaged, of another store, newer or locked.
        """
        self.path = path
        self._workload, self._scoring = workload, scoring
        self._numbers = {term.encode(): number for term, number in workload.number.items()}
        self.log = digest(workload, scoring)
        """Digest of the query log and the scoring."""
        self._staged: list[_Row] = []
        self._connection = FILE.connect(path)
        try:
            with FILE.translated(path):
                self._fit_store_and_log(store_id)
        except BaseException:
            self._connection.close()
            raise

    def _fit_store_and_log(self, store_id: str) -> None:
        stored = self._about()
        if stored.setdefault("store_id", store_id) != store_id:
            raise FILE.unusable(self.path, "belongs to another store")
        if stored.get("log") == self.log:
            self._refit = self._read_refit(stored)
            return
        with FILE.transaction(self._connection, self.path):
            self._recount()
            self._connection.execute("DELETE FROM gains")
            self._connection.execute("DELETE FROM about")
            cycle = stored.get("cycle", 0)
            self._put(store_id=store_id, log=self.log, cycle=cycle)
            self._refit = None
            self._recompute_refit(cycle)

    def close(self) -> None:
        """Close the file; texts that were staged but not committed are lost."""
        self._connection.close()

    # --- a cycle under way

    @property
    def cycle(self) -> int:
        """Last cycle whose texts are in the index; 0: none."""
        return int(self._about().get("cycle", 0))

    def holds(self, page: int, key: int, fingerprint: int) -> bool:
        """Whether the index has the page's text with this fingerprint; ``key``: see `Arrival`."""
        with FILE.translated(self.path):
            row = self._connection.execute(
                "SELECT key, fingerprint FROM pages WHERE page = ?", (page,)
            ).fetchone()
        return bool(row == (key - SIGN, fingerprint - SIGN))

    def stage(self, arrival: Arrival) -> None:
        """Buffer the text of a visit; `commit` writes it, `apply` moves it into the index."""
        page, key, fingerprint, known, words = arrival
        counts = counts_of(words, self._numbers)
        before = None if known is None else known - SIGN
        self._staged.append(
            (page, key - SIGN, fingerprint - SIGN, before, words.decode(), counts.length, counts.packed())
        )

    def commit(self, cycle: int) -> None:
        """Write the buffered texts; if it raises SearchIndexError, they stay for the next commit."""
        if not self._staged:
            return
        rows = [(cycle, *row) for row in self._staged]
        with FILE.transaction(self._connection, self.path):
            self._connection.executemany(_STAGE, rows)
        self._staged = []

    # --- the end of a cycle

    def apply(self, cycle: int, visited: Iterable[int], gone: Iterable[int], refit_cycles: int) -> VisitGains:
        """Move a cycle's staged texts into the index and return their gains, in one transaction.

        A second call changes nothing. ``visited``: pages with a text of this cycle; other staged texts are
        dropped; ``gone``: pages to remove; ``refit_cycles``: cycles after which idf, mean length and ranks
        are recomputed.
        """
        taken = set(visited)
        with FILE.transaction(self._connection, self.path):
            self._connection.execute("DELETE FROM gains WHERE cycle != ?", (cycle,))
            last_page = -1
            while batch := self._connection.execute(_STAGED, (cycle, last_page, BATCH)).fetchall():
                last_page = batch[-1][0]
                self._take([row for row in batch if row[0] in taken], cycle)
            self._connection.execute("DELETE FROM staged")
            leaving = iter(sorted(gone))
            while pages := list(islice(leaving, BATCH)):
                self._drop(pages, cycle)
            last = self._about().get("refit_cycle")
            if last is None or cycle - last >= refit_cycles:
                self._recompute_refit(cycle)
            self._put(cycle=cycle)
            rows = self._connection.execute("SELECT page, ppm FROM gains ORDER BY page").fetchall()
        return VisitGains(np.array([one[0] for one in rows], np.int64), np.array([one[1] for one in rows]))

    def forget_gone(self, gone: Iterable[int]) -> None:
        """Remove texts of gone pages without estimating the loss, as when `apply` missed them."""
        with FILE.transaction(self._connection, self.path):
            self._leave([page for page, _ in self._held(gone)])

    def _take(self, rows: Sequence[_Row], cycle: int) -> None:
        new = [unpacked(packed, length) for *_, length, packed in rows]
        old = [self._before(page, key, known) for page, key, _, known, *_ in rows]
        self._measure([row[0] for row in rows], old, new, cycle)
        self._connection.executemany(
            "INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)",
            [(page, key, fingerprint, *counted) for page, key, fingerprint, _, _, *counted in rows],
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO texts (rowid, words) VALUES (?, ?)", [(row[0], row[4]) for row in rows]
        )

    def _held(self, pages: Iterable[int]) -> list[tuple[int, Counts]]:
        held = [
            (page, row)
            for page in pages
            for row in self._connection.execute("SELECT counts, length FROM pages WHERE page = ?", (page,))
        ]
        return [(page, unpacked(*row)) for page, row in held if row[1] is not None]

    def _before(self, page: int, key: int, known: int | None) -> Counts | None:
        """Return the counts of the indexed text that a new one replaces, or `NOTHING` if there was no copy.

        ``known``: fingerprint of the page's last copy, None: there was none. Returns None if the indexed text
        is not that copy's, so that no gain can be estimated.
        """
        row = self._connection.execute(
            "SELECT fingerprint, length, counts FROM pages WHERE page = ? AND key = ?", (page, key)
        ).fetchone()
        if row is None:
            return NOTHING if known is None else None
        fingerprint, length, packed = row
        if length is None:  # it was gone
            return NOTHING
        return unpacked(packed, length) if fingerprint == known else None

    def _drop(self, pages: Sequence[int], cycle: int) -> None:
        """Remove the texts of pages, and add their loss to the cycle's gains."""
        held = self._held(pages)
        self._measure(
            [page for page, _ in held], [counts for _, counts in held], [NOTHING] * len(held), cycle
        )
        self._leave([page for page, _ in held])

    def _leave(self, pages: Sequence[int]) -> None:
        rows = [(page,) for page in pages]
        self._connection.executemany("DELETE FROM texts WHERE rowid = ?", rows)
        self._connection.executemany(
            "UPDATE pages SET fingerprint = NULL, length = NULL, counts = NULL WHERE page = ?", rows
        )

    def _measure(
        self, pages: Sequence[int], old: Sequence[Counts | None], new: Sequence[Counts], cycle: int
    ) -> None:
        """Add the gains of new texts over old ones to the cycle's; a page whose old text is None has none."""
        known = [(page, before, after) for page, before, after in zip(pages, old, new, strict=True) if before]
        if self._refit is None or not known:
            return
        terms = compared([(before, after) for _, before, after in known])
        old_postings = Postings(terms.term, terms.tf, terms.length)
        refreshes = Refreshes(terms.pair, old_postings, Postings(terms.term, terms.new_tf, terms.new_length))
        ppm = impacts(self._refit, refreshes, len(known)).astype(np.float32)
        self._connection.executemany(
            "INSERT INTO gains VALUES (?, ?, ?) ON CONFLICT (page) DO UPDATE SET ppm = ppm + excluded.ppm",
            [(page, cycle, value) for (page, _, _), value in zip(known, ppm.tolist(), strict=True)],
        )

    # --- the estimator

    def _recount(self) -> None:
        """Count the log's terms anew in all indexed and staged texts, as after a change of the log."""
        for source, page, table in (("texts", "rowid", "pages"), ("staged", "page", "staged")):
            texts = self._connection.execute(f"SELECT {page}, words FROM {source} ORDER BY {page}")
            while batch := texts.fetchmany(BATCH):
                counted = [(counts_of(words.encode(), self._numbers), row) for row, words in batch]
                rows = [(counts.packed(), row) for counts, row in counted]
                self._connection.executemany(f"UPDATE {table} SET counts = ? WHERE page = ?", rows)

    def _recompute_refit(self, cycle: int) -> None:
        """Recompute and store the statistics (`Refit`) from the indexed texts, if there are any."""
        held = self._connection.execute(
            "SELECT counts, length FROM pages WHERE length IS NOT NULL ORDER BY page"
        ).fetchall()
        if not held:
            return
        term, tf, length = joined_counts(held)
        mean_length = float(np.array([one for _, one in held]).mean())
        frequency = self._workload.term_frequency
        self._refit = refit(self._scoring, frequency, Postings(term, tf, length), len(held), mean_length)
        known = self._refit
        self._put(
            refit_cycle=cycle,
            pages=known.statistics.pages,
            mean_length=mean_length,
            document_frequency=known.statistics.document_frequency.astype("<i8").tobytes(),
            results=known.curves.results.astype("<i4").tobytes(),
            score=known.curves.score.astype("<f4").tobytes(),
            ideal=known.ideal,
        )

    def _read_refit(self, stored: dict[str, Any]) -> Refit | None:
        if "refit_cycle" not in stored:
            return None
        df, results, score = (
            np.frombuffer(stored[name], dtype)
            for name, dtype in (("document_frequency", "<i8"), ("results", "<i4"), ("score", "<f4"))
        )
        terms = len(self._workload.terms)
        if len(df) != terms or len(results) != terms or not terms or len(score) % terms:
            raise FILE.unusable(self.path, "is damaged: its statistics are not of its query log")
        return Refit(
            self._scoring,
            Statistics(stored["pages"], df, stored["mean_length"]),
            Curves(results, score.reshape(terms, -1)),
            self._workload.term_frequency,
            stored["ideal"],
        )

    def _about(self) -> dict[str, Any]:
        with FILE.translated(self.path):
            return dict(self._connection.execute("SELECT name, value FROM about"))

    def _put(self, **values: str | float | bytes) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", list(values.items()))


_WORDS: Final = "CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, texts, instance)"


class Hit(NamedTuple):
    """One result of a search."""

    page: int
    score: float


class SearchResult(NamedTuple):
    """Results of a search, and how many pages were searched."""

    terms: tuple[str, ...]
    pages: int
    """Number of indexed pages."""
    matches: int
    """Number of pages that have every term."""
    hits: list[Hit]
    """Best pages, best first, equal ones by page number."""


def search(path: Path, query: str, scoring: str, top: int) -> SearchResult:
    """Search the index at `path`, as the last finished cycle left it, also during a crawl.

    ``scoring``: ``tfidf`` or ``bm25``; ``top``: most results. Raises SearchIndexError, and QueryLogError for
    a query without a letter or digit.
    """
    terms = tuple(dict.fromkeys(tokens(query)))
    if not terms:
        raise QueryLogError(f"expected words to search for; found no letter or digit in {query[:60]!r}")
    with closing(FILE.connect(path, readonly=True)) as connection, FILE.translated(path):
        connection.execute(_WORDS)
        return _answer(connection, terms, scoring, top)


def _answer(connection: sqlite3.Connection, terms: tuple[str, ...], scoring: str, top: int) -> SearchResult:
    pages, mean_length = connection.execute(
        "SELECT count(*), avg(length) FROM pages WHERE length IS NOT NULL"
    ).fetchone()
    numbers: list[dict[int, int]] = [
        dict(connection.execute("SELECT doc, count(*) FROM temp.words WHERE term = ? GROUP BY doc", (term,)))
        for term in terms
    ]
    statistics = Statistics(pages, np.array([len(one) for one in numbers]), mean_length or 0.0)
    both = sorted(set.intersection(*map(set, numbers)))
    if not both:
        return SearchResult(terms, pages, 0, [])
    lengths = {
        page: length
        for page in both
        for (length,) in connection.execute("SELECT length FROM pages WHERE page = ?", (page,))
    }
    number = np.repeat(np.arange(len(terms)), len(both))
    tf = np.array([one[page] for one in numbers for page in both])
    length = np.tile(np.array([lengths[page] for page in both]), len(terms))
    function = SCORINGS[scoring]
    single = function.single(Postings(number, tf, length), statistics).reshape(len(terms), -1)
    scores = function.share(np.arange(len(terms)), statistics) @ single
    order = np.argsort(-scores, kind="stable")[:top]
    return SearchResult(
        terms, pages, len(both), [Hit(both[row], float(scores[row])) for row in order.tolist()]
    )
