"""Who lives and who holds what: workers, shards, and the tokens that fence off former holders.

All times are the server's `clock_timestamp()`: what a worker's clock says matters to itself alone. Rows are
locked in one order, shards by number and then the worker, so that no two wait for each other.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.errors import FencedError, LedgerError, NameTakenError

WAITING: Final = "waiting"
"""Instance of who waits for the next cycle, see `scrapy_gp4c.distributed.waiting`; its name is free."""
CALLS_PER_LEASE: Final = 3
"""No call lasts longer than the lease divided by this."""
PARKED_AFTER: Final = 3
"""Holders in a row that died with a shard: then nobody takes it until `unpark`."""


class Worker(NamedTuple):
    """One process that works on the crawl."""

    name: str
    """By `GP4C_WORKER`; one living process has it."""
    instance: str
    """Random hex digits: tells two processes of one name apart."""
    lease_s: float

    @property
    def call_ms(self) -> int:
        """Milliseconds that a call of it may wait for the locks of others."""
        return max(1, int(1000 * self.lease_s / CALLS_PER_LEASE))


class Lease(NamedTuple):
    """A shard that a worker holds."""

    shard: int
    token: int
    """Raised by every takeover: what comes with a lower one is refused."""
    seq: int
    """Number of the segment that is appended next in `cycle`."""
    cycle: int
    """Cycle of the last append; 0: none yet."""


class WorkerRow(NamedTuple):
    """What the ledger knows of a worker."""

    name: str
    instance: str
    left_s: float
    """Until its lease ends; below 0: it is dead."""
    draining: bool
    copies: frozenset[int]
    """Shards that it has in its directory."""


class ShardRow(NamedTuple):
    """What the ledger knows of a shard."""

    shard: int
    token: int
    holder: str | None
    instance: str | None
    deaths: int
    pages: int
    cycle: int
    seq: int
    done: int
    """The last cycle that it is done with."""


class View(NamedTuple):
    """All that an assignment follows from, at one moment."""

    workers: tuple[WorkerRow, ...]
    shards: tuple[ShardRow, ...]
    server_up_s: float
    """Since PostgreSQL started: nobody could renew a lease before."""


def register(tx: Transaction, worker: Worker, copies: Iterable[int] = ()) -> None:
    """Enter a worker, or renew its lease; ``copies``: the shards that its directory has.

    Raises NameTakenError while another process of this name lives.
    """
    row = tx.execute(
        "INSERT INTO gp4c.worker AS w (name, instance, expires, copies)"
        " VALUES (%(name)s, %(instance)s, clock_timestamp() + make_interval(secs => %(lease)s), %(copies)s)"
        " ON CONFLICT (name) DO UPDATE SET instance = excluded.instance, expires = excluded.expires,"
        " copies = excluded.copies, draining = w.draining AND w.instance IN (excluded.instance, %(waits)s),"
        " flush = CASE WHEN w.instance = excluded.instance THEN w.flush END"
        " WHERE w.instance IN (excluded.instance, %(waits)s) OR w.expires < clock_timestamp() RETURNING true",
        {
            "name": worker.name,
            "instance": worker.instance,
            "lease": worker.lease_s,
            "copies": sorted(copies),
            "waits": WAITING,
        },
    ).fetchone()
    if row is None:
        raise name_taken(worker.name)


def new_worker(name: str, lease_s: float) -> Worker:
    """Return a worker of this name that no other process is."""
    return Worker(name, secrets.token_hex(8), lease_s)


def renew(tx: Transaction, worker: Worker) -> None:
    """Let the worker's lease begin anew; what it holds is fenced shard by shard.

    Raises NameTakenError where another process took the name over.
    """
    done = tx.execute(
        "UPDATE gp4c.worker SET expires = clock_timestamp() + make_interval(secs => %b::float8)"
        " WHERE name = %b AND instance = %b",
        (worker.lease_s, worker.name, worker.instance),
    )
    if done.rowcount != 1:
        raise name_taken(worker.name)


def leave(tx: Transaction, worker: Worker) -> None:
    """Give up all that a worker holds, and its name; of one that drains the ledger goes on knowing it."""
    held = [lease.shard for lease in holdings(tx, worker)]
    lock(tx, held)
    tx.execute(
        "UPDATE gp4c.shard SET holder = NULL, instance = NULL, deaths = 0"
        " WHERE holder = %s AND instance = %s",
        worker[:2],
    )
    tx.execute("DELETE FROM gp4c.worker WHERE name = %s AND instance = %s AND NOT draining", worker[:2])


def drain(tx: Transaction, name: str) -> None:
    """Let a worker give up its shards: it is assigned none from now on.

    Raises LedgerError for an unknown one.
    """
    if tx.execute("UPDATE gp4c.worker SET draining = true WHERE name = %s", (name,)).rowcount != 1:
        raise LedgerError(f"the ledger knows no worker {name!r}. Give a name that status has.")


def unpark(tx: Transaction, shard: int) -> None:
    """Let a parked shard be taken again."""
    tx.execute("UPDATE gp4c.shard SET deaths = 0 WHERE shard = %s", (shard,))


def look(tx: Transaction, waiting: bool = False) -> View:
    """Return who lives and who holds what; ``waiting``: with who waits for the next cycle."""
    workers = tx.execute(
        "SELECT name, instance, extract(epoch FROM expires - clock_timestamp())::float8, draining, copies"
        " FROM gp4c.worker WHERE %s OR instance <> %s ORDER BY name",
        (waiting, WAITING),
    ).fetchall()
    shards = tx.execute(
        "SELECT shard, token, holder, instance, deaths, pages, cycle, seq, done FROM gp4c.shard ORDER BY "
        "shard"
    ).fetchall()
    up = tx.execute(
        "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"
    ).fetchone()
    assert up is not None
    return View(
        tuple(WorkerRow._make((*row[:-1], frozenset(row[-1]))) for row in workers),
        tuple(ShardRow(*row) for row in shards),
        up[0],
    )


def holdings(tx: Transaction, worker: Worker) -> list[Lease]:
    """Return what a worker holds, by shard."""
    rows = tx.execute(
        "SELECT shard, token, seq, cycle FROM gp4c.shard WHERE holder = %s AND instance = %s ORDER BY shard",
        worker[:2],
    ).fetchall()
    return [Lease(*row) for row in rows]


def take(tx: Transaction, worker: Worker, shard: int) -> Lease | None:
    """Take a shard that nobody alive holds; None if somebody does, or if it is parked.

    Raises its token, whereupon a former holder can append nothing more. A call whose answer was lost is
    recognised: who holds the shard already gets what it holds. Whether a dead holder had the chance to renew
    is the assignment's to judge.
    """
    row = tx.execute(
        "SELECT token, seq, cycle, holder, instance, deaths FROM gp4c.shard WHERE shard = %s FOR UPDATE",
        (shard,),
    ).fetchone()
    if row is None:
        raise LedgerError(
            f"the ledger has no shard {shard}: check the number of shards that it was made with."
        )
    token, seq, cycle, holder, instance, deaths = row
    if (holder, instance) == worker[:2]:
        return Lease(shard, token, seq, cycle)
    if holder is not None:
        alive = tx.execute(
            "SELECT 1 FROM gp4c.worker WHERE name = %s AND instance = %s AND expires >= clock_timestamp()",
            (holder, instance),
        ).fetchone()
        if alive is not None:
            return None
        deaths += 1
    if deaths >= PARKED_AFTER:
        tx.execute(
            "UPDATE gp4c.shard SET token = token + 1, holder = NULL, instance = NULL, deaths = %s"
            " WHERE shard = %s",
            (deaths, shard),
        )
        return None
    tx.execute(
        "UPDATE gp4c.shard SET token = token + 1, holder = %s, instance = %s, deaths = %s WHERE shard = %s",
        (worker.name, worker.instance, deaths, shard),
    )
    tx.execute(
        "UPDATE gp4c.worker SET copies = array_append(copies, %(shard)s::smallint)"
        " WHERE name = %(name)s AND instance = %(instance)s AND NOT copies @> ARRAY[%(shard)s::smallint]",
        {"shard": shard, "name": worker.name, "instance": worker.instance},
    )
    return Lease(shard, token + 1, seq, cycle)


def release(tx: Transaction, shards: Mapping[int, int]) -> None:
    """Give up shards, each by its token; those that others hold by now are theirs."""
    tokens = lock(tx, shards)
    own = [shard for shard, token in shards.items() if tokens.get(shard) == token]
    tx.execute(
        "UPDATE gp4c.shard SET holder = NULL, instance = NULL, deaths = 0 WHERE shard = ANY(%s)", (own,)
    )


def lock(tx: Transaction, shards: Iterable[int]) -> dict[int, int]:
    """Lock shards' rows until the transaction ends; returns their tokens."""
    rows = tx.execute(
        "SELECT shard, token FROM gp4c.shard WHERE shard = ANY(%s) ORDER BY shard FOR UPDATE",
        (sorted(shards),),
    ).fetchall()
    return dict(rows)


def fence(tx: Transaction, shards: Mapping[int, int]) -> None:
    """Lock shards' rows and compare their tokens; raises FencedError if one is another's by now."""
    tokens = lock(tx, shards)
    refuse_lost([shard for shard, token in shards.items() if tokens.get(shard) != token])


def refuse_lost(shards: Sequence[int]) -> None:
    """Raise FencedError if there are lost shards."""
    if shards:
        raise lost(shards)


def lost(shards: Sequence[int]) -> FencedError:
    """Return the error for shards that others hold by now."""
    names = ", ".join(map(str, sorted(shards)))
    error = FencedError(
        f"shards that this worker held were taken over: {names}. Nothing was written; what was acknowledged "
        "before is in the ledger, the rest is fetched again by their holders."
    )
    error.shards = tuple(sorted(shards))
    return error


def name_taken(name: str) -> NameTakenError:
    """Return the error for a name that another process has."""
    return NameTakenError(
        f"a worker named {name!r} is alive: every process needs a name of its own. Set GP4C_WORKER, or "
        f"wait until "
        "the lease of the one that was killed has ended."
    )
