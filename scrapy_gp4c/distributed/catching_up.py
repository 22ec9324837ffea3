"""Bringing shards to where the ledger is: from a directory or the newest snapshot, then by the log."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from twisted.internet.threads import deferToThread

from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.distributed import copies, objects, rounds
from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.log import read_log
from scrapy_gp4c.distributed.objects import Copies, Place
from scrapy_gp4c.distributed.rounds import Exchange, begun_name
from scrapy_gp4c.distributed.schema import About
from scrapy_gp4c.distributed.standing import Begun, appended, come_to, finished
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL, LmdbShard, Sealed, Sizes, open_shard
from scrapy_gp4c.store.shards.directory import shard_path
from scrapy_gp4c.store.shards.part import ShardOf

logger = logging.getLogger(__name__)

AHEAD: Final = "ahead of the ledger"
OLDER: Final = "of an older cycle"
OTHERWISE: Final = "not what the ledger has of it"
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


async def opened(link: Link, home: Home, shard: int, begun: Begun) -> LmdbShard:
    """Open a shard as a cycle needs it: in it, or as that or the one before has left it.

    One that has missed cycles goes through them; one that is not as the ledger has it is built anew.
    """
    if shard in home.copies():
        one = home.open(shard)
        missed = await link.surely(objects.copies, shard, one.last_cycle)
        problem = await _problem(link, one, begun, missed)
        if problem is None:
            await deferToThread(copies.replay, home.place, one, missed.cycles)
            return one
        one.close()
        logger.warning(
            "Shard %d in %s is %s: it is built anew from the ledger", shard, home.path(shard), problem
        )
    await deferToThread(_rebuild, link, home, shard)
    return home.open(shard)


async def _problem(link: Link, one: LmdbShard, begun: Begun, missed: Copies) -> str | None:
    """What is wrong with a shard for this cycle; None: nothing, once it has gone through what it missed.

    A ledger that is an older backup, or has lost commits, may have gone another way since than the shard has.
    """
    cycle, number = begun.cycle, one.shard_of.number
    last = cycle if begun.closed is not None else cycle - 1
    if one.last_cycle > last:
        return AHEAD
    if one.last_cycle + len(missed.cycles) < cycle - 1:
        return OLDER
    if missed.snapshot is not None and missed.snapshot.cycle > one.last_cycle:
        return OLDER  # and the snapshot was cheaper than the cycles
    if one.last_cycle and one.cycles()[one.last_cycle - 1].get("finished") != await link.surely(
        finished, one.last_cycle
    ):
        return OTHERWISE
    if one.open_cycle is None:
        return None
    if missed.cycles:
        return OLDER  # others have closed the cycle that is open here, and its log may be gone
    if one.cycles()[-1]["started"] != begun.started:
        return OTHERWISE
    if not one.applied:
        return None
    if one.applied > await link.surely(appended, cycle, number):
        return AHEAD
    _, visits, _ = await deferToThread(next, read_log(link.thread, cycle, number, one.applied - 1))
    own = one.open_visits()[: one.acknowledged_visits]
    return None if own[len(own) - len(visits) :].tobytes() == visits.tobytes() else OTHERWISE


def _rebuild(link: Link, home: Home, shard: int) -> None:
    """Build a shard as its last closed cycle left it, beside its directory, and put it in its place."""
    path = home.path(shard)
    shutil.rmtree(path, ignore_errors=True)
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    of = ShardOf(shard, home.about.shards, home.about.ledger)
    copies.build(link.thread, home.place, of, part, home.sizes)
    part.rename(path)


async def caught_up(
    link: Link, exchange: Exchange, shards: Sequence[LmdbShard], begun: Begun, settings: Settings
) -> dict[LmdbShard, Planner]:
    """Begin the cycle in shards where it is not, plan round 0 with the others, and apply the log.

    Then the rounds are planned again that all shards have begun by now. Where others had yet to begin round 0
    after own shards, there is neither a log nor such a round. Of a round that begins later a run hears by its
    looks.
    """
    for one in shards:
        if one.open_cycle is None:
            one.begin_cycle({**begun.decided.record, "started": begun.started})
    planners = rounds.planners_of(shards, settings)
    fresh = {one: planner for one, planner in planners.items() if not planner.planned_rounds}
    if fresh and (await rounds.plan(exchange, fresh, 0)).is_ahead and len(fresh) == len(planners):
        return planners
    own, later = [one.shard_of.number for one in shards], Step(begun.cycle, begun_name(1))
    segments, found = await link.surely_single(come_to, later, own)
    is_begun = not found.missing
    for one in shards:
        if segments.get(one.shard_of.number, 0) > one.applied:
            await deferToThread(_read, link, begun.cycle, one)
    number = 1
    while is_begun and not all(planner.is_over for planner in planners.values()):
        behind = {one: planner for one, planner in planners.items() if planner.planned_rounds == number}
        if behind and not (await rounds.plan(exchange, behind, number)).result:
            break
        number += 1
        is_begun = await exchange.is_complete(begun_name(number))
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
