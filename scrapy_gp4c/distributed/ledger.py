"""The ledger as a worker opens it, and the one thread that waits for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.leases import CALLS_PER_LEASE
from scrapy_gp4c.distributed.schema import check

P = ParamSpec("P")
T = TypeVar("T")

LEASE_S: Final = 30.0


def open_ledger(dsn: str, lease_s: float = LEASE_S) -> Connection:
    """Return a connection to a ledger, each call of which ends within a third of the lease.

    Connects, and finds out whether the ledger is one of this version, with the first call.
    """
    return Connection(dsn, lease_s / CALLS_PER_LEASE, check)


class LedgerThread:
    """Owns a connection: work is posted to it, and done in that order; no caller waits."""

    def __init__(self, connection: Connection) -> None:
        """Take a connection that nobody else uses from now on."""
        self._connection = connection
        self._executor = ThreadPoolExecutor(1, "gp4c-ledger")

    def post(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Do work in a transaction of its own, as `Connection.call` does.

        Callbacks of the future are called in the ledger's thread: a reactor's `callFromThread` is theirs.
        """
        return self._executor.submit(lambda: self._connection.call(work, *args, **kwargs))

    def post_single(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Do work of one statement, as `Connection.single` does; else as `post`."""
        return self._executor.submit(lambda: self._connection.single(work, *args, **kwargs))

    def call(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Post work and wait for it: for jobs of many transactions in other threads."""
        done: Future[T] = self.post(work, *args, **kwargs)
        return done.result()

    def single(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Post work of one statement and wait for it."""
        done: Future[T] = self.post_single(work, *args, **kwargs)
        return done.result()

    def close(self) -> None:
        """Wait for what is being done, forget what is not begun, and close the connection."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
