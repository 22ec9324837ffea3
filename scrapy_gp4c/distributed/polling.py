"""What a worker asks from time to time: one row, whatever the crawl's size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.leases import PARKED_AFTER, Worker


class Poll(NamedTuple):
    """What may have changed by others."""

    cycle: int
    """The last one; 0: none."""
    closed: bool
    mail: bool
    """Whether letters wait for this worker's shards."""
    homeless: int
    """Shards, but for parked ones, that nobody alive holds: time to look, and to assign."""
    draining: bool


def poll(tx: Transaction, worker: Worker, shards: Iterable[int]) -> Poll:
    """Return what may have changed, for a worker that holds these shards."""
    row = tx.execute(
        "SELECT coalesce(c.cycle, 0), c.cycle IS NULL OR c.closed IS NOT NULL,"
        " EXISTS (SELECT FROM gp4c.mail WHERE receiver = ANY(%s)),"
        " (SELECT count(*) FROM gp4c.shard AS s WHERE s.deaths < %s AND NOT EXISTS (SELECT FROM "
        "gp4c.worker AS w"
        " WHERE w.name = s.holder AND w.instance = s.instance AND w.expires >= clock_timestamp())),"
        " coalesce((SELECT draining FROM gp4c.worker WHERE name = %s AND instance = %s), false)"
        " FROM (SELECT max(cycle) AS last FROM gp4c.cycle) AS l LEFT JOIN gp4c.cycle AS c ON c.cycle = "
        "l.last",
        (sorted(shards), PARKED_AFTER, worker.name, worker.instance),
    ).fetchone()
    assert row is not None
    return Poll(*row)
