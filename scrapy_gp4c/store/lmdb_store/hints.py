"""The claims of a store's pages: their columns block by block, their fold, and what is read of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import claims
from scrapy_gp4c.page_state.blocks import unpack
from scrapy_gp4c.page_state.claims import CLAIM, ClaimOutcomes, Times, of_claims
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import FIRST, JUDGED, among
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.store.lmdb_store import trust
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.reading import ids_of
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import Tables

Array = npt.NDArray[Any]

_TOLD: Final = 2**31
"""Number of the first claims of a cycle that were told after its end; those before have numbers of blocks."""


class Hints:
    """What `scrapy_gp4c.store.page_store.PageHints` describes."""

    def __init__(self, tables: Tables, opened: OpenCycle) -> None:
        """Take the tables, and the open cycle."""
        self._tables = tables
        self._open = opened

    def blocks(self, blocks: Iterable[tuple[int, Columns]]) -> Iterator[tuple[int, Columns]]:
        """Add the columns of claims to blocks of all columns."""
        for first, columns in blocks:
            with self._tables.transaction() as txn:
                block = first // self._tables.block_rows
                columns |= trust.read_block(txn, self._tables.db, block, len(columns["n"]))
            yield first, columns

    def find(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Page ids of page keys, ``[K]``; -1 for those that are not known."""
        known, place = np.unique(keys, return_inverse=True)
        found = ids_of(self._tables, known)
        for row in np.flatnonzero(found < 0).tolist():
            found[row] = self._open.found_now(int(known[row]))
        return found[place]

    def note(self, pages: Array, kind: str, values: Array) -> None:
        """Note claims of pages in the open cycle: see `PageHints`."""
        self._open.require()
        self._open.note_many(pages, kind, values)

    def tell(self, pages: Array, time_s: float) -> None:
        """Note that pages have changed at a time, at once: see `PageHints`."""
        pages = np.unique(pages.astype(np.uint32))
        if self._open.number is not None:
            self.note(pages, "told", np.full(len(pages), time_s))
            self._open.commit()
            return
        tables = self._tables
        tables.check_writable()
        claimed = np.zeros(len(pages), CLAIM)
        claimed["page"], claimed["kind"] = pages, KINDS.index("told")
        claimed["value"] = tables.last_cycle + 1
        with tables.transaction(write=True) as txn:
            for block in np.unique(pages // tables.block_rows).tolist():
                own = claimed[pages // tables.block_rows == block]
                own["page"] -= block * tables.block_rows
                state = unpack(tables.block(txn, block))
                state = state | trust.read_block(txn, tables.db, block, len(state["n"]))
                claims.apply_claims(state, own)
                trust.put_block(txn, tables.db, block, state)
            keys = (U32_PAIR.pack(tables.last_cycle, _TOLD + number) for number in count())
            free = next(key for key in keys if tables.db["claims"].get(txn, key) is None)
            trust.put_claims(txn, tables.db, free, claimed)

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield the claims of finished cycles, dtype `CLAIM`: see `PageHints`."""
        end = self._tables.last_cycle
        stop = U32_PAIR.pack((end if last is None else min(last, end)) + 1, 0)
        key, goes_on = U32_PAIR.pack(first, 0), False
        while True:
            with self._tables.transaction() as txn:  # one for each: whoever takes the claims may take long
                found = trust.claims(txn, self._tables.db["claims"], key, stop, goes_on=goes_on)
            if found is None:
                return
            cycle, number = U32_PAIR.unpack(found[0])
            yield cycle, found[1]
            key, goes_on = U32_PAIR.pack(cycle, number + 1), True

    def trust(self) -> Array:
        """Counts of all sites, dtype `TRUST`, by site."""
        with self._tables.transaction() as txn:
            return trust.read(txn, self._tables.db["trust"])

    def drop(self, cycle: int) -> None:
        """Drop the claims of the cycles up to this one; what they did to pages stays."""
        table, stop = self._tables.db["claims"], U32_PAIR.pack(cycle + 1, 0)
        with self._tables.transaction(write=True) as txn:
            for key in [key for key, _ in table.items(txn, stop=stop)]:
                table.delete(txn, key)


def put_extras(tables: Tables, first: int, columns: Columns) -> None:
    """Write the columns `EXTRAS` of consecutive pages from `first` on, all of which are merged."""
    stop = first + len(columns["claims"])
    for block in range(first // tables.block_rows, -(-stop // tables.block_rows)):
        start = block * tables.block_rows
        rows = min(tables.block_rows, tables.merged_pages - start)
        own = slice(max(first - start, 0), min(stop - start, rows))
        with tables.transaction(write=True) as txn:
            kept = trust.read_block(txn, tables.db, block, rows)
            for name, column in kept.items():
                column[own] = columns[name][own.start + start - first : own.stop + start - first]
            trust.put_block(txn, tables.db, block, kept)


def put_claims(tables: Tables, cycle: int, number: int, claimed: Array, told: ClaimOutcomes) -> None:
    """Write claims of a part of a cycle, dtype `CLAIM`, and what its visits tell of claims, if anything."""
    if len(claimed) or (told.outcomes >= 0).any():
        with tables.transaction(write=True) as txn:
            trust.put_part(txn, tables.db, cycle, number, claimed, told)


def count_trust(tables: Tables) -> None:
    """Make the counts of sites of the parts of all cycles: for a store that is built anew."""
    for cycle in range(1, tables.last_cycle + 1):
        with tables.transaction(write=True) as txn:
            trust.sum_up(txn, tables.db, tables.groups, cycle)


class Folding(NamedTuple):
    """What a cycle's fold does to claims, block by block, in the transactions of the fold."""

    tables: Tables
    cycle: int
    starts_s: npt.NDArray[np.float64]
    """Begins of all cycles up to this one."""

    @classmethod
    def of(cls, tables: Tables, cycle: int) -> Folding:
        """Prepare the fold of a cycle."""
        starts = [record.get("started") for record in tables.cycles() if record["cycle"] <= cycle]
        return cls(tables, cycle, claims.ascending(starts))

    def begin(
        self, txn: Any, block: int, state: Columns, visits: Array, notes: Array
    ) -> tuple[Columns, Array] | None:
        """Do what comes before the visits of a block; returns its columns and claims, None: it has none.

        ``visits``, ``notes``: of its pages.
        """
        first = block * self.tables.block_rows
        noted = notes[of_claims(notes)]
        if not len(noted) and self.tables.db["hints"].get(txn, U32.pack(block)) is None:
            return None
        own = state | trust.read_block(txn, self.tables.db, block, len(state["n"]))
        saw = visits[among(visits["outcome"], (FIRST, *JUDGED))]
        visit_s = np.full(len(state["n"]), np.nan)
        visit_s[saw["page"] - first] = saw["time"]
        rows = (noted["page"] - first).astype(np.intp)
        claimed = claims.claims_of(noted, rows, own, Times(self.starts_s, visit_s))
        at = claimed.copy()
        at["page"] -= np.uint32(first)
        told = claims.before_visits(
            own, (visits["page"] - first).astype(np.intp), visits["outcome"], at, self.cycle
        )
        trust.put_part(txn, self.tables.db, self.cycle, block, claimed, told)
        return own, at

    def end(self, txn: Any, block: int, begun: tuple[Columns, Array], visits: Array) -> None:
        """Do what comes after the visits of a block, which have changed its other columns in place."""
        own, claimed = begun
        rows = (visits["page"] - block * self.tables.block_rows).astype(np.intp)
        seen_min = claims.seen_after_min(visits["time"], float(self.starts_s[-1]))
        claims.after_visits(own, rows, visits["outcome"], claimed, self.cycle, seen_min)
        trust.put_block(txn, self.tables.db, block, own)
