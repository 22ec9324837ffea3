"""The end of a cycle: shards tell what they counted, all write the record that one store would have."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

import numpy as np
from twisted.internet.threads import deferToThread

from scrapy_gp4c.crawling import reports
from scrapy_gp4c.crawling.plan_counts import merged as merged_plans
from scrapy_gp4c.crawling.reports import Report, report_of
from scrapy_gp4c.distributed import copies, cycles, exchange
from scrapy_gp4c.distributed.catching_up import Home
from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.copies import Copying
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.leases import Lease
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.objects import Owned
from scrapy_gp4c.distributed.rounds import Exchange
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import LmdbShard
from scrapy_gp4c.store.records import CycleRecord, PlanCounts, RoundCounts
from scrapy_gp4c.store.shards.part import counts_of

REASON: Final = "finished"
BROUGHT: Final = "brought"
"""Step in which shards tell each other how many pages theirs have found elsewhere."""


class Told(NamedTuple):
    """What a shard tells at the end of a cycle."""

    report: Report
    rounds: list[RoundCounts]
    plan: PlanCounts

    def packed(self) -> bytes:
        """As JSON, deflated: the same for the same."""
        return zlib.compress(json.dumps(self).encode())

    @classmethod
    def unpacked(cls, raw: bytes) -> Told:
        """Of `packed`."""
        report, rounds, plan = json.loads(zlib.decompress(raw))
        return cls(Report.of_json(report), rounds, plan)


async def close(
    exchanging: Exchange, shards: Sequence[LmdbShard], closed_s: float, settings: Settings
) -> CycleRecord:
    """Fold a closed cycle into shards in which it is open; returns what all say that it came to.

    ``closed_s``: when it was closed. The same again after a kill comes to the same.
    """
    cycle = shards[0].last_cycle + 1
    for one in shards:
        one.wait(False)
    own = {one.shard_of.number: _brought(one) for one in shards}
    brought: dict[int, Counter[int]] = defaultdict(Counter)
    for shard, pairs in await exchanging.addressed(BROUGHT, own):
        for key, pages in pairs:
            brought[shard][key] += pages
    for one in shards:
        _note_brought(one, brought[one.shard_of.number])
    parts = {}
    for one in shards:
        told = one.cycles()[-1]
        parts[one.shard_of.number] = Told(report_of(one, settings), told["rounds"], told["plan"]).packed()

    def combine(raw: list[bytes]) -> bytes:
        return zlib.compress(json.dumps(_merged([Told.unpacked(one) for one in raw], closed_s)).encode())

    def keep(tx: Transaction, found: bytes) -> None:
        cycles.keep_record(tx, cycle, _record(found))

    record = _record(await exchanging.agreed("close", parts, combine, keep))
    for one in shards:
        one.finish_cycle({**record, "shard": counts_of(one.open_visits())})
        if settings.keep_cycles is not None:
            one.keep_visits(settings.keep_cycles)
    return record


def _record(found: bytes) -> CycleRecord:
    return cast(CycleRecord, json.loads(zlib.decompress(found)))


def _brought(shard: LmdbShard) -> bytes:
    """How many pages each page elsewhere has found in the open cycle, of this shard: see `addressed`."""
    found = shard.finders()
    found = found[found["page"] >= shard.merged_pages]
    counts = Counter(zip(found["shard"].tolist(), found["key"].tolist(), strict=True))
    by_shard: dict[str, list[tuple[int, int]]] = {}
    for (number, key), pages in sorted(counts.items()):
        by_shard.setdefault(str(number), []).append((key, pages))
    return json.dumps(by_shard).encode()


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
    """Store what the last cycle recorded of each shard as an object, and drop the log when all have theirs.

    A snapshot besides, where it is due: see `scrapy_gp4c.distributed.copies`.
    """
    tokens = {lease.shard: lease.token for lease in leases}
    numbers = [one.shard_of.number for one in shards]
    brought = defaultdict[int, list[tuple[int, int]]](list)
    step = Step(shards[0].last_cycle, BROUGHT)
    for number, pairs in await link.surely_single(exchange.addressed, step, numbers):
        brought[number] += pairs
    for one in shards:
        owned = Owned(one.shard_of.number, tokens[one.shard_of.number])
        with tempfile.TemporaryDirectory(dir=home.directory, prefix="copy-") as folder:
            copying = Copying(link.thread, home.place, owned, Path(folder))
            await deferToThread(copies.keep, copying, one, brought[owned.shard])
    await link.surely(cycles.drop_log, step.cycle)
