"""Which worker should hold which shard: a function of ledger rows, so that every worker finds the same.

Shards are weighed by their known pages. They move when their holder died or drains, and, where that evens
out what workers hold, at the end of a cycle; as few as possible.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from scrapy_gp4c.distributed.leases import PARKED_AFTER, ShardRow, View, WorkerRow

PAGES_OF_EMPTY: Final = 1
"""What a shard without pages weighs: empty ones are spread out, too."""
SLACK: Final = 0.1
"""Of the mean: how much fuller than the emptiest a worker may be before shards move at the end of a cycle."""

FULL: Final = 1.5
"""Of the mean: a copy draws a shard to a worker that is no fuller than this by it."""


class Assignment(NamedTuple):
    """Who should hold what."""

    holders: Mapping[int, str]
    """Shard -> worker; parked shards, and all while nobody lives, are missing."""
    parked: tuple[int, ...]
    """Shards that killed so many holders that nobody is to take them."""

    def of(self, worker: str) -> frozenset[int]:
        """Shards that a worker should hold."""
        return frozenset(shard for shard, name in self.holders.items() if name == worker)


def assign(view: View, lease_s: float, at_cycle_end: bool = False) -> Assignment:
    """Return who should hold what.

    Within a lease after the server started, nobody could renew: holders count as alive, and only shards that
    nobody holds are given out. Ties fall to the lowest name and number.
    """
    settled = view.server_up_s >= lease_s
    alive = {row.name: row for row in view.workers if row.left_s >= 0}
    known = {(row.name, row.instance) for row in view.workers if row.left_s >= 0 or not settled}
    weights = {row.shard: max(row.pages, PAGES_OF_EMPTY) for row in view.shards}
    open_to = {name: row for name, row in alive.items() if not row.draining}
    holders: dict[int, str] = {}
    homeless: list[ShardRow] = []
    for row in view.shards:
        holds = row.holder is not None and (row.holder, row.instance) in known
        drains = row.holder in alive and alive[row.holder].draining
        if holds and row.holder is not None and not (drains and open_to):
            holders[row.shard] = row.holder
        elif not holds and row.deaths + (row.holder is not None) >= PARKED_AFTER:
            continue
        elif settled or row.holder is None or drains:
            homeless.append(row)
    loads = dict.fromkeys(sorted(open_to), 0)
    for shard, name in holders.items():
        if name in loads:
            loads[name] += weights[shard]
    if loads:
        _house(homeless, open_to, loads, weights, holders)
        if at_cycle_end:
            _even_out(loads, weights, holders)
    parked = tuple(row.shard for row in view.shards if _parked(row, known))
    return Assignment(holders, parked)


def _parked(row: ShardRow, known: Container[tuple[str, str]]) -> bool:
    dead = row.holder is not None and (row.holder, row.instance or "") not in known
    return row.deaths + dead >= PARKED_AFTER


def _house(
    homeless: list[ShardRow],
    workers: Mapping[str, WorkerRow],
    loads: dict[str, int],
    weights: Mapping[int, int],
    holders: dict[int, str],
) -> None:
    """Give each homeless shard to who has a copy of it, if it is not too full for that, or to the emptiest.

    The heaviest first: so no worker ends more than one shard above the emptiest. Suspects, with which holders
    died, come last and lie apart, as who holds two of them dies of either.
    """
    fair = (sum(loads.values()) + sum(weights[row.shard] for row in homeless)) / len(loads)
    suspects = dict.fromkeys(loads, 0)
    for row in sorted(homeless, key=lambda row: (_suspect(row), -weights[row.shard], row.shard)):
        weight = weights[row.shard]
        names = list(loads)
        if _suspect(row):
            names = [name for name in names if suspects[name] == min(suspects.values())]
        copies = [
            name
            for name in names
            if row.shard in workers[name].copies and loads[name] + weight <= FULL * fair
        ]
        best = min(copies or names, key=lambda name: (loads[name], name))
        holders[row.shard] = best
        loads[best] += weight
        suspects[best] += _suspect(row)


def _suspect(row: ShardRow) -> bool:
    return row.deaths > 0


def _even_out(loads: dict[str, int], weights: Mapping[int, int], holders: dict[int, str]) -> None:
    """Move shards from the fullest worker to the emptiest as long as that brings them closer by enough.

    Each move takes the shard that leaves the two closest to each other, which takes few moves; every move
    lowers the sum of squared loads, so it ends.
    """
    slack = SLACK * sum(loads.values()) / len(loads)
    while True:
        full = max(loads, key=lambda name: (loads[name], name))
        empty = min(loads, key=lambda name: (loads[name], name))
        gap = loads[full] - loads[empty]
        movable = [shard for shard, name in holders.items() if name == full and weights[shard] < gap]
        if gap <= slack or not movable:
            return
        shard = min(movable, key=lambda one: (abs(gap - 2 * weights[one]), one))
        holders[shard] = empty
        loads[full] -= weights[shard]
        loads[empty] += weights[shard]
