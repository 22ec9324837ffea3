"""From what PostgreSQL and libpq report to one line of ours: what is wrong, where, and the remedy."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus

import psycopg

from scrapy_gp4c.distributed.errors import (
    LedgerAwayError,
    LedgerError,
    LedgerFullError,
    LedgerReadOnlyError,
    LedgerRightsError,
    LedgerSchemaError,
)
from scrapy_gp4c.errors import SettingsError

Parameters = dict[str, str | int | None]
"""Of libpq: what a connection is made by."""


class Failure(NamedTuple):
    """How one kind of failure is told."""

    error: type[LedgerError]
    remedy: str


_LATER: Final = Failure(LedgerAwayError, "the call is made again.")
_FULL: Final = Failure(LedgerFullError, "nothing was written; make room on the server's disk.")
_NO_LEDGER: Final = Failure(
    LedgerSchemaError, "there is no ledger of this version there: create one, or name another database."
)
_RIGHTS: Final = Failure(
    LedgerRightsError, "let the ledger's owner run the GRANTs of docs/distributed.md for this user."
)
_ENTRY: Final = Failure(
    LedgerRightsError,
    "check user, password (in the DSN, PGPASSWORD or a pgpass file), TLS and the server's pg_hba.conf.",
)
_DATABASE: Final = Failure(LedgerSchemaError, "create the database, or name another one.")

_BY_STATE: Final[dict[str, Failure]] = {
    "25006": Failure(
        LedgerReadOnlyError,
        "it is a standby or set to read only: name the primary, or add target_session_attrs=read-write.",
    ),
    "28": _ENTRY,
    "3D000": _DATABASE,
    "3F000": _NO_LEDGER,
    "40": _LATER,
    "42501": _RIGHTS,
    "42703": _NO_LEDGER,
    "42883": _NO_LEDGER,
    "42P01": _NO_LEDGER,
    "53100": _FULL,
    "53": _LATER,
    "55": _LATER,
    "57": _LATER,
    "58": _LATER,
    "08": _LATER,
    "25P": _LATER,
}
"""SQLSTATE, or what it begins with; the longest counts (PostgreSQL's documentation, appendix A)."""

_BY_TEXT: Final = (
    (
        re.compile(r"authentication failed|no pg_hba\.conf entry|no password supplied|role .* exist", re.I),
        _ENTRY,
    ),
    (re.compile(r"database .* does not exist", re.I), _DATABASE),
    (re.compile(r"permission denied for database", re.I), _RIGHTS),
    (re.compile(r"not read-only|session is read-only|in hot standby", re.I), _BY_STATE["25006"]),
)
"""What libpq says of a connection that was refused, for which it has no SQLSTATE."""


class Failures:
    """Tells what went wrong in one connection."""

    def __init__(self, parameters: Parameters) -> None:
        """Take what psycopg connects by: where, and what is secret of it."""
        server = parameters.get("host") or parameters.get("hostaddr") or os.environ.get("PGHOST")
        port = parameters.get("port") or os.environ.get("PGPORT") or 5432
        database = parameters.get("dbname") or os.environ.get("PGDATABASE")
        user = parameters.get("user") or os.environ.get("PGUSER")
        self.where: Final = (
            f"PostgreSQL at {server or 'the local socket'}, port {port}"
            f", database {database or 'by default'}, user {user or 'by default'}"
        )
        secrets = {
            str(value)
            for value in (
                *(parameters.get(name) for name in ("password", "sslpassword")),
                os.environ.get("PGPASSWORD"),
            )
            if value
        }
        forms = {
            form
            for secret in secrets
            for form in (
                secret,
                " ".join(secret.split()),
                quote(secret),
                quote(secret, ""),
                quote_plus(secret),
            )
        }
        self._secret = sorted(forms, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without passwords, on one line."""
        text = " ".join(self._without(text).split())
        return self._without(text)  # a message may have broken lines within one

    def _without(self, text: str) -> str:
        for secret in self._secret:
            text = text.replace(secret, "***")
        return text

    def told(self, error: psycopg.Error) -> LedgerError:
        """Return the error of ours for one of psycopg's."""
        primary = error.diag.message_primary
        said = self.hidden(primary if primary else str(error)) or type(error).__name__
        state = error.sqlstate or ""
        failure = self._failure(state, said, isinstance(error, psycopg.OperationalError))
        number = f" [{state}]" if state else ""
        return failure.error(f"{self.where}: {said.rstrip('.')}{number}: {failure.remedy}")

    def _failure(self, state: str, said: str, operational: bool) -> Failure:
        for length in (5, 3, 2) if state else ():
            if state[:length] in _BY_STATE:
                return _BY_STATE[state[:length]]
        if not state:
            for pattern, failure in _BY_TEXT:
                if pattern.search(said):
                    return failure
        if operational and not state:
            return _LATER
        return Failure(LedgerError, "this is a defect of scrapy-gp4c, or the database was changed by hand.")


def unreadable() -> SettingsError:
    """Return the error for a connection string that is none; of the string it shows nothing."""
    return SettingsError(
        "the ledger's connection string cannot be read: expected postgresql://USER@HOST:PORT/DATABASE or "
        "host=HOST dbname=DATABASE user=USER; found another text, not shown as it may hold a password. "
        "Special characters of a URL's password are written as %XX."
    )
