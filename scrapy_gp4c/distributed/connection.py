"""One connection to PostgreSQL: transactions that end in time, and what went wrong as one clear error.

Nothing is kept in a session: no prepared statement, advisory lock, LISTEN, or SET beyond a transaction. So it
works behind PgBouncer in transaction mode.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import psycopg
from psycopg import conninfo

from scrapy_gp4c.distributed.errors import LedgerAwayError, LedgerVersionError
from scrapy_gp4c.distributed.failures import Failures, Parameters, unreadable
from scrapy_gp4c.distributed.watch import Watch

Transaction = psycopg.Connection[tuple[Any, ...]]
"""What work is done in: `execute` and the cursors of it, no more."""

P = ParamSpec("P")
T = TypeVar("T")


class Calls(Protocol):
    """Whatever does work in transactions: a connection, or the thread that owns it."""

    def call(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work in one transaction; returns what it returns, committed."""

    def single(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work of one statement, which is a transaction of its own."""


OLDEST_SERVER: Final = 150_000
"""PostgreSQL 15, as the server writes it."""
SHORTEST_CONNECT_S: Final = 2
"""libpq waits no shorter."""
AGAIN: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""Of two that were in each other's way, the one that the server rolled back: it may go again."""
PAUSE_S: Final = (0.01, 0.1)
"""Shortest and longest pause before that, drawn."""


class Connection:
    """A connection that is made when it is needed, and made again when it was lost; used by one thread."""

    def __init__(
        self, dsn: str, call_s: float = 10.0, check: Callable[[Transaction], object] | None = None
    ) -> None:
        """Take a connection string of libpq, or ``postgresql://`` URL; connects with the first call.

        ``call_s``: seconds that a call takes at most; a third of the lease, for a worker. ``check``: is
        called in each new connection. Raises SettingsError for a text that is none.
        """
        parameters = _parameters(dsn, call_s)
        self._conninfo = conninfo.make_conninfo("", **parameters)
        self._failures = Failures(parameters)
        self._call_s = call_s
        self._check = check
        self._connection: Transaction | None = None
        self._wire: socket.socket | None = None
        self._late = False
        self._watch = Watch(self._cut)
        self._lock = threading.Lock()
        """Guards `_wire`: the one thing that another thread, the watch, may touch."""

    @property
    def where(self) -> str:
        """Server, database and user, for messages: no password."""
        return self._failures.where

    @property
    def call_s(self) -> float:
        """Seconds that a call takes at most."""
        return self._call_s

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.where}>"

    def call(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work in one transaction; returns what it returns, committed.

        Work is done again after a deadlock, and once more when the connection turns out to be lost: it
        recognises what it has done before. Raises what `Failures.told` returns, and LedgerAwayError for a
        call that takes too long, whose transaction may or may not be committed.
        """
        return self._in_time(lambda: self._transaction(work, *args, **kwargs))

    def single(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work of one statement, which is a transaction of its own: nothing is sent around it.

        As `call` otherwise. The server ends it by its own settings only: it is for what locks no row, or
        one, or says itself how long it waits for locks.
        """
        return self._in_time(lambda: self._statement(work, *args, **kwargs))

    def _in_time(self, attempt: Callable[[], T]) -> T:
        until = time.monotonic() + self._call_s
        lost = False
        while True:
            try:
                with self._watched(until):
                    return attempt()
            except psycopg.Error as error:
                now = time.monotonic()
                if self._late or now >= until:
                    raise LedgerAwayError(
                        f"{self.where} did not answer within {self._call_s:g} s: network, load, or locks of "
                        "others; the call is made again."
                    ) from None
                if isinstance(error, AGAIN) and now + PAUSE_S[1] < until:
                    time.sleep(random.uniform(*PAUSE_S))
                elif self._connection is None and not lost and not isinstance(error, _Unreachable):
                    lost = True
                else:
                    raise self._failures.told(error) from None

    def close(self) -> None:
        """Close the connection; a later call makes another one."""
        self._watch.end()
        self._hang_up()

    def _hang_up(self) -> None:
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _transaction(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        connection = self._connected()
        try:
            self._begin(connection)
            done = work(connection, *args, **kwargs)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise
        return done

    def _statement(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        connection = self._connected()
        try:
            return work(connection, *args, **kwargs)
        except BaseException:
            if connection.broken or connection.closed:
                self.close()
            raise

    def _connected(self) -> Transaction:
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _begin(self, connection: Transaction) -> None:
        """Begin a transaction that the server, too, ends in time: a stopped worker's locks would last."""
        milliseconds = max(1, int(self._call_s * 1000))
        connection.execute(
            f"BEGIN; SET LOCAL statement_timeout = {milliseconds}; SET LOCAL lock_timeout = {milliseconds};"
            f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds}"
        )

    def _roll_back(self, connection: Transaction) -> None:
        if not connection.broken and not connection.closed:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
        if connection.broken or connection.closed:
            self._hang_up()

    def _connect(self) -> None:
        try:
            made = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise _Unreachable(str(error)) from None
        self._connection = made
        with self._lock:
            self._wire = socket.fromfd(made.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        if made.info.server_version < OLDEST_SERVER:
            found = made.info.server_version // 10_000
            self._hang_up()
            raise LedgerVersionError(
                f"{self.where} is PostgreSQL {found}; the ledger needs {OLDEST_SERVER // 10_000} or newer."
            )
        if self._check is not None:
            try:
                self._begin(made)
                self._check(made)
                made.execute("COMMIT")
            except BaseException:
                self._hang_up()
                raise

    @contextmanager
    def _watched(self, until: float) -> Iterator[None]:
        """Cut the connection when the time is over, so that whoever waits for an answer gets an error.

        TCP's own timers do not help against a partner that takes what is sent and never answers.
        """
        self._late = False
        self._watch.expect(until)
        try:
            yield
        finally:
            self._watch.rest()

    def _cut(self) -> None:
        with self._lock:
            self._late = True
            if self._wire is not None:
                with suppress(OSError):
                    self._wire.shutdown(socket.SHUT_RDWR)


class _Unreachable(psycopg.OperationalError):
    """No connection could be made."""


def _parameters(dsn: str, call_s: float) -> Parameters:
    """Return what psycopg connects by; what the given text sets stays."""
    try:
        given = conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        raise unreadable() from None  # libpq's own message repeats parts of the text
    if not str(given.get("port") or "0").replace(",", "").isdigit():
        raise unreadable()  # part of a password that is not percent-encoded may stand there
    connect_s = max(SHORTEST_CONNECT_S, int(call_s / 2))
    ours: Parameters = {
        "connect_timeout": connect_s,
        "tcp_user_timeout": int(call_s * 1000),
        "keepalives_idle": connect_s,
        "keepalives_interval": max(1, int(call_s / 4)),
        "keepalives_count": 2,
        "application_name": "scrapy-gp4c",
    }
    return {**ours, **given}
