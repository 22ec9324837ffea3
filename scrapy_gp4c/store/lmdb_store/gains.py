"""Gains of a search by visits: by visit in the table `gains`, summed up by page in `refresh_values`.

Both are empty until a log of queries is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring.refresh_value import observe_gains
from scrapy_gp4c.store.lmdb_store.environment import U32_PAIR
from scrapy_gp4c.store.lmdb_store.optional_tables import GAINS, REFRESH_VALUES
from scrapy_gp4c.store.lmdb_store.page_table import QUERY_LOG
from scrapy_gp4c.store.lmdb_store.tables import Tables


class Gains:
    """Gains of a store's visits: a `scrapy_gp4c.store.protocols.PageGains`."""

    def __init__(self, tables: Tables) -> None:
        """Take the tables of a store."""
        self._tables = tables

    def _meta(self) -> dict[str, Any]:
        with self._tables.transaction() as txn:
            return self._tables.get_meta(txn, QUERY_LOG) or {}

    @property
    def log(self) -> str | None:
        """Digest of the log that gains are measured by; None: nothing was ever measured."""
        return self._meta().get("log")

    @property
    def since(self) -> int:
        """First cycle whose gains are in the columns."""
        return int(self._meta().get("since", 0))

    def begin(self, log: str, since: int | None = None) -> bool:
        """Measure by this log from now on; True if it is another, by which the columns are emptied.

        ``since``: the first cycle that is measured so; None: the one that is open, or will be.
        """
        if log == self.log:
            return False
        tables = self._tables
        tables.check_writable()
        with tables.transaction(write=True) as txn:
            tables.db[REFRESH_VALUES.table].drop(txn)
            about = {"log": log, "since": tables.last_cycle + 1 if since is None else since}
            tables.put_meta(txn, QUERY_LOG, about)
        return True

    def keep(self, gains: Array) -> None:
        """Keep the gains of the open cycle, dtype `GAIN`, in place of those kept before."""
        with self._tables.transaction(write=True) as txn:
            GAINS.put(txn, self._tables.db, self._tables.last_cycle + 1, 0, gains)

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, gains) of finished cycles, dtype `GAIN`."""
        parts = self._tables.rows_of_cycles(GAINS, first, last)
        for cycle, cycle_parts in groupby(parts, lambda rows_of: rows_of[0]):
            if len(gains := np.concatenate([rows for _, rows in cycle_parts])):
                yield cycle, gains

    def of(self, cycle: int) -> Array:
        """Gains of a cycle, the open one's too; dtype `GAIN`."""
        with self._tables.transaction() as txn:
            return GAINS.read(txn, self._tables.db, cycle)

    def counted(self) -> Columns:
        """Columns of all pages by the gains that are kept. Memory: 28 bytes per page."""
        pages = self._tables.merged_pages
        state = REFRESH_VALUES.none(pages)
        for cycle, gains in self.of_cycles(max(1, self.since)):
            if gains["page"].max() >= pages:
                raise self._tables.db["gains"].wrong(
                    U32_PAIR.pack(cycle, 0), "it has a page that does not exist"
                )
            observe_gains(state, gains["page"].astype(np.intp), gains)
        return state
