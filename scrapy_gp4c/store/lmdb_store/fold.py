"""Bulk writes of the store: adding pages, and folding a finished cycle into the page columns.

Every step is one transaction of bounded size that either moves a counter or the fold's marker with it, or
may be repeated, so that a kill at any moment is resumed exactly. (Santos 2013, section 3.6: the batch
update in a single pass of large crawlers.)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.store.records import CycleRecord

if TYPE_CHECKING:
    from scrapy_gp4c.store.lmdb_store.store import Store

BLOCKS_PER_TRANSACTION = 64
PAGES_PER_TRANSACTION = 65_536
VISITS_PER_CHUNK = 16_384


def fold(store: Store, state: dict[str, Any]) -> None:
    """Fold the open cycle of `store`, or go on with its fold.

    ``state`` is the marker: what finishes the cycle's JSON record, and the next block to fold. The
    caller reloads the store afterwards.
    """
    if store.fold_state is None:
        with store.transaction(write=True) as txn:
            store.put_meta(txn, "fold", state)
        store.fold_state = state
    cycle = store.last_cycle + 1
    merge_new(store)
    visits = store.open_visits()
    _apply(store, visits[np.argsort(visits["page"], kind="stable")], cycle)
    put_visits(store, cycle, 0, visits)
    with store.transaction(write=True) as txn:
        record: CycleRecord = {"finished": time.time()}
        record.update(state["record"])
        store.update_record(txn, cycle, record)
        store.put_meta(txn, "last_cycle", cycle)
        for table in ("log", "new", "plans"):
            txn.drop(store.tables[table], delete=False)
        txn.delete(b"fold", db=store.tables["meta"])


def _apply(store: Store, visits: npt.NDArray[Any], cycle: int) -> None:
    """Apply visits, sorted by page, to the blocks from the marker on."""
    assert store.fold_state is not None
    of_visit = visits["page"] // store.block_rows
    blocks = np.unique(of_visit[of_visit >= store.fold_state["next_block"]]).tolist()
    for group in batches(blocks, BLOCKS_PER_TRANSACTION):
        marker = {**store.fold_state, "next_block": group[-1] + 1}
        with store.transaction(write=True) as txn:
            for block in group:
                start, stop = np.searchsorted(of_visit, (block, block + 1))
                state = columns.unpack(memoryview(bytearray(store.get_block(txn, block))))
                rows = (visits["page"][start:stop] - block * store.block_rows).astype(np.intp)
                columns.apply_visits(state, rows, visits[start:stop], cycle)
                store.put_block(txn, block, state)
            store.put_meta(txn, "fold", marker)
        store.fold_state = marker


def put_visits(store: Store, cycle: int, number: int, visits: npt.NDArray[Any]) -> int:
    """Pack visits of one cycle into chunks from `number` on; returns the next number."""
    starts = range(0, len(visits), VISITS_PER_CHUNK)
    for group in batches(starts, BLOCKS_PER_TRANSACTION):
        with store.transaction(write=True) as txn:
            for start in group:
                chunk = visits[start : start + VISITS_PER_CHUNK]
                store.put_visits(txn, cycle, number, chunk)
                number += 1
    return number


def merge_new(store: Store) -> None:
    """Move the pages of `new` that are not merged yet to `ids`, `urls` and the columns, in order of id."""
    while store.merged_pages < store.pages:
        stop = min(store.pages, store.merged_pages + PAGES_PER_TRANSACTION)
        pages = store.get_new(store.merged_pages, stop)
        append_pages(store, pages)


def add_pages(store: Store, pages: Iterable[tuple[int, bytes]]) -> tuple[int, int]:
    """Add (key, JSON request) pairs whose key is not known; returns how many were added and known."""
    merge_new(store)
    added = known = 0
    for batch in batches(pages, PAGES_PER_TRANSACTION):
        unknown: dict[int, bytes] = {}
        with store.transaction() as txn:
            for key, request in batch:
                if key not in unknown and store.get_id(txn, key) is None:
                    unknown[key] = request
        append_pages(store, list(unknown.items()))
        added += len(unknown)
        known += len(batch) - len(unknown)
    return added, known


def append_pages(store: Store, pages: list[tuple[int, bytes]], state: columns.Columns | None = None) -> None:
    """Append pages, (key, JSON request), with columns of their own or those of a new page.

    One transaction. The keys must be unknown. A request that was replaced meanwhile is kept.
    """
    if not pages:
        return
    first = store.merged_pages
    keys = np.array([key for key, _ in pages], dtype=np.uint64)
    if state is None:
        state = columns.new_columns(keys)
    with store.transaction(write=True) as txn:
        store.put_pages(txn, first, keys, [request for _, request in pages])
        start = 0
        while start < len(pages):
            block, filled = divmod(first + start, store.block_rows)
            stop = min(len(pages), start + store.block_rows - filled)
            old = columns.unpack(store.get_block(txn, block) if filled else b"")
            joined = {name: np.concatenate((old[name], state[name][start:stop])) for name in old}
            store.put_block(txn, block, joined)
            start = stop
        store.put_meta(txn, "pages", first + len(pages))
    store.merged_pages = first + len(pages)
    store.pages = max(store.pages, store.merged_pages)


def restore(store: Store, records: list[CycleRecord]) -> None:
    """Give a store without cycles the JSON records of cycles 1..C, as finished.

    Their pages and visits follow by `append_pages` and `put_visits`. One transaction.
    """
    with store.transaction(write=True) as txn:
        for cycle, record in enumerate(records, 1):
            store.update_record(txn, cycle, {**record, "cycle": cycle})
        store.put_meta(txn, "last_cycle", len(records))
    store.last_cycle = len(records)


def batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield the items in lists of `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
