"""The log: what workers recorded in the open cycle. One transaction a flush; shards are rebuilt from it.

A visit is recorded when its flush returned. A flush whose answer was lost is sent again as it was, and
recognised; one under a token that is not the shard's any more writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from scrapy_gp4c.distributed import segments
from scrapy_gp4c.distributed.connection import Calls, Transaction
from scrapy_gp4c.distributed.errors import CycleClosedError, DiffersError
from scrapy_gp4c.distributed.leases import RENEWAL, Worker, name_taken, refuse_lost, renew, renewal_of
from scrapy_gp4c.distributed.segments import Segment

READ_AT_ONCE: Final = 100
"""Segments of one call: some hundred kB."""


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

    def digest(self) -> bytes:
        """By which a repeated flush is recognised."""
        found = hashlib.sha256(repr((self.number, self.cycle, sorted(self.tokens.items()))).encode())
        for one in self.segments:
            found.update(repr(one[:3]).encode() + one.sha256)
        for letter in self.letters:
            found.update(repr(letter[:2]).encode() + hashlib.sha256(letter.body).digest())
        found.update(repr((self.consumed, sorted(self.progress.items()))).encode())
        return found.digest()


class Flushed(NamedTuple):
    """What became of a flush."""

    repeated: bool
    """Whether it was written before, and its answer lost."""


def flush(tx: Transaction, worker: Worker, what: Flush) -> Flushed:
    """Write segments, mail, progress and the lease's renewal, all or nothing.

    Raises FencedError for shards that others hold, CycleClosedError, NameTakenError, and DiffersError for
    what does not go on where the ledger is.
    """
    _expect_tokens(what)
    if what.empty:
        renew(tx, worker)
        return Flushed(repeated=False)
    rows = tx.execute(
        "SELECT shard, token, cycle, seq FROM gp4c.shard WHERE shard = ANY(%s) ORDER BY shard FOR UPDATE",
        (sorted(what.tokens),),
    ).fetchall()
    digest = what.digest()
    # A statement of its own: it sees what was committed by those for whose locks the one above waited, such
    # as this very flush, whose connection was lost while the server was still at it.
    last = tx.execute(
        "SELECT flush, (SELECT closed IS NULL FROM gp4c.cycle WHERE cycle = %s)"
        " FROM gp4c.worker WHERE name = %s AND instance = %s",
        (what.cycle, worker.name, worker.instance),
    ).fetchone()
    if last is not None and last[0] == digest:
        renew(tx, worker)
        return Flushed(repeated=True)
    found = {shard: token for shard, token, _, _ in rows}
    refuse_lost([shard for shard, token in what.tokens.items() if found.get(shard) != token])
    if last is None:
        raise name_taken(worker.name)
    if not last[1]:
        raise CycleClosedError(f"cycle {what.cycle} is not open: nothing more can be recorded in it.")
    new = _new_segments(tx, what, {shard: seq if cycle == what.cycle else 0 for shard, _, cycle, seq in rows})
    _mail(tx, what)
    _note_progress(tx, what)
    if new:
        _append(tx, worker, what, new, digest)
    else:
        renew(tx, worker, digest)
    return Flushed(repeated=False)


def _expect_tokens(what: Flush) -> None:
    """Raise ValueError for a part that no token fences."""
    senders = {letter.sender for letter in what.letters}
    fenced = {one.shard for one in what.segments} | senders | set(what.progress)
    if bare := fenced - set(what.tokens):
        raise ValueError(f"expected a token for shard {min(bare)}, which the flush has a part of; found none")


def _new_segments(tx: Transaction, what: Flush, expected: dict[int, int]) -> list[Segment]:
    """The segments that are not there yet; those that are must be equal."""
    new = []
    for one in what.segments:
        if one.seq < expected[one.shard]:
            _same_as_before(tx, what.cycle, one)
            continue
        if one.seq > expected[one.shard]:
            raise DiffersError(
                f"shard {one.shard} is at segment {expected[one.shard]} of cycle {what.cycle} in the "
                f"ledger, and "
                f"segment {one.seq} was to be appended: the shard is ahead of its ledger, which may be an "
                f"older "
                "backup. Rebuild the shard from the ledger."
            )
        expected[one.shard] += 1
        new.append(one)
    return new


def _append(tx: Transaction, worker: Worker, what: Flush, new: list[Segment], digest: bytes) -> None:
    """Append segments, count them at their shards and renew the lease, in one statement."""
    count = {one.shard: one.seq + 1 for one in new}
    row = tx.execute(
        f"WITH renewed AS ({RENEWAL} RETURNING 1), counted AS (UPDATE gp4c.shard AS s SET cycle = %b::int,"
        " seq = n.seq FROM unnest(%b::smallint[], %b::int[]) AS n (shard, seq) WHERE s.shard = n.shard),"
        " written AS (INSERT INTO gp4c.log (cycle, shard, seq, token, visits, sha256, body) SELECT %b::int, *"
        " FROM unnest(%b::smallint[], %b::int[], %b::bigint[], %b::int[], %b::bytea[], %b::bytea[]))"
        " SELECT count(*) FROM renewed",
        (
            *renewal_of(worker, digest),
            what.cycle,
            list(count),
            list(count.values()),
            what.cycle,
            [one.shard for one in new],
            [one.seq for one in new],
            [what.tokens[one.shard] for one in new],
            [one.visits for one in new],
            [one.sha256 for one in new],
            [one.body for one in new],
        ),
    ).fetchone()
    if row != (1,):
        raise name_taken(worker.name)


def _same_as_before(tx: Transaction, cycle: int, one: Segment) -> None:
    row = tx.execute(
        "SELECT sha256 FROM gp4c.log WHERE cycle = %s AND shard = %s AND seq = %s",
        (cycle, one.shard, one.seq),
    ).fetchone()
    if row is None or row[0] != one.sha256:
        raise DiffersError(
            f"segment {one.seq} of shard {one.shard}, cycle {cycle}, is in the ledger with other contents: "
            f"two "
            "copies of the shard went different ways. Rebuild the shard from the ledger."
        )


def _mail(tx: Transaction, what: Flush) -> None:
    """Send letters and delete those that are consumed, in one statement."""
    if not (what.letters or what.consumed):
        return
    row = tx.execute(
        "WITH gone AS (DELETE FROM gp4c.mail WHERE id = ANY(%b::bigint[]) AND receiver = ANY(%b::smallint[])"
        " RETURNING 1), written AS (INSERT INTO gp4c.mail (cycle, sender, receiver, body) SELECT %b, l.*"
        " FROM unnest(%b::smallint[], %b::smallint[], %b::bytea[]) AS l (sender, receiver, body)"
        " WHERE l.receiver IN (SELECT shard FROM gp4c.shard) RETURNING 1)"
        " SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM written)",
        (
            sorted(what.consumed),
            sorted(what.tokens),
            what.cycle,
            [letter.sender for letter in what.letters],
            [letter.receiver for letter in what.letters],
            [letter.body for letter in what.letters],
        ),
    ).fetchone()
    assert row is not None
    gone, written = row
    if written != len(what.letters):
        raise ValueError("expected letters to shards of the ledger; found one to another, which nobody reads")
    if gone != len(set(what.consumed)):
        raise DiffersError(
            f"of {len(what.consumed)} letters that were to be consumed, {gone} are there: others consumed "
            "them. Rebuild the shards from the ledger."
        )


def _note_progress(tx: Transaction, what: Flush) -> None:
    """Note pages and ends; a shard that came to its end did not kill its holder."""
    if what.progress:
        tx.execute(
            "UPDATE gp4c.shard AS s SET pages = n.pages, done = CASE WHEN n.done THEN %s ELSE %s END,"
            " deaths = CASE WHEN n.done THEN 0 ELSE deaths END"
            " FROM unnest(%s::smallint[], %s::bigint[], %s::boolean[]) AS n (shard, pages, done)"
            " WHERE s.shard = n.shard",
            (
                what.cycle,
                what.cycle - 1,
                list(what.progress),
                [one.pages for one in what.progress.values()],
                [one.done for one in what.progress.values()],
            ),
        )


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
