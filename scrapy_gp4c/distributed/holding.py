"""Which shards a worker holds: it waits for its peers, takes what it is assigned, and all are held."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from scrapy_gp4c.distributed import leases
from scrapy_gp4c.distributed.assignment import Assignment, assign
from scrapy_gp4c.distributed.errors import LedgerError
from scrapy_gp4c.distributed.leases import Lease, View
from scrapy_gp4c.distributed.link import Link, sleep
from scrapy_gp4c.errors import Gp4cError

SETTLE: Final = 0.1
"""Of the lease: so long the workers must be the same before shards are taken, as they start together."""
LOOK_S: Final = 0.25


class MoreShardsError(Gp4cError):
    """This worker is to take shards over."""


class NothingDueError(Exception):
    """There is nothing for this worker to do now; says why."""


async def take_shards(link: Link, at_cycle_end: bool, settle: float = SETTLE) -> dict[int, Lease]:
    """Take the shards that this worker is assigned; returns when every shard has a living holder.

    ``settle``: share of the lease in which the workers must have been the same.
    Raises NothingDueError where others have them all, LedgerError for parked shards.
    """
    since, alive = time.monotonic(), frozenset[str]()
    while True:
        view = await link.surely(leases.look)
        now = frozenset(row.instance for row in view.workers if row.left_s >= 0)
        if now != alive:
            since, alive = time.monotonic(), now
        assignment = assign(view, link.worker.lease_s, at_cycle_end)
        _refuse_parked(assignment)
        held = {row.shard: row.token for row in view.shards if row.instance == link.worker.instance}
        wanted = assignment.of(link.worker.name)
        is_settled = time.monotonic() - since >= settle * link.worker.lease_s
        if is_settled:
            too_many = {shard: token for shard, token in held.items() if shard not in wanted}
            if too_many:
                await link.surely(leases.release, too_many)
            for shard in sorted(wanted - held.keys()):
                await link.surely(leases.take, link.worker, shard)
            if wanted == held.keys() and not homeless(view):
                if not held:
                    raise NothingDueError(
                        "all shards have living holders: there is nothing for this worker to do now."
                    )
                return {one.shard: one for one in await link.surely(leases.holdings, link.worker)}
        await sleep(LOOK_S)


def homeless(view: View) -> list[int]:
    """Shards that nobody alive holds."""
    alive = {row.instance for row in view.workers if row.left_s >= 0}
    return [row.shard for row in view.shards if row.instance not in alive]


async def watch(link: Link, held: Iterable[int], missing: Iterable[int] | None) -> None:
    """Raise MoreShardsError if this worker is to take over shards that others have lost.

    ``missing``: those that are waited for; None: any. Raises why the lease cannot be renewed any more.
    """
    if link.failure is not None:
        raise link.failure
    view = await link.surely(leases.look)
    lost = set(homeless(view)).intersection(range(len(view.shards)) if missing is None else missing)
    if lost & (assign(view, link.worker.lease_s).of(link.worker.name) - set(held)):
        raise MoreShardsError("other workers are gone: this one goes on with shards of theirs, too")


def _refuse_parked(assignment: Assignment) -> None:
    if assignment.parked:
        names = ", ".join(map(str, assignment.parked))
        raise LedgerError(
            f"shards killed their holders one after the other and are parked: {names}. Look into the logs of "
            "these workers, then let them be taken again: scrapy gp4c workers SPIDER unpark SHARD."
        )
