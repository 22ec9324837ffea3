"""What a worker asks once a second: a line of some twenty bytes, whatever the crawl's size."""

from __future__ import annotations

from typing import NamedTuple

from psycopg import sql

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.leases import PARKED_AFTER, Worker

_LOOK = sql.SQL("gp4c.look({}, {})")
_ASKED = sql.SQL(
    "||CASE WHEN EXISTS(SELECT FROM gp4c.report WHERE cycle={} AND step={}) THEN ' asked' ELSE '' END"
)


class Poll(NamedTuple):
    """What may have changed by others."""

    cycle: int
    """The last one; 0: none."""
    closed: bool
    ended: bool
    """Whether all shards are done with it and no letter is left: it may be closed."""
    mail: bool
    """Whether letters wait for this worker's shards."""
    homeless: int
    """Shards, but for parked ones, that nobody alive holds: time to look, and to assign."""
    draining: bool
    asked: bool = False
    """Whether another worker has begun the step that was asked about."""


def poll(tx: Transaction, worker: Worker, step: Step | None = None) -> Poll:
    """Return what may have changed for a worker; one statement, without parameters, as these take bytes.

    ``step``: which others may have begun: the next round's; None: there is none.
    """
    row = tx.execute(sql.SQL("SELECT ") + looking(worker, step)).fetchone()
    assert row is not None
    return heard(row[0])


def looking(worker: Worker, step: Step | None) -> sql.Composed:
    """Return what `poll` selects: another statement may select it besides, see `heard`."""
    look = _LOOK.format(worker.instance, PARKED_AFTER)
    return look if step is None else look + _ASKED.format(*step)


def heard(told: str) -> Poll:
    """Return what the server has told of `looking`."""
    cycle, homeless, *flags = told.split()
    return Poll(
        int(cycle),
        closed="closed" in flags,
        ended="ended" in flags,
        mail="mail" in flags,
        homeless=int(homeless),
        draining="draining" in flags,
        asked="asked" in flags,
    )
