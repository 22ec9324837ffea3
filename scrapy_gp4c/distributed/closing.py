"""The end of a cycle: shards tell what they counted, all write the record that one store would have."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from twisted.internet.threads import deferToThread

from scrapy_gp4c.crawling import reports
from scrapy_gp4c.crawling.plan_counts import merged as merged_plans
from scrapy_gp4c.crawling.reports import Report, report_of
from scrapy_gp4c.distributed import cycles, objects
from scrapy_gp4c.distributed.catching_up import Home
from scrapy_gp4c.distributed.leases import Lease
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.objects import Owned
from scrapy_gp4c.distributed.rounds import Exchange
from scrapy_gp4c.distributed.standing import Begun
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import LmdbShard
from scrapy_gp4c.store.records import CycleRecord, PlanCounts, RoundCounts
from scrapy_gp4c.store.shards.part import counts_of

REASON = "finished"


class Told(NamedTuple):
    """What a shard tells at the end of a cycle."""

    report: Report
    rounds: list[RoundCounts]
    plan: PlanCounts

    def packed(self) -> bytes:
        """As JSON: the same for the same."""
        return json.dumps(self).encode()

    @classmethod
    def unpacked(cls, raw: bytes) -> Told:
        """Of `packed`."""
        report, rounds, plan = json.loads(raw)
        return cls(Report.of_json(report), rounds, plan)


async def close(
    exchange: Exchange, link: Link, shards: Sequence[LmdbShard], begun: Begun, settings: Settings
) -> CycleRecord:
    """Fold a closed cycle into shards in which it is open; returns what all say that it came to.

    The same again after a kill comes to the same.
    """
    for one in shards:
        one.wait(False)
    own = {one.shard_of.number: json.dumps(_brought(one)).encode() for one in shards}
    brought: dict[int, Counter[int]] = defaultdict(Counter)
    for raw in await exchange.all_parts("brought", own):
        for shard, key, pages in json.loads(raw):
            brought[shard][key] += pages
    for one in shards:
        _note_brought(one, brought[one.shard_of.number])
    parts = {}
    for one in shards:
        record = one.cycles()[-1]
        parts[one.shard_of.number] = Told(report_of(one, settings), record["rounds"], record["plan"]).packed()
    found = [Told.unpacked(raw) for raw in await exchange.all_parts("close", parts)]
    assert begun.closed is not None
    record = _merged(found, begun.closed)
    await link.surely(cycles.keep_record, begun.cycle, record)
    for one in shards:
        one.finish_cycle({**record, "shard": counts_of(one.open_visits())})
        if settings.keep_cycles is not None:
            one.keep_visits(settings.keep_cycles)
    return record


def _brought(shard: LmdbShard) -> list[tuple[int, int, int]]:
    """Shard and key of the pages elsewhere that found some of this shard in the open cycle, and how many."""
    found = shard.finders()
    found = found[found["page"] >= shard.merged_pages]
    counts = Counter(zip(found["shard"].tolist(), found["key"].tolist(), strict=True))
    return [(number, key, pages) for (number, key), pages in sorted(counts.items())]


def _note_brought(shard: LmdbShard, brought: Counter[int]) -> None:
    """Note how many pages of other shards those of this one have found."""
    counts = {page: pages for key, pages in brought.items() if (page := shard.find(key)) is not None}
    shard.note_brought(
        np.array(sorted(counts), np.uint32), np.array([counts[page] for page in sorted(counts)], np.int64)
    )
    shard.commit()


def _merged(told: Sequence[Told], closed: float) -> CycleRecord:
    """The record of the whole, of what all shards tell."""
    rounds = [
        RoundCounts(planned=sum(one["planned"] for one in parts), seen=sum(one["seen"] for one in parts))
        for parts in zip(*(one.rounds for one in told), strict=True)
    ]
    record: CycleRecord = {"finished": closed, "reason": REASON}
    record.update(reports.merged([one.report for one in told]))
    record["planned"] = sum(one["planned"] for one in rounds)
    record["rounds"] = rounds
    record["plan"] = merged_plans([one.plan for one in told])
    return record


async def copy(link: Link, home: Home, shards: Sequence[LmdbShard], leases: Sequence[Lease]) -> None:
    """Store a copy of each shard as the last cycle left it, and delete the copies before."""
    tokens = {lease.shard: lease.token for lease in leases}
    for one in shards:
        owned = Owned(one.shard_of.number, tokens[one.shard_of.number])
        with tempfile.TemporaryDirectory(dir=home.directory, prefix="copy-") as place:
            file = one.copy_to(Path(place))
            await deferToThread(objects.put, link.thread, home.place, owned, "snapshot", one.last_cycle, file)
        await deferToThread(objects.clean, link.thread, home.place, owned)
