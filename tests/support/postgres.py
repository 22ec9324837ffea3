"""A PostgreSQL of the tests' own, in a temporary directory, every commit synced; and PgBouncer before it.

Tests that need it are skipped where there is none: `.ci/run` installs both where it may.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

PASSWORD: Final = "s3cret/of the=owner"
WORKER: Final = "gp4c_worker"
WORKER_PASSWORD: Final = "w0rkers' own"
DATABASE: Final = "crawl"


def _folder_of(program: str) -> Path | None:
    """Where a program of the server is: on the PATH, or in Debian's folder of the newest version."""
    found = shutil.which(program)
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda one: int(one.parts[4]))
    return debian[-1].parent if debian else Path(found).parent if found else None


BIN: Final = _folder_of("initdb")
PGBOUNCER: Final = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
NEEDS_POSTGRES: Final = pytest.mark.skipif(
    BIN is None, reason="no PostgreSQL: apt-get install --no-install-recommends postgresql"
)
NEEDS_PGBOUNCER: Final = pytest.mark.skipif(
    PGBOUNCER is None, reason="no PgBouncer: apt-get install --no-install-recommends pgbouncer"
)


def free_port() -> int:
    """A TCP port of loopback that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _other_user() -> dict[str, Any]:
    """Arguments of subprocess that make root somebody else: the server refuses root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise OSError("PostgreSQL refuses root, and there is neither postgres nor nobody to run it as")


class Server:
    """A running server, which tests may kill and start again."""

    def __init__(self, **settings: object) -> None:
        """Make its files and start it; ``settings``: further ones of `postgresql.conf`."""
        self.settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="gp4c-pg-"))
        self.user = _other_user()
        if self.user:
            os.chown(self.folder, self.user["user"], self.user["group"])
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self.program(
            "initdb", "--no-sync", "-D", str(self.data), "-U", "owner", "--pwfile", str(password),
            "-E", "UTF8", "--no-locale", "--auth-local=trust", "--auth-host=scram-sha-256",
        )  # fmt: skip
        password.unlink()
        self.start()

    @property
    def data(self) -> Path:
        """The directory of its data."""
        return self.folder / "data"

    def program(self, name: str, *arguments: str) -> None:
        """Run one of the server's programs."""
        assert BIN is not None
        subprocess.run(
            [BIN / name, *arguments], check=True, capture_output=True, cwd=self.folder, **self.user
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert BIN is not None
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "fsync": "on",
            "max_connections": 60,
            "shared_buffers": "16MB",
            "deadlock_timeout": "50ms",
            **self.settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [BIN / "postgres", "-D", str(self.data), *options],
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self.user,
            )  # fmt: skip
        while self.process.poll() is None:
            try:
                self.execute("SELECT 1")
                return
            except Exception:  # it does not listen yet, or recovers
                time.sleep(0.05)
        raise OSError((self.folder / "log").read_text(errors="replace")[-2000:])

    def kill(self) -> None:
        """End it and all its processes by kill -9."""
        assert self.process is not None
        main = self.process.pid
        others = [int(one) for one in Path(f"/proc/{main}/task/{main}/children").read_text().split()]
        for one in (main, *others):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self.process.wait()
        while any(Path(f"/proc/{one}").exists() for one in others):
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop it at once, and delete its files."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str = "postgres", **more: object) -> str:
        """Connection string over TCP, as the owner unless `more` says otherwise."""
        parts = {"host": "127.0.0.1", "port": self.port, "user": "owner", "password": PASSWORD, **more}
        return " ".join(
            "{}='{}'".format(name, str(value).replace("\\", "\\\\").replace("'", "\\'"))
            for name, value in {**parts, "dbname": database}.items()
        )

    def socket_dsn(self, database: str = "postgres") -> str:
        """Connection string over the Unix socket, as the owner."""
        return f"host={self.folder} port={self.port} user=owner dbname={database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Do one statement as the owner, on a connection of its own."""
        import psycopg

        with psycopg.connect(self.socket_dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def database(self) -> str:
        """Return the name of an empty database: always the same one, as a new one takes its time and room."""
        if not self.execute(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"):
            self.execute(f"CREATE DATABASE {DATABASE}")
        self.execute(f"ALTER DATABASE {DATABASE} RESET ALL")
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{DATABASE}'")
        self.execute(
            "SET default_transaction_read_only = off; DROP SCHEMA IF EXISTS gp4c, public CASCADE;"
            " CREATE SCHEMA public",
            DATABASE,
        )
        return DATABASE

    def worker_role(self, database: str, *grants: str) -> str:
        """Make the role of workers, which may do what these statements grant; returns how to connect."""
        quoted = WORKER_PASSWORD.replace("'", "''")
        if not self.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{WORKER}'"):
            self.execute(f"CREATE ROLE {WORKER} LOGIN PASSWORD '{quoted}'")
        for grant in grants:
            self.execute(grant, database)
        return self.dsn(database, user=WORKER, password=WORKER_PASSWORD)


@contextmanager
def pgbouncer(server: Server) -> Iterator[int]:
    """Run PgBouncer in transaction mode, with two connections to a server; yields its port."""
    assert PGBOUNCER is not None
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="gp4c-bouncer-"))
    users = folder / "users"
    users.write_text(f'"owner" "{PASSWORD}"\n')
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {users}\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 50\n"
    )
    for path in (folder, users, settings):
        if server.user:
            os.chown(path, server.user["user"], server.user["group"])
    process = subprocess.Popen(
        [PGBOUNCER, str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **server.user
    )
    try:
        while process.poll() is None:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
