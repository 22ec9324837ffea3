"""What sites claim of their pages, and how often that was right: the tables `hints`, `claims` and `trust`.

`hints` has the columns of blocks in which any page has a claim. `claims` has what the cycles were told that
was new, packed; it is dropped with the visits of old cycles. `trust` has, under cycle 0, the counts of all
sites, and while a cycle is folded what each part of its fold adds.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.blocks import pack_extras, unpack_extras
from scrapy_gp4c.page_state.claims import CLAIM, ClaimOutcomes
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.lmdb_store import groups
from scrapy_gp4c.store.lmdb_store.schema import Handles
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR, Table
from scrapy_gp4c.store.records import TRUST

Array = npt.NDArray[Any]

ADDED: Final = np.dtype([("group", "<u4"), ("counts", "<u4", TRUST["counts"].shape)])
"""What a part of a fold adds to the counts of the sites of some directories."""
_ROWS: Final = 4_096
"""Sites in one value."""


def put_part(txn: Any, db: Handles, cycle: int, number: int, claimed: Array, told: ClaimOutcomes) -> None:
    """Keep the claims of a part of a cycle's fold, dtype `CLAIM`, and what its judged visits tell of
    claims."""
    if len(claimed):
        put_claims(txn, db, U32_PAIR.pack(cycle, number), claimed)
    some = (told.outcomes >= 0).any(axis=1)
    if some.any():
        numbers, local = np.unique(told.group[some], return_inverse=True)
        part = np.zeros(len(numbers), ADDED)
        part["group"] = numbers
        part["counts"] = hints.counted(told.outcomes[some], local, len(numbers))
        db["trust"].put(txn, U32_PAIR.pack(cycle, number), part.tobytes())


def sum_up(txn: Any, db: Handles, directories: int, cycle: int) -> None:
    """Let the counts of all sites decay by a cycle, and add what its parts tell of so many directories."""
    table = db["trust"]
    start, stop = U32_PAIR.pack(cycle, 0), U32_PAIR.pack(cycle + 1, 0)
    parts = [(key, np.frombuffer(value, ADDED)) for key, value in table.items(txn, start, stop)]
    old = read(txn, table)
    if not len(old) and not parts:
        return
    added = np.concatenate([np.empty(0, ADDED), *(part for _, part in parts)])
    site = groups.read(txn, db["groups"], directories)["site"][added["group"]]
    known, place = np.unique(np.concatenate((old["site"], site)), return_inverse=True)
    rows = np.zeros(len(known), TRUST)
    rows["site"] = known
    rows["counts"][place[: len(old)]] = old["counts"]
    new = np.zeros(rows["counts"].shape, np.int64)
    np.add.at(new, place[len(old) :], added["counts"])
    rows["counts"] = hints.decayed(rows["counts"], new)
    put(txn, table, rows)
    for key, _ in parts:
        table.delete(txn, key)


def put(txn: Any, table: Table, rows: Array) -> None:
    """Write the counts of all sites, dtype `TRUST`, by site."""
    for number in range(0, len(rows), _ROWS):
        table.put(txn, U32_PAIR.pack(0, number // _ROWS), rows[number : number + _ROWS].tobytes())


def read(txn: Any, table: Table) -> Array:
    """Counts of all sites, dtype `TRUST`, by site."""
    stop = U32_PAIR.pack(1, 0)
    parts = [np.frombuffer(value, TRUST) for _, value in table.items(txn, b"", stop)]
    return np.concatenate([np.empty(0, TRUST), *parts])


def claims(txn: Any, table: Table, key: bytes, stop: bytes, *, goes_on: bool) -> tuple[bytes, Array] | None:
    """Read the first claims of a range of keys, and their key; ``goes_on``: see `Table.items`."""
    found = next(table.items(txn, key, stop, goes_on=goes_on), None)
    return None if found is None else (found[0], unpacked(table, *found))


def put_claims(txn: Any, db: Handles, key: bytes, claimed: Array) -> None:
    """Write claims, dtype `CLAIM`."""
    db["claims"].put(txn, key, packed(claimed))


def packed(claimed: Array) -> bytes:
    """The value of claims, dtype `CLAIM`: by page and field by field, so that claims of all pages of a site
    pack well."""
    claimed = claimed[np.argsort(claimed["page"], kind="stable")]
    page = np.diff(claimed["page"].astype(np.int64), prepend=0).astype("<u4")
    raw = page.tobytes() + claimed["kind"].tobytes() + claimed["value"].astype("<i4").tobytes()
    return zlib.compress(raw, 1)


def unpacked(table: Table, key: bytes, value: bytes | memoryview) -> Array:
    """Claims of a value, dtype `CLAIM`; raises StoreDamagedError for what is none."""
    try:
        raw = zlib.decompress(value)
    except zlib.error as error:
        raise table.wrong(key, f"it cannot be unpacked ({error})") from None
    count = len(raw) // CLAIM.itemsize
    found = np.empty(count, CLAIM)
    found["page"] = np.cumsum(np.frombuffer(raw, "<u4", count))
    found["kind"] = np.frombuffer(raw, "u1", count, 4 * count)
    found["value"] = np.frombuffer(raw, "<i4", count, 5 * count)
    return found


def read_block(txn: Any, db: Handles, block: int, rows: int) -> Columns:
    """Columns `EXTRAS` of a block, each ``[rows]``, writable."""
    return unpack_extras(db["hints"].get(txn, U32.pack(block)), rows)


def put_block(txn: Any, db: Handles, block: int, columns: Columns) -> None:
    """Write the columns `EXTRAS` of a block, if there is anything in them."""
    value = pack_extras(columns)
    if value:
        db["hints"].put(txn, U32.pack(block), value)
