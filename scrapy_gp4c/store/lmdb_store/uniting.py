"""Putting stores of different hosts together into one, as of machines that each had a part of a crawl.

The stores have as many finished cycles each, and cycle c of one is taken to be cycle c of all. Pages come
store by store, in their order. Nothing is computed anew but the records of cycles.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal

import numpy as np

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.lmdb_store.beside import locked
from scrapy_gp4c.store.lmdb_store.environment import FILES_OF_STORE, room_for_files
from scrapy_gp4c.store.lmdb_store.failures import translated
from scrapy_gp4c.store.lmdb_store.joining import join
from scrapy_gp4c.store.lmdb_store.shard import make_shard, shard_of_tables, sizes_of_shards
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.splitting import Progress, no_progress
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import CycleRecord
from scrapy_gp4c.store.shards.part import ShardOf, is_a_shard
from scrapy_gp4c.store.site_names import site_names

Count = Literal["planned", "known", "visited", "forgotten", "judged", "changed", "new", "new_by_hubs"]
_COUNTS: Final[tuple[Count, ...]] = (
    "planned", "known", "visited", "forgotten", "judged", "changed", "new", "new_by_hubs",
)  # fmt: skip

Own = Literal["plan", "rounds", "panel", "sampled", "gained", "groups"]
_OWN: Final[tuple[Own, ...]] = ("plan", "rounds", "panel", "sampled", "gained", "groups")
"""What a record tells of one store alone."""


def unite(
    paths: Sequence[Path], place: Path, sizes: Sizes, progress: Progress = no_progress
) -> tuple[int, int]:
    """Put stores together into the store at `place`, which must be new; returns its pages and cycles.

    They stay as they are; meanwhile no crawl can begin in them. Disk: twice what they take; memory: as for
    `join`. Raises StoreError where one is a shard or has an unfinished cycle, unless all have as many cycles
    and the same query log or none, and where two have pages of one host; StoreInUseError.
    """
    room_for_files(FILES_OF_STORE * len(paths))
    place.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        stores = []
        for path in paths:
            opened.enter_context(locked(path))
            stores.append(opened.enter_context(Store(path, readonly=True, sizes=sizes)))
        _check(stores)
        folder = opened.enter_context(tempfile.TemporaryDirectory(dir=place.parent, prefix="unite-"))
        records = [_united(records) for records in zip(*(one.cycles() for one in stores), strict=True)]
        parts, first = [], 0
        for number, one in enumerate(stores):
            parts.append(Path(folder, str(number)))
            parts[-1].mkdir()
            with translated(one.path):
                one.environment.lmdb.copy(str(parts[-1]), compact=True)
            of = ShardOf(number, len(stores), stores[0].store_id)
            with Store(parts[-1], sizes=sizes_of_shards(sizes, len(stores))) as part:
                make_shard(part, of, np.arange(first, first + part.merged_pages, dtype=np.uint32))
                if not number:  # whose records are those of the whole, see `join`
                    with part.tables.transaction(write=True) as txn:
                        part.tables.db["cycles"].drop(txn)  # a record that is put keeps what it had
                        for cycle, record in enumerate(records, 1):
                            part.tables.put_record(txn, cycle, record)
            first += one.merged_pages
            progress("stores", number + 1, len(stores))
        return join(parts, place, sizes, progress)


def _check(stores: Sequence[Store]) -> None:
    """Raise StoreError for stores that cannot be put together."""
    hosts: dict[int, Store] = {}
    for one in stores:
        if (of := shard_of_tables(one.tables)) is not None:
            raise is_a_shard(one.path, of)
        if one.is_folding or one.open_cycle is not None:
            raise StoreError(
                f"cycle {one.last_cycle + 1} of the store {one.path} is not finished: run the spider until "
                "it is, then put it together with others."
            )
        if one.last_cycle != stores[0].last_cycle:
            raise StoreError(
                f"expected stores with as many cycles each, as cycle c of one is taken to be cycle c of all; "
                f"found {stores[0].path} with {stores[0].last_cycle}, and {one.path} with {one.last_cycle}. "
                "Run the spider of the one that is behind until it has as many."
            )
        if one.gains.log != stores[0].gains.log:
            raise StoreError(
                f"expected stores that were measured by the same query log, or by none; found "
                f"{stores[0].path} and {one.path}, which differ. Run their spiders by one GP4C_QUERY_LOG."
            )
        sites = set(one.directories()["site"].tolist())
        if both := sites & hosts.keys():
            names = sorted(site_names(one, both).values()) or ["a host whose pages have moved"]
            more = f" and {len(both) - 1:,} more hosts" if len(both) > 1 else ""
            raise StoreError(
                f"expected stores of different hosts, as a page has one history; found pages of {names[0]}"
                f"{more} in {hosts[min(both)].path} and in {one.path}. Take them out of one of the two: "
                f"scrapy gp4c forget SPIDER --host {names[0]}"
            )
        hosts |= dict.fromkeys(sites, one)


def _united(records: Sequence[CycleRecord]) -> CycleRecord:
    """The record of a cycle: counts are sums, what was decided is the first store's.

    What is true of one store alone (its plan, its rounds, what its panel told) is left out.
    """
    found = records[0].copy()
    for name in _OWN:
        found.pop(name, None)
    for count in _COUNTS:
        if any(count in record for record in records):
            found[count] = sum(record.get(count) or 0 for record in records)
    if "outcomes" in found:
        found["outcomes"] = dict(_summed([record.get("outcomes", {}) for record in records]))
    if "change_rate" in found:
        found["change_rate"] = found["changed"] / found["judged"] if found.get("judged") else None
    started = [time for record in records if (time := record.get("started")) is not None]
    finished = [time for record in records if (time := record.get("finished")) is not None]
    found["started"], found["finished"] = min(started, default=None), max(finished, default=None)
    if any("secret_params" in record for record in records):
        found["secret_params"] = sorted({name for one in records for name in one.get("secret_params", [])})
    if any("sitemaps" in record for record in records):
        found["sitemaps"] = {url: to for one in records for url, to in one.get("sitemaps", {}).items()}
    return found


def _summed(counts: Sequence[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total
