"""The plan of the open cycle: written round by round, read as one.

A round is complete when the cycle's record counts it, which the transaction of its last chunk sees to; what a
kill left of an unfinished one is not read, and overwritten by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.store.lmdb_store.environment import InTransaction
from scrapy_gp4c.store.lmdb_store.sealed import U32_PAIR
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import CycleRecord, RoundCounts

Rows = npt.NDArray[Any]


def rounds(record: CycleRecord) -> list[RoundCounts]:
    """Return the complete rounds of a cycle."""
    return record.get("rounds", [])


def chunks(tables: Tables, cycle: int, planned: int) -> Iterator[Rows]:
    """Yield a plan of so many pages, dtype `PLAN`, in the chunks that it was written in."""
    number = 0
    while planned > 0:
        with tables.transaction() as txn:
            chunk = tables.db["plans"].view(txn, U32_PAIR.pack(cycle, number))
        rows = np.frombuffer(chunk, PLAN)
        yield rows
        planned -= len(rows)
        number += 1


def by_round(tables: Tables, record: CycleRecord) -> list[Rows]:
    """Return the plan of a cycle, dtype `PLAN`: of each complete round, first to visit first."""
    sizes = [one["planned"] for one in rounds(record)]
    # As bytes: NumPy compares the fields of two arrays of records one by one where it joins them.
    kept = chunks(tables, record.get("cycle", 0), sum(sizes))
    whole = np.frombuffer(b"".join(chunk.tobytes() for chunk in kept), PLAN)
    ends = list(accumulate(sizes, initial=0))
    return [whole[start:end] for start, end in pairwise(ends)]


def add_round(
    tables: Tables,
    record: CycleRecord,
    parts: Iterable[Rows],
    seen: int,
    about: CycleRecord,
    sizes: Sizes,
    complete: Callable[[InTransaction], object],
) -> None:
    """Write the plan of the next round of the cycle of `record`, from arrays of dtype `PLAN`.

    ``about``: added to the record in the transaction that completes the round; ``complete``: calls back with
    that transaction.
    """
    cycle, before = record["cycle"], rounds(record)
    planned = sum(one["planned"] for one in before)
    number = sum(1 for _ in chunks(tables, cycle, planned))
    written = 0
    group: list[Rows] = []
    for chunk in _of_equal_size(parts, sizes.plan_rows):
        if len(group) == sizes.chunks_per_transaction:
            with tables.transaction(write=True) as txn:
                number = _put(tables, txn, cycle, number, group)
            group = []
        group.append(chunk)
        written += len(chunk)
    completed: CycleRecord = {
        **about,
        "planned": planned + written,
        "rounds": [*before, {"planned": written, "seen": seen}],
    }

    def last(txn: Any) -> None:
        _drop_from(tables, txn, cycle, _put(tables, txn, cycle, number, group))
        tables.put_record(txn, cycle, completed)

    complete(last)


def _of_equal_size(parts: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Cut arrays anew, into chunks of `size` rows; the last one is shorter."""
    rest: list[Rows] = []
    for part in parts:
        rest.append(np.ascontiguousarray(part, PLAN))
        if sum(map(len, rest)) >= size:
            rows = np.concatenate(rest)
            full = len(rows) - len(rows) % size
            for start in range(0, full, size):
                yield rows[start : start + size]
            rest = [rows[full:]]
    if any(map(len, rest)):
        yield np.concatenate(rest)


def _put(tables: Tables, txn: Any, cycle: int, number: int, group: Iterable[Rows]) -> int:
    """Write chunks from `number` on; returns the next number."""
    for chunk in group:
        tables.db["plans"].put(txn, U32_PAIR.pack(cycle, number), chunk.tobytes())
        number += 1
    return number


def _drop_from(tables: Tables, txn: Any, cycle: int, number: int) -> None:
    """Delete the chunks from `number` on: what an interrupted writing has left."""
    for key in tables.db["plans"].keys(txn):
        if key >= U32_PAIR.pack(cycle, number):
            tables.db["plans"].delete(txn, key)
