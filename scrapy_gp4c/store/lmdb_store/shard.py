"""A store that is one of several: what it keeps besides, of pages elsewhere and of the whole's order."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.lmdb_store import plans
from scrapy_gp4c.store.lmdb_store.environment import InTransaction
from scrapy_gp4c.store.lmdb_store.failures import DATA, translated
from scrapy_gp4c.store.lmdb_store.open_cycle import APPLIED
from scrapy_gp4c.store.lmdb_store.packing import pack_rest, unpacked
from scrapy_gp4c.store.lmdb_store.schema import add_shard_tables
from scrapy_gp4c.store.lmdb_store.sealed import SHARD, U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.sizes import USUAL, Sizes
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import CycleRecord, PlanCounts
from scrapy_gp4c.store.shards.part import FINDER, Finder, ShardOf

Array = npt.NDArray[Any]

FINDER_BYTES: Final = struct.Struct("<HQ")
"""Shard and key of a page that found another."""
_ORIGIN_ROWS: Final = 2**18
"""Pages whose origins are one value."""
TOGETHER: Final = 100
"""Visits, or segments, from which on what was acknowledged is written: a transaction for each flush of some
visits costs more than these."""
_ROOM: Final = 2**36
"""Address space that a shard may take at least: a thousand of them are half of what a process has."""


class Sealed(NamedTuple):
    """What a commit writes."""

    visits: Array
    """Dtype `VISIT` ``[V]``."""
    rest: bytes
    """All else."""


class LmdbShard(Store):
    """What `scrapy_gp4c.store.shards.part.Shard` describes."""

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False, sizes: Sizes = USUAL) -> None:
        """Open the shard in `path`; a writer completes a fold. Raises a StoreError."""
        super().__init__(path, readonly=readonly, sizes=sizes)
        found = shard_of_tables(self.tables)
        if found is None:
            self.close()
            raise StoreError(f"expected {path} to be a shard; found a store of its own. Split it first.")
        self.shard_of = found
        self._sealed_visits: list[int] = []
        """Visits of what was sealed and is not written, oldest first."""
        self._acknowledged = 0
        """How many of these may be written."""

    def find_elsewhere(self, page: int, finder: Finder) -> None:
        """Note who found a page, at the next commit."""
        self._open.keep("finders", page, FINDER_BYTES.pack(finder.shard, finder.key))

    def finder_of(self, page: int) -> Finder | None:
        """Who of another shard found a page, committed or not."""
        found = self._open.kept("finders", page)
        if found is None:
            return None
        shard, key = FINDER_BYTES.unpack(found)
        return Finder(key, shard)

    def finders(self) -> Array:
        """All that is committed of `find_elsewhere`, dtype `FINDER`, by page."""
        return finders_of(self.tables)

    def origins(self) -> npt.NDArray[np.uint32]:
        """Where its first pages were in the store that it was split from."""
        return origins_of(self.tables)

    def note_brought(self, pages: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64]) -> None:
        """Note how many pages of other shards pages have found, in place of notes before."""
        self._open.require()
        if len(pages):
            self._open.note_many(pages, "brought", counts)

    def add_part(self, part: Array, positions: npt.NDArray[np.uint32], seen: int, about: CycleRecord) -> None:
        """Write what it has of the plan of the next round, and where in the round that is."""
        cycle, number = self._open.require(), len(self.rounds())

        def complete(work: InTransaction) -> None:
            def place(txn: Any) -> None:
                if not number:
                    self.tables.db["positions"].drop(txn)
                value = positions.astype("<u4").tobytes()
                self.tables.db["positions"].put(txn, U32_PAIR.pack(cycle, number), value)
                work(txn)

            self._complete(place)

        self._add_round([part], seen, about, complete)

    # --- what a log elsewhere has first

    def wait(self, waits: bool = True) -> None:
        """Write nothing but what `write` and `apply` write; False: as ever."""
        self._settle()
        self._open.waits = waits

    def seal(self, number: int) -> Sealed | None:
        """Seal what happened until now, as the segment of this number in the open cycle; None: nothing."""
        sealed = self._open.seal()
        if sealed is None:
            return None
        sealed.applied = self._open.require(), number
        self._sealed_visits.append(len(sealed.visits))
        return Sealed(sealed.visit_rows(), pack_rest(sealed))

    def write(self) -> None:
        """Let what was sealed first be written: together with what follows, but before anybody asks for it.

        Raises StoreFullError; then it stays in memory.
        """
        self._acknowledged += 1
        if max(self._acknowledged, sum(self._sealed_visits[: self._acknowledged])) >= TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Write what may be written."""
        if self._acknowledged:
            self._complete(lambda txn: None)

    def _complete(self, work: InTransaction) -> None:
        """Write that and what completes a round, in one transaction."""
        self._open.write(self._acknowledged, work)
        del self._sealed_visits[: self._acknowledged]
        self._acknowledged = 0

    def apply(self, sealed: Sealed, number: int) -> None:
        """Write a segment that was sealed elsewhere; raises ValueError where it does not go on here."""
        found = unpacked(sealed.visits, sealed.rest)
        found.applied = self._open.require(), number
        self._open.apply(found)

    @property
    def applied(self) -> int:
        """How many segments of the open cycle are written."""
        self._settle()
        with self.tables.transaction() as txn:
            told = self.tables.get_meta(txn, APPLIED)
        return told[1] + 1 if told is not None and told[0] == self._open.number else 0

    def belong_to(self, store_id: str) -> None:
        """Make it a shard of the store of this name."""
        self.shard_of = self.shard_of._replace(store_id=store_id)
        with self.tables.transaction(write=True) as txn:
            self.tables.put_meta(txn, SHARD.decode(), list(self.shard_of))

    @property
    def acknowledged_visits(self) -> int:
        """How many visits of the open cycle are or may be written: the first ones of `open_visits`."""
        return self._open.written_visits + sum(self._sealed_visits[: self._acknowledged])

    def plan_by_round(self) -> list[Array]:
        """The plan of the open cycle, dtype `PLAN`: of each round, first to visit first."""
        return plans.by_round(self.tables, self._record())

    def last_record(self) -> CycleRecord:
        """Record of the newest cycle, open or finished, without reading the others."""
        with self.tables.transaction() as txn:
            found = self.tables.last_record(txn)
        assert found is not None
        return found

    def copy_to(self, directory: Path) -> Path:
        """Copy it, as the last commit left it, into a directory; returns the file."""
        with translated(self.path):
            self.environment.lmdb.copy(str(directory), compact=True)
        return directory / DATA

    @property
    def used_bytes(self) -> int:
        """What is in use of its file: a copy takes about that."""
        with self.tables.transaction() as txn:
            tables = [txn.stat(table.handle) for table in self.tables.db.values()]
        parts = "branch_pages", "leaf_pages", "overflow_pages"
        return sum(table["psize"] * sum(table[part] for part in parts) for table in tables)

    def positions(self, number: int) -> npt.NDArray[np.uint32]:
        """Where the pages of its plan are in a round."""
        with self.tables.transaction() as txn:
            key = U32_PAIR.pack(self._open.number or 0, number)
            return np.frombuffer(bytes(self.tables.db["positions"].view(txn, key)), "<u4")

    def keep_rounds(self, count: int, plan: PlanCounts | None) -> None:
        """Drop the rounds after so many."""
        rounds = self.rounds()[:count]
        planned = sum(one["planned"] for one in rounds) if rounds else None
        record = CycleRecord(planned=planned, rounds=rounds)
        if plan is not None:
            record["plan"] = plan
        self.amend_record(**record)


def make_shard(store: Store, of: ShardOf, origins: npt.NDArray[np.uint32]) -> None:
    """Make a shard of a store that was just created; ``origins``: where its pages were before, ascending."""
    tables = store.tables
    tables.db |= add_shard_tables(store.environment)
    with tables.transaction(write=True) as txn:
        tables.put_meta(txn, SHARD.decode(), list(of))
        for number, start in enumerate(range(0, len(origins), _ORIGIN_ROWS)):
            part = origins[start : start + _ORIGIN_ROWS]
            tables.db["origins"].put(txn, U32.pack(number), part.astype("<u4").tobytes())


def shard_of_tables(tables: Tables) -> ShardOf | None:
    """Which shard of which store these are the tables of; None: it is none."""
    with tables.transaction() as txn:
        told = tables.get_meta(txn, SHARD.decode())
    return None if told is None else ShardOf(*told)


def finders_of(tables: Tables) -> Array:
    """Who of other shards found pages of a shard, as committed, dtype `FINDER`, by page."""
    found = []
    with tables.transaction() as txn:
        for key, value in tables.db["finders"].items(txn):
            found.append((U32.unpack(key)[0], *FINDER_BYTES.unpack(value)))
    return np.array(found, FINDER)


def origins_of(tables: Tables) -> npt.NDArray[np.uint32]:
    """Where the first pages of a shard were in the store that it was split from, ascending."""
    with tables.transaction() as txn:
        parts = [np.frombuffer(bytes(value), "<u4") for _, value in tables.db["origins"].items(txn)]
    return np.concatenate([np.empty(0, np.uint32), *parts])


def sizes_of_shards(sizes: Sizes, shards: int) -> Sizes:
    """Sizes of each of so many shards, all of which one process can open."""
    return sizes._replace(map_size=min(sizes.map_size, max(_ROOM, sizes.map_size // shards)))
