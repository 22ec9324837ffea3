"""Splitting a store into shards, each of which has all history of its pages, in one pass over it.

Nothing is computed anew: columns, visits and what is kept of directories go where their pages go, under new
numbers. The directories of a page's site are in one shard, as all pages of its host are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.scoring.discovery import ELSEWHERE, START
from scrapy_gp4c.store.lmdb_store.beside import copy_archive, locked
from scrapy_gp4c.store.lmdb_store.building import OF_PAGES, Building, kept_cycles
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.environment import FILES_OF_STORE, OUR_FILES, room_for_files
from scrapy_gp4c.store.lmdb_store.failures import DATA, damaged
from scrapy_gp4c.store.lmdb_store.sealed import U32
from scrapy_gp4c.store.lmdb_store.shadows import read as read_shadows
from scrapy_gp4c.store.lmdb_store.shard import FINDER_BYTES, make_shard, shard_of_tables, sizes_of_shards
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import CycleRecord, ShardCounts
from scrapy_gp4c.store.shards.directory import ShardsFile, clear_for_shards, shard_path, write_shards_file
from scrapy_gp4c.store.shards.part import ShardOf, is_a_shard
from scrapy_gp4c.store.shards.placing import check_shards, shard_of
from scrapy_gp4c.store.site_names import site_names
from scrapy_gp4c.store.whole_files import sync

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], object]
"""Told of a step: what is moved, how much of it is done, and of how much."""

_HELD_ROWS: Final = 2**18
"""Pages that wait in memory until those of each shard are written."""


class Split(NamedTuple):
    """What became of a store."""

    pages: int
    cycles: int
    shards: int
    left_out: tuple[str, ...]
    """What the shards do not have, for people."""


def no_progress(what: str, done: int, of: int) -> None:
    """Tell nobody."""


def split(path: Path, directory: Path, shards: int, sizes: Sizes, progress: Progress = no_progress) -> Split:
    """Split the store at `path` into shards in `directory`, which must be empty or not there.

    The store stays as it is. After a kill the directory says that it is incomplete, and the next split into
    it begins anew. Memory: 24 bytes per page. Raises StoreError while a cycle is not finished, for a shard,
    for another number of shards than 1 to 1,024, or where something else is in the directory.
    """
    check_shards(shards)
    with locked(path), Store(path, readonly=True, sizes=sizes) as store:
        if store.is_folding or store.open_cycle is not None:
            raise StoreError(
                f"cycle {store.last_cycle + 1} of the store {path} is not finished: run the spider until it "
                "is, then split it."
            )
        if (of := shard_of_tables(store.tables)) is not None:
            raise is_a_shard(path, of)
        clear_for_shards(directory, OUR_FILES)
        write_shards_file(directory, ShardsFile(shards, store.store_id, complete=False))
        places = [shard_path(directory, number) for number in range(shards)]
        small = sizes_of_shards(sizes, shards)._replace(block_rows=store.tables.block_rows)
        room_for_files(FILES_OF_STORE * shards)
        with ExitStack() as opened:
            parts = [opened.enter_context(Store(place, sizes=small)) for place in places]
            _Split(store, parts, sizes, progress).write()
        for number, place in enumerate(places):
            if found := check(place, small):
                raise damaged(place, found[0])
            sync(place / DATA)
            progress("shards", number + 1, shards)
        copy_archive(path, directory)
        left_out = () if store.clusters() is None else ("clusters and links of pages: make them anew",)
        write_shards_file(directory, ShardsFile(shards, store.store_id, complete=True))
        return Split(store.merged_pages, store.last_cycle, shards, left_out)


class _Split:
    """A store, and the shards that it is to become."""

    def __init__(self, store: Store, parts: Sequence[Store], sizes: Sizes, progress: Progress) -> None:
        self._store, self._old, self._progress = store, store.tables, progress
        self._parts = [Building(part.tables, sizes) for part in parts]
        pages = store.merged_pages
        self._directories = store.directories()
        self._of_directory = _shards_of_directories(store, len(parts))
        self._new_directory = _ranks(self._of_directory, np.zeros(len(parts), np.int64))
        self._of_page = np.empty(pages, np.uint16)
        self._new_id = np.empty(pages, np.uint32)
        self._key = np.empty(pages, np.uint64)
        known = np.zeros(len(parts), np.int64)
        for first, block in self._old.blocks():
            rows = slice(first, first + len(block["key"]))
            self._of_page[rows] = self._of_directory[block["group"]]
            self._new_id[rows] = _ranks(self._of_page[rows], known)
            self._key[rows] = block["key"]
        order = np.argsort(self._of_page, kind="stable").astype(np.uint32)
        bounds = np.searchsorted(self._of_page[order], np.arange(len(parts) + 1))
        for number, part in enumerate(parts):
            of = ShardOf(number, len(parts), store.store_id)
            make_shard(part, of, order[bounds[number] : bounds[number + 1]])

    def write(self) -> None:
        """Write all tables of all shards."""
        self._pages()
        counts = self._visits()
        self._of_cycles()
        self._values()
        records = self._old.cycles()
        trust = self._store.hints.trust()
        sites, at = np.unique(self._directories["site"], return_index=True)
        of_site = self._of_directory[at][np.searchsorted(sites, trust["site"])] if len(trust) else at[:0]
        for number, part in enumerate(self._parts):
            told = [_with_counts(record, counts[record["cycle"], number]) for record in records]
            for cycle in range(1, self._old.dropped + 1):
                told[cycle - 1].pop("shard")
            part.finish(self._old, told, trust[of_site == number], self._old.dropped)

    def _by_shard(self, of: Array) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """Yield the shards that some rows belong to, and the rows of each in order."""
        order = np.argsort(of, kind="stable")
        present, starts = np.unique(of[order], return_index=True)
        yield from zip(present.tolist(), np.split(order, starts[1:]) if len(of) else (), strict=True)

    def _pages(self) -> None:
        held: list[list[tuple[list[bytes], Columns]]] = [[] for _ in self._parts]
        rows = 0

        def write() -> None:
            for number, waiting in enumerate(held):
                if waiting:
                    state = {
                        name: np.concatenate([part[name] for _, part in waiting]) for name in waiting[0][1]
                    }
                    requests = [request for part, _ in waiting for request in part]
                    own = self._directories[self._of_directory == number]
                    building = self._parts[number]
                    building.pages(requests, state, own if not building.tables.merged_pages else own[:0])
                    waiting.clear()

        for first, block in self._store.blocks():
            stop = first + len(block["key"])
            with self._old.transaction() as txn:
                requests = self._old.db["urls"].get_many(txn, np.arange(first, stop))
            if requests is None:
                raise damaged(self._old.path, f"of the pages {first} to {stop - 1}, some have no request")
            state = {**block, "found_by": self._finders(first, block["found_by"])}
            state["group"] = self._new_directory[block["group"]].astype(np.uint32)
            for number, own in self._by_shard(self._of_page[first:stop]):
                part = {name: column[own] for name, column in state.items()}
                held[number].append(([requests[row] for row in own.tolist()], part))
            rows += stop - first
            if rows >= _HELD_ROWS:
                write()
                rows = 0
            self._progress("pages", stop, self._store.merged_pages)
        write()

    def _finders(self, first: int, found_by: Array) -> Array:
        """The column ``found_by`` of a block for the shards; who of another shard found a page is written."""
        new = found_by.copy()
        rows = np.flatnonzero((found_by > 0) & (found_by < START))
        finder = found_by[rows].astype(np.int64) - 1
        new[rows[finder >= len(self._new_id)]] = 0
        rows, finder = (part[finder < len(self._new_id)] for part in (rows, finder))
        same = self._of_page[finder] == self._of_page[first + rows]
        new[rows] = np.where(same, self._new_id[finder] + 1, ELSEWHERE)
        rows, finder = first + rows[~same], finder[~same]
        columns = (self._of_page[rows], self._new_id[rows], self._of_page[finder], self._key[finder])
        for number, page, shard, key in zip(*(column.tolist() for column in columns), strict=True):
            self._parts[number].of_page("finders", page, FINDER_BYTES.pack(shard, key))
        return new

    def _renumbered(self, rows: Array) -> Iterator[tuple[Building, Array]]:
        """Yield the shards that have some rows with a field ``page``, and these with their new ids."""
        if len(rows) and rows["page"].max() >= len(self._of_page):
            raise damaged(self._old.path, f"there is no page {rows['page'].max()}, of which it tells")
        for number, own in self._by_shard(self._of_page[rows["page"]]):
            part = rows[own]
            part["page"] = self._new_id[part["page"]]
            yield self._parts[number], part

    def _visits(self) -> Array:
        """Write the visits; returns by cycle and shard how many there are, judged and changed."""
        counts = np.zeros((self._old.last_cycle + 1, len(self._parts), 3), np.int64)
        for cycle, visits in self._old.visits():
            for part, own in self._renumbered(visits):
                part.visits(cycle, own)
            of, outcome = self._of_page[visits["page"]], visits["outcome"]
            for place, chosen in enumerate((slice(None), among(outcome, JUDGED), outcome == CHANGED)):
                counts[cycle, :, place] += np.bincount(of[chosen], minlength=len(self._parts))
            self._progress("cycles", cycle, self._old.last_cycle)
        return counts

    def _of_cycles(self) -> None:
        """Write what is kept of cycles besides."""
        for cycle in kept_cycles(self._old.last_cycle):
            told = self._old.group_visits(cycle)
            for number, own in self._by_shard(self._of_directory[told["group"]]):
                part = told[own]
                part["group"] = self._new_directory[part["group"]]
                self._parts[number].group_visits(cycle, part)
        for cycle, gains in self._store.gains.of_cycles():
            for building, own in self._renumbered(gains):
                building.gains(cycle, own)
        for cycle, claimed in self._store.hints.of_cycles(0):
            for building, own in self._renumbered(claimed):
                building.claims(cycle, own)
        for cycle in (self._old.last_cycle - 1, self._old.last_cycle):
            for building, own in self._renumbered(read_shadows(self._old, cycle) if cycle > 0 else NO_ROWS):
                building.keep_shadows(cycle, own)

    def _values(self) -> None:
        """Write what is kept of single pages."""
        for name in OF_PAGES:
            with self._old.transaction() as txn:
                for key, value in self._old.db[name].items(txn):
                    page = U32.unpack(key)[0]
                    if page < len(self._of_page):
                        part = self._parts[self._of_page[page]]
                        part.of_page(name, int(self._new_id[page]), bytes(value))


NO_ROWS: Final = np.empty(0, [("page", "<u4")])


def _with_counts(record: CycleRecord, counts: Array) -> CycleRecord:
    visited, judged, changed = counts.tolist()
    return {**record, "shard": ShardCounts(visited=visited, judged=judged, changed=changed)}


def _ranks(of: Array, known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Position of each row among those of its shard, ``[R]``; ``known``: how many there were; counts on."""
    order = np.argsort(of, kind="stable")
    present, starts, counts = np.unique(of[order], return_index=True, return_counts=True)
    ranks = np.empty(len(of), np.int64)
    ranks[order] = np.arange(len(of)) - np.repeat(starts, counts) + known[of[order]]
    known[present] += counts
    return ranks


def _shards_of_directories(store: Store, shards: int) -> npt.NDArray[np.uint16]:
    """Shard of each directory, uint16 ``[G]``, by the name of its site; no site is in two shards."""
    keys, site = np.unique(store.directories()["site"], return_inverse=True)
    names: dict[int, str] = {}
    with store.tables.transaction() as txn:  # sites from which all pages have moved
        for url in (json.loads(bytes(value)) for _, value in store.tables.db["first_urls"].items(txn)):
            place = place_of_url(url)
            names[place.site_key] = place.site
    names |= site_names(store, set(keys.tolist()) - names.keys())
    if missing := set(keys.tolist()) - names.keys():
        raise damaged(store.path, f"no page tells the name of the site {min(missing):#x}")
    return np.array([shard_of(names[key], shards) for key in keys.tolist()], np.uint16)[site]
