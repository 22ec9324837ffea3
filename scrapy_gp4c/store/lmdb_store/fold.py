"""Bulk writes of the store: adding pages, and folding a finished cycle into the page columns.

Every step is one transaction of bounded size that either moves a counter or the fold's marker with it, or
may be repeated, so that a kill at any moment is resumed exactly. (Santos 2013, section 3.6: the batch
update in a single pass of large crawlers.)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from scrapy_gp4c.page_state import claims, columns
from scrapy_gp4c.page_state.columns import Array, Columns
from scrapy_gp4c.store.lmdb_store.gains import Gains
from scrapy_gp4c.store.lmdb_store.groups import Numbering, Told, read_keys, told, urls_of
from scrapy_gp4c.store.lmdb_store.hints import Folding
from scrapy_gp4c.store.lmdb_store.sealed import KEY, U32_PAIR
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.weights import fold_block
from scrapy_gp4c.store.records import CycleRecord, FoldMarker

T = TypeVar("T")


class Learnt(NamedTuple):
    """All that a cycle learnt."""

    visits: Array
    """Dtype `VISIT`."""
    notes: Array
    """Dtype `NOTE`."""
    pages: int
    """Known at its end."""


def fold(tables: Tables, learnt: Learnt, record: CycleRecord, sizes: Sizes) -> None:
    """Fold the open cycle, or go on with its fold: afterwards the cycle is finished.

    ``record``: what finishes its record, which the marker of an interrupted fold already has.
    """
    if tables.fold_marker is None:
        tables.mark_fold({"record": record, "next_block": 0})
    assert tables.fold_marker is not None
    finished: CycleRecord = {"finished": time.time()}
    finished.update(tables.fold_marker["record"])
    cycle = tables.last_cycle + 1
    merge_new(tables, learnt.pages, sizes)
    _apply(tables, learnt, cycle, sizes)
    Gains(tables).fold(cycle)
    put_visits(tables, cycle, 0, learnt.visits, sizes)
    tables.end_cycle(cycle, finished)


def _apply(tables: Tables, learnt: Learnt, cycle: int, sizes: Sizes) -> None:
    """Apply visits and notes to the blocks from the marker on."""
    assert tables.fold_marker is not None
    brought = claims.brought(learnt.notes, learnt.pages)
    visits, noted = (part[np.argsort(part["page"], kind="stable")] for part in learnt[:2])
    of_visit, of_note = (part["page"] // tables.block_rows for part in (visits, noted))

    hints = Folding.of(tables, cycle)

    def apply(txn: Any, block: int, state: Columns) -> Told:
        first = block * tables.block_rows
        own = visits[slice(*np.searchsorted(of_visit, (block, block + 1)))]
        rows = (own["page"] - first).astype(np.intp)
        learnt_of = noted[slice(*np.searchsorted(of_note, (block, block + 1)))]
        begun = hints.begin(txn, block, state, own, learnt_of)
        before = told(state, rows, own["outcome"], cycle)
        columns.apply_visits(state, rows, own, cycle, brought[own["page"]])
        claims.apply_notes(state, (learnt_of["page"] - first).astype(np.intp), learnt_of)
        fold_block(txn, tables, block, len(state["n"]), learnt_of)
        if begun is not None:
            hints.end(txn, block, begun, own)
        return before

    blocks = np.flatnonzero(np.bincount(np.concatenate((of_visit, of_note))))  # union1d imports numpy.ma
    blocks = blocks[blocks >= tables.fold_marker["next_block"]].tolist()
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
    if tables.merged_pages == pages:
        return
    numbering = numbering_of(tables)
    while tables.merged_pages < pages:
        first = tables.merged_pages
        stop = min(pages, first + sizes.pages_per_transaction)
        _append_new(tables, numbering, _read_new(tables, first, stop), tables.last_cycle + 1)


def numbering_of(tables: Tables) -> Numbering:
    """The numbers of all directories of a store."""
    with tables.transaction() as txn:
        return Numbering(read_keys(txn, tables.db["groups"], tables.groups))


def _append_new(
    tables: Tables, numbering: Numbering, pages: Sequence[tuple[int, bytes]], entered: int
) -> None:
    """Append pages that were never visited, (key, JSON request), and became known in a cycle; 0: in none."""
    state = columns.new_columns(np.array([key for key, _ in pages], np.uint64))
    state["entered"][:] = entered
    append_pages(tables, numbering, [request for _, request in pages], state)


def append_pages(tables: Tables, numbering: Numbering, requests: Sequence[bytes], state: Columns) -> None:
    """Append pages with columns of their own, but for their directories, which `numbering` tells."""
    state["group"][:], new = numbering.number(urls_of(requests))
    tables.append_pages(requests, state, new)


def _read_new(tables: Tables, first: int, stop: int) -> list[tuple[int, bytes]]:
    """Read (key, JSON request) of the pages first..stop-1 from `new`."""
    pages = []
    with tables.transaction() as txn:
        for page in range(first, stop):
            value = tables.db["new"].view(txn, U32_PAIR.pack(tables.last_cycle + 1, page))
            pages.append((KEY.unpack_from(value)[0], bytes(value[KEY.size :])))
    return pages


def add_pages(tables: Tables, pages: Iterable[tuple[int, bytes]], sizes: Sizes) -> tuple[int, int]:
    """Add (key, JSON request) pairs whose key is not known; returns how many were added and known.

    All pages of `new` must be merged.
    """
    added = known = 0
    numbering = numbering_of(tables)
    for batch in batches(pages, sizes.pages_per_transaction):
        unknown: dict[int, bytes] = {}
        with tables.transaction(buffers=True) as txn:
            for key, request in batch:
                if key not in unknown and tables.get_id(txn, key) is None:
                    unknown[key] = request
        _append_new(tables, numbering, list(unknown.items()), 0)
        added += len(unknown)
        known += len(batch) - len(unknown)
    return added, known


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
