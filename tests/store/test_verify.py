"""What verify finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.outcomes import PLAN, VISIT
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.stores import pages


def _break(path: Path, table: bytes, change: Callable[[lmdb.Transaction, object], object]) -> None:
    with lmdb.open(str(path), max_dbs=16, map_size=2**30) as environment:
        db = environment.open_db(table)
        with environment.begin(write=True) as txn:
            change(txn, db)


def _swap_ids(txn: lmdb.Transaction, db: object) -> None:
    first, second = list(txn.cursor(db))[:2]
    txn.put(first[0], second[1], db=db)


def _count_more(txn: lmdb.Transaction, db: object) -> None:
    block = columns.unpack(memoryview(bytearray(txn.get(b"\0\0\0\0", db=db))))
    block["X"][4] += 1
    txn.put(b"\0\0\0\0", columns.pack(block), db=db)


def _double_visit(txn: lmdb.Transaction, db: object) -> None:
    key, value = next(iter(txn.cursor(db)))
    txn.put(key, value + value[: VISIT.itemsize], db=db)


BREAKS: dict[str, tuple[bytes, Callable[[lmdb.Transaction, object], object]]] = {
    "a key that belongs to page": (b"ids", _swap_ids),
    "should have 5 entries": (b"ids", lambda txn, db: txn.delete(next(iter(txn.cursor(db)))[0], db=db)),
    "has X": (b"pages", _count_more),
    "no request": (b"urls", lambda txn, db: txn.delete(b"\0\0\0\2", db=db)),
    "two visits of one page": (b"visits", _double_visit),
    "the plan should have": (b"plans", lambda txn, db: txn.drop(db, delete=False)),
    "the cycles should be": (b"cycles", lambda txn, db: txn.delete(b"\0\0\0\1", db=db)),
    "has no URL": (b"urls", lambda txn, db: txn.put(b"\0\0\0\2", b"[]", db=db)),
}


@pytest.mark.parametrize("expected", BREAKS)
def test_verify_finds_what_does_not_fit(tmp_path: Path, expected: str) -> None:
    """Each table broken in turn: verify names the problem."""
    path = tmp_path / "store"
    with Store(path) as store:
        store.add_pages(pages(5))
        for outcome in ("first", "changed", "unchanged"):
            store.begin_cycle({})
            for page in range(5):
                store.record(NewVisit(page, outcome, time=1.0))
            store.finish_cycle({})
        store.begin_cycle({})
        plan = np.zeros(2, PLAN)
        plan["page"] = [3, 1]
        store.add_round([plan], seen=0)
        assert store.verify() == []
    _break(path, *BREAKS[expected])
    with Store(path, readonly=True) as store:
        assert any(expected in problem for problem in store.verify())
