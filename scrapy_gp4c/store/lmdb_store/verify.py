"""Comparing the tables of a store with each other: what `Store.verify` reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, OUTCOMES, among
from scrapy_gp4c.store.lmdb_store import plans
from scrapy_gp4c.store.lmdb_store.gains import Gains
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.verify_claims import claims_problems
from scrapy_gp4c.store.lmdb_store.verify_groups import Replay, directories
from scrapy_gp4c.store.lmdb_store.weights import weights_problems


def problems(tables: Tables, opened: OpenCycle) -> Iterator[str]:
    """Yield a sentence per problem found. Memory: 50 bytes per page."""
    if tables.fold_marker is not None:
        yield f"the fold of cycle {tables.last_cycle + 1} is not complete: open the store for writing"
        return
    for found in (
        _cycles(tables, opened),
        _pages(tables, opened),
        directories(tables),
        _history(tables),
        claims_problems(tables),
        Gains(tables).problems(),
        weights_problems(tables),
        _open_cycle(tables, opened),
    ):
        try:
            yield from found
        except StoreDamagedError as error:
            yield error.what


def _cycles(tables: Tables, opened: OpenCycle) -> Iterator[str]:
    last = opened.number or tables.last_cycle
    records = tables.cycles()
    numbers = [record["cycle"] for record in records]
    if numbers != list(range(1, last + 1)):
        yield f"the cycles should be 1..{last}; found {numbers}"
    for record in records:
        if ("finished" in record) != (record["cycle"] <= tables.last_cycle):
            yield f"cycle {record['cycle']} is {'' if 'finished' in record else 'not '}marked as finished"


def _pages(tables: Tables, opened: OpenCycle) -> Iterator[str]:
    """Check ids against the key column, and that every page has one request."""
    counts = {}
    with tables.transaction() as txn:
        for table in ("ids", "columns"):
            counts[table] = tables.db[table].entries(txn)
    pages = tables.merged_pages
    expected = {"ids": pages, "columns": -(-pages // tables.block_rows)}
    for table, entries in expected.items():
        if counts[table] != entries:
            yield f"the table {table} should have {entries} entries; found {counts[table]}"
    for first, columns in tables.blocks():
        keys = columns["key"]
        if len(keys) != min(tables.block_rows, pages - first):
            yield f"the block of page {first} has {len(keys)} pages"
        with tables.transaction(buffers=True) as txn:
            for row in np.argsort(keys).tolist():
                found = tables.get_id(txn, int(keys[row]))
                if found != first + row:
                    yield f"page {first + row} has a key that belongs to page {found}"
        ids = np.arange(first, first + len(keys))
        try:
            for page, request in zip(ids.tolist(), opened.requests(ids), strict=True):
                if not isinstance(request, dict) or "url" not in request:
                    yield f"page {page} has no URL but {request!r}"
        except (StoreError, json.JSONDecodeError) as error:
            yield f"the requests of the pages from {first} on: {error}"


def _history(tables: Tables) -> Iterator[str]:
    """Compute each page's counts from the visits anew and compare them with its columns."""
    pages = tables.merged_pages
    counts: Columns = {name: np.zeros(pages, np.int32) for name in ("n", "X", "last_cycle", "last_attempt")}
    seen, number, replay = np.zeros(pages, bool), 0, Replay(tables)
    for cycle, visits in tables.visits():
        while number < cycle:
            yield from replay.end_cycle(number)
            seen, number = np.zeros(pages, bool), number + 1
        page, outcome = visits["page"], visits["outcome"]
        if (strange := _strange(visits, pages)) is not None:
            yield f"cycle {cycle} {strange}"
            return
        if len(np.unique(page)) != len(page) or seen[page].any():
            yield f"cycle {cycle} has two visits of one page"
        seen[page] = True
        judged = page[among(outcome, JUDGED)]
        replay.visit(visits, cycle)
        np.add.at(counts["n"], judged, 1)
        np.add.at(counts["X"], page[outcome == CHANGED], 1)
        counts["last_attempt"][page] = cycle
        counts["last_cycle"][judged] = cycle
        counts["last_cycle"][page[outcome == FIRST]] = cycle
    for cycle in range(number, tables.last_cycle + 1):
        yield from replay.end_cycle(cycle)
    yield from replay.end()
    counts |= replay.columns()
    for first, columns in tables.blocks():
        # What visits that were dropped came to is in columns alone.
        told = is_told(columns, tables.dropped)
        for name, count in counts.items():
            differs = columns[name] != count[first : first + len(columns[name])]
            wrong = np.flatnonzero(
                differs & (columns[name] > tables.dropped if name == "last_attempt" else told)
            )
            if len(wrong):
                row = wrong[0]
                yield (
                    f"page {first + row} has {name} {columns[name][row]}, but {count[first + row]} by its "
                    f"visits (and so have {len(wrong) - 1} other pages of its block)"
                )


def is_told(columns: Columns, dropped: int) -> npt.NDArray[np.bool_]:
    """Tell the pages all of whose visits are there, where those up to a cycle are not."""
    first, unjudged = columns["first_cycle"], columns["n"] == 0
    told: npt.NDArray[np.bool_] = (first > dropped) | (first == 0) & unjudged | (dropped == 0)
    return told


def _strange(visits: npt.NDArray[Any], pages: int) -> str | None:
    if len(visits) and visits["page"].max() >= pages:
        return f"has a visit of page {visits['page'].max()} of {pages}"
    if len(visits) and visits["outcome"].max() >= len(OUTCOMES):
        return f"has a visit with outcome {visits['outcome'].max()}"
    return None


def _open_cycle(tables: Tables, opened: OpenCycle) -> Iterator[str]:
    visits = opened.visits()
    if opened.number is None and len(visits):
        yield f"there are {len(visits)} visits in the log but no cycle is open"
    if (strange := _strange(visits, opened.pages)) is not None:
        yield f"the open cycle {strange}"
    if len(np.unique(visits["page"])) != len(visits):
        yield "the open cycle has two visits of one page"
    record = tables.cycles()[-1] if opened.number is not None else None
    rounds = plans.rounds(record) if record else []
    if record is None or not rounds:
        return
    planned = record["planned"] or 0
    if planned != sum(one["planned"] for one in rounds):
        yield f"the rounds should have {planned} pages; found {[one['planned'] for one in rounds]}"
    if rounds[-1]["seen"] > len(visits):
        yield f"the last round saw {rounds[-1]['seen']} visits; found {len(visits)}"
    plan = [chunk["page"] for chunk in plans.chunks(tables, record["cycle"], planned)]
    pages = np.concatenate([np.empty(0, np.uint32), *plan])
    if planned != len(pages):
        yield f"the plan should have {planned} pages; found {len(pages)}"
    if len(np.unique(pages)) != len(pages) or (len(pages) and pages.max() >= opened.pages):
        yield "the plan has a page twice, or one that does not exist"
