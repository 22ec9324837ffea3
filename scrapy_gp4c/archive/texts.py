"""The archive of a store: the last versions of every page as text, in a SQLite file beside it.

A version belongs to a page's key and to the cycle that found it, and names the fingerprint that the page's
last visit had: who asks for a page's copy says both, as the store has them, and gets that text or none. So
nothing that a kill left, or a store that was restored, is ever taken for another version. Each version is
written before its visit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from scrapy_gp4c.archive.compression import Compression, Training
from scrapy_gp4c.errors import ArchiveError

FORMAT: Final = 1
_APPLICATION: Final = int.from_bytes(b"gp4t", "big")
_PATIENCE_S: Final = 5.0
_BATCH: Final = 32
_RESERVE_BYTES: Final = 65_536
"""Room for pages of the file that one more text touches."""
_SIGN: Final = 2**63
"""SQLite's numbers have a sign: those of keys and fingerprints are kept less this."""
# `older`: texts that are no page's newest. No id is given twice: one without a text does no harm there.
_TABLES: Final = """
CREATE TABLE texts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL, cycle INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL, latest INTEGER NOT NULL, before INTEGER, text BLOB NOT NULL);
CREATE UNIQUE INDEX by_page ON texts (key, cycle);
CREATE TABLE older (id INTEGER PRIMARY KEY);
CREATE TABLE dictionaries (id INTEGER PRIMARY KEY, content BLOB NOT NULL);
"""


class Version(NamedTuple):
    """A version of a page that is to be kept."""

    key: int
    """Of the page, uint64."""
    cycle: int
    """That found it."""
    fingerprint: int
    """Of the text, uint64."""
    before: int | None
    """Cycle of the version that it took the place of, if that is in the archive."""
    text: str


class Pair(NamedTuple):
    """A version, and the one before it."""

    before: str
    after: str


class Texts:
    """The archive, open for writing (by the crawl that writes to the store) or for reading."""

    def __init__(
        self, path: Path, versions: int = 1, most_bytes: int | None = None, *, readonly: bool = False
    ) -> None:
        """Open it, or create it; raises ArchiveError. ``path``: of the file.

        ``versions``: that are kept of a page; ``most_bytes``: of the file.
        """
        self.path, self._versions, self._most_bytes = path, versions, most_bytes
        self._connection = _connect(path, readonly)
        self._training: Training | None = None
        try:
            with translated(path):
                rows = self._connection.execute("SELECT content FROM dictionaries ORDER BY rowid").fetchall()
                self._page_bytes = self._connection.execute("PRAGMA page_size").fetchone()[0]
                self._compression = Compression([content for (content,) in rows])
        except BaseException:
            self._connection.close()
            raise
        if not (readonly or rows):
            self._training = Training()

    def close(self) -> None:
        """Close the file."""
        if self._training is not None:
            self._training.close()
        self._connection.close()

    def __enter__(self) -> Texts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- what is kept

    def frame(self, key: int, cycle: int, latest: int) -> bytes | None:
        """Return the compressed text of a page's version by its cycle and the last visit's fingerprint."""
        with translated(self.path):
            found = self._connection.execute(
                "SELECT text FROM texts WHERE key = ? AND cycle = ? AND latest = ?",
                (key - _SIGN, cycle, latest - _SIGN),
            ).fetchone()
        return None if found is None else found[0]

    def text(self, frame: bytes) -> str:
        """Return the text of a frame; raises ArchiveError where it is damaged."""
        try:
            return self._compression.text(frame)
        except ValueError as error:
            raise _damaged(self.path, str(error)) from error

    def pair(self, key: int, cycle: int, fingerprint: int) -> Pair | None:
        """Return the version that a visit found, by its cycle and fingerprint, and the one before it."""
        with translated(self.path):
            found = self._connection.execute(
                "SELECT old.text, new.text FROM texts new JOIN texts old ON old.key = new.key "
                "AND old.cycle = new.before WHERE new.key = ? AND new.cycle = ? AND new.fingerprint = ?",
                (key - _SIGN, cycle, fingerprint - _SIGN),
            ).fetchone()
        return None if found is None else Pair(*map(self.text, found))

    def count(self) -> int:
        """Count the versions of all pages."""
        with translated(self.path):
            return int(self._connection.execute("SELECT count(*) FROM texts").fetchone()[0])

    # --- writing

    def keep(self, version: Version) -> None:
        """Keep a version; older ones beyond what is kept of a page, and of all, go."""
        if self._training is not None and (trained := self._training.take()) is not None:
            self._learn(trained)
        frame = self._compression.compressed(version.text)
        if self._training is not None:
            self._training.add(version.text)
        key, fingerprint = version.key - _SIGN, version.fingerprint - _SIGN
        with self._transaction() as execute:
            execute("DELETE FROM texts WHERE key = ? AND cycle >= ?", (key, version.cycle))
            if not self._make_room(len(frame)):
                return
            older = execute("SELECT id FROM texts WHERE key = ? ORDER BY cycle DESC", (key,)).fetchall()
            for row in older[self._versions - 1 :]:
                execute("DELETE FROM texts WHERE id = ?", row)
                execute("DELETE FROM older WHERE id = ?", row)
            for row in older[: min(1, self._versions - 1)]:
                execute("INSERT OR IGNORE INTO older VALUES (?)", row)
            execute(
                "INSERT INTO texts (key, cycle, fingerprint, latest, before, text) VALUES (?, ?, ?, ?, ?, ?)",
                (key, version.cycle, fingerprint, fingerprint, version.before, frame),
            )

    def move(self, key: int, cycle: int, latest: int) -> None:
        """Note the fingerprint of a visit that found a version as good as unchanged."""
        with self._transaction() as execute:
            execute(
                "UPDATE texts SET latest = ? WHERE key = ? AND cycle = ?",
                (latest - _SIGN, key - _SIGN, cycle),
            )

    def remove(self, keys: Iterable[int]) -> None:
        """Remove all versions of pages, by their keys."""
        rest = iter(keys)
        while batch := [(key - _SIGN,) for key in islice(rest, 4096)]:
            with self._transaction():
                self._connection.executemany("DELETE FROM texts WHERE key = ?", batch)

    def _make_room(self, size: int) -> bool:
        """Remove old versions until so many bytes more fit; those that are no page's newest go first."""
        if self._most_bytes is None:
            return True
        for table in ("older", "texts"):
            while self._used_bytes() + size + _RESERVE_BYTES > self._most_bytes:
                rows = self._connection.execute(
                    f"SELECT id FROM {table} ORDER BY id LIMIT ?", (_BATCH,)
                ).fetchall()
                if not rows:
                    break
                self._connection.executemany("DELETE FROM texts WHERE id = ?", rows)
                self._connection.executemany("DELETE FROM older WHERE id = ?", rows)
            else:
                return True
        return False

    def _used_bytes(self) -> int:
        pages, free = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count")
        )
        return int((pages - free) * self._page_bytes)

    def _learn(self, content: bytes) -> None:
        """Keep a dictionary, and use it."""
        with self._transaction() as execute:
            execute("INSERT INTO dictionaries (content) VALUES (?)", (content,))
        self._compression.use(content)
        self._training = None

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """All that the block writes, or nothing of it; raises ArchiveError."""
        with translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have rolled back by itself
                    self._connection.execute("ROLLBACK")
                raise


def _connect(path: Path, readonly: bool) -> sqlite3.Connection:
    if readonly and not path.exists():
        raise ArchiveError(
            f"there is no archive of texts {path}: set GP4C_ARCHIVE = True, and the crawl keeps texts."
        )
    with translated(path), ExitStack() as undone:
        if not readonly:
            path.touch(0o600)  # its owner's alone, as are the files that SQLite puts beside it
        uri = f"{path.resolve().as_uri()}?mode={'ro' if readonly else 'rw'}"
        connection = sqlite3.connect(uri, _PATIENCE_S, isolation_level=None, uri=True)
        undone.callback(connection.close)
        _prepare(connection, path, readonly)
        undone.pop_all()
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, readonly: bool) -> None:
    number, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not empty and number != _APPLICATION:
        raise ArchiveError(f"{path} is another program's database. Move it away, or set GP4C_STORE.")
    if version > FORMAT or (readonly and empty):
        raise _damaged(path, f"it has format {version}, this version reads {FORMAT}")
    if readonly:
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last versions, no other one
    connection.execute("PRAGMA journal_size_limit = 4194304")
    if empty:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {_APPLICATION}; "
            f"PRAGMA user_version = {FORMAT}; COMMIT;"
        )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise every error of SQLite, or of the file, as ArchiveError."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise ArchiveError(
                f"no room to write to the archive of texts {path}: free disk space."
            ) from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise ArchiveError(f"the archive of texts {path} is locked by another process.") from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            raise _damaged(path, str(error)) from error
        raise ArchiveError(f"cannot use the archive of texts {path}: {error}. Check its owner.") from error
    except OSError as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"cannot open the archive of texts {path}: {error.strerror}.") from error


def _damaged(path: Path, why: str) -> ArchiveError:
    return ArchiveError(
        f"the archive of texts {path} is damaged: {why}. Delete it, with {path.name}-wal and -shm beside it: "
        "the crawl fills a new one as it visits pages, and nothing else is lost."
    )
