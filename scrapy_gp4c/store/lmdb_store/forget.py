"""Forgetting pages: the store is rewritten without their requests, columns, visits and other values.

The remaining pages get new ids and keep all data; directories are renumbered. Sums of visits by directory
lose those to forgotten pages.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.groups import GROUP_VISITS, KEPT_CYCLES, SUMS
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.discovery import START
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
    Numbering,
    Sizes,
    Tables,
    judged_visits,
    sums_by_group,
    urls_of,
)
from scrapy_gp4c.store.lmdb_store.verify import check, derive

Choose = Callable[[Store], npt.NDArray[np.bool_]]
"""Function that returns a mask of the pages of a store to forget, bool ``[P]``."""

GONE: Final = -1
"""New id of a page that is forgotten."""
_RATED: Final = ("n", "last_cycle", "E", "T", "found_cycle")


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
        group = self._old.columns_of(self._gone.astype(np.uint32), ("group",))["group"]
        self._pages()
        forgotten = self._visits(group)
        records = self._old.cycles()
        for record in records:
            if visits := forgotten.get(record["cycle"], 0):
                record["forgotten"] = record.get("forgotten", 0) + visits
        self._new.restore_cycles(records)
        self._values()
        self._rows_of_cycles()
        self._trust()

    def _pages(self) -> None:
        first_urls = self._old.first_urls()
        numbering = Numbering(np.empty(0, np.uint64))
        for first in range(0, len(self._staying), self._sizes.pages_per_transaction):
            pages = self._staying[first : first + self._sizes.pages_per_transaction]
            with self._old.transaction() as txn:
                joined = self._old.db["urls"].joined(txn, pages, b"\n")
            if joined is None:
                raise damaged(self._old.path, f"of the pages {pages[0]} to {pages[-1]}, some have no request")
            requests = joined.split(b"\n")
            urls = zip(pages.tolist(), urls_of(requests), strict=True)
            numbered = numbering.number([first_urls.get(page, url) for page, url in urls])
            state = self._old.columns_of(pages, columns.COLUMNS)
            self._new_group[state["group"]] = numbered.group
            state["group"] = numbered.group
            renumber_finders(state["found_by"], self._new_id)
            self._new.append_pages(requests, state, numbered.new)
        for kind in self._old.optional_columns():
            values = self._old.all_values(kind)
            new = np.arange(len(self._staying))
            self._new.put_values(kind, new, {name: column[self._staying] for name, column in values.items()})

    def _visits(self, group: Array) -> dict[int, int]:
        """Write the remaining visits and sums by directory; returns cycle -> number of visits left out.

        ``group``: old directory of each forgotten page.
        """
        state = {name: np.zeros(len(self._gone), terminals.STATE[name]) for name in _RATED}
        state["group"] = group
        sums: dict[int, Array] = {}
        gone: dict[int, int] = {}
        for cycle, visits in self._old.whole_cycles(VISITS):
            if len(visits) and visits["page"].max() >= len(self._new_id):
                pages = f"page {visits['page'].max()} of {len(self._new_id)}"
                raise damaged(self._old.path, f"cycle {cycle} has a visit of {pages}")
            going = visits[self._new_id[visits["page"]] == GONE]
            gone[cycle] = len(going)
            rows = np.searchsorted(self._gone, going["page"])
            if cycle > self._old.last_cycle - KEPT_CYCLES:
                sums[cycle] = sums_by_group([judged_visits(state, rows, going, cycle)])
            columns.observe(state, rows, going["outcome"], cycle)
            fold.put_visits(self._new, cycle, 0, renumbered(visits, self._new_id), self._sizes)
        for cycle in range(max(1, self._old.last_cycle - KEPT_CYCLES + 1), self._old.last_cycle + 1):
            staying = _less(self._old.group_visits(cycle), sums.get(cycle, np.empty(0, GROUP_VISITS)))
            staying["group"] = self._new_group[staying["group"]]
            with self._new.transaction(write=True) as txn:
                GROUP_ROWS.put(txn, self._new.db, cycle, 0, np.sort(staying, order="group"))
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

    def _trust(self) -> None:
        """Write how often claims of sites about the remaining pages were right, as recomputed from visits.

        Where old visits were deleted, the old counts stay, which include forgotten pages of the sites.
        """
        with self._old.transaction() as txn:
            counts = read_trust(txn, self._old.db)
        self._new.dropped = self._old.dropped
        if self._old.dropped:
            counts = counts[np.isin(counts["site"], self._new.site_keys())]
        else:
            counts = derive(self._new).trust
        with self._new.transaction(write=True) as txn:
            put_trust(txn, self._new.db, counts)


def _less(sums: Array, gone_sums: Array) -> Array:
    """Subtract `gone_sums` from `sums`, both by directory, dtype `GROUP_VISITS`; drop empty directories."""
    staying = sums.copy()
    position = np.searchsorted(staying["group"], gone_sums["group"])
    known = position < len(staying)
    known[known] = staying["group"][position[known]] == gone_sums["group"][known]
    for name in SUMS:
        staying[name][position[known]] -= gone_sums[name][known]
    # Where visits were dropped, the expected changes of the others are not those that were summed up.
    np.maximum(staying["predicted"], 0, out=staying["predicted"])
    return staying[staying["visits"] > 0]
