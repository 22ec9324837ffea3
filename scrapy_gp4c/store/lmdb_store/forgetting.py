"""Writing a store anew without some of its pages: their requests, columns and visits are in no table then.

What the others have stays as it is, but for the ids of pages and the numbers of directories, which close up.
What visits to the pages that go told of their directories goes too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.blocks import EXTRAS
from scrapy_gp4c.page_state.groups import GROUP_VISITS, KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store import fold, groups, hints, trust, weights
from scrapy_gp4c.store.lmdb_store.beside import REWRITE, beside, drop_search_index
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.failures import DATA, damaged
from scrapy_gp4c.store.lmdb_store.gains import moved
from scrapy_gp4c.store.lmdb_store.groups import Numbering
from scrapy_gp4c.store.lmdb_store.reading import columns_of
from scrapy_gp4c.store.lmdb_store.salvage import LOST, new_finders, remapped
from scrapy_gp4c.store.lmdb_store.sealed import U32
from scrapy_gp4c.store.lmdb_store.shadows import without
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.verify_claims import counts_of_sites
from scrapy_gp4c.store.page_store import PageStore

Array = npt.NDArray[Any]
Choose = Callable[[PageStore], npt.NDArray[np.bool_]]
"""Tells of every page of a store whether it is to be forgotten: bool ``[P]``."""

_OF_PAGES: Final = ("validators", "first_urls", "bodies", "descriptions")
"""Tables with small values of single pages, by page id."""
_RATED: Final = ("n", "last_cycle", "E", "T", "found_cycle")


def forget(path: Path, sizes: Sizes, choose: Choose) -> int:
    """Take the chosen pages out of a store; returns how many. Memory: some 40 bytes per page.

    The store without them is built beside it and takes its place: after a kill there is either, complete.
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
        with beside(path, REWRITE) as work:
            with Store(work, sizes=sizes._replace(block_rows=store.tables.block_rows)) as rest:
                _Rest(store.tables, rest.tables, chosen, sizes).write()
            if found := check(work, sizes):
                raise damaged(path, found[0])
            drop_search_index(path)
            store.environment.replace_with(work / DATA)
    return int(chosen.sum())


class _Rest:
    """What is left of a store."""

    def __init__(self, old: Tables, new: Tables, chosen: npt.NDArray[np.bool_], sizes: Sizes) -> None:
        self._old, self._new, self._sizes = old, new, sizes
        self._kept = np.flatnonzero(~chosen).astype(np.uint32)
        self._gone = np.flatnonzero(chosen)
        self._new_id = np.full(len(chosen), LOST, np.int64)
        self._new_id[self._kept] = np.arange(len(self._kept))
        self._new_group = np.full(old.groups, LOST, np.int64)

    def write(self) -> None:
        """Write all tables."""
        group = columns_of(self._old, self._gone.astype(np.uint32))["group"]
        self._pages()
        forgotten = self._visits(group)
        records = self._old.cycles()
        for record in records:
            if lost := forgotten.get(record["cycle"], 0):
                record["forgotten"] = record.get("forgotten", 0) + lost
        self._new.restore_cycles(records)
        self._values()

    def _pages(self) -> None:
        with self._old.transaction() as txn:
            first_urls = {
                U32.unpack(key)[0]: json.loads(bytes(url))
                for key, url in self._old.db["first_urls"].items(txn)
            }
        numbering = Numbering(np.empty(0, np.uint64))
        for first in range(0, len(self._kept), self._sizes.pages_per_transaction):
            pages = self._kept[first : first + self._sizes.pages_per_transaction]
            with self._old.transaction() as txn:
                requests = self._old.db["urls"].get_many(txn, pages)
            if requests is None:
                raise damaged(self._old.path, f"of the pages {pages[0]} to {pages[-1]}, some have no request")
            urls = zip(pages.tolist(), groups.urls_of(requests), strict=True)
            numbered = numbering.number([first_urls.get(page, url) for page, url in urls])
            state = columns_of(self._old, pages)
            self._new_group[state["group"]] = numbered.group
            state["group"] = numbered.group
            is_page = (state["found_by"] > 0) & (state["found_by"] < START)
            state["found_by"][is_page] = new_finders(state["found_by"][is_page], self._new_id)
            self._new.append_pages(requests, state, numbered.new)
            if any(state[name].any() for name in EXTRAS):
                hints.put_extras(self._new, self._new.merged_pages - len(pages), state)

    def _visits(self, group: Array) -> dict[int, int]:
        """Write the visits, and of directories what these tell; returns by cycle how many visits go.

        ``group``: old directories of the pages that go.
        """
        state = {name: np.zeros(len(self._gone), terminals.STATE[name]) for name in _RATED}
        state["group"] = group
        told: dict[int, Array] = {}
        gone: dict[int, int] = {}
        for cycle, visits in self._of_cycles():
            lost = visits[self._new_id[visits["page"]] == LOST]
            gone[cycle] = len(lost)
            rows = np.searchsorted(self._gone, lost["page"])
            if cycle > self._old.last_cycle - KEPT_CYCLES:
                told[cycle] = groups.counted([groups.told(state, rows, lost["outcome"], cycle)])
            columns.observe(state, rows, lost["outcome"], cycle)
            fold.put_visits(self._new, cycle, 0, remapped(visits, self._new_id), self._sizes)
        for cycle in range(max(1, self._old.last_cycle - KEPT_CYCLES + 1), self._old.last_cycle + 1):
            left = _less(self._old.group_visits(cycle), told.get(cycle, np.empty(0, GROUP_VISITS)))
            left["group"] = self._new_group[left["group"]]
            with self._new.transaction(write=True) as txn:
                self._new.put_group_visits(txn, cycle, 0, np.sort(left, order="group"))
        return gone

    def _of_cycles(self) -> Iterator[tuple[int, Array]]:
        """Yield the visits of each cycle that has any."""
        for cycle, chunks in groupby(self._old.visits(), lambda chunk: chunk[0]):
            visits = np.concatenate([np.empty(0, VISIT), *(visits for _, visits in chunks)])
            if len(visits) and visits["page"].max() >= len(self._new_id):
                raise damaged(
                    self._old.path,
                    f"cycle {cycle} has a visit of page {visits['page'].max()} of {len(self._new_id)}",
                )
            yield cycle, visits

    def _values(self) -> None:
        """Write what is kept of single pages, and of the store."""
        for name in _OF_PAGES:
            with self._old.transaction() as reading, self._new.transaction(write=True) as txn:
                for key, value in self._old.db[name].items(reading):
                    page = U32.unpack(key)[0]
                    if page < len(self._new_id) and self._new_id[page] != LOST:
                        self._new.db[name].put(txn, U32.pack(self._new_id[page]), bytes(value))
        with self._old.transaction() as reading, self._new.transaction(write=True) as txn:
            self._new.put_meta(txn, "store_id", self._old.store_id)
            if self._old.dropped:
                self._new.put_meta(txn, "dropped", self._old.dropped)
            for key in (b"shadows0", b"shadows1"):
                if (kept := self._old.db["meta"].get(reading, key)) is not None:
                    self._new.db["meta"].put(txn, key, without(kept, self._new_id))
        moved(self._old, self._new, self._kept, self._new_id)
        weights.moved(self._old, self._new, self._kept)
        self._claims()

    def _claims(self) -> None:
        """Write what sites claimed, and how often they were right of the pages that stay.

        Where visits or claims were dropped, that is known of all their pages alone.
        """
        old, new = self._old, self._new
        with old.transaction() as reading, new.transaction(write=True) as txn:
            for key, value in old.db["claims"].items(reading):
                claimed = remapped(trust.unpacked(old.db["claims"], key, value), self._new_id)
                if len(claimed):
                    trust.put_claims(txn, new.db, key, claimed)
            counts = trust.read(reading, old.db["trust"])
        new.dropped = old.dropped
        if old.dropped:
            counts = counts[np.isin(counts["site"], new.directories()["site"])]
        else:
            counts = counts_of_sites(new)
        with new.transaction(write=True) as txn:
            trust.put(txn, new.db["trust"], counts)


def _less(kept: Array, gone: Array) -> Array:
    """What is kept of a cycle's visits to directories less those of some pages, dtype `GROUP_VISITS`."""
    left = kept.copy()
    at = np.searchsorted(left["group"], gone["group"])
    there = at < len(left)
    there[there] = left["group"][at[there]] == gone["group"][there]
    for name in ("visits", "found", "predicted"):
        left[name][at[there]] -= gone[name][there]
    np.maximum(
        left["predicted"], 0, out=left["predicted"]
    )  # of visits that were dropped, another part is known
    return left[left["visits"] > 0]
