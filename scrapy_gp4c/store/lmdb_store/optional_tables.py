"""Optional tables of a store: columns that most blocks of pages do without, and rows of cycles.

One record describes each table: its name, its columns or dtype, and the value of a page that has none. A
fold, an export, forgetting pages and reading a damaged store treat all of them alike by these records.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state.claims import CLAIM
from scrapy_gp4c.page_state.columns import EXTRAS, Columns, read_columns
from scrapy_gp4c.page_state.groups import GROUP_VISITS
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring import refresh_value, weights
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.store.lmdb_store.environment import U32, U32_PAIR, Table
from scrapy_gp4c.store.records import SHADOW, TRUST

Handles = dict[str, Table]
"""Tables by their names."""


class PageColumns(NamedTuple):
    """Optional columns of pages: a block has a value where any of its pages differs from the missing one."""

    table: str
    dtypes: dict[str, str]
    missing: float

    def none(self, rows: int) -> Columns:
        """Columns ``[rows]`` of pages that have no value."""
        return {name: np.full(rows, self.missing, dtype) for name, dtype in self.dtypes.items()}

    def read(self, txn: Any, db: Handles, block: int, rows: int) -> Columns:
        """Columns ``[rows]`` of a block, writable; pages that came after its last writing have no value."""
        return self.unpack(db[self.table].get(txn, U32.pack(block)), rows)

    def unpack(self, value: bytes | None, rows: int) -> Columns:
        """Columns ``[rows]`` of a block's value, writable."""
        columns = self.none(rows)
        for name, stored in read_columns(value, self.dtypes).items() if value is not None else ():
            columns[name][: len(stored)] = stored[:rows]
        return columns

    def put(self, txn: Any, db: Handles, block: int, columns: Columns) -> None:
        """Write the columns of a block; a block whose pages have no value takes no room."""
        if any((columns[name] != self.missing).any() for name in self.dtypes):
            packed = [np.ascontiguousarray(columns[name], dtype).data for name, dtype in self.dtypes.items()]
            db[self.table].put(txn, U32.pack(block), b"".join(packed))
        else:
            db[self.table].delete(txn, U32.pack(block))


def _pack_claims(claimed: Array) -> bytes:
    """Value of claims: by page and field by field, so that claims of all pages of a site pack well."""
    claimed = claimed[np.argsort(claimed["page"], kind="stable")]
    page = np.diff(claimed["page"].astype(np.int64), prepend=0).astype("<u4")
    raw = page.tobytes() + claimed["kind"].tobytes() + claimed["value"].astype("<i4").tobytes()
    return zlib.compress(raw, 1)


def _unpack_claims(value: bytes | memoryview) -> Array:
    raw = zlib.decompress(value)
    count = len(raw) // CLAIM.itemsize
    claimed = np.empty(count, CLAIM)
    claimed["page"] = np.cumsum(np.frombuffer(raw, "<u4", count))
    claimed["kind"] = np.frombuffer(raw, "u1", count, 4 * count)
    claimed["value"] = np.frombuffer(raw, "<i4", count, 5 * count)
    return claimed


class CycleRows(NamedTuple):
    """Rows of cycles, in parts: the value under (cycle, part) is an array of one dtype."""

    table: str
    dtype: np.dtype[Any]
    packing: tuple[Callable[[Array], bytes], Callable[[bytes | memoryview], Array]] | None = None
    """Functions that pack and unpack rows; None: rows are stored as bytes of the array."""

    def none(self) -> Array:
        """No rows."""
        return np.empty(0, self.dtype)

    def pack(self, rows: Array) -> bytes:
        """Value of some rows."""
        return rows.tobytes() if self.packing is None else self.packing[0](rows)

    def unpack(self, value: bytes | memoryview) -> Array:
        """Rows of a value."""
        return np.frombuffer(value, self.dtype) if self.packing is None else self.packing[1](value)

    def put(self, txn: Any, db: Handles, cycle: int, number: int, rows: Array) -> None:
        """Write a part of a cycle."""
        db[self.table].put(txn, U32_PAIR.pack(cycle, number), self.pack(rows))

    def parts(
        self, txn: Any, db: Handles, first_cycle: int, last_cycle: int
    ) -> Iterator[tuple[bytes, Array]]:
        """Yield keys and rows of all parts of some cycles."""
        if last_cycle >= 0:
            start, stop = U32_PAIR.pack(max(0, first_cycle), 0), U32_PAIR.pack(last_cycle + 1, 0)
            for key, value in db[self.table].items(txn, start, stop):
                yield key, self.unpack(value)

    def read(self, txn: Any, db: Handles, cycle: int) -> Array:
        """Rows of a cycle, all parts."""
        return np.concatenate([self.none(), *(rows for _, rows in self.parts(txn, db, cycle, cycle))])

    def drop(self, txn: Any, db: Handles, first_cycle: int, last_cycle: int) -> None:
        """Delete all parts of some cycles."""
        for key, _ in list(self.parts(txn, db, first_cycle, last_cycle)):
            db[self.table].delete(txn, key)


HINTS: Final = PageColumns("hints", EXTRAS, 0)
"""Newest claims of sites about their pages."""
REFRESH_VALUES: Final = PageColumns("refresh_values", refresh_value.COLUMNS, 0)
"""Sums over the measured visits of pages."""
WEIGHTS: Final = PageColumns("weights", weights.COLUMNS, weights.DEFAULT_WEIGHT)
PAGE_COLUMNS: Final = (HINTS, REFRESH_VALUES, WEIGHTS)

SITE_COUNTS: Final = np.dtype([("group", "<u4"), ("counts", "<u4", TRUST["counts"].shape)])
"""Counts that a part of a fold adds to the sites of some directories."""
VISITS: Final = CycleRows("visits", VISIT)
GROUP_ROWS: Final = CycleRows("group_visits", GROUP_VISITS)
CLAIMS: Final = CycleRows("claims", CLAIM, (_pack_claims, _unpack_claims))
"""Claims that were new in a cycle."""
GAINS: Final = CycleRows("gains", GAIN)
"""Measured visits."""
TRUST_PARTS: Final = CycleRows("trust", SITE_COUNTS)
"""Counts that the parts of a fold add; those of all sites are under cycle 0, with another dtype."""
SHADOWS: Final = CycleRows("shadows", SHADOW)
OF_PAGES: Final = ("validators", "first_urls", "copies", "descriptions", "answers")
"""Tables with a small value for a page, or none, by page id."""
