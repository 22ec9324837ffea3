"""Bringing shards to where the ledger is: from a directory or the newest snapshot, then by the log."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from twisted.internet.threads import deferToThread

from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.distributed import objects, rounds
from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.log import read_log
from scrapy_gp4c.distributed.objects import Place
from scrapy_gp4c.distributed.rounds import Exchange, begun_name
from scrapy_gp4c.distributed.schema import About
from scrapy_gp4c.distributed.standing import Begun, appended
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL, LmdbShard, Sealed, Sizes, new_shard, open_shard
from scrapy_gp4c.store.shards.directory import shard_path
from scrapy_gp4c.store.shards.part import ShardOf

logger = logging.getLogger(__name__)

NEVER: Final = 2**31 - 1
"""Visits after which a store would commit by itself."""


class Home(NamedTuple):
    """Where a worker has its shards, and where copies of them are."""

    directory: Path
    place: Place
    about: About
    sizes: Sizes

    @classmethod
    def of(cls, settings: Settings, spider: str, place: Place, about: About) -> Home:
        """That of a spider's settings."""
        sizes = USUAL._replace(commit_visits=NEVER)
        if settings.map_size_bytes is not None:
            sizes = sizes._replace(map_size=settings.map_size_bytes)
        return cls(settings.store_path(spider), place, about, sizes)

    def path(self, shard: int) -> Path:
        """Directory of a shard."""
        return shard_path(self.directory, shard)

    def copies(self) -> list[int]:
        """Shards that are in the directory."""
        return [number for number in range(self.about.shards) if any(self.path(number).glob("*.mdb"))]

    def open(self, shard: int) -> LmdbShard:
        """Open a shard; raises a StoreError."""
        one = open_shard(self.path(shard), self.about.shards, self.sizes)
        if one.shard_of != ShardOf(shard, self.about.shards, self.about.ledger):
            one.close()
            raise StoreError(
                f"expected shard {shard} of the ledger {self.about.ledger} in {one.path}; found shard "
                f"{one.shard_of.number} of {one.shard_of.store_id}. Give each ledger a GP4C_STORE of its own."
            )
        return one


async def opened(link: Link, home: Home, shard: int, cycle: int) -> LmdbShard:
    """Open a shard that is in this cycle, or has ended it or the one before; rebuild one that is not."""
    if shard in home.copies():
        one = home.open(shard)
        log = await link.surely(appended, cycle, shard)
        is_ahead = one.open_cycle == cycle and one.applied > log
        if one.last_cycle in (cycle - 1, cycle) and not is_ahead:
            return one
        one.close()
        logger.warning(
            "Shard %d in %s is %s: it is built anew from the ledger",
            shard,
            home.path(shard),
            "ahead of the ledger" if is_ahead or one.last_cycle > cycle else "of an older cycle",
        )
    await _rebuild(link, home, shard)
    return home.open(shard)


async def _rebuild(link: Link, home: Home, shard: int) -> None:
    """Put the newest snapshot of a shard into its directory, or an empty shard if there is none."""
    path = home.path(shard)
    shutil.rmtree(path, ignore_errors=True)
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    copies = [one for one in await link.surely(objects.registered, shard) if one.kind == "snapshot"]
    if copies:
        part.mkdir(0o700, parents=True)
        newest = max(copies, key=lambda one: one.cycle)
        await deferToThread(objects.get, home.place, newest, part / "data.mdb")
    else:
        part.parent.mkdir(parents=True, exist_ok=True)
        new_shard(part, ShardOf(shard, home.about.shards, home.about.ledger), home.sizes)
    part.rename(path)


async def caught_up(
    link: Link, exchange: Exchange, shards: Sequence[LmdbShard], begun: Begun, settings: Settings
) -> dict[LmdbShard, Planner]:
    """Begin the cycle in shards where it is not, plan round 0 with the others, and apply the log.

    Then the rounds are planned again that all shards have begun by now.
    """
    for one in shards:
        if one.open_cycle is None:
            one.begin_cycle({**begun.decided.record, "started": begun.started})
    planners = rounds.planners_of(shards, settings)
    fresh = {one: planner for one, planner in planners.items() if not planner.planned_rounds}
    if fresh:
        await rounds.plan(exchange, fresh, 0, awaited=False)
    for one in shards:
        await deferToThread(_read, link, begun.cycle, one)
    number = 1
    while not all(planner.is_over for planner in planners.values()):
        if not await exchange.is_complete(begun_name(number)):
            break
        behind = {one: planner for one, planner in planners.items() if planner.planned_rounds == number}
        if behind and not await rounds.plan(exchange, behind, number, awaited=False):
            break
        number += 1
    return planners


def _read(link: Link, cycle: int, shard: LmdbShard) -> None:
    """Apply what the log has of a shard beyond what is written."""
    number = shard.shard_of.number
    for seq, visits, rest in read_log(link.thread, cycle, number, shard.applied):
        try:
            shard.apply(Sealed(visits, rest), seq)
        except ValueError as error:
            raise LedgerDamagedError(
                f"segment {seq} of shard {number}, cycle {cycle}, does not go on where the ones before end: "
                f"{error}. Nothing of it was applied: restore the ledger's database from a backup."
            ) from None
