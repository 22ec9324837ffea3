"""The log: what workers recorded in the open cycle. One statement a flush; shards are rebuilt from it.

A visit is recorded when its flush returned. A flush whose answer was lost is sent again as it was, and
recognised; one under a token that is not the shard's any more writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy.typing as npt
from psycopg import DatabaseError

from scrapy_gp4c.distributed import segments
from scrapy_gp4c.distributed.connection import Calls, Transaction
from scrapy_gp4c.distributed.direct import Value, byteas, numbers, of_byteas, rows
from scrapy_gp4c.distributed.errors import CycleClosedError, DiffersError
from scrapy_gp4c.distributed.leases import Worker, lost, name_taken, renew
from scrapy_gp4c.distributed.segments import Segment

READ_AT_ONCE: Final = 100
"""Segments of one call: some hundred kB."""
_TYPES: Final = (
    *("int", "text", "text", "float8", "bytea", "int", "smallint[]", "bigint[]"),
    *("smallint[]", "int[]", "int[]", "bytea[]", "bytea[]"),
    *("smallint[]", "smallint[]", "bytea[]", "bigint[]", "smallint[]", "bigint[]", "boolean[]"),
)
_FLUSH: Final = f"SELECT gp4c.flush({', '.join(f'${at}::{type}' for at, type in enumerate(_TYPES, 1))})"
_TRUE: Final = b"\x01"
_REFUSED: Final = "GP4CF"
"""SQLSTATE of a flush of which nothing is written."""


class Letter(NamedTuple):
    """Mail to one shard: see `scrapy_gp4c.distributed.mail`."""

    sender: int
    receiver: int
    body: bytes


class Progress(NamedTuple):
    """How far a shard is."""

    pages: int
    """Known pages: what assignments weigh it by."""
    done: bool
    """Whether it has nothing left to visit in this cycle."""


class Flush(NamedTuple):
    """What a worker writes at once; sent again as it is when its answer was lost."""

    number: int
    """Counted by the worker from 1 on; a repeated one has the number that it had."""
    cycle: int
    tokens: Mapping[int, int]
    """Token of every shard that has a part in it."""
    segments: tuple[Segment, ...] = ()
    """By shard in order of their numbers."""
    letters: tuple[Letter, ...] = ()
    consumed: tuple[int, ...] = ()
    """Ids of the letters whose contents the segments have."""
    progress: Mapping[int, Progress] = {}
    """Of shards where it changed."""

    @property
    def empty(self) -> bool:
        """Whether it only renews the lease."""
        return not (self.segments or self.letters or self.consumed or self.progress)


class Flushed(NamedTuple):
    """What became of a flush."""

    repeated: bool
    """Whether it was written before, and its answer lost."""
    told: list[bytes] | None = None
    """What was asked besides, as it was before the flush."""
    of_step: bytes | None = None
    """The same, of a step of the plan."""


def flush(tx: Transaction, worker: Worker, what: Flush, besides: str | None = None) -> Flushed:
    """Write segments, mail, progress and the lease's renewal, all or nothing: one statement.

    ``besides``: expressions that it selects, too, at most two: another statement costs as much as the flush.

    Raises FencedError for shards that others hold, CycleClosedError, NameTakenError, and DiffersError for
    what does not go on where the ledger is.
    """
    _expect_tokens(what)
    if what.empty:
        renew(tx, worker)
        return Flushed(repeated=False)
    try:
        also = "" if besides is None else f", {besides}"
        [(repeated, *told)] = rows(tx, _FLUSH + also, *_parameters(worker, what))
    except DatabaseError as error:
        if error.sqlstate == _REFUSED:
            raise _refusal(error.diag.message_primary or "", worker, what) from None
        raise
    heard = of_byteas(told[0]) if told else None
    return Flushed(repeated == _TRUE, heard, told[1] if len(told) > 1 else None)


def _expect_tokens(what: Flush) -> None:
    """Raise ValueError for a part that no token fences."""
    fenced = chain((one.shard for one in what.segments), (one.sender for one in what.letters), what.progress)
    if bare := [shard for shard in fenced if shard not in what.tokens]:
        raise ValueError(f"expected a token for shard {min(bare)}, which the flush has a part of; found none")


def _parameters(worker: Worker, what: Flush) -> tuple[Value, ...]:
    """Those of `_FLUSH`, in the order of the server's function; each list is a column."""
    columns = (
        numbers(what.tokens),
        numbers(what.tokens.values()),
        numbers([one.shard for one in what.segments]),
        numbers([one.seq for one in what.segments]),
        numbers([one.visits for one in what.segments]),
        byteas([one.sha256 for one in what.segments]),
        byteas([one.body for one in what.segments]),
        numbers([one.sender for one in what.letters]),
        numbers([one.receiver for one in what.letters]),
        byteas([one.body for one in what.letters]),
        numbers(sorted(set(what.consumed))),
        numbers(what.progress),
        numbers([one.pages for one in what.progress.values()]),
        numbers([one.done for one in what.progress.values()]),
    )
    digest = _digest(what, columns)
    return what.cycle, worker.name, worker.instance, worker.lease_s, digest, worker.call_ms, *columns


def _digest(what: Flush, columns: Sequence[str | bytes | None]) -> bytes:
    """By which a repeated flush is recognised."""
    found = hashlib.sha256(b"%d %d" % (what.number, what.cycle))
    for column in columns:
        told = column if isinstance(column, bytes) else (column or "").encode()
        found.update(b" %d " % len(told) + told)
    return found.digest()


def _refusal(told: str, worker: Worker, what: Flush) -> Exception:
    """Of a word of the server, and numbers behind it."""
    word, *rest = told.split()
    numbers = [int(one) for one in rest]
    if word == "lost":
        return lost(numbers)
    if word == "name":
        return name_taken(worker.name)
    if word == "closed":
        return CycleClosedError(f"cycle {what.cycle} is not open: nothing more can be recorded in it.")
    if word == "gap":
        shard, seq, due = numbers
        return DiffersError(
            f"shard {shard} is at segment {due} of cycle {what.cycle} in the ledger, and segment {seq} was "
            "to be appended: the shard is ahead of its ledger, which may be an older backup. Rebuild the "
            "shard from the ledger."
        )
    if word == "other":
        return DiffersError(
            f"segment {numbers[1]} of shard {numbers[0]}, cycle {what.cycle}, is in the ledger with other "
            "contents: two copies of the shard went different ways. Rebuild the shard from the ledger."
        )
    if word == "consumed":
        return DiffersError(
            f"of {len(what.consumed)} letters that were to be consumed, {numbers[0]} are there: others "
            "consumed them. Rebuild the shards from the ledger."
        )
    return ValueError("expected letters to shards of the ledger; found one to another, which nobody reads")


def read_log(
    calls: Calls, cycle: int, shard: int, first: int = 0
) -> Iterator[tuple[int, npt.NDArray[Any], bytes]]:
    """Yield number, visits (dtype `VISIT`) and rest of a shard's segments of a cycle, from one number on.

    Raises LedgerDamagedError, which names the segment, before anything of a damaged one is yielded, and for
    one that is missing before the last.
    """
    while True:
        rows = calls.single(_segments, cycle, shard, first)
        for one, sha256 in rows:
            if one.seq != first:
                raise segments.damaged(cycle, shard, first, f"it is missing, and segment {one.seq} is there")
            yield one.seq, *segments.read(one, sha256, cycle)
            first += 1
        if len(rows) < READ_AT_ONCE:
            return


def _segments(tx: Transaction, cycle: int, shard: int, first: int) -> list[tuple[Segment, bytes]]:
    rows = tx.execute(
        "SELECT shard, seq, visits, body, sha256 FROM gp4c.log"
        " WHERE cycle = %s AND shard = %s AND seq >= %s ORDER BY seq LIMIT %s",
        (cycle, shard, first, READ_AT_ONCE),
        binary=True,
    ).fetchall()
    return [
        (Segment(one, seq, visits, bytes(body)), bytes(sha256)) for one, seq, visits, body, sha256 in rows
    ]
