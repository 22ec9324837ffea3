"""The connection: every failure of a server and of the way to it ends in time, as one clear error."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator

import psycopg
import pytest

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import (
    LedgerAwayError,
    LedgerError,
    LedgerFullError,
    LedgerReadOnlyError,
    LedgerRightsError,
    LedgerSchemaError,
    LedgerVersionError,
)
from scrapy_gp4c.distributed.ledger import LedgerThread
from scrapy_gp4c.distributed.log import flush, read_log
from scrapy_gp4c.errors import SettingsError, StoreFullError
from tests.support.ledgers import flush_of, joined, opened, raised, segments_of, taken
from tests.support.older_server import server_of_version
from tests.support.postgres import PASSWORD, Server, free_port
from tests.support.proxy import Proxy

Connect = Callable[..., Connection]


def one(tx: Transaction) -> int:
    """The least work."""
    row = tx.execute("SELECT 1").fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """Something between worker and server."""
    with Proxy(server.port) as between:
        yield between


def test_no_server_is_told(server: Server) -> None:
    """Where it should be, and that the call may be made again."""
    port = free_port()
    with pytest.raises(
        LedgerAwayError, match=rf"PostgreSQL at 127\.0\.0\.1, port {port}, database x, user owner: "
    ):
        Connection(server.dsn("x", port=port), 2.0).call(one)


def test_a_connection_string_that_is_none_is_not_shown() -> None:
    """libpq's own message repeats parts of it, such as a password with a space."""
    for text in ("host=db password=hush hush2", "postgresql://me:hush hush2@[db/x", "hush"):
        error = raised(lambda text=text: Connection(text))
        assert isinstance(error, SettingsError)
        assert "hush" not in "".join(traceback.format_exception(error))


def test_an_older_server_is_refused() -> None:
    """Version 14 lacks nothing that one sees at once; 15 is what is tested."""
    refused = pytest.raises(LedgerVersionError, match="is PostgreSQL 14; the ledger needs 15 or newer")
    with server_of_version("14.9") as port, refused:
        Connection(f"host=127.0.0.1 port={port} user=me dbname=x sslmode=disable").call(one)


def test_wrong_passwords_and_databases_are_told(server: Server, dsn: str) -> None:
    """What is wrong, and where passwords are looked for."""
    with pytest.raises(LedgerRightsError, match=r"authentication failed.*pgpass"):
        Connection(server.dsn(password="wrong")).call(one)
    with pytest.raises(LedgerSchemaError, match=r'"nowhere" does not exist.*create the database'):
        Connection(server.dsn("nowhere")).call(one)


def test_an_empty_database_is_told(server: Server, database: str, connect: Connect) -> None:
    """There is no ledger in it."""
    with pytest.raises(LedgerSchemaError, match="there is no ledger of this version there"):
        connect(at=server.dsn("postgres")).call(one)


@pytest.mark.parametrize(("version", "remedy"), [(99, "install that version"), (0, "bring it up to date")])
def test_another_version_of_the_schema_is_told(
    server: Server, database: str, ledger: Connection, version: int, remedy: str
) -> None:
    """An older and a newer one, each with its remedy."""
    server.execute(f"UPDATE gp4c.about SET version = {version}", database)
    with pytest.raises(LedgerSchemaError, match=f"version {version} of the schema.*{remedy}"):
        ledger.call(one)


def test_a_standby_is_told(server: Server, database: str, connect: Connect, dsn: str) -> None:
    """At the start, and when the server becomes one under way."""
    working = connect()
    working.call(one)
    server.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with pytest.raises(LedgerReadOnlyError, match="target_session_attrs=read-write"):
        connect().call(one)

    def read_only(tx: Transaction) -> None:
        tx.execute("SET LOCAL transaction_read_only = on")
        tx.execute("UPDATE gp4c.about SET version = version")

    with pytest.raises(LedgerReadOnlyError, match="25006"):
        working.call(read_only)


def test_missing_rights_are_told(server: Server, database: str, dsn: str, connect: Connect) -> None:
    """Of a role that got no GRANTs."""
    stranger = connect(at=server.worker_role(database))
    with pytest.raises(LedgerRightsError, match=r"permission denied.*GRANTs of docs/distributed\.md"):
        stranger.call(one)


def test_a_full_disk_writes_nothing(server: Server, database: str, ledger: Connection) -> None:
    """A server without room says 53100; the flush goes again when there is some."""
    worker = joined(ledger)
    opened(ledger, worker)
    what = flush_of(1, 1, taken(ledger, worker, 0), *segments_of(0, 1), done=True)
    server.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;"
        "CREATE TRIGGER full_disk BEFORE INSERT ON gp4c.log_1 FOR EACH ROW EXECUTE FUNCTION full_disk()",
        database,
    )
    error = raised(lambda: ledger.single(flush, worker, what))
    assert isinstance(error, LedgerFullError)
    assert isinstance(error, StoreFullError)
    assert "No space left on device [53100]: nothing was written; make room" in str(error)
    assert ledger.call(leases.look).shards[0].done == 0
    server.execute("DROP TRIGGER full_disk ON gp4c.log_1", database)
    assert not ledger.single(flush, worker, what).repeated
    assert len(list(read_log(ledger, 1, 0))) == 1


def test_what_one_commit_needs_is_there_after_a_kill(server: Server, ledger: Connection) -> None:
    """kill -9 of all of PostgreSQL: the connection is made anew, and what was acknowledged is there."""
    worker = joined(ledger)
    opened(ledger, worker)
    lease = taken(ledger, worker, 0)
    for number in range(2):
        ledger.single(flush, worker, flush_of(number + 1, 1, lease, *segments_of(0, 1, first=number)))
        server.kill()
        error = raised(lambda: ledger.call(one))
        server.start()
        assert isinstance(error, LedgerAwayError)
    assert len(list(read_log(ledger, 1, 0))) == 2


def test_a_restarted_server_is_not_noticed(server: Server, database: str, ledger: Connection) -> None:
    """An idle connection that the server ended is replaced within the call."""
    assert ledger.call(one) == 1
    server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        " AND pid <> pg_backend_pid()"
    )
    assert ledger.call(one) == 1


def test_a_flush_whose_answer_is_lost_writes_once(
    server: Server, database: str, proxy: Proxy, connect: Connect, dsn: str
) -> None:
    """The server gets all of it, its answer is lost: the repetition within the call recognises it."""
    ledger = connect(at=server.dsn(database, port=proxy.port))
    worker = joined(ledger)
    opened(ledger, worker)
    lease = taken(ledger, worker, 0)
    for number in range(3):
        proxy.cut_when = lambda data: b"gp4c.flush" in data
        found = ledger.single(flush, worker, flush_of(number + 1, 1, lease, *segments_of(0, 1, first=number)))
        assert found.repeated
    assert proxy.cuts == 3
    assert len(list(read_log(ledger, 1, 0))) == 3


def test_a_connection_lost_in_a_flush_writes_once(
    server: Server, database: str, proxy: Proxy, connect: Connect, dsn: str
) -> None:
    """Cut before the server has it, and in BEGIN and COMMIT around it: it goes again as a whole."""
    ledger = connect(at=server.dsn(database, port=proxy.port))
    worker = joined(ledger)
    opened(ledger, worker)
    lease = taken(ledger, worker, 0)

    def cut(data: bytes) -> bool:
        if b"gp4c.flush" in data:
            proxy.cut_when = None
            proxy.cut()
        return False

    proxy.cut_when = cut
    assert not ledger.single(flush, worker, flush_of(1, 1, lease, *segments_of(0, 1))).repeated
    assert proxy.cut_when is None
    for number, statement in enumerate((b"BEGIN", b"COMMIT"), 1):
        proxy.cut_when = lambda data, statement=statement: statement in data
        what = flush_of(number + 1, 1, lease, *segments_of(0, 1, first=number))
        assert ledger.call(flush, worker, what).repeated is (statement == b"COMMIT")
    assert proxy.cuts == 2
    assert len(list(read_log(ledger, 1, 0))) == 3


def test_a_partition_ends_the_call_in_time(
    server: Server, database: str, proxy: Proxy, connect: Connect, dsn: str
) -> None:
    """A way that takes what is sent and answers nothing: in a statement, in a flush, and while connecting."""
    ledger = connect(3.0, server.dsn(database, port=proxy.port))
    worker = joined(ledger)
    opened(ledger, worker)
    lease = taken(ledger, worker, 0)
    proxy.flows.clear()
    for _ in range(2):  # the second one has to connect
        error = raised(lambda: ledger.call(one))
        assert isinstance(error, LedgerAwayError)
    proxy.cut()
    proxy.flows.set()

    def stall(data: bytes) -> bool:
        if b"gp4c.flush" in data:
            proxy.flows.clear()
        return False

    proxy.cut_when = stall
    what = flush_of(1, 1, lease, *segments_of(0, 1))
    with pytest.raises(LedgerAwayError, match=r"did not answer within 1 s"):
        ledger.single(flush, worker, what)
    proxy.cut_when = None
    proxy.flows.set()
    ledger.single(flush, worker, what)
    assert len(list(read_log(ledger, 1, 0))) == 1


def test_a_stopped_worker_holds_up_nobody(server: Server, database: str, connect: Connect, dsn: str) -> None:
    """The server ends a transaction whose worker is silent in it, and with that its locks."""
    stopped, other = connect(1.5), connect(30.0)
    other.call(one)
    locked, go_on = threading.Event(), threading.Event()

    def hang(tx: Transaction) -> None:
        leases.lock(tx, [0])
        locked.set()
        go_on.wait()

    thread = LedgerThread(stopped)
    done = thread.post(hang)
    locked.wait()
    assert other.call(leases.lock, [0]) == {0: 0}
    go_on.set()
    assert isinstance(done.exception(), LedgerAwayError)
    thread.close()


def test_waiting_for_locks_ends_in_time(connect: Connect) -> None:
    """Others' locks are told as such, and the connection is as good as before."""
    patient, holder = connect(1.5), connect(30.0)
    patient.call(one)

    def hold(tx: Transaction) -> BaseException:
        leases.lock(tx, [0])
        return raised(lambda: patient.call(leases.lock, [0]))

    assert isinstance(holder.call(hold), LedgerAwayError)
    assert patient.call(leases.lock, [0]) == {0: 0}


def test_a_deadlock_is_done_again(connect: Connect) -> None:
    """Two that lock two shards in opposite orders, by hand, as ours never do: both get through."""
    met = threading.Barrier(2)
    tries: list[int] = []

    def lock_both(tx: Transaction, first: int, second: int) -> None:
        tries.append(first)
        leases.lock(tx, [first])
        if len(tries) <= 2:
            met.wait()
        leases.lock(tx, [second])

    with LedgerThread(connect()) as one_thread, LedgerThread(connect()) as other_thread:
        for done in (one_thread.post(lock_both, 0, 1), other_thread.post(lock_both, 1, 0)):
            done.result()
    assert len(tries) == 3


def test_what_work_raises_is_rolled_back(ledger: Connection) -> None:
    """An error of ours leaves nothing written, and the connection in use."""

    def fail(tx: Transaction) -> None:
        tx.execute("UPDATE gp4c.shard SET pages = 7")
        raise KeyError("ours")

    with pytest.raises(KeyError):
        ledger.call(fail)
    assert ledger.call(leases.look).shards[0].pages == 0


def test_a_defect_is_told_as_such(ledger: Connection) -> None:
    """An error of the server that nobody foresaw has its text and number."""
    with pytest.raises(LedgerError, match=r"division by zero \[22012\]: this is a defect"):
        ledger.call(lambda tx: tx.execute("SELECT 1 / 0"))


def test_no_password_is_in_any_error(
    server: Server, database: str, dsn: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in texts, tracebacks, representations and logs, as it is or as it stands in a URL."""
    caplog.set_level(logging.DEBUG)
    quoted = "s3cret%2Fof%20the%3Downer"
    url = f"postgresql://owner:{quoted}@127.0.0.1:{{}}/{{}}"
    errors = []
    for given in (
        server.dsn("nowhere"), server.dsn(port=free_port()), server.dsn(user="nobody"),
        url.format(server.port, "nowhere"), url.format(free_port(), "x"), server.dsn() + " nonsense",
    ):  # fmt: skip
        errors.append(raised(lambda given=given: Connection(given, 2.0).call(one)))
    connection = Connection(dsn)
    for statement in (f"SELECT '{PASSWORD}'::int", f'SELECT "{quoted}"'):
        errors.append(
            raised(lambda statement=statement: connection.call(lambda tx: tx.execute(statement.encode())))
        )
    from_environment = "-".join(("env1r", "onment"))  # as tracebacks quote this test
    monkeypatch.setenv("PGPASSWORD", from_environment)
    errors.append(
        raised(
            lambda: Connection(server.dsn(password="")).call(lambda tx: tx.execute(from_environment.encode()))
        )
    )
    texts = [repr(connection), connection.where, caplog.text]
    for error in errors:
        assert isinstance(error, LedgerError | SettingsError)
        texts += [repr(error), str(error), *traceback.format_exception(error)]
        assert not isinstance(error.__cause__, psycopg.Error)
    for text in texts:
        assert not [secret for secret in (PASSWORD, quoted, from_environment) if secret in text]
    connection.close()
