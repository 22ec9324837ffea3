"""Joining all shards of a store: one ordinary store with all that they have.

The pages that were there when the store was split are in the order that they had then; those found since
follow by cycle, shard, and order of discovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import NO_VISITS
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring.discovery import ELSEWHERE
from scrapy_gp4c.store.lmdb_store.beside import copy_archive
from scrapy_gp4c.store.lmdb_store.building import OF_PAGES, Building, kept_cycles
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.environment import FILES_OF_STORE, room_for_files
from scrapy_gp4c.store.lmdb_store.failures import damaged
from scrapy_gp4c.store.lmdb_store.reading import columns_of
from scrapy_gp4c.store.lmdb_store.restore import build_new
from scrapy_gp4c.store.lmdb_store.sealed import U32
from scrapy_gp4c.store.lmdb_store.shadows import read as read_shadows
from scrapy_gp4c.store.lmdb_store.shard import LmdbShard, sizes_of_shards
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.splitting import Progress, no_progress
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import SHADOW, TRUST
from scrapy_gp4c.store.shards.part import check_complete, of_whole

Array = npt.NDArray[Any]


class _Order:
    """The pages of all shards in the order of the whole."""

    def __init__(self, shards: Sequence[LmdbShard]) -> None:
        """Read where pages come from, when they were found and where they are. Memory: 50 bytes a page."""
        rank, shard, directory = [], [], []
        self.first_directory = np.cumsum([0, *(one.tables.groups for one in shards)])
        for number, one in enumerate(shards):
            entered, group = [np.empty(0, np.int32)], [np.empty(0, np.uint32)]
            for _, block in one.tables.blocks():
                entered.append(block["entered"].copy())
                group.append(block["group"].copy())
            later = np.maximum.accumulate(np.concatenate(entered).astype(np.uint64)) + np.uint64(1)
            later <<= np.uint64(32)  # behind every origin
            origins = one.origins()
            later[: len(origins)] = origins
            rank.append(later)
            shard.append(np.full(len(later), number, np.uint16))
            directory.append(np.concatenate(group) + self.first_directory[number])
        order = np.lexsort((np.concatenate(shard), np.concatenate(rank)))
        first_page = np.cumsum([0, *map(len, rank)])
        self.shard = np.concatenate(shard)[order]
        self.page = (order - first_page[self.shard]).astype(np.uint32)
        new = np.empty(len(order), np.uint32)
        new[order] = np.arange(len(order))
        self.new_id = np.split(new, first_page[1:-1])
        """Of the pages of each shard."""
        of_page = np.concatenate(directory)[order]
        known, first = np.unique(of_page, return_index=True)
        self.directories = known[np.argsort(first)]
        """Those of all shards, one behind the other, in the order in which the pages come upon them."""
        self.new_directory = np.zeros(self.first_directory[-1], np.uint32)
        self.new_directory[self.directories] = np.arange(len(known))


def join(
    shards: Sequence[Path], place: Path, sizes: Sizes, progress: Progress = no_progress
) -> tuple[int, int]:
    """Join all shards of a store into the store at `place`, which must be new; returns its pages and cycles.

    The shards stay as they are. A kill leaves nothing that looks like a store. Memory: 60 bytes per page, and
    the visits of a cycle. Raises StoreError while a cycle is not finished, and unless all shards are there.
    """
    room_for_files(FILES_OF_STORE * len(shards))
    small = sizes_of_shards(sizes, len(shards))
    with ExitStack() as opened:
        stores = [opened.enter_context(LmdbShard(path, readonly=True, sizes=small)) for path in shards]
        stores.sort(key=lambda one: one.shard_of.number)
        check_complete([(str(one.path), one.shard_of) for one in stores])
        _check_finished(stores)

        def build(work: Path) -> tuple[int, int]:
            with Store(work, sizes=sizes._replace(block_rows=stores[0].tables.block_rows)) as store:
                _Join(stores, Building(store.tables, sizes), sizes, progress).write()
                counts = store.merged_pages, store.last_cycle
            if found := check(work, sizes):
                raise damaged(place, found[0])
            copy_archive(stores[0].path.parent, place)
            return counts

        return build_new(place, build)


def _check_finished(stores: Sequence[LmdbShard]) -> None:
    cycles = {one.last_cycle for one in stores}
    unfinished = next((one for one in stores if one.open_cycle is not None or one.is_folding), None)
    if unfinished is not None or len(cycles) > 1:
        path = (unfinished or stores[0]).path
        raise StoreError(
            f"cycle {min(cycles) + 1} of the shard {path} is not finished: run the spider until it is, "
            "then join the shards."
        )


class _Join:
    """The shards of a store, and the store that they are to become."""

    def __init__(self, shards: Sequence[LmdbShard], into: Building, sizes: Sizes, progress: Progress) -> None:
        self._shards, self._into, self._sizes, self._progress = shards, into, sizes, progress
        self._order = _Order(shards)
        self._found_elsewhere = self._finders()

    def write(self) -> None:
        """Write all tables."""
        self._pages()
        self._visits()
        self._of_cycles()
        self._values()
        first = self._shards[0].tables
        trust = np.concatenate([np.empty(0, TRUST), *(one.hints.trust() for one in self._shards)])
        records = [of_whole(record) for record in first.cycles()]
        dropped = max(one.tables.dropped for one in self._shards)
        self._into.finish(first, records, np.sort(trust, order="site"), dropped)
        with self._into.tables.transaction(write=True) as txn:
            self._into.tables.put_meta(txn, "store_id", self._shards[0].shard_of.store_id)

    def _finders(self) -> list[tuple[Array, Array]]:
        """Pages of each shard that one of another has found, ascending, and the new ``found_by`` of each."""
        found = []
        for one in self._shards:
            finders = one.finders()
            new = np.zeros(len(finders), np.uint32)
            for number in np.unique(finders["shard"]).tolist():
                own = np.flatnonzero(finders["shard"] == number)
                page = self._shards[number].hints.find(finders["key"][own])
                new[own[page >= 0]] = self._order.new_id[number][page[page >= 0]] + 1
            found.append((finders["page"], new))
        return found

    def _found_by(self, number: int, pages: Array, found_by: Array) -> Array:
        """The new column ``found_by`` of pages of a shard."""
        new = found_by.copy()
        own = np.flatnonzero((found_by > 0) & (found_by < ELSEWHERE))
        new[own] = self._order.new_id[number][found_by[own].astype(np.int64) - 1] + 1
        rows = np.flatnonzero(found_by == ELSEWHERE)
        page, finder = self._found_elsewhere[number]
        new[rows] = finder[np.searchsorted(page, pages[rows])]
        return new

    def _pages(self) -> None:
        order, size = self._order, self._sizes.pages_per_transaction
        known = 0
        directories = np.concatenate([one.directories() for one in self._shards])[order.directories]
        for start in range(0, len(order.page), size):
            shard, page = order.shard[start : start + size], order.page[start : start + size]
            requests = np.empty(len(page), object)
            state: Columns = {}
            for number in np.unique(shard).tolist():
                rows = np.flatnonzero(shard == number)
                own, tables = page[rows], self._shards[number].tables
                with tables.transaction() as txn:
                    values = tables.db["urls"].get_many(txn, own)
                if values is None:
                    raise damaged(tables.path, f"of the pages {own[0]} to {own[-1]}, some have no request")
                requests[rows] = values
                part = columns_of(tables, own)
                part["found_by"] = self._found_by(number, own, part["found_by"])
                part["group"] = order.new_directory[part["group"] + order.first_directory[number]]
                for name, column in part.items():
                    state.setdefault(name, np.empty(len(page), column.dtype))[rows] = column
            last = max(known, int(state["group"].max()) + 1)
            self._into.pages(requests.tolist(), state, directories[known:last])
            known = last
            self._progress("pages", start + len(page), len(order.page))

    def _moved(self, number: int, rows: Array) -> Array:
        """Rows of a shard with a field ``page``, with new ids."""
        moved, new_id = rows.copy(), self._order.new_id[number]
        if len(rows) and rows["page"].max() >= len(new_id):
            raise damaged(
                self._shards[number].path, f"there is no page {rows['page'].max()}, of which it tells"
            )
        moved["page"] = new_id[rows["page"]]
        return moved

    def _visits(self) -> None:
        last = self._shards[0].last_cycle
        for cycle in range(1, last + 1):
            parts = [
                self._moved(number, visits)
                for number, one in enumerate(self._shards)
                for _, visits in one.visits(cycle, cycle)
            ]
            visits = np.concatenate([np.empty(0, VISIT), *parts])
            self._into.visits(cycle, visits[np.lexsort((visits["page"], visits["time"]))])
            self._progress("cycles", cycle, last)

    def _of_cycles(self) -> None:
        """Write what is kept of cycles besides."""
        last = self._shards[0].last_cycle
        for cycle in kept_cycles(last):
            parts = [NO_VISITS]
            for number, one in enumerate(self._shards):
                part = one.group_visits(cycle).copy()
                part["group"] = self._order.new_directory[part["group"] + self._order.first_directory[number]]
                parts.append(part)
            self._into.group_visits(cycle, np.concatenate(parts))
        for cycle in range(1, last + 1):
            parts = [
                self._moved(number, gains)
                for number, one in enumerate(self._shards)
                for _, gains in one.gains.of_cycles(cycle, cycle)
            ]
            if parts:
                self._into.gains(cycle, np.sort(np.concatenate(parts), order="page"))
        for number, one in enumerate(self._shards):
            for cycle, claimed in one.hints.of_cycles(0):
                self._into.claims(cycle, self._moved(number, claimed))
        for cycle in range(max(1, last - 1), last + 1):
            kept = [
                self._moved(number, read_shadows(one.tables, cycle))
                for number, one in enumerate(self._shards)
            ]
            if any(map(len, kept)):
                self._into.keep_shadows(
                    cycle, np.sort(np.concatenate([np.empty(0, SHADOW), *kept]), order="page")
                )

    def _values(self) -> None:
        """Write what is kept of single pages."""
        for number, one in enumerate(self._shards):
            for name in OF_PAGES:
                with one.tables.transaction() as txn:
                    for key, value in one.tables.db[name].items(txn):
                        page = U32.unpack(key)[0]
                        if page < len(self._order.new_id[number]):
                            self._into.of_page(name, int(self._order.new_id[number][page]), bytes(value))
