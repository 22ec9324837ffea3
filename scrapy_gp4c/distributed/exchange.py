"""How shards agree on a plan or a report: each posts its part, anybody combines them, the first one counts.

Parts and answers are bytes, whose meaning is the planning's affair. As an answer is a function of the parts,
a second one must be equal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from psycopg import sql

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.direct import byteas, numbers, rows
from scrapy_gp4c.distributed.errors import DiffersError
from scrapy_gp4c.distributed.leases import PARKED_AFTER, refuse_lost

_STEP: Final = sql.SQL("gp4c.step({}, {}, {})")
_SIZE: Final = struct.Struct(">i")
ANSWER: Final = -1
"""In place of a shard: the combined answer."""
DIFFERS: Final = b"differs"
"""What the server says of a part where another one was posted before."""


class Step(NamedTuple):
    """One question of a cycle."""

    cycle: int
    name: str
    """Such as ``cut/2``: a short text, unique in the cycle."""


class Waiting(NamedTuple):
    """How far a step is."""

    missing: int
    """Shards that have posted no part."""
    homeless: int
    """While parts are missing: shards that nobody alive holds."""
    answer: bytes | None
    """What the parts come to, once anybody has written it."""
    parts: tuple[bytes, ...] = ()
    """Of all shards, by shard: told to whoever posts the last one, where it asks for them."""


class Posted(NamedTuple):
    """A shard's part of a step."""

    shard: int
    token: int
    part: bytes


def post(tx: Transaction, step: Step, posts: Sequence[Posted], tell: bool = False) -> Waiting:
    """Write parts of shards, by number, under their fences, and return how far the step is: one statement.

    ``tell``: with all parts, if these were the last. Raises FencedError; DiffersError for a second, other
    part.
    """
    answers = _posted(tx, step, posts, tell)
    for shard, told in answers:
        if told == DIFFERS:
            raise differs(step, shard)
    return waiting(answers[-1][1])


def settle(
    tx: Transaction, step: Step, posts: Sequence[Posted], tell: bool = False
) -> tuple[dict[int, bytes], Waiting]:
    """Write parts, by number, where a shard has none: one statement, rarely three.

    Returns those that count, and how far the step is, see `post`. Raises FencedError.
    """
    answers = _posted(tx, step, posts, tell)
    own = {shard: part for shard, _, part in posts}
    if differ := [shard for shard, told in answers if told == DIFFERS]:
        return own | parts_of(tx, step, differ), look(tx, step)
    return own, waiting(answers[-1][1])


def look(tx: Transaction, step: Step) -> Waiting:
    """Return how far a step is: one statement, without parameters, as these take bytes."""
    [(told,)] = rows(tx, f"SELECT {looking(step)}")
    assert told is not None
    return waiting(told)


def looking(step: Step) -> str:
    """Return what `look` selects: another statement may select it besides, see `waiting`."""
    return _STEP.format(*step, PARKED_AFTER).as_string()


def told(tx: Transaction, step: Step) -> list[bytes]:
    """Return the parts that are there, by shard: one statement."""
    rows = tx.execute(
        "SELECT body FROM gp4c.report WHERE cycle = %s AND step = %s AND shard >= 0 ORDER BY shard",
        step,
        binary=True,
    ).fetchall()
    return [bytes(body) for (body,) in rows]


def addressed(tx: Transaction, step: Step, shards: Iterable[int]) -> list[tuple[int, Any]]:
    """Return what the parts of a step have for some shards, as (shard, content), by sender.

    Such a part is JSON: an object whose names are the shards that it has something for.
    """
    rows = tx.execute(
        "SELECT n, convert_from(body, 'UTF8')::json -> n FROM gp4c.report, unnest(%s::text[]) AS n"
        " WHERE cycle = %s AND step = %s AND shard >= 0 AND convert_from(body, 'UTF8')::jsonb ? n"
        " ORDER BY shard",
        ([str(shard) for shard in shards], *step),
    ).fetchall()
    return [(int(number), content) for number, content in rows]


def missing(tx: Transaction, step: Step) -> list[int]:
    """Return the shards whose parts are missing: whom the others wait for."""
    rows = tx.execute(
        "SELECT shard FROM gp4c.shard AS s WHERE NOT EXISTS (SELECT FROM gp4c.report AS r"
        " WHERE r.cycle = %s AND r.step = %s AND r.shard = s.shard) ORDER BY shard",
        step,
    ).fetchall()
    return [shard for (shard,) in rows]


def put_answer(tx: Transaction, step: Step, body: bytes) -> None:
    """Write what the parts come to. Raises DiffersError if another worker found something else."""
    post(tx, step, [Posted(ANSWER, 0, body)])


def answer(tx: Transaction, step: Step) -> bytes | None:
    """Return what the parts come to; None while nobody has written it."""
    return parts_of(tx, step, [ANSWER]).get(ANSWER)


def parts_of(tx: Transaction, step: Step, shards: Sequence[int]) -> dict[int, bytes]:
    """Return what some shards have posted, whoever held them: one statement."""
    rows = tx.execute(
        "SELECT shard, body FROM gp4c.report WHERE cycle = %s AND step = %s AND shard = ANY(%s)",
        (*step, [*shards]),
        binary=True,
    ).fetchall()
    return {shard: bytes(body) for shard, body in rows}


def _posted(tx: Transaction, step: Step, posts: Sequence[Posted], tell: bool) -> list[tuple[int, bytes]]:
    """What the server says of each; raises FencedError."""
    shards, tokens, parts = zip(*posts, strict=True)
    answers = rows(
        tx,
        "SELECT gp4c.post($1::int, $2::text, shard, token, body, $3::int, $4::boolean)"
        " FROM unnest($5::int[], $6::bigint[], $7::bytea[]) AS n (shard, token, body)",
        *(*step, PARKED_AFTER, tell, numbers(shards), numbers(tokens), byteas(parts)),
    )
    told = [(shard, answer or b"") for shard, (answer,) in zip(shards, answers, strict=True)]
    refuse_lost([shard for shard, answer in told if answer == b"lost"])
    return told


def waiting(told: bytes) -> Waiting:
    """Of `looking`, as the server tells it: ``missing homeless``; then nothing, an answer, or the parts."""
    missing, homeless, rest = bytes(told).split(b" ", 2)
    answer, parts = None, []
    if rest[:1] == b"a":
        answer = rest[1:]
    elif rest:
        at = 1
        while at < len(rest):
            (size,) = _SIZE.unpack_from(rest, at)
            at += _SIZE.size + size
            parts.append(rest[at - size : at])
    return Waiting(int(missing), int(homeless), answer, tuple(parts))


def differs(step: Step, shard: int) -> DiffersError:
    """The error that workers find something else for a step; ``shard``: or `ANSWER`."""
    whose = "the combined answer" if shard == ANSWER else f"the part of shard {shard}"
    return DiffersError(
        f"{whose} for {step.name!r} of cycle {step.cycle} differs from the one that was written "
        "first: workers must find the same. Let all of them run the same versions, also of NumPy; "
        "where processors differ, see docs/distributed.md, Processors of different kinds."
    )
