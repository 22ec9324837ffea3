"""Forgetting pages: the store is rewritten without their requests, columns, visits and other values.

The remaining pages get new ids and keep all data; directories are renumbered. Sums over the visits are
computed anew.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.rates import whole_units
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.backup import REWRITE, drop_search_index, work_directory
from scrapy_gp4c.store.lmdb_store.environment import DATA, U32, U32_PAIR, damaged
from scrapy_gp4c.store.lmdb_store.page_facts import put_trust, read_trust
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import (
    CLAIMS,
    GAINS,
    GROUP_ROWS,
    OF_PAGES,
    QUERY_LOG,
    SHADOWS,
    VISITS,
    Sizes,
    Tables,
)
from scrapy_gp4c.store.lmdb_store.verify import check, derive

Choose = Callable[[Store], npt.NDArray[np.bool_]]
"""Function that returns a mask of the pages of a store to forget, bool ``[P]``."""

GONE: Final = -1
"""New id of a page that is forgotten."""


def forget(path: Path, sizes: Sizes, choose: Choose) -> int:
    """Remove the pages that `choose(store)` marks from the store at `path`; returns how many they are.

    The smaller store is built next to the old one and replaces it atomically. Memory: some 40 bytes per page.
    Raises StoreError while a cycle is not finished, StoreInUseError where a crawl has the store,
    StoreDamagedError, StoreFullError.
    """
    with Store(path, sizes=sizes) as store:
        if store.open_cycle is not None:
            raise StoreError(
                f"cycle {store.open_cycle} of the store {path} is not finished: run the spider until it is, "
                "then forget pages."
            )
        chosen = choose(store)
        if not chosen.any():
            return 0
        with work_directory(path, REWRITE) as work:
            write_without(store, work, chosen, sizes)
            if problems := check(work):
                raise damaged(path, problems[0])
            drop_search_index(path)
            store.environment.replace_with(work / DATA)
    return int(chosen.sum())


def write_without(store: Store, work: Path, chosen: npt.NDArray[np.bool_], sizes: Sizes) -> None:
    """Write a store without the chosen pages (bool ``[P]``) into the new directory `work`."""
    with Store(work, sizes=sizes._replace(block_rows=store.block_rows)) as remaining:
        _Rewriting(store, remaining, chosen, sizes).write()


def renumbered(rows: Array, new_id: Array) -> Array:
    """Return rows of any dtype with the new ids of their field ``page``, without pages of new id `GONE`."""
    page = rows["page"].astype(np.int64)
    known = page < len(new_id)
    known[known] = new_id[page[known]] != GONE
    staying = rows[known].copy()
    staying["page"] = new_id[page[known]]
    return staying


def renumber_finders(found_by: Array, new_id: Array) -> None:
    """Renumber the column ``found_by`` (linking page + 1) by `new_id`, in place; 0 for forgotten pages."""
    is_page = (found_by > 0) & (found_by < START)
    page = found_by[is_page].astype(np.int64) - 1
    known = page < len(new_id)
    finders = np.zeros(len(page), np.int64)
    finders[known] = new_id[page[known]] - GONE
    found_by[is_page] = finders


class _Rewriting:
    """Copier of one store's tables to a new store, without the chosen pages."""

    def __init__(self, old: Tables, new: Tables, chosen: npt.NDArray[np.bool_], sizes: Sizes) -> None:
        self._old, self._new, self._sizes = old, new, sizes
        self._staying = np.flatnonzero(~chosen).astype(np.uint32)
        self._gone = np.flatnonzero(chosen)
        self._new_id = np.full(len(chosen), GONE, np.int64)
        self._new_id[self._staying] = np.arange(len(self._staying))
        self._new_group = np.full(old.groups, GONE, np.int64)

    def write(self) -> None:
        self._pages()
        forgotten = self._visits()
        records = self._old.cycles()
        for record in records:
            if visits := forgotten.get(record["cycle"], 0):
                record["forgotten"] = record.get("forgotten", 0) + visits
        self._new.restore_cycles(records)
        self._values()
        self._rows_of_cycles()
        self._derived()

    def _pages(self) -> None:
        parts = [block["group"] for _, block in self._old.blocks({"group"})]
        group = np.concatenate([np.empty(0, np.uint32), *parts])[self._staying]
        old_group, first_row, number = np.unique(group, return_index=True, return_inverse=True)
        order = np.argsort(first_row)  # directories are numbered in the order of their first pages
        new_group = np.argsort(order)[number]
        self._new_group[old_group[order]] = np.arange(len(old_group))
        directories = self._old.directories()[old_group[order]]
        for start in range(0, len(self._staying), self._sizes.pages_per_transaction):
            rows = slice(start, start + self._sizes.pages_per_transaction)
            pages = self._staying[rows]
            with self._old.transaction() as txn:
                joined = self._old.db["urls"].joined(txn, pages, b"\n")
            if joined is None:
                raise damaged(self._old.path, f"of the pages {pages[0]} to {pages[-1]}, some have no request")
            state = self._old.columns_of(pages)
            state["group"] = new_group[rows]
            renumber_finders(state["found_by"], self._new_id)
            self._new.append_pages(joined.split(b"\n"), state, directories)
            directories = directories[:0]
            for kind in self._old.optional_columns():
                self._new.put_values(kind, self._new_id[pages], state)

    def _visits(self) -> dict[int, int]:
        """Write the remaining visits; returns cycle -> number of visits left out."""
        gone: dict[int, int] = {}
        for cycle, visits in self._old.whole_cycles(VISITS):
            if len(visits) and visits["page"].max() >= len(self._new_id):
                pages = f"page {visits['page'].max()} of {len(self._new_id)}"
                raise damaged(self._old.path, f"cycle {cycle} has a visit of {pages}")
            staying = renumbered(visits, self._new_id)
            gone[cycle] = len(visits) - len(staying)
            fold.put_visits(self._new, cycle, 0, staying, self._sizes)
        return gone

    def _values(self) -> None:
        """Write the values of the tables `OF_PAGES`, and the store's id, dropped cycles and query log."""
        for name in OF_PAGES:
            with self._old.transaction() as reading, self._new.transaction(write=True) as txn:
                for key, value in self._old.db[name].items(reading):
                    page = U32.unpack(key)[0]
                    if page < len(self._new_id) and self._new_id[page] != GONE:
                        self._new.db[name].put(txn, U32.pack(self._new_id[page]), bytes(value))
        with self._old.transaction() as reading, self._new.transaction(write=True) as txn:
            for name in ("store_id", "dropped", QUERY_LOG):
                if (value := self._old.get_meta(reading, name)) is not None:
                    self._new.put_meta(txn, name, value)

    def _rows_of_cycles(self) -> None:
        """Write claims, gains and shadows (states of the control group, `SHADOW`) of the pages that stay."""
        with self._old.transaction() as reading, self._new.transaction(write=True) as txn:
            for kind in (CLAIMS, GAINS, SHADOWS):
                for key, rows in kind.parts(reading, self._old.db, 0, self._old.last_cycle):
                    cycle, number = U32_PAIR.unpack(key)
                    if len(staying := renumbered(rows, self._new_id)):
                        kind.put(txn, self._new.db, cycle, number, staying)

    def _derived(self) -> None:
        """Write sums of visits by directory, and how often claims of sites were right, as by the visits.

        Of cycles whose visits were deleted, the old sums stay, which include visits of forgotten pages.
        """
        dropped = self._old.dropped
        self._new.dropped = dropped
        derived = derive(self._new)
        with self._old.transaction() as txn:
            counts = read_trust(txn, self._old.db)
        counts = counts[np.isin(counts["site"], self._new.site_keys())] if dropped else derived.trust
        with self._new.transaction(write=True) as txn:
            put_trust(txn, self._new.db, counts)
            GROUP_ROWS.drop(txn, self._new.db, 0, self._new.last_cycle)
            for cycle, sums in derived.sums.items():
                GROUP_ROWS.put(txn, self._new.db, cycle, 0, self._sums(cycle, sums) if dropped else sums)

    def _sums(self, cycle: int, sums: Array) -> Array:
        """Return a cycle's sums of visits by directory where visits were deleted, which `sums` lack."""
        old = self._old.group_visits(cycle).copy()
        group = self._new_group[old["group"]]
        old["group"] = group
        old = np.sort(old[group != GONE], order="group")
        if cycle <= self._old.dropped:
            return old
        # What was expected of a page follows from its deleted visits, too: each has a part of the old sum.
        old = old[np.searchsorted(old["group"], sums["group"])]
        sums["predicted"] = whole_units(old["predicted"] * sums["visits"] / old["visits"])
        return sums
