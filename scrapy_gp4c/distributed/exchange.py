"""How shards agree on a plan or a report: each posts its part, anybody combines them, the first one counts.

Parts and answers are bytes, whose meaning is the planning's affair. As an answer is a function of the parts,
a second one must be equal.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.errors import DiffersError
from scrapy_gp4c.distributed.leases import fence

ANSWER: Final = -1
"""In place of a shard: the combined answer."""


class Step(NamedTuple):
    """One question of a cycle."""

    cycle: int
    name: str
    """Such as ``cut/2``: a short text, unique in the cycle."""


def post(tx: Transaction, step: Step, shard: int, token: int, part: bytes) -> None:
    """Write a shard's part, under its fence. Raises FencedError; DiffersError for a second, other one."""
    fence(tx, {shard: token})
    _write(tx, step, shard, part)


def parts(tx: Transaction, step: Step) -> list[bytes] | None:
    """Return all shards' parts, by shard; None while some are missing."""
    row = tx.execute(
        "SELECT (SELECT shards FROM gp4c.about) = count(*) FROM gp4c.report"
        " WHERE cycle = %s AND step = %s AND shard >= 0",
        step,
    ).fetchone()
    if row != (True,):
        return None
    rows = tx.execute(
        "SELECT body FROM gp4c.report WHERE cycle = %s AND step = %s AND shard >= 0 ORDER BY shard",
        step,
        binary=True,
    ).fetchall()
    return [bytes(body) for (body,) in rows]


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
    _write(tx, step, ANSWER, body)


def answer(tx: Transaction, step: Step) -> bytes | None:
    """Return what the parts come to; None while nobody has written it."""
    return _read(tx, step, ANSWER)


def part(tx: Transaction, step: Step, shard: int) -> bytes | None:
    """Return what a shard has posted, whoever held it; None while it has not."""
    return _read(tx, step, shard)


def _write(tx: Transaction, step: Step, shard: int, body: bytes) -> None:
    first = tx.execute(
        "INSERT INTO gp4c.report (cycle, step, shard, body) VALUES (%b, %b, %b::smallint, %b) ON CONFLICT "
        "DO NOTHING",
        (*step, shard, body),
    ).rowcount
    if not first and _read(tx, step, shard) != body:
        whose = "the combined answer" if shard == ANSWER else f"the part of shard {shard}"
        raise DiffersError(
            f"{whose} for {step.name!r} of cycle {step.cycle} differs from the one that was written first: "
            "workers must find the same. Let all of them run the same versions, also of NumPy."
        )


def _read(tx: Transaction, step: Step, shard: int) -> bytes | None:
    row = tx.execute(
        "SELECT body FROM gp4c.report WHERE cycle = %s AND step = %s AND shard = %s",
        (*step, shard),
        binary=True,
    ).fetchone()
    return None if row is None else bytes(row[0])
