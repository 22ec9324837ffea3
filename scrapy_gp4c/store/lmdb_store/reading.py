"""Reading some of a store's pages: their columns, and a sample of all values."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.blocks import pages_of, rows_of, unpack, unpack_extras
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.scoring.weights import default_weights
from scrapy_gp4c.store.lmdb_store.failures import damaged
from scrapy_gp4c.store.lmdb_store.gains import Gains
from scrapy_gp4c.store.lmdb_store.sealed import KEY, U32, U32_PAIR, split
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.trust import read_block
from scrapy_gp4c.store.lmdb_store.weights import read_block as read_weights

_SAMPLE: Final = 64


def columns_of(
    tables: Tables, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None
) -> Columns:
    """Columns ``[P]`` of some pages, ids ascending, each one merged.

    ``names``: of `scrapy_gp4c.page_state.columns.COLUMNS` these alone; None: all, and those kept beside them.
    """
    gains = Gains(tables) if names is None else None
    kept = COLUMNS if names is None else names
    parts: list[Columns] = [{name: np.empty(0, COLUMNS[name]) for name in kept}]
    if gains is not None:
        parts[0] |= unpack_extras(None, 0) | gains.block(0, 0) | {"weight": default_weights(0)}
    number = pages // tables.block_rows
    ends = {0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist(), len(pages)}
    for start, end in pairwise(sorted(ends)):
        block = int(number[start])
        rows = (pages[start:end] - np.uint32(block * tables.block_rows)).astype(np.intp)
        with tables.transaction(buffers=True) as txn:  # a block is not copied for a few of its pages
            value = tables.block(txn, block)
            part, size = rows_of(value, rows, kept), pages_of(value)
            if gains is not None:
                beside = read_block(txn, tables.db, block, size)
                beside["weight"] = read_weights(txn, tables.db, block, size)
        if gains is not None:
            beside |= gains.block(block, size)
            part |= {name: column[rows] for name, column in beside.items()}
        parts.append(part)
    if gains is None and len(parts) == 2:
        return parts[1]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def ids_of(tables: Tables, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Pages of keys, ascending, in `ids`, ``[K]``; -1 for those that are not there."""
    table, found = tables.db["ids"], np.full(len(keys), -1, np.int64)
    with tables.transaction() as txn:
        items = txn.cursor(table.handle).getmulti(split(keys.astype(">u8").tobytes(), KEY.size))
    there = np.frombuffer(b"".join([key for key, _ in items]), ">u8").astype(np.uint64)
    pages = np.frombuffer(b"".join([page for _, page in items]), ">u4").astype(np.int64)
    for block in np.unique(pages // tables.block_rows).tolist():
        own = np.flatnonzero(pages // tables.block_rows == block)
        if pages[own].max() >= tables.merged_pages:
            raise damaged(tables.path, "ids: a key belongs to no page")
        with tables.transaction() as txn:
            kept = unpack(tables.block(txn, block), ("key",))["key"][pages[own] - block * tables.block_rows]
        if (kept != there[own]).any():
            raise damaged(tables.path, "ids: a key belongs to a page with another")
    found[np.searchsorted(keys, there)] = pages
    return found


def sample(tables: Tables) -> int:
    """Check some values, evenly over pages, blocks and cycles; returns how many. Raises StoreDamagedError."""
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
    return len(pages) + len(blocks) + len(cycles) + len(tables.cycles())
