"""Page columns of a store with their optional ones: read by block, by page and by key, written in bulk."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state.columns import COLUMNS, Columns, pages_of, rows_of, unpack
from scrapy_gp4c.store.lmdb_store.environment import KEY, U32, U32_PAIR, damaged, split
from scrapy_gp4c.store.lmdb_store.optional_tables import HINTS, REFRESH_VALUES, WEIGHTS, PageColumns
from scrapy_gp4c.store.lmdb_store.tables import Tables

QUERY_LOG: Final = "query_log"
"""Name in `meta` of the log that gains are measured by, and of the first cycle measured by it."""
_SAMPLE: Final = 64


def optional_columns(tables: Tables) -> tuple[PageColumns, ...]:
    """Optional columns of a store: those of refresh values only where any was ever measured."""
    with tables.transaction() as txn:
        measured = tables.get_meta(txn, QUERY_LOG) is not None
    return (HINTS, WEIGHTS, REFRESH_VALUES) if measured else (HINTS, WEIGHTS)


def blocks_with_optional(tables: Tables) -> Iterator[tuple[int, Columns]]:
    """Yield first page and all columns of each block, the optional ones too."""
    kinds = optional_columns(tables)
    for first, state in tables.blocks():
        with tables.transaction() as txn:
            for kind in kinds:
                state |= kind.read(txn, tables.db, first // tables.block_rows, len(state["n"]))
        yield first, state


def columns_of(
    tables: Tables, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None
) -> Columns:
    """Columns ``[P]`` of merged pages, whose ids ascend.

    ``names``: only these of `scrapy_gp4c.page_state.columns.COLUMNS`; None: all, and the optional ones.
    """
    kinds = optional_columns(tables) if names is None else ()
    wanted = COLUMNS if names is None else names
    parts: list[Columns] = [{name: np.empty(0, COLUMNS[name]) for name in wanted}]
    for kind in kinds:
        parts[0] |= kind.none(0)
    number = pages // tables.block_rows
    ends = {0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist(), len(pages)}
    for start, end in pairwise(sorted(ends)):
        block = int(number[start])
        rows = (pages[start:end] - np.uint32(block * tables.block_rows)).astype(np.intp)
        with tables.transaction(buffers=True) as txn:  # a block is not copied for a few of its pages
            value = tables.block(txn, block)
            columns, size = rows_of(value, rows, wanted), pages_of(value)
            for kind in kinds:
                optional = kind.read(txn, tables.db, block, size)
                columns |= {name: column[rows] for name, column in optional.items()}
        parts.append(columns)
    if names is not None and len(parts) == 2:
        return parts[1]
    return {name: np.concatenate([columns[name] for columns in parts]) for name in parts[0]}


def all_values(tables: Tables, kind: PageColumns) -> Columns:
    """Optional columns of all merged pages."""
    parts = [kind.none(0)]
    for block in range(-(-tables.merged_pages // tables.block_rows)):
        rows = min(tables.block_rows, tables.merged_pages - block * tables.block_rows)
        with tables.transaction() as txn:
            parts.append(kind.read(txn, tables.db, block, rows))
    return {name: np.concatenate([block_columns[name] for block_columns in parts]) for name in kind.dtypes}


def put_consecutive(tables: Tables, kind: PageColumns, first: int, columns: Columns) -> None:
    """Write optional columns of consecutive merged pages from `first` on."""
    stop = first + len(next(iter(columns.values())))
    for block in range(first // tables.block_rows, -(-stop // tables.block_rows)):
        start = block * tables.block_rows
        rows = min(tables.block_rows, tables.merged_pages - start)
        rows_here = slice(max(first - start, 0), min(stop - start, rows))
        with tables.transaction(write=True) as txn:
            state = kind.read(txn, tables.db, block, rows)
            for name in kind.dtypes:
                state[name][rows_here] = columns[name][
                    rows_here.start + start - first : rows_here.stop + start - first
                ]
            kind.put(txn, tables.db, block, state)


def put_some(tables: Tables, kind: PageColumns, pages: Array, columns: Columns) -> None:
    """Write optional columns of some merged pages; of a page that is named twice, the last."""
    of_block = pages // tables.block_rows
    for block in np.flatnonzero(np.bincount(of_block)).tolist():
        in_block, first = of_block == block, block * tables.block_rows
        with tables.transaction(write=True) as txn:
            state = kind.read(txn, tables.db, block, min(tables.block_rows, tables.merged_pages - first))
            for name in kind.dtypes:
                state[name][(pages[in_block] - first).astype(np.intp)] = columns[name][in_block]
            kind.put(txn, tables.db, block, state)


def ids_of(tables: Tables, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Merged pages of keys, which ascend, ``[K]``; -1 where there is none."""
    table, page_ids = tables.db["ids"], np.full(len(keys), -1, np.int64)
    with tables.transaction() as txn:
        items = txn.cursor(table.handle).getmulti(split(keys.astype(">u8").tobytes(), KEY.size))
    known = np.frombuffer(b"".join([key for key, _ in items]), ">u8").astype(np.uint64)
    pages = np.frombuffer(b"".join([page for _, page in items]), ">u4").astype(np.int64)
    for block in np.unique(pages // tables.block_rows).tolist():
        in_block = np.flatnonzero(pages // tables.block_rows == block)
        if pages[in_block].max() >= tables.merged_pages:
            raise damaged(tables.path, "ids: a key belongs to no page")
        with tables.transaction() as txn:
            block_keys = unpack(tables.block(txn, block), ("key",))["key"][
                pages[in_block] - block * tables.block_rows
            ]
        if (block_keys != known[in_block]).any():
            raise damaged(tables.path, "ids: a key belongs to a page with another")
    page_ids[np.searchsorted(keys, known)] = pages
    return page_ids


def check_sample(tables: Tables) -> int:
    """Check some values, evenly over pages, blocks and cycles, and the last records; returns how many.

    Raises StoreDamagedError.
    """
    # No np.unique: without any option it imports numpy.ma, which takes longer than all the rest of opening.
    evenly = np.linspace(0, tables.merged_pages, _SAMPLE, endpoint=False, dtype=int)
    pages = sorted(set(evenly.tolist())) if tables.merged_pages else []
    blocks = {page // tables.block_rows for page in pages[:: _SAMPLE // 4]}
    cycles = range(1, tables.last_cycle + 1, max(1, tables.last_cycle // 4))
    with tables.transaction(buffers=True) as txn:
        for page in pages:
            tables.db["urls"].view(txn, U32.pack(page))
        for block in blocks:
            tables.block(txn, block)
        for cycle in cycles:
            next(tables.db["visits"].items(txn, U32_PAIR.pack(cycle, 0)), None)
    records = tables.cycles(max(1, tables.last_cycle - _SAMPLE))
    return len(pages) + len(blocks) + len(cycles) + len(records)
