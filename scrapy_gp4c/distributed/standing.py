"""Where the crawl as a whole stands, by the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.cycles import CycleState, Decided, state
from scrapy_gp4c.distributed.errors import DiffersError
from scrapy_gp4c.distributed.exchange import Step, Waiting, looking, waiting


class Begun(NamedTuple):
    """A cycle as the ledger has it."""

    cycle: int
    started: float
    """s since 1970, by the server's clock, as is `closed`."""
    closed: float | None
    """None: it is open."""
    decided: Decided


class Standing(NamedTuple):
    """What is to be done."""

    last: CycleState
    is_complete: bool
    """Whether the last cycle is closed, and every shard has an object of it."""


def standing(tx: Transaction) -> Standing:
    """Return what is to be done: to close the last cycle, to go on with it, or to open the next."""
    last = state(tx)
    row = tx.execute(
        "SELECT count(*) FROM gp4c.shard AS s WHERE NOT EXISTS (SELECT FROM gp4c.object AS o"
        " WHERE o.shard = s.shard AND o.kind IN ('cycle', 'snapshot') AND o.cycle = %s)",
        (last.cycle,),
    ).fetchone()
    return Standing(last, last.closed and (last.cycle == 0 or row == (0,)))


def begun(tx: Transaction, cycle: int) -> Begun:
    """Return a cycle; raises DiffersError if there is none of this number."""
    row = tx.execute(
        "SELECT extract(epoch FROM opened)::float8, extract(epoch FROM closed)::float8, decided"
        " FROM gp4c.cycle WHERE cycle = %s",
        (cycle,),
    ).fetchone()
    if row is None:
        raise DiffersError(f"the ledger has no cycle {cycle}: it may be an older backup. Rebuild from it.")
    return Begun(cycle, row[0], row[1], Decided(*json.loads(row[2])))


def appended(tx: Transaction, cycle: int, shard: int) -> int:
    """Return how many segments a shard has in the log of a cycle."""
    row = tx.execute(
        "SELECT count(*) FROM gp4c.log WHERE cycle = %s AND shard = %s", (cycle, shard)
    ).fetchone()
    return int(row[0]) if row is not None else 0


def come_to(tx: Transaction, step: Step, shards: Sequence[int]) -> tuple[dict[int, int], Waiting]:
    """Return how many segments shards have in the log of a step's cycle, and how far the step is.

    One statement, and no look at the log.
    """
    row = tx.execute(
        f"SELECT {looking(step)}, ARRAY(SELECT ARRAY[shard, seq] FROM gp4c.shard"
        " WHERE shard = ANY(%b) AND cycle = %b)".encode(),
        ([*shards], step.cycle),
        binary=True,
    ).fetchone()
    assert row is not None
    return dict(row[1]), waiting(row[0])


def finished(tx: Transaction, cycle: int) -> float | None:
    """Return when a cycle was finished by its record, s since 1970; None while it has none."""
    row = tx.execute("SELECT record FROM gp4c.cycle WHERE cycle = %s", (cycle,)).fetchone()
    if row is None or row[0] is None:
        return None
    return float(json.loads(row[0])["finished"])
