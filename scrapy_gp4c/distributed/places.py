"""Where objects lie: in the ledger's own database, in chunks, or behind a URL that fsspec knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import fsspec

from scrapy_gp4c.distributed.connection import Calls, Transaction
from scrapy_gp4c.distributed.errors import LedgerDamagedError, LedgerError
from scrapy_gp4c.distributed.objects import CHUNK, Place
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.store.credentials import Credentials

IN_LEDGER: Final = "the ledger"


def place_of(url: str | None, calls: Calls) -> Place:
    """Return where objects lie: behind a URL, or in the ledger if there is none."""
    return Blobs(calls) if url is None else Remote(url)


class Blobs:
    """Objects as rows of the ledger, one a chunk, each written and read by a transaction of its own."""

    label = IN_LEDGER

    def __init__(self, calls: Calls) -> None:
        """Take what does the transactions."""
        self._calls = calls

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """See `Place.write`."""
        self._calls.call(_delete, name)
        empty = True
        for part, chunk in enumerate(chunks):
            self._calls.call(_write, name, part, chunk)
            empty = False
        if empty:
            self._calls.call(_write, name, 0, b"")

    def read(self, name: str) -> Iterator[bytes]:
        """See `Place.read`."""
        part = 0
        while (chunk := self._calls.call(_read, name, part)) is not None:
            yield chunk
            part += 1
        if part == 0:
            raise _missing(name, self.label)

    def delete(self, name: str) -> None:
        """See `Place.delete`."""
        self._calls.call(_delete, name)

    def names(self, prefix: str) -> list[str]:
        """See `Place.names`."""
        return self._calls.call(_names, prefix)


class Remote:
    """Objects behind a URL: a directory that all workers see, an object store, whatever fsspec knows."""

    def __init__(self, url: str) -> None:
        """Take the URL of the folder. Raises SettingsError if fsspec cannot use it."""
        self.label = Credentials().url(url)
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError, OSError) as error:
            problem = str(error).replace(url, self.label)
            raise SettingsError(
                f"objects cannot be kept at {self.label}: expected a URL that fsspec knows, such as "
                f"file:///shared "
                f"or s3://bucket/folder; found {type(error).__name__}: {problem}. Install the protocol's "
                f"package."
            ) from None

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """See `Place.write`."""
        path = self._path(name)
        try:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._files.open(path, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
        except OSError as error:
            raise self._failed("written", name, error) from None

    def read(self, name: str) -> Iterator[bytes]:
        """See `Place.read`."""
        try:
            with self._files.open(self._path(name), "rb") as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except FileNotFoundError:
            raise _missing(name, self.label) from None
        except OSError as error:
            raise self._failed("read", name, error) from None

    def delete(self, name: str) -> None:
        """See `Place.delete`."""
        try:
            self._files.rm_file(self._path(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failed("deleted", name, error) from None

    def names(self, prefix: str) -> list[str]:
        """See `Place.names`."""
        folder = self._path(prefix.rstrip("/"))
        self._files.invalidate_cache()
        try:
            found: list[Any] = self._files.ls(folder, detail=False)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed("listed", prefix, error) from None
        return [prefix + str(path).rstrip("/").rpartition("/")[2] for path in found]

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _failed(self, what: str, name: str, error: OSError) -> LedgerError:
        return LedgerError(
            f"object {name} at {self.label} cannot be {what}: {type(error).__name__} "
            f"{error.strerror or ''}. Check "
            "that place, its room and its rights; nothing was registered."
        )


def _missing(name: str, label: str) -> LedgerDamagedError:
    return LedgerDamagedError(
        f"object {name} is missing at {label}: nothing was used of it. Restore it from a backup of that "
        f"place, or "
        "let the shard be built from an older object and the log."
    )


def _write(tx: Transaction, name: str, part: int, chunk: bytes) -> None:
    tx.execute(
        "INSERT INTO gp4c.blob (name, part, body) VALUES (%b, %b, %b) ON CONFLICT DO NOTHING",
        (name, part, chunk),
    )


def _read(tx: Transaction, name: str, part: int) -> bytes | None:
    row = tx.execute(
        "SELECT body FROM gp4c.blob WHERE name = %s AND part = %s", (name, part), binary=True
    ).fetchone()
    return None if row is None else bytes(row[0])


def _delete(tx: Transaction, name: str) -> None:
    tx.execute("DELETE FROM gp4c.blob WHERE name = %s", (name,))


def _names(tx: Transaction, prefix: str) -> list[str]:
    rows = tx.execute("SELECT DISTINCT name FROM gp4c.blob WHERE starts_with(name, %s)", (prefix,)).fetchall()
    return [name for (name,) in rows]
