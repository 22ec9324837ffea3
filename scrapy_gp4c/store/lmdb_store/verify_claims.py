"""Computing the columns of claims, and how often sites were right, anew from claims and visits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.blocks import EXTRAS, unpack_extras
from scrapy_gp4c.page_state.claims import (
    CLAIM,
    NO_CLAIMS,
    after_visits,
    before_visits,
)
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.lmdb_store import trust
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import TRUST

Array = npt.NDArray[Any]


def claims_problems(tables: Tables) -> Iterator[str]:
    """Yield what is wrong with the claims of a store, as far as nothing of its past was dropped."""
    pages = tables.merged_pages
    with tables.transaction() as txn:
        kept = trust.read(txn, tables.db["trust"])
        blocks = [U32.unpack(key)[0] for key in tables.db["hints"].keys(txn)]
    parts = _parts(tables)
    if blocks and max(blocks) * tables.block_rows >= pages:
        yield f"claims are kept of block {max(blocks)}, but there are {pages} pages"
        return
    strange = [cycle for cycle, part in parts if len(part) and part["page"].max() >= pages]
    if strange:
        yield f"claims of cycle {strange[0]} are about pages that do not exist"
        return
    if tables.dropped or not (parts or blocks):
        return
    state, counts = _replayed(tables, dict(_by_cycle(parts)))
    for block in range(-(-pages // tables.block_rows)):
        first = block * tables.block_rows
        rows = min(tables.block_rows, pages - first)
        with tables.transaction() as txn:
            own = trust.read_block(txn, tables.db, block, rows)
        for name in EXTRAS.keys() - {"seen_min"}:  # the visits of an imported history have no times
            wrong = np.flatnonzero(own[name] != state[name][first : first + rows])
            if len(wrong):
                row = wrong[0]
                yield (
                    f"page {first + row} has {name} {own[name][row]}, but {state[name][first + row]} by what "
                    f"was claimed of it (and so have {len(wrong) - 1} other pages of its block)"
                )
    expected = {site: row for site, row in counts.items() if row.any()}
    found = {int(row["site"]): row["counts"] for row in kept if row["counts"].any()}
    for site in expected.keys() | found.keys():
        if not np.array_equal(expected.get(site, 0), found.get(site, 0)):
            yield f"how often the site {site:#x} was right is counted otherwise than by visits and claims"


def counts_of_sites(tables: Tables) -> Array:
    """How often sites were right, dtype `TRUST`, by site: of a store that has dropped no visits."""
    _, counts = _replayed(tables, dict(_by_cycle(_parts(tables))))
    rows = [(site, own) for site, own in counts.items() if own.any()]
    return np.array(rows, TRUST)


def _parts(tables: Tables) -> list[tuple[int, Array]]:
    """Claims, dtype `CLAIM`, by cycle, as they were written."""
    with tables.transaction() as txn:
        return [
            (U32_PAIR.unpack(key)[0], trust.unpacked(tables.db["claims"], key, value))
            for key, value in tables.db["claims"].items(txn)
        ]


def _by_cycle(parts: list[tuple[int, Array]]) -> Iterator[tuple[int, Array]]:
    for cycle, own in groupby(parts, lambda part: part[0]):
        yield cycle, np.concatenate([part for _, part in own])


def _replayed(tables: Tables, claims: dict[int, Array]) -> tuple[Columns, dict[int, Array]]:
    """Columns of claims of all pages, and the counts of sites: by the visits of all cycles."""
    pages = tables.merged_pages
    group = np.concatenate([np.empty(0, np.uint32), *(block["group"] for _, block in tables.blocks())])
    state: Columns = {"n": np.zeros(pages, np.int32), "last_cycle": np.zeros(pages, np.int32)}
    state |= {"group": group, **unpack_extras(None, pages)}
    sites, number = np.unique(tables.directories()["site"], return_inverse=True)
    counts = np.zeros((len(sites), len(hints.KINDS), 2, 2))
    for cycle in range(tables.last_cycle + 1):
        visits = np.concatenate([np.empty(0, VISIT), *(part for _, part in tables.visits(cycle, cycle))])
        rows, outcome = visits["page"].astype(np.intp), visits["outcome"]
        claimed = claims.get(cycle, NO_CLAIMS).astype(CLAIM)
        told = before_visits(state, rows, outcome, claimed, cycle)
        added = hints.counted(told.outcomes, number[told.group], len(sites))
        counts = hints.decayed(counts, added)
        columns.observe(state, rows, outcome, cycle)
        after_visits(state, rows, outcome, claimed, cycle, np.zeros(len(rows)))
    return state, dict(zip(sites.tolist(), counts, strict=True))
