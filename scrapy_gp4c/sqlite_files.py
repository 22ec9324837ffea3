"""SQLite files in a store's directory: opening, transactions, and failures as errors of `Gp4cError`."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from scrapy_gp4c.errors import ArchiveError, Gp4cError, SearchIndexError

_PATIENCE_S: Final = 5.0
_DAMAGE: Final = (
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH,
)  # fmt: skip


class SqliteKind(NamedTuple):
    """Kind of SQLite file (search index, archive): how to open and create one, and its name in messages."""

    noun: str
    """Name in messages, such as ``search index``."""
    error: type[ArchiveError | SearchIndexError]
    application: int
    """SQLite's ``application_id`` in the file, by which databases of other programs are refused."""
    version: int
    tables: str
    """Statements that create the tables."""
    how_made: str
    """What makes such a file, for the message where there is none."""
    synchronous: str
    cache_kib: int = 2_000

    def connect(self, path: Path, *, readonly: bool = False) -> sqlite3.Connection:
        """Open a file, or create it; raises the kind's error, with what is wrong and the remedy.

        ``readonly``: open it for reading, also during a crawl; raises where there is no file.
        """
        if readonly and not path.exists():
            raise self.error(f"there is no {self.noun} {path}: {self.how_made}")
        if path.exists() and not path.is_file():  # SQLite would wait for the other end of a pipe
            raise self.error(f"the {self.noun} {path} is no file: move it away, or set GP4C_STORE.")
        with self.translated(path):
            if not readonly:
                path.touch(0o600)  # its owner's alone, as are the files that SQLite puts beside it
            uri = f"{path.resolve().as_uri()}?mode={'ro' if readonly else 'rw'}"
            connection = sqlite3.connect(uri, timeout=_PATIENCE_S, isolation_level=None, uri=True)
            try:
                self._prepare(connection, path, readonly)
            except BaseException:
                connection.close()
                raise
        return connection

    def _prepare(self, connection: sqlite3.Connection, path: Path, readonly: bool) -> None:
        connection.execute(f"PRAGMA cache_size = -{self.cache_kib}")
        number, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        is_empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not is_empty and (number != self.application or version < 1):
            raise self.error(f"{path} is another program's database. Move it away, or set GP4C_STORE.")
        if version > self.version:
            raise self.unusable(
                path,
                f"has format {version}; this version reads {self.version}. Use the version of scrapy-gp4c "
                "that wrote it",
            )
        if readonly:
            if is_empty:
                raise self.unusable(path, "is damaged: it is empty")
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        if is_empty:
            connection.executescript(
                f"BEGIN IMMEDIATE; {self.tables} PRAGMA application_id = {self.application}; "
                f"PRAGMA user_version = {self.version}; COMMIT;"
            )

    @contextmanager
    def transaction(self, connection: sqlite3.Connection, path: Path) -> Iterator[None]:
        """Run the block in a transaction: all that it writes is committed, or nothing of it."""
        with self.translated(path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have rolled back by itself
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def translated(self, path: Path) -> Iterator[None]:
        """Raise every error of SQLite, or of the file, as the error of the kind."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translation(path, error) from error
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, Gp4cError):
                raise
            # SQLite takes values of a damaged file for sound ones.
            raise self.unusable(path, f"is damaged: {type(error).__name__}: {error}") from error
        except OSError as error:
            if isinstance(error, Gp4cError):
                raise
            raise self.error(
                f"cannot open the {self.noun} {path}: {error.strerror}. Check its owner and GP4C_STORE."
            ) from error

    def _translation(self, path: Path, error: sqlite3.Error) -> Gp4cError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if "no such module" in str(error):
            return self.error(
                f"this Python's SQLite ({sqlite3.sqlite_version}) has no FTS5, which the {self.noun} {path} "
                "needs. Use another build of Python, or unset GP4C_QUERY_LOG."
            )
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return self.error(
                f"no room to write to the {self.noun} {path} ({error}). What was committed is still there, "
                "and the page store is as it was: free disk space and run again."
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self.error(
                f"the {self.noun} {path} is locked by another process. Wait until it ends, and run again."
            )
        if code in _DAMAGE:
            return self.unusable(path, f"is damaged: {error}")
        return self.error(f"the {self.noun} {path} cannot be used: {error}. Check its owner and GP4C_STORE.")

    def unusable(self, path: Path, why: str) -> Gp4cError:
        """Return the error for a file that is damaged, of another version or of another store."""
        return self.error(
            f"the {self.noun} {path} {why}. Delete it (with {path.name}-wal and {path.name}-shm): the crawl "
            "fills a new one as it visits pages, and nothing else is lost."
        )
