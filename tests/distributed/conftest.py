"""A PostgreSQL for each process of the tests, and an empty ledger for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scrapy_gp4c.distributed import schema
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.ledger import open_ledger
from tests.support.postgres import BIN, Server

SHARDS = 4


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A running server; who kills it starts it again."""
    if BIN is None:
        pytest.skip("no PostgreSQL: apt-get install --no-install-recommends postgresql")
    one = Server()
    yield one
    one.stop()


@pytest.fixture
def database(server: Server) -> str:
    """An empty database."""
    return server.database()


@pytest.fixture
def dsn(server: Server, database: str) -> str:
    """Connection string of a new ledger of four shards."""
    with_rights = Connection(server.dsn(database))
    schema.create(with_rights, SHARDS)
    with_rights.close()
    return server.dsn(database)


@pytest.fixture
def connect(dsn: str) -> Iterator[Callable[..., Connection]]:
    """Opens the ledger, as often as wanted; ``lease_s`` as given."""
    made: list[Connection] = []

    def another(lease_s: float = 30.0, at: str = dsn) -> Connection:
        made.append(open_ledger(at, lease_s))
        return made[-1]

    yield another
    for one in made:
        one.close()


@pytest.fixture
def ledger(connect: Callable[..., Connection]) -> Connection:
    """The ledger, opened."""
    return connect()
