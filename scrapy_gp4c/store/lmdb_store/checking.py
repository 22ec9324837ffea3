"""Checking a whole store: LMDB's pages, every checksum, ids, counts; and saying in words what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.store.lmdb_store.environment import Environment
from scrapy_gp4c.store.lmdb_store.failures import DATA
from scrapy_gp4c.store.lmdb_store.header import NoLmdbFileError
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.schema import open_tables
from scrapy_gp4c.store.lmdb_store.sealed import KEY, U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.structure import look
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.verify import problems

_MOST: Final = 20
"""Damaged values of one table that are named; the others are counted."""
_BATCH: Final = 2**20

MEANING: Final = {
    "meta": "counters and settings of the store",
    "urls": "the request of a page",
    "validators": "ETag and Last-Modified of a page",
    "log": "visits of the cycle under way",
    "notes": "who found new pages, what was claimed and what pages weigh, in the cycle under way",
    "new": "a page found in the cycle under way",
    "visits": "visits of a finished cycle",
    "cycles": "the record of a cycle",
    "plans": "the plan of the cycle under way",
    "columns": "the state of a block of pages",
    "groups": "a block of directories",
    "group_visits": "what a cycle found in directories",
    "first_urls": "the URL that a page was found by",
    "gains": "what visits of a cycle gained a search",
    "worths": "what a block of pages gained a search",
    "bodies": "the sum of a page's last body",
    "descriptions": "what a page's copy is like",
    "clusters": "a part of the clusters of pages, and of their links",
    "hints": "what sites claim of a block of pages",
    "claims": "what sites claimed in a cycle",
    "trust": "how often sites were right",
    "weights": "the weights of a block of pages",
}
"""Table -> what one of its values is."""
_BY_CYCLE: Final = (
    "visits", "log", "plans", "group_visits", "notes", "gains", "claims", "trust",
)  # fmt: skip
"""Tables with parts of cycles."""


def check(path: Path, sizes: Sizes, *, deep: bool = False) -> list[str]:
    """Check a store, beside a crawl or without; returns a sentence per problem, none for a sound one.

    ``deep``: besides, compute what is kept of pages and directories anew from URLs and visits. Raises
    StoreError where there is no store to read, StoreDamagedError where it cannot even be opened.
    """
    if problem := check_pages(path):
        return [f"{problem}: what it leads to cannot be told"]
    environment = Environment(path, True, sizes.map_size)
    try:
        tables = Tables(environment, open_tables(environment, sizes.block_rows))
        found = [*_values(tables), *_counts(tables)]
        if not found:
            found += _ids(tables)
        if deep and not found:
            found += _deep(tables, sizes)
    finally:
        environment.close()
    return found


def _deep(tables: Tables, sizes: Sizes) -> Iterator[str]:
    opened = OpenCycle(tables, sizes.commit_visits)
    with tables.transaction() as txn:
        opened.load(txn)
    yield from problems(tables, opened)


def check_pages(path: Path) -> str:
    """Look at all pages of a store's file that LMDB keeps for itself; returns what is wrong, or nothing."""
    try:
        if (path / DATA).exists():
            look(path / DATA, thorough=True)
    except NoLmdbFileError as error:
        return f"{DATA} {error}" if error.args else ""
    return ""


def _values(tables: Tables) -> Iterator[str]:
    """Yield the values whose checksums are others."""
    for name in tables.db:
        with tables.transaction(buffers=True) as txn:
            keys = list(tables.db[name].wrong_keys(txn))
        for key in keys[:_MOST]:
            yield f"{_place(tables, name, key)}: {MEANING[name]} is damaged"
        if len(keys) > _MOST:
            yield f"{name}: so are {len(keys) - _MOST:,} more"


def _place(tables: Tables, name: str, key: bytes) -> str:
    """What a key stands for."""
    if name == "clusters" and len(key) == U32_PAIR.size:
        return f"{name}: part {', '.join(map(str, U32_PAIR.unpack(key)))}"
    if name in (*_BY_CYCLE, "new") and len(key) == U32_PAIR.size:
        cycle, number = U32_PAIR.unpack(key)
        return f"{name}: cycle {cycle}, {'page' if name == 'new' else 'part'} {number}"
    if len(key) != U32.size:
        return f"{name}: {key.decode('latin-1')}"
    number = U32.unpack(key)[0]
    if name in ("columns", "worths", "hints", "weights"):
        first = number * tables.block_rows
        return f"{name}: pages {first} to {min(first + tables.block_rows, tables.merged_pages) - 1}"
    return f"{name}: {'cycle' if name == 'cycles' else 'block' if name == 'groups' else 'page'} {number}"


def _counts(tables: Tables) -> Iterator[str]:
    """Compare numbers of values with what the counters say."""
    blocks = -(-tables.merged_pages // tables.block_rows)
    expected = {"ids": tables.merged_pages, "columns": blocks}
    with tables.transaction() as txn:
        for name, count in expected.items():
            if (found := tables.db[name].entries(txn)) != count:
                yield f"{name}: there should be {count:,} values; found {found:,}"
        if (found := tables.db["urls"].entries(txn)) < tables.merged_pages:
            yield f"urls: there should be {tables.merged_pages:,} values or more; found {found:,}"


def _ids(tables: Tables) -> Iterator[str]:
    """Compare `ids` with the keys in the columns, both ways at once."""
    keys = np.empty(tables.merged_pages, np.uint64)
    try:
        for first, block in tables.blocks():
            keys[first : first + len(block["key"])] = block["key"]
    except (StoreDamagedError, ValueError) as error:
        yield getattr(error, "what", str(error))
        return
    seen, wrong = np.zeros(len(keys), bool), 0
    for found, pages in _entries(tables):
        known = pages < len(keys)
        right = known.copy()
        right[known] = keys[pages[known]] == found[known]
        seen[pages[right]] = True
        wrong += int((~right).sum())
    if wrong or not seen.all():
        yield f"ids: of {len(keys):,} pages, {int((~seen).sum()):,} cannot be found by their keys"


def _entries(tables: Tables) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
    """Yield keys and pages of `ids`, many at a time."""
    with tables.transaction() as txn:
        rows: list[Any] = []
        for row in txn.cursor(tables.db["ids"].handle):
            rows.append(row)
            if len(rows) == _BATCH:
                yield _unpacked(rows)
                rows = []
        yield _unpacked(rows)


def _unpacked(rows: list[Any]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    keys = np.frombuffer(b"".join([key for key, _ in rows]), f">u{KEY.size}").astype(np.uint64)
    return keys, np.frombuffer(b"".join([page for _, page in rows]), ">u4").astype(np.int64)
