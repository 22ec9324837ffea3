"""Bulk writes of the store: adding pages, and folding a finished cycle into the page columns.

Every step is one transaction of bounded size that either moves a counter or the fold's marker with it, or
may be repeated, so that a kill at any moment is resumed exactly. (Santos 2013, section 3.6: the batch
update in a single pass of large crawlers.)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import Array, Columns
from scrapy_gp4c.store.lmdb_store.tables import KEY, U32_PAIR, FoldMarker, Sizes, Tables
from scrapy_gp4c.store.records import CycleRecord

T = TypeVar("T")


def fold(tables: Tables, visits: Array, pages: int, record: CycleRecord, sizes: Sizes) -> None:
    """Fold the open cycle, or go on with its fold: afterwards the cycle is finished.

    ``visits``: all of the cycle, dtype `VISIT`; ``pages``: known at its end; ``record``: what finishes its
    record, which the marker of an interrupted fold already has.
    """
    if tables.fold_marker is None:
        tables.mark_fold({"record": record, "next_block": 0})
    assert tables.fold_marker is not None
    finished: CycleRecord = {"finished": time.time()}
    finished.update(tables.fold_marker["record"])
    cycle = tables.last_cycle + 1
    merge_new(tables, pages, sizes)
    _apply(tables, visits[np.argsort(visits["page"], kind="stable")], cycle, sizes)
    put_visits(tables, cycle, 0, visits, sizes)
    tables.end_cycle(cycle, finished)


def _apply(tables: Tables, visits: Array, cycle: int, sizes: Sizes) -> None:
    """Apply visits, sorted by page, to the blocks from the marker on."""
    assert tables.fold_marker is not None
    of_visit = visits["page"] // tables.block_rows

    def apply(block: int, state: Columns) -> None:
        start, stop = np.searchsorted(of_visit, (block, block + 1))
        rows = (visits["page"][start:stop] - block * tables.block_rows).astype(np.intp)
        columns.apply_visits(state, rows, visits[start:stop], cycle)

    blocks = np.unique(of_visit[of_visit >= tables.fold_marker["next_block"]]).tolist()
    for group in batches(blocks, sizes.blocks_per_transaction):
        marker: FoldMarker = {**tables.fold_marker, "next_block": group[-1] + 1}
        tables.change_blocks(group, apply, marker)


def put_visits(tables: Tables, cycle: int, number: int, visits: Array, sizes: Sizes) -> None:
    """Pack visits of one cycle into chunks from `number` on."""
    starts = range(0, len(visits), sizes.visits_per_chunk)
    for group in batches(starts, sizes.blocks_per_transaction):
        with tables.transaction(write=True) as txn:
            for start in group:
                tables.put_visits(txn, cycle, number, visits[start : start + sizes.visits_per_chunk])
                number += 1


def merge_new(tables: Tables, pages: int, sizes: Sizes) -> None:
    """Move the pages of `new` that are not merged yet to `ids`, `urls` and the columns, in order of id.

    ``pages``: known so far, those of `new` included.
    """
    while tables.merged_pages < pages:
        first = tables.merged_pages
        stop = min(pages, first + sizes.pages_per_transaction)
        tables.append_pages(_read_new(tables, first, stop))


def _read_new(tables: Tables, first: int, stop: int) -> list[tuple[int, bytes]]:
    """Read (key, JSON request) of the pages first..stop-1 from `new`."""
    pages = []
    with tables.transaction() as txn:
        for page in range(first, stop):
            value = txn.get(U32_PAIR.pack(tables.last_cycle + 1, page), db=tables.db["new"])
            pages.append((KEY.unpack_from(value)[0], value[KEY.size :]))
    return pages


def add_pages(tables: Tables, pages: Iterable[tuple[int, bytes]], sizes: Sizes) -> tuple[int, int]:
    """Add (key, JSON request) pairs whose key is not known; returns how many were added and known.

    All pages of `new` must be merged.
    """
    added = known = 0
    for batch in batches(pages, sizes.pages_per_transaction):
        unknown: dict[int, bytes] = {}
        with tables.transaction() as txn:
            for key, request in batch:
                if key not in unknown and tables.get_id(txn, key) is None:
                    unknown[key] = request
        tables.append_pages(list(unknown.items()))
        added += len(unknown)
        known += len(batch) - len(unknown)
    return added, known


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
