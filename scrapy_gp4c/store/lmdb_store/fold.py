"""Bulk writes of a store: adding pages, and the fold, which applies a cycle's visits to the page columns.

Every step is one transaction of bounded size. It is harmless to repeat, or moves a counter or the fold's
marker (the next block of pages to update) in the same transaction. So a killed fold is resumed exactly.
(Santos 2013, section 3.6: the batch update in a single pass of large crawlers.)
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state import claims, columns
from scrapy_gp4c.page_state.claims import apply_links, of_links, of_weights
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring.refresh_value import observe_gains
from scrapy_gp4c.store.lmdb_store.environment import KEY, U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.page_facts import ClaimsFold, shorten_waits, sum_up_trust
from scrapy_gp4c.store.lmdb_store.tables import (
    GAINS,
    LINKS,
    REFRESH_VALUES,
    VISITS,
    WEIGHTS,
    JudgedVisits,
    Numbering,
    Sizes,
    Tables,
    judged_visits,
    read_directories,
    urls_of,
)
from scrapy_gp4c.store.records import CycleRecord, FoldMarker

T = TypeVar("T")


def fold(tables: Tables, visits: Array, notes: Array, pages: int, record: CycleRecord, sizes: Sizes) -> None:
    """Finish the open cycle: apply its visits and notes to the page columns; resumes an interrupted fold.

    ``visits``, ``notes``: of the cycle, dtypes `VISIT` and `NOTE`; ``pages``: number known at its end;
    ``record``: fields to add to the cycle's record; a resumed fold takes those in its marker instead.
    """
    if tables.fold_marker is None:
        tables.mark_fold({"record": record, "next_block": 0})
    assert tables.fold_marker is not None
    finished: CycleRecord = {"finished": time.time()}
    finished.update(tables.fold_marker["record"])
    cycle = tables.last_cycle + 1
    merge_new(tables, pages, sizes)
    _apply(tables, visits, notes, cycle, sizes)
    put_visits(tables, cycle, 0, visits, sizes)
    tables.end_cycle(cycle, finished, lambda txn: sum_up_trust(txn, tables.db, tables.groups, cycle))


def _apply(tables: Tables, all_visits: Array, all_notes: Array, cycle: int, sizes: Sizes) -> None:
    """Apply visits, notes and gains to the blocks of pages that an interrupted fold has not done yet."""
    assert tables.fold_marker is not None
    brought = claims.count_brought(all_notes, tables.merged_pages)
    gains = GAINS.none() if tables.gains_log() is None else tables.gains_of(cycle)
    parts = [rows[np.argsort(rows["page"], kind="stable")] for rows in (all_visits, all_notes, gains)]
    of_part = [rows["page"] // tables.block_rows for rows in parts]
    claims_fold = ClaimsFold.of(tables, cycle)

    def apply(txn: Any, block: int, state: Columns) -> JudgedVisits:
        first = block * tables.block_rows
        visits, block_notes, gained = (
            rows[slice(*np.searchsorted(numbers, (block, block + 1)))]
            for rows, numbers in zip(parts, of_part, strict=True)
        )
        visited, named, measured = (
            (rows["page"] - first).astype(np.intp) for rows in (visits, block_notes, gained)
        )
        claimed = claims_fold.begin(txn, block, state, visits, block_notes)
        judged = judged_visits(state, visited, visits, cycle)
        columns.apply_visits(state, visited, visits, cycle, brought[visits["page"]])
        claims.apply_notes(state, named, block_notes)
        if (weighed := of_weights(block_notes)).any():
            optional = WEIGHTS.read(txn, tables.db, block, len(state["n"]))
            optional["weight"][named[weighed]] = block_notes["value"][weighed]
            WEIGHTS.put(txn, tables.db, block, optional)
        linked = of_links(block_notes)
        if linked.any() or tables.db["links"].get(txn, U32.pack(block)) is not None:
            optional = LINKS.read(txn, tables.db, block, len(state["n"]))
            apply_links(optional, named[linked], block_notes[linked])
            for column in optional.values():  # links are counted up to the first visit
                column[state["has_copy"] == 1] = 0
            LINKS.put(txn, tables.db, block, optional)
        if len(gained):
            optional = REFRESH_VALUES.read(txn, tables.db, block, len(state["n"]))
            observe_gains(optional, measured, gained)
            REFRESH_VALUES.put(txn, tables.db, block, optional)
        if claimed is not None:
            claims_fold.end(txn, block, claimed, visits)
        return judged

    blocks = np.flatnonzero(np.bincount(np.concatenate(of_part)))  # union1d imports numpy.ma
    blocks = blocks[blocks >= tables.fold_marker["next_block"]].tolist()
    for group in batches(blocks, sizes.blocks_per_transaction):
        marker: FoldMarker = {**tables.fold_marker, "next_block": group[-1] + 1}
        tables.change_blocks(group, apply, marker)


def put_visits(tables: Tables, cycle: int, number: int, visits: Array, sizes: Sizes) -> None:
    """Write the visits of one cycle in chunks, numbered from `number` on."""
    starts = range(0, len(visits), sizes.visits_per_chunk)
    for group in batches(starts, sizes.blocks_per_transaction):
        with tables.transaction(write=True) as txn:
            for start in group:
                VISITS.put(txn, tables.db, cycle, number, visits[start : start + sizes.visits_per_chunk])
                number += 1


def merge_new(tables: Tables, pages: int, sizes: Sizes) -> None:
    """Move pages from table `new` to `ids`, `urls` and the columns; ``pages``: number of known ones."""
    if tables.merged_pages == pages:
        return
    numbering = numbering_of(tables)
    while tables.merged_pages < pages:
        first = tables.merged_pages
        stop = min(pages, first + sizes.pages_per_transaction)
        append_new(tables, numbering, _read_new(tables, first, stop), tables.last_cycle + 1)


def numbering_of(tables: Tables) -> Numbering:
    """Return the `Numbering` of a store's directories, for pages to be added."""
    with tables.transaction() as txn:
        return Numbering(read_directories(txn, tables.db["groups"], tables.groups, "key"))


def append_new(
    tables: Tables, numbering: Numbering, pages: Sequence[tuple[int, bytes]], entered: int
) -> None:
    """Append pages without visits, given as (key, JSON request); ``entered``: cycle that found them, or 0."""
    requests = [request for _, request in pages]
    state = columns.new_columns(np.array([key for key, _ in pages], np.uint64))
    state["entered"][:] = entered
    state["group"][:], new_directories = numbering.number(urls_of(requests))
    tables.append_pages(requests, state, new_directories)


def _read_new(tables: Tables, first: int, stop: int) -> list[tuple[int, bytes]]:
    pages = []
    with tables.transaction() as txn:
        for page in range(first, stop):
            value = tables.db["new"].view(txn, U32_PAIR.pack(tables.last_cycle + 1, page))
            pages.append((KEY.unpack_from(value)[0], bytes(value[KEY.size :])))
    return pages


def add_pages(tables: Tables, pages: Iterable[tuple[int, bytes]], sizes: Sizes) -> tuple[int, int]:
    """Add those of `pages`, (key, JSON request), that the store does not have; returns (added, known).

    Known pages that wait after failures become due. Call `merge_new` before, if a cycle found pages.
    """
    added = known = 0
    numbering = numbering_of(tables)
    for batch in batches(pages, sizes.pages_per_transaction):
        unknown: dict[int, bytes] = {}
        ids = []
        with tables.transaction(buffers=True) as txn:
            for key, request in batch:
                if key not in unknown:
                    page = tables.get_id(txn, key)
                    if page is None:
                        unknown[key] = request
                    else:
                        ids.append(page)
        _shorten_waits(tables, np.array(ids, np.intp))
        append_new(tables, numbering, list(unknown.items()), 0)
        added += len(unknown)
        known += len(batch) - len(unknown)
    return added, known


def _shorten_waits(tables: Tables, pages: npt.NDArray[np.intp]) -> None:
    if not len(pages):
        return
    block = pages // tables.block_rows
    with tables.transaction(write=True) as txn:
        for number in np.flatnonzero(np.bincount(block)).tolist():
            shorten_waits(txn, tables, number, pages[block == number] - number * tables.block_rows)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
