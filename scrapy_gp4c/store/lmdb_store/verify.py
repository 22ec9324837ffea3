"""Comparing the tables of a store with each other: what `Store.verify` reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, NOT_MODIFIED, OUTCOMES, UNCHANGED

if TYPE_CHECKING:
    from scrapy_gp4c.store.lmdb_store.store import Store


def problems(store: Store) -> Iterator[str]:
    """Yield a sentence per problem found. Memory: a few bytes per page."""
    if store.fold_state is not None:
        yield f"the fold of cycle {store.last_cycle + 1} is not complete: open the store for writing"
        return
    yield from _cycles(store)
    yield from _pages(store)
    yield from _history(store)
    yield from _open_cycle(store)


def _cycles(store: Store) -> Iterator[str]:
    last = store.open_cycle or store.last_cycle
    numbers = [record["cycle"] for record in store.cycles()]
    if numbers != list(range(1, last + 1)):
        yield f"the cycles should be 1..{last}; found {numbers}"
    for record in store.cycles():
        if ("finished" in record) != (record["cycle"] <= store.last_cycle):
            yield f"cycle {record['cycle']} is {'' if 'finished' in record else 'not '}marked as finished"


def _pages(store: Store) -> Iterator[str]:
    """Check ids against the key column, and that every page has one request."""
    counts = {}
    with store.transaction() as txn:
        for table in ("ids", "urls", "pages"):
            counts[table] = txn.stat(store.tables[table])["entries"]
    pages = store.merged_pages
    expected = {"ids": pages, "pages": -(-pages // store.block_rows)}
    for table, entries in expected.items():
        if counts[table] != entries:
            yield f"the table {table} should have {entries} entries; found {counts[table]}"
    for first, columns in store.blocks():
        keys = columns["key"]
        if len(keys) != min(store.block_rows, pages - first):
            yield f"the block of page {first} has {len(keys)} pages"
        with store.transaction() as txn:
            for row in np.argsort(keys).tolist():
                found = store.get_id(txn, int(keys[row]))
                if found != first + row:
                    yield f"page {first + row} has a key that belongs to page {found}"
        ids = np.arange(first, first + len(keys))
        try:
            for page, request in zip(ids.tolist(), store.requests(ids), strict=True):
                if not isinstance(request, dict) or "url" not in request:
                    yield f"page {page} has no URL but {request!r}"
        except (StoreError, json.JSONDecodeError) as error:
            yield f"the requests of the pages from {first} on: {error}"


def _history(store: Store) -> Iterator[str]:
    """Compute each page's counts from the visits anew and compare them with its columns."""
    pages = store.merged_pages
    counts = {name: np.zeros(pages, np.int32) for name in ("n", "X", "last_cycle", "last_attempt")}
    seen, number = np.zeros(pages, bool), 0
    for cycle, visits in store.visits():
        if cycle != number:
            seen, number = np.zeros(pages, bool), cycle
        page, outcome = visits["page"], visits["outcome"]
        if (strange := _strange(visits, pages)) is not None:
            yield f"cycle {cycle} {strange}"
            return
        if len(np.unique(page)) != len(page) or seen[page].any():
            yield f"cycle {cycle} has two visits of one page"
        seen[page] = True
        judged = page[(outcome == UNCHANGED) | (outcome == CHANGED) | (outcome == NOT_MODIFIED)]
        np.add.at(counts["n"], judged, 1)
        np.add.at(counts["X"], page[outcome == CHANGED], 1)
        counts["last_attempt"][page] = cycle
        counts["last_cycle"][judged] = cycle
        counts["last_cycle"][page[outcome == FIRST]] = cycle
    for first, columns in store.blocks():
        for name, count in counts.items():
            wrong = np.flatnonzero(columns[name] != count[first : first + len(columns[name])])
            if len(wrong):
                row = wrong[0]
                yield (
                    f"page {first + row} has {name} {columns[name][row]}, but {count[first + row]} by its "
                    f"visits (and so have {len(wrong) - 1} other pages of its block)"
                )


def _strange(visits: npt.NDArray[Any], pages: int) -> str | None:
    if len(visits) and visits["page"].max() >= pages:
        return f"has a visit of page {visits['page'].max()} of {pages}"
    if len(visits) and visits["outcome"].max() >= len(OUTCOMES):
        return f"has a visit with outcome {visits['outcome'].max()}"
    return None


def _open_cycle(store: Store) -> Iterator[str]:
    visits = store.open_visits()
    if store.open_cycle is None and len(visits):
        yield f"there are {len(visits)} visits in the log but no cycle is open"
    if (strange := _strange(visits, store.pages)) is not None:
        yield f"the open cycle {strange}"
    if len(np.unique(visits["page"])) != len(visits):
        yield "the open cycle has two visits of one page"
    plan = [chunk["page"] for chunk in store.plan()]
    pages = np.concatenate(plan) if plan else np.empty(0, np.uint32)
    planned = store.planned()
    if planned is not None and planned != len(pages):
        yield f"the plan should have {planned} pages; found {len(pages)}"
    if (
        planned is not None
        and len(pages)
        and (len(np.unique(pages)) != len(pages) or pages.max() >= store.pages)
    ):
        yield "the plan has a page twice, or one that does not exist"
