"""Reading some of a store's pages: their columns, and a sample of all values."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import Columns, unpack
from scrapy_gp4c.page_state.extras import unpack_extras
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.trust import read_block

_SAMPLE: Final = 64


def columns_of(tables: Tables, pages: npt.NDArray[np.uint32]) -> Columns:
    """Columns ``[P]`` of some pages, ids ascending, each one merged."""
    parts = [unpack(b"") | unpack_extras(None, 0)]
    blocks, starts = np.unique(pages // tables.block_rows, return_index=True)
    for block, own in zip(blocks.tolist(), np.split(pages, starts)[1:], strict=True):
        with tables.transaction() as txn:
            state = unpack(tables.block(txn, block))
            state |= read_block(txn, tables.db, block, len(state["n"]))
        rows = own - np.uint32(block * tables.block_rows)
        parts.append({name: column[rows] for name, column in state.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def sample(tables: Tables) -> int:
    """Check some values, evenly over pages, blocks and cycles; returns how many. Raises StoreDamagedError."""
    pages = np.unique(np.linspace(0, tables.merged_pages, _SAMPLE, endpoint=False, dtype=int)).tolist()
    pages = pages if tables.merged_pages else []
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
