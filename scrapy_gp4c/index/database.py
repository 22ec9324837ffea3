"""The SQLite file of a search index: opening it, and what goes wrong with it as one error each."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from scrapy_gp4c.errors import SearchIndexError

FORMAT: Final = 1
_APPLICATION: Final = int.from_bytes(b"gp4c", "big")
_PATIENCE_S: Final = 5.0
_CACHE_KIB: Final = 65_536
_REFILLS: Final = (
    "Delete it (with {name}-wal and {name}-shm): the crawl fills a new one as it visits pages, and nothing "
    "else is lost."
)
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
"""Words are tokens with blanks between: the tokeniser ``ascii`` cuts at nothing else."""


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """Open the file, or create it. Raises SearchIndexError, which says what is wrong and what helps.

    Every commit is on the disk when it returns. ``readonly``: beside a crawl too; raises where there is none.
    """
    if readonly and not path.exists():
        raise SearchIndexError(
            f"there is no search index {path}: a crawl makes it that has a log of queries, GP4C_QUERY_LOG."
        )
    with translated(path):
        if not readonly:
            with suppress(FileExistsError):  # its owner's alone, as are the files that SQLite puts beside it
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        mode = "ro" if readonly else "rw"
        uri = f"{path.resolve().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, _PATIENCE_S, isolation_level=None, uri=True)
        try:
            _prepare(connection, path, readonly)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, readonly: bool) -> None:
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    number, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not empty and (number != _APPLICATION or version < 1):
        raise SearchIndexError(f"{path} is another program's database. Move it away, or set GP4C_STORE.")
    if version > FORMAT:
        raise SearchIndexError(
            f"the search index {path} has format {version}; this version reads {FORMAT}. Use the version of "
            f"scrapy-gp4c that wrote it. {_REFILLS.format(name=path.name)}"
        )
    if readonly:
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if empty:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {_APPLICATION}; "
            f"PRAGMA user_version = {FORMAT}; COMMIT;"
        )


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All that the block writes, or nothing of it; raises SearchIndexError."""
    with translated(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk may have rolled back by itself
                connection.execute("ROLLBACK")
            raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise every error of SQLite, or of the file, as SearchIndexError."""
    try:
        yield
    except sqlite3.Error as error:
        raise SearchIndexError(_told(path, error)) from error
    except OSError as error:
        if isinstance(error, SearchIndexError):
            raise
        raise SearchIndexError(
            f"cannot open the search index {path}: {error.strerror}. Check its owner and GP4C_STORE."
        ) from error


def _told(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if "no such module" in str(error):
        return (
            f"this Python's SQLite ({sqlite3.sqlite_version}) has no FTS5, which the search index {path} "
            "needs. Use another build of Python, or unset GP4C_QUERY_LOG."
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return (
            f"no room to write to the search index {path} ({error}). What was committed is still there, and "
            "the page store is as it was: free disk space and run again."
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"the search index {path} is locked by another process. Wait until it ends, and run again."
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH):
        return f"the search index {path} is damaged: {error}. {_REFILLS.format(name=path.name)}"
    return f"the search index {path} cannot be used: {error}. Check its owner and GP4C_STORE."


def foreign(path: Path, why: str) -> SearchIndexError:
    """Return the error for an index that does not belong to the store."""
    return SearchIndexError(f"the search index {path} {why}. {_REFILLS.format(name=path.name)}")
