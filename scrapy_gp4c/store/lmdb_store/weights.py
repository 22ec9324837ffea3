"""The weights of a store's pages: the table `weights`, and what requests and lists of the open cycle say.

A block has a value where any of its pages has another weight than 1. Who says a weight during a cycle notes
it, and the cycle's fold writes it: rounds of one cycle rank by the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import of_weights
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring import weights
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.salvage import LOST, Values
from scrapy_gp4c.store.lmdb_store.schema import Handles
from scrapy_gp4c.store.lmdb_store.sealed import U32
from scrapy_gp4c.store.lmdb_store.tables import Tables

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class Weights:
    """What `scrapy_gp4c.store.page_store.PageWeights` describes."""

    def __init__(self, tables: Tables, opened: OpenCycle) -> None:
        """Take what is folded, and the cycle that is not."""
        self._tables = tables
        self._open = opened

    def of(self, page: int) -> float:
        """Weight of a page, as the newest request or list has it."""
        said = self._open.weights.get(page)
        if said is not None or page >= self._tables.merged_pages:
            return weights.DEFAULT_WEIGHT if said is None else said
        block, row = divmod(page, self._tables.block_rows)
        with self._tables.transaction() as txn:
            return float(read_block(txn, self._tables.db, block, row + 1)[row])

    def blocks(self, blocks: Iterable[tuple[int, Columns]]) -> Iterator[tuple[int, Columns]]:
        """Add the column of weights to blocks of other columns."""
        for first, columns in blocks:
            with self._tables.transaction() as txn:
                block = first // self._tables.block_rows
                own = {"weight": read_block(txn, self._tables.db, block, len(columns["n"]))}
            yield first, columns | own

    def put(self, pages: Array, values: Floats) -> None:
        """Set the weights of pages, ``[P]``, and commit: see `PageWeights`."""
        if self._open.number is not None:
            self._open.require()
            self._open.note_many(pages, "weight", values)
            self._open.commit()
            return
        self._tables.check_writable()
        of_block = pages // self._tables.block_rows
        for block in np.unique(of_block).tolist():
            own, first = of_block == block, block * self._tables.block_rows
            rows = min(self._tables.block_rows, self._tables.merged_pages - first)
            with self._tables.transaction(write=True) as txn:
                kept = read_block(txn, self._tables.db, block, rows)
                kept[(pages[own] - first).astype(np.intp)] = values[own]
                put_block(txn, self._tables.db, block, kept)


def read_block(txn: Any, db: Handles, block: int, rows: int) -> Floats:
    """Weights of a block, ``[rows]``, writable."""
    found, value = weights.default_weights(rows), db["weights"].get(txn, U32.pack(block))
    if value is not None:
        kept = np.frombuffer(value[: len(value) // 8 * 8], weights.COLUMNS["weight"])[:rows]
        found[: len(kept)] = kept
    return found


def put_block(txn: Any, db: Handles, block: int, values: Floats) -> None:
    """Write the weights of a block; those of a block that has none of its own take no room."""
    if (values != weights.DEFAULT_WEIGHT).any():
        db["weights"].put(txn, U32.pack(block), values.astype(weights.COLUMNS["weight"]).tobytes())
    else:
        db["weights"].delete(txn, U32.pack(block))


def fold_block(txn: Any, tables: Tables, block: int, rows: int, notes: Array) -> None:
    """Set the weights that notes of a block's pages say, dtype `NOTE`; of several the last counts."""
    own = notes[of_weights(notes)]
    if len(own):
        kept = read_block(txn, tables.db, block, rows)
        kept[own["page"].astype(np.intp) - block * tables.block_rows] = own["value"]
        put_block(txn, tables.db, block, kept)


def put_consecutive(tables: Tables, first: int, values: Floats) -> None:
    """Write the weights of consecutive pages from `first` on, all of which are merged."""
    other = np.flatnonzero(values != weights.DEFAULT_WEIGHT)
    of_block = (first + other) // tables.block_rows
    for block in np.unique(of_block).tolist():
        start = block * tables.block_rows
        rows = min(tables.block_rows, tables.merged_pages - start)
        own = other[of_block == block]
        with tables.transaction(write=True) as txn:
            kept = read_block(txn, tables.db, block, rows)
            kept[first + own - start] = values[own]
            put_block(txn, tables.db, block, kept)


def moved(old: Tables, new: Tables, kept: npt.NDArray[np.uint32]) -> None:
    """Write the weights of the pages that stay into a store with these alone; ``kept``: their old ids."""
    parts = [np.empty(0)]
    with old.transaction() as txn:
        for block in range(-(-old.merged_pages // old.block_rows)):
            rows = min(old.block_rows, old.merged_pages - block * old.block_rows)
            parts.append(read_block(txn, old.db, block, rows))
    put_consecutive(new, 0, np.concatenate(parts)[kept])


def rebuilt(tables: Tables, values: Values, new_id: Array) -> None:
    """Write what is left of the weights of a damaged store.

    ``tables``: of the new store, with its pages; ``new_id``: new ids of the old pages.
    """
    found = weights.default_weights(tables.merged_pages)
    for key, value in values["weights"].items():
        first = U32.unpack(key)[0] * tables.block_rows
        kept = np.frombuffer(value[: len(value) // 8 * 8], weights.COLUMNS["weight"])
        own = new_id[first : first + len(kept)]
        kept = np.where((kept >= 0) & (kept <= weights.MAX_WEIGHT), kept, weights.DEFAULT_WEIGHT)[: len(own)]
        found[own[own != LOST]] = kept[own != LOST]
    put_consecutive(tables, 0, found)


def weights_problems(tables: Tables) -> Iterator[str]:
    """Yield what is wrong with the weights of a store."""
    pages, rows = tables.merged_pages, tables.block_rows
    with tables.transaction() as txn:
        for key, value in tables.db["weights"].items(txn):
            block = U32.unpack(key)[0]
            if block * rows >= pages or len(value) % 8 or len(value) > 8 * min(rows, pages - block * rows):
                yield f"weights are kept of {len(value) / 8:g} pages of block {block}, which there are not"
            elif not weights.are_weights(np.frombuffer(value, weights.COLUMNS["weight"])):
                yield f"a page of block {block} has a weight that is none"
