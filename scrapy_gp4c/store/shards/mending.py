"""What a kill between two shards has left, and what becomes of it when they are opened together for writing.

- A cycle that has ended in any shard ends in all: what ends it is in the record that this shard has, and was
  known before the first of them ended it.
- A cycle that has begun in any shard begins in all.
- A round of a plan counts when all shards have it: what some have of another is dropped, and planned anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.records import CycleRecord
from scrapy_gp4c.store.shards.part import Shard, counts_of, of_whole


def mend(shards: Sequence[Shard]) -> None:
    """Bring all shards to where the furthest is; raises StoreError for shards that do not belong together."""
    last = max(one.last_cycle for one in shards)
    ended = next(one for one in shards if one.last_cycle == last)
    behind = [one for one in shards if one.last_cycle < last]
    for one in behind:
        if one.last_cycle < last - 1 or one.open_cycle != last:
            raise StoreError(
                f"expected shards that have ended the same cycles; found {ended.path}, which has ended cycle "
                f"{last}, and {one.path}, which is in cycle {one.last_cycle + 1}. Bring back a backup of all."
            )
    record = of_whole(ended.cycles()[last - 1]) if last else {}
    for one in behind:
        one.finish_cycle({**record, "shard": counts_of(one.open_visits())})
    begun = [one for one in shards if one.open_cycle is not None]
    if not begun:
        return
    record = begun[0].cycles()[-1]
    for one in shards:
        if one.open_cycle is None:
            one.begin_cycle(_begin_of(record))
    rounds = [len(one.rounds()) for one in shards]
    least = min(rounds)
    plan = shards[rounds.index(least)].cycles()[-1].get("plan") if least else None
    for one, count in zip(shards, rounds, strict=True):
        if count > least:
            one.keep_rounds(least, plan)


def _begin_of(record: CycleRecord) -> CycleRecord:
    """What a cycle was begun with, by its record before any plan."""
    own = {
        name: value for name, value in record.items() if name not in ("cycle", "planned", "rounds", "plan")
    }
    return cast(CycleRecord, own)
