"""The search index of a crawl: texts of all pages, and what their changes gained users.

All of it survives a kill. Texts of visits are staged in commits of their own. When a cycle ends, one
transaction takes them into the index and measures each by the text that it takes the place of (`impact`);
what it is measured by is learnt anew every few cycles. The file is SQLite's, with FTS5 for the texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.index import counts
from scrapy_gp4c.index.counts import NOTHING, Counts, compared, together
from scrapy_gp4c.index.curves import Curves
from scrapy_gp4c.index.database import connect, foreign, transaction, translated
from scrapy_gp4c.index.impact import Refit, Refreshes, impacts, refit
from scrapy_gp4c.index.queries import Workload
from scrapy_gp4c.index.scores import Postings, Statistics

BATCH: Final = 256
"""Texts that are taken into the index at a time."""
_STAGED: Final = (
    "SELECT page, key, fingerprint, known, words, length, counts FROM staged "
    "WHERE cycle = ? AND page > ? ORDER BY page LIMIT ?"
)
SIGN: Final = 2**63
"""SQLite's numbers have a sign; those of pages and fingerprints are kept less this."""


_Row = tuple[int, int, int, int | None, str, int, bytes]
"""Page, key, fingerprint, fingerprint known before, words, length and packed counts of a text."""
_STAGE: Final = (
    "INSERT OR REPLACE INTO staged (cycle, page, key, fingerprint, known, words, length, counts) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class Arrival(NamedTuple):
    """The text of a visit."""

    page: int
    key: int
    """Of the page, uint64: the index trusts no number of a page alone."""
    fingerprint: int
    """Of the text, uint64."""
    known: int | None
    """Of the page's copy before; None: there was none."""
    words: bytes
    """Tokens of the text in UTF-8, a blank between each two."""


class Gained(NamedTuple):
    """Measured visits of a cycle."""

    page: npt.NDArray[np.int64]
    ppm: npt.NDArray[np.float64]


def digest(workload: Workload, scoring: str) -> str:
    """Name of what is measured by: another for other queries, frequencies, numbers of terms, or scoring."""
    queries = zip(workload.queries, workload.frequency.tolist(), strict=True)
    return hashlib.sha256(repr([scoring, workload.terms, *queries]).encode()).hexdigest()[:32]


class SearchIndex:
    """The index beside a store, open for writing by the crawl that writes to the store."""

    def __init__(self, path: Path, store_id: str, workload: Workload, scoring: str) -> None:
        """Open or create it. Raises SearchIndexError for one that is damaged, foreign, newer or locked."""
        self.path = path
        self._workload, self._scoring = workload, scoring
        self._terms = counts.Terms(workload.number)
        self.log = digest(workload, scoring)
        """What it measures by."""
        self._staged: list[_Row] = []
        self._connection = connect(path)
        try:
            with translated(path):
                self._own(store_id)
        except BaseException:
            self._connection.close()
            raise

    def _own(self, store_id: str) -> None:
        about = self._about()
        if about.setdefault("store_id", store_id) != store_id:
            raise foreign(self.path, "belongs to another store")
        if about.get("log") == self.log:
            self._refit = self._read_refit(about)
            return
        with transaction(self._connection, self.path):
            self._recount()
            self._connection.execute("DELETE FROM gains")
            self._connection.execute("DELETE FROM about")
            cycle = about.get("cycle", 0)
            self._put(store_id=store_id, log=self.log, cycle=cycle)
            self._refit = None
            self._learn(cycle)

    def close(self) -> None:
        """Close the file; what is staged and not committed is left."""
        self._connection.close()

    # --- a cycle under way

    @property
    def cycle(self) -> int:
        """The last cycle that it has; 0: none."""
        return int(self._about().get("cycle", 0))

    def holds(self, page: int, key: int, fingerprint: int) -> bool:
        """Tell whether it has the text of a page with this fingerprint."""
        with translated(self.path):
            row = self._connection.execute(
                "SELECT key, fingerprint FROM pages WHERE page = ?", (page,)
            ).fetchone()
        return bool(row == (key - SIGN, fingerprint - SIGN))

    def stage(self, arrival: Arrival) -> None:
        """Take the text of a visit; it counts when `commit` returned."""
        page, key, fingerprint, known, words = arrival
        own = self._terms.count(words)
        before = None if known is None else known - SIGN
        self._staged.append(
            (page, key - SIGN, fingerprint - SIGN, before, words.decode(), own.length, own.packed())
        )

    def commit(self, cycle: int) -> None:
        """Write what a cycle has staged; a failed commit keeps it for the next. Raises SearchIndexError."""
        if not self._staged:
            return
        rows = [(cycle, *row) for row in self._staged]
        with transaction(self._connection, self.path):
            self._connection.executemany(_STAGE, rows)
        self._staged = []

    # --- the end of a cycle

    def apply(self, cycle: int, visited: Iterable[int], gone: Iterable[int], refit_cycles: int) -> Gained:
        """Take in the texts that a cycle has staged, and measure them: one transaction; again adds nothing.

        ``visited``: pages with a text of this cycle; what else is staged is dropped; ``gone``: pages that are
        there no more; ``refit_cycles``: what is measured by is learnt anew after so many.
        """
        taken = set(visited)
        with transaction(self._connection, self.path):
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
                self._learn(cycle)
            self._put(cycle=cycle)
            found = self._connection.execute("SELECT page, ppm FROM gains ORDER BY page").fetchall()
        return Gained(np.array([one[0] for one in found], np.int64), np.array([one[1] for one in found]))

    def forget_gone(self, gone: Iterable[int]) -> None:
        """Let pages that are there no more leave, without measuring."""
        with transaction(self._connection, self.path):
            self._leave([page for page, _ in self._held(gone)])

    def _take(self, rows: Sequence[_Row], cycle: int) -> None:
        new = [counts.unpacked(packed, length) for *_, length, packed in rows]
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
        """Those of some pages whose texts are there, with these."""
        found = [
            (page, row)
            for page in pages
            for row in self._connection.execute("SELECT counts, length FROM pages WHERE page = ?", (page,))
        ]
        return [(page, counts.unpacked(*row)) for page, row in found if row[1] is not None]

    def _before(self, page: int, key: int, known: int | None) -> Counts | None:
        """The text that a new one replaces; None: not the page's copy, so that nothing can be measured."""
        row = self._connection.execute(
            "SELECT fingerprint, length, counts FROM pages WHERE page = ? AND key = ?", (page, key)
        ).fetchone()
        if row is None:
            return NOTHING if known is None else None
        fingerprint, length, packed = row
        if length is None:  # it was gone
            return NOTHING
        return counts.unpacked(packed, length) if fingerprint == known else None

    def _drop(self, pages: Sequence[int], cycle: int) -> None:
        """Let pages leave, and measure that."""
        held = self._held(pages)
        self._measure([page for page, _ in held], [own for _, own in held], [NOTHING] * len(held), cycle)
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
        """Note what texts gain that can be measured; a page that gained before in this cycle gains more."""
        known = [(page, before, after) for page, before, after in zip(pages, old, new, strict=True) if before]
        if self._refit is None or not known:
            return
        pair, term, tf, length, new_tf, new_length = compared([(before, after) for _, before, after in known])
        refreshes = Refreshes(pair, Postings(term, tf, length), Postings(term, new_tf, new_length))
        ppm = impacts(self._refit, refreshes, len(known)).astype(np.float32)
        self._connection.executemany(
            "INSERT INTO gains VALUES (?, ?, ?) ON CONFLICT (page) DO UPDATE SET ppm = ppm + excluded.ppm",
            [(page, cycle, value) for (page, _, _), value in zip(known, ppm.tolist(), strict=True)],
        )

    # --- what is measured by

    def _recount(self) -> None:
        """Count the terms of the log in the texts that are there, and in those that are staged."""
        for source, page, table in (("texts", "rowid", "pages"), ("staged", "page", "staged")):
            texts = self._connection.execute(f"SELECT {page}, words FROM {source} ORDER BY {page}")
            while batch := texts.fetchmany(BATCH):
                found = [(self._terms.count(words.encode()), row) for row, words in batch]
                rows = [(own.packed(), row) for own, row in found]
                self._connection.executemany(f"UPDATE {table} SET counts = ? WHERE page = ?", rows)

    def _learn(self, cycle: int) -> None:
        """Learn F_q, idf and mean length from the texts that are there; with none of them, nothing."""
        held = self._connection.execute(
            "SELECT counts, length FROM pages WHERE length IS NOT NULL ORDER BY page"
        ).fetchall()
        if not held:
            return
        term, tf, length = together(held)
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

    def _read_refit(self, about: dict[str, Any]) -> Refit | None:
        if "refit_cycle" not in about:
            return None
        df, results, score = (
            np.frombuffer(about[name], dtype)
            for name, dtype in (("document_frequency", "<i8"), ("results", "<i4"), ("score", "<f4"))
        )
        terms = len(self._workload.terms)
        if len(df) != terms or len(results) != terms or not terms or len(score) % terms:
            raise foreign(self.path, "is damaged: what it measures by is not of its log")
        return Refit(
            self._scoring,
            Statistics(about["pages"], df, about["mean_length"]),
            Curves(results, score.reshape(terms, -1)),
            self._workload.term_frequency,
            about["ideal"],
        )

    def _about(self) -> dict[str, Any]:
        with translated(self.path):
            return dict(self._connection.execute("SELECT name, value FROM about"))

    def _put(self, **values: str | float | bytes) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", list(values.items()))
