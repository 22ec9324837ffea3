"""What verify finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest

from scrapy_gp4c.page_state import blocks
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import GROUP, GROUP_VISITS
from scrapy_gp4c.page_state.outcomes import PLAN, VISIT
from scrapy_gp4c.store.lmdb_store.checksummed import Table
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.stores import pages


def _break(path: Path, name: str, change: Callable[[lmdb.Transaction, Table], object]) -> None:
    """Change a table as a mistake in our code would: what it writes has the right checksum."""
    with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
        table = Table(path, name, environment.open_db(name.encode()), plain=name == "ids")
        with environment.begin(write=True) as txn:
            change(txn, table)


def _swap_ids(txn: lmdb.Transaction, db: Table) -> None:
    first, second = list(db.items(txn))[:2]
    db.put(txn, first[0], bytes(second[1]))


def _writable(block: memoryview) -> Columns:
    return {name: column.copy() for name, column in blocks.unpack(block).items()}


def _count_more(txn: lmdb.Transaction, db: Table) -> None:
    block = _writable(db.view(txn, b"\0\0\0\0"))
    block["X"][4] += 1
    db.put(txn, b"\0\0\0\0", blocks.pack(block))


def _change(name: str) -> Callable[[lmdb.Transaction, Table], object]:
    """Alter one column of page 2."""

    def change(txn: lmdb.Transaction, db: Table) -> None:
        block = _writable(db.view(txn, b"\0\0\0\0"))
        block[name][2] += 1
        db.put(txn, b"\0\0\0\0", blocks.pack(block))

    return change


def _other_key(txn: lmdb.Transaction, db: Table) -> None:
    value = bytearray(db.view(txn, b"\0\0\0\0"))
    value[GROUP.itemsize] ^= 1
    db.put(txn, b"\0\0\0\0", bytes(value))


def _no_directory(txn: lmdb.Transaction, db: Table) -> None:
    value = bytes(db.view(txn, b"\0\0\0\0"))
    db.put(txn, b"\0\0\0\0", value[: -GROUP.itemsize])


def _find_more(txn: lmdb.Transaction, db: Table) -> None:
    key, value = list(db.items(txn))[1]
    visits = np.frombuffer(value, GROUP_VISITS).copy()
    visits["found"][1] += 1
    db.put(txn, key, visits.tobytes())


def _double_visit(txn: lmdb.Transaction, db: Table) -> None:
    key, value = next(db.items(txn))
    db.put(txn, key, bytes(value) + bytes(value[: VISIT.itemsize]))


BREAKS: dict[str, tuple[str, Callable[[lmdb.Transaction, Table], object]]] = {
    "page 1 has another key": ("ids", _swap_ids),
    "should have 5 entries": ("ids", lambda txn, db: db.delete(txn, next(db.items(txn))[0])),
    "has X": ("columns", _count_more),
    "no request": ("urls", lambda txn, db: db.delete(txn, b"\0\0\0\2")),
    "two visits of one page": ("visits", _double_visit),
    "plans 4, 0: it is missing": ("plans", lambda txn, db: db.drop(txn)),
    "the cycles should be": ("cycles", lambda txn, db: db.delete(txn, b"\0\0\0\1")),
    "page 2 has E 2.05": ("columns", _change("E")),
    "page 2 has T 3, but 2 by its visits": ("columns", _change("T")),
    "page 2 has found_cycle 3, but 2 by its visits": ("columns", _change("found_cycle")),
    "page 2 is in directory 3, but in 2 by its URL": ("columns", _change("group")),
    "directory 1 has other keys than by its URLs": ("groups", _other_key),
    "there should be 3 directories by the URLs; found 2": ("groups", _no_directory),
    "of cycle 2, 2 judged visits with 3 changes, 0.1": ("group_visits", _find_more),
    "its visits it has 2 judged visits with 2 changes": ("group_visits", _find_more),
    "those of the last 8 cycles; found [(1, 0), (2, 0)]": (
        "group_visits",
        lambda txn, db: db.delete(txn, b"\0\0\0\3\0\0\0\0"),
    ),
    "found [(1, 0), (1, 7), ": (
        "group_visits",
        lambda txn, db: db.put(txn, b"\0\0\0\1\0\0\0\7", b""),
    ),
    "has no URL": ("urls", lambda txn, db: db.put(txn, b"\0\0\0\2", b"[]")),
}


@pytest.mark.parametrize("expected", BREAKS)
def test_verify_finds_what_does_not_fit(tmp_path: Path, expected: str) -> None:
    """Each table broken in turn: verify names the problem."""
    path = tmp_path / "store"
    with Store(path) as store:
        store.add_pages((key, {"url": f"http://h/{row % 3}/x"}) for row, (key, _) in enumerate(pages(5)))
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
