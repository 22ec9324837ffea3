"""Converting a store of an older schema, when it is opened to write: into a new file, which replaces the old.

Up to schema 7, columns and requests took more room than they need. Schemas 5 and 6 lacked tables besides,
which are empty at first. Schema 4 had no checksums and knew nothing of growth: its pages come to have brought
nothing. Schema 3 had neither directories nor rates, which are computed from what it has: the URLs and the
visits. A kill leaves the store as it was, and the next opening begins anew; an open cycle stays open, with
its log, its plans and, where its fold was interrupted, the blocks that were folded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, NO_VISITS
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring import discovery, terminals
from scrapy_gp4c.store.lmdb_store import fold, groups
from scrapy_gp4c.store.lmdb_store.beside import REWRITE, beside
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.failures import DATA, damaged
from scrapy_gp4c.store.lmdb_store.groups import Numbering, Told, told
from scrapy_gp4c.store.lmdb_store.rewriting import copy_tables
from scrapy_gp4c.store.lmdb_store.schema import add_shard_tables, is_older, open_tables
from scrapy_gp4c.store.lmdb_store.sealed import KEY, OF_SHARDS, U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.tables import Tables

Array = npt.NDArray[Any]

_GROWTHLESS: Final = {name: dtype for name, dtype in COLUMNS.items() if name not in discovery.COLUMNS}
"""Columns of schema 4."""
_ADDED: Final = ("E", "T", "found_cycle", "group")
_OLD_COLUMNS: Final = {name: dtype for name, dtype in _GROWTHLESS.items() if name not in _ADDED}
"""Those of schema 3."""
_REPLAYED: Final = ("n", "last_cycle", "E", "T", "found_cycle")
"""Columns that are computed from the visits: the last three by the first two."""


class Replayed(NamedTuple):
    """What the visits come to."""

    state: Columns
    """`_REPLAYED` and ``group``, of all pages."""
    told: dict[int, Array]
    """Of the last `KEPT_CYCLES` cycles: dtype `GROUP_VISITS`."""


def convert(path: str | os.PathLike[str], sizes: Sizes) -> None:
    """Convert a store that is only to be read; raises StoreError where it cannot be written."""
    try:
        environment = Environment(path, False, sizes.map_size)
        try:
            migrate(environment, sizes)
        finally:
            environment.close()
    except StoreError as error:
        raise type(error)(
            f"{error} (It is of an older version, and is converted before it can be read.)"
        ) from error


def migrate(environment: Environment, sizes: Sizes) -> None:
    """Convert a store of an older schema; one of this schema stays as it is. Memory: 28 bytes per page."""
    if not is_older(environment, sizes.block_rows):
        return
    old = Tables(environment, open_tables(environment, sizes.block_rows, older=True))
    with beside(environment.path, REWRITE) as work:
        target = Environment(work, False, sizes.map_size)
        try:
            handles = open_tables(target, old.block_rows)
            if old.db.keys() & OF_SHARDS:
                handles |= add_shard_tables(target)
            new = Tables(target, handles)
            copy_tables(old, new)
            if "pages" in old.db:
                _add_columns(old, new, sizes)
            else:
                _pack_blocks(old, new, sizes)
        except StoreDamagedError as error:
            raise damaged(environment.path, error.what) from error
        finally:
            target.close()
        environment.replace_with(work / DATA)


def _add_columns(old: Tables, new: Tables, sizes: Sizes) -> None:
    """Give a copy of a store of schema 3 what that has not, and the columns, which are not copied yet."""
    group, directories = _number(new, sizes)
    replayed = _replay(new, group)
    _write_columns(old, new, replayed.state, sizes)
    with new.transaction(write=True) as txn:
        for cycle, visits in replayed.told.items():
            new.put_group_visits(txn, cycle, 0, visits)
        _keep_first_urls(new, txn)
        new.put_meta(txn, "groups", directories)


def _pack_blocks(old: Tables, new: Tables, sizes: Sizes) -> None:
    """Write the columns of the blocks of schemas 4 to 7; the first of these has those of growth not yet."""
    knows_growth = "notes" in old.db
    dtypes = COLUMNS if knows_growth else _GROWTHLESS
    blocks = range(-(-new.merged_pages // new.block_rows))
    for batch in fold.batches(blocks, sizes.blocks_per_transaction):
        with old.transaction() as reading, new.transaction(write=True) as txn:
            for block in batch:
                kept = columns.unpack(old.db["columns"].view(reading, U32.pack(block)), dtypes)
                new.put_block(txn, block, kept if knows_growth else {**kept, **_nothing_brought(kept)})


def _nothing_brought(state: Columns) -> Columns:
    """Columns of growth of pages that have brought nothing, found by nobody knows whom."""
    brought = {name: np.zeros(len(state["n"]), dtype) for name, dtype in discovery.COLUMNS.items()}
    brought["brought_cycle"][:] = state["first_cycle"]
    return brought


def _number(tables: Tables, sizes: Sizes) -> tuple[npt.NDArray[np.uint32], int]:
    """Write the directories of all pages; returns each page's, uint32 ``[P]``, and how many there are."""
    numbering, directories = Numbering(np.empty(0, np.uint64)), 0
    group = np.zeros(tables.merged_pages, np.uint32)
    for first in range(0, len(group), sizes.pages_per_transaction):
        stop = min(first + sizes.pages_per_transaction, len(group))
        group[first:stop], new = numbering.number(tables.urls(first, stop))
        with tables.transaction(write=True) as txn:
            groups.append(txn, tables.db["groups"], new, directories, tables.block_rows)
        directories += len(new)
    return group, directories


def _replay(tables: Tables, group: npt.NDArray[np.uint32]) -> Replayed:
    """Do to new columns what all folded visits did, cycle by cycle."""
    state: Columns = {name: np.zeros(len(group), terminals.STATE[name]) for name in _REPLAYED}
    state["group"] = group
    kept = range(max(1, tables.last_cycle - KEPT_CYCLES + 1), tables.last_cycle + 1)
    visits_told = dict.fromkeys(kept, NO_VISITS)
    for cycle, chunks in groupby(_folded(tables), lambda chunk: chunk[0]):
        parts: list[Told] = []
        for _, visits in chunks:
            rows, outcome = visits["page"].astype(np.intp), visits["outcome"]
            if len(rows) and rows.max() >= len(group):
                raise damaged(tables.path, f"cycle {cycle} has a visit of page {rows.max()} of {len(group)}")
            if cycle >= kept.start:
                parts.append(told(state, rows, outcome, cycle))
            columns.observe(state, rows, outcome, cycle)
        if parts:
            visits_told[cycle] = groups.counted(parts)
    return Replayed(state, visits_told)


def _folded(tables: Tables) -> Iterator[tuple[int, Array]]:
    """Yield the visits that the columns know of: of finished cycles, and of a fold as far as it came."""
    yield from tables.visits()
    if tables.fold_marker is not None:
        with tables.transaction() as txn:
            log = [np.frombuffer(value, VISIT) for _, value in tables.db["log"].items(txn)]
        visits = np.concatenate([np.empty(0, VISIT), *log])
        done = visits["page"] < tables.fold_marker["next_block"] * tables.block_rows
        yield tables.last_cycle + 1, visits[done]


def _keep_first_urls(tables: Tables, txn: Any) -> None:
    """Keep the URLs of the open cycle's new pages whose request was replaced: their directory follows."""
    for key, request in tables.db["urls"].items(txn, U32.pack(tables.merged_pages)):
        page = U32.unpack(key)[0]
        found = tables.db["new"].view(txn, U32_PAIR.pack(tables.last_cycle + 1, page))
        groups.keep_first_url(txn, tables.db["first_urls"], page, bytes(found[KEY.size :]), bytes(request))


def _write_columns(old: Tables, new: Tables, state: Columns, sizes: Sizes) -> None:
    """Write the blocks, with the columns that are added."""
    blocks = range(-(-new.merged_pages // new.block_rows))
    for batch in fold.batches(blocks, sizes.blocks_per_transaction):
        with old.transaction() as reading, new.transaction(write=True) as txn:
            for block in batch:
                kept = columns.unpack(old.db["pages"].view(reading, U32.pack(block)), _OLD_COLUMNS)
                first = block * new.block_rows
                added = {name: state[name][first : first + len(kept["n"])] for name in _ADDED}
                new.put_block(txn, block, {**kept, **added, **_nothing_brought(kept)})
