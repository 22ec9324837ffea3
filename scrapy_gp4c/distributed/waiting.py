"""Workers that wait for the next cycle: `join` without a crawl. They hold nothing, and are assigned nothing.

The row of such a worker is its crawl's from when that begins; when the crawl leaves, it is there again with
the next look of `join`. So there is always somebody of the name to drain.
"""

from __future__ import annotations

from typing import Final

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.leases import WAITING

LASTS_S: Final = 30.0
"""The row of a worker that waits, after its last look."""


def wait(tx: Transaction, name: str) -> bool:
    """Enter a worker that waits, unless a process of its name is in a cycle; tells whether it is drained."""
    row = tx.execute(
        "INSERT INTO gp4c.worker AS w (name, instance, expires)"
        " VALUES (%(name)s, %(waits)s, clock_timestamp() + make_interval(secs => %(lasts)s))"
        " ON CONFLICT (name) DO UPDATE SET expires = CASE WHEN w.instance = %(waits)s OR w.expires <"
        " clock_timestamp() THEN excluded.expires ELSE w.expires END, instance = CASE WHEN"
        " w.instance = %(waits)s OR w.expires < clock_timestamp() THEN %(waits)s ELSE w.instance END"
        " RETURNING draining",
        {"name": name, "waits": WAITING, "lasts": LASTS_S},
    ).fetchone()
    return row == (True,)


def end(tx: Transaction, name: str) -> None:
    """Take out a worker that waits no more, or that was drained, and is gone or holds nothing."""
    tx.execute(
        "DELETE FROM gp4c.worker AS w WHERE name = %s AND (instance = %s OR draining AND (expires <"
        " clock_timestamp() OR NOT EXISTS"
        " (SELECT FROM gp4c.shard AS s WHERE s.holder = w.name AND s.instance = w.instance)))",
        (name, WAITING),
    )
