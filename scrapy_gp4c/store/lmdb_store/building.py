"""Writing a store that is made of pages of others: filled from many sides, in few transactions.

What comes is renumbered by who brings it, and in order: pages and directories by their new numbers, visits by
cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.blocks import EXTRAS
from scrapy_gp4c.page_state.claims import CLAIM
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groups import KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.store.lmdb_store import hints, shadows, trust, weights
from scrapy_gp4c.store.lmdb_store.gains import Gains
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import CycleRecord

Array = npt.NDArray[Any]

OF_PAGES: Final = ("validators", "first_urls", "bodies", "descriptions")
"""Tables with small values of single pages, by page id, that any store may take as they are."""
_HELD_BYTES: Final = 2**22
"""Of values that wait for a transaction."""


class Building:
    """A store that is being made."""

    def __init__(self, tables: Tables, sizes: Sizes) -> None:
        """Take the tables of a store without content."""
        self.tables = tables
        self._sizes = sizes
        self._held: list[tuple[str, bytes, bytes]] = []
        self._held_bytes = 0
        self._cycle = 0
        self._visits: list[Array] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._worths: list[Columns] = []

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Write a value, with others."""
        self._held.append((table, key, value))
        self._held_bytes += len(key) + len(value)
        if self._held_bytes >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits, in one transaction."""
        if self._held:
            with self.tables.transaction(write=True) as txn:
                for table, key, value in self._held:
                    self.tables.db[table].put(txn, key, value)
        self._held, self._held_bytes = [], 0

    def _number(self, table: str, cycle: int) -> bytes:
        """Key of the next part of a cycle."""
        number = self._numbers.get((table, cycle), 0)
        self._numbers[table, cycle] = number + 1
        return U32_PAIR.pack(cycle, number)

    def pages(self, requests: Sequence[bytes], state: Columns, directories: Array) -> None:
        """Append pages by their JSON requests and all their columns, and the directories that come with them.

        ``state``: `COLUMNS`, `EXTRAS`, weight and, where gains were ever measured, `refresh_value.COLUMNS`,
        each ``[P]``; ``directories``: dtype `GROUP`.
        """
        first = self.tables.merged_pages
        self.tables.append_pages(requests, {name: state[name] for name in COLUMNS}, directories)
        if any(state[name].any() for name in EXTRAS):
            hints.put_extras(self.tables, first, state)
        weights.put_consecutive(self.tables, first, state["weight"])
        if "dq_n" in state:
            self._worths.append({name: state[name] for name in refresh_value.COLUMNS})

    def visits(self, cycle: int, visits: Array) -> None:
        """Append visits of a cycle, dtype `VISIT`; the cycles come in order."""
        if cycle != self._cycle:
            self._put_visits(0)
            self._cycle = cycle
        self._visits.append(visits)
        if sum(map(len, self._visits)) >= self._sizes.visits_per_chunk:
            self._put_visits(self._sizes.visits_per_chunk)

    def _put_visits(self, chunk: int) -> None:
        """Write the visits that wait, in full chunks alone; 0: all."""
        waiting = np.concatenate([np.empty(0, VISIT), *self._visits])
        full = len(waiting) - len(waiting) % chunk if chunk else len(waiting)
        size = self._sizes.visits_per_chunk
        for start in range(0, full, size):
            part = waiting[start : min(full, start + size)]
            self.put("visits", self._number("visits", self._cycle), part.tobytes())
        self._visits = [waiting[full:].copy()] if full < len(waiting) else []

    def gains(self, cycle: int, gains: Array) -> None:
        """Write gains of a cycle, dtype `GAIN`."""
        self.put("gains", self._number("gains", cycle), gains.astype(GAIN).tobytes())

    def claims(self, cycle: int, claimed: Array) -> None:
        """Write claims of a cycle, dtype `CLAIM`; of one page in the order in which they count."""
        self.put("claims", self._number("claims", cycle), trust.packed(claimed.astype(CLAIM)))

    def group_visits(self, cycle: int, told: Array) -> None:
        """Write what the visits of one of the last cycles tell of directories, dtype `GROUP_VISITS`."""
        self.put("group_visits", U32_PAIR.pack(cycle, 0), np.sort(told, order="group").tobytes())

    def of_page(self, table: str, page: int, value: bytes) -> None:
        """Write a value of one page."""
        self.put(table, U32.pack(page), value)

    def finish(self, old: Tables, records: Sequence[CycleRecord], counts: Array, dropped: int) -> None:
        """Write the rest, once all else is there: the finished cycles, and what an old store has as a whole.

        ``counts``: of sites, dtype `TRUST`, by site; ``dropped``: the last cycle whose visits are not all
        there.
        """
        self._put_visits(0)
        self.flush()
        new = self.tables
        new.restore_cycles(records)
        with new.transaction(write=True) as txn:
            if dropped:
                new.put_meta(txn, "dropped", dropped)
            trust.put(txn, new.db["trust"], counts)
        new.dropped = dropped
        measured = Gains(old)
        if measured.log is not None:
            gains = Gains(new)
            gains.begin(measured.log, measured.since)
            gains.put_columns(
                {
                    name: np.concatenate([np.empty(0, dtype), *(part[name] for part in self._worths)])
                    for name, dtype in refresh_value.COLUMNS.items()
                }
            )

    def keep_shadows(self, cycle: int, kept: Array) -> None:
        """Write the shadows that a cycle left, dtype `SHADOW`."""
        shadows.keep(self.tables, cycle, kept)


def kept_cycles(last: int) -> range:
    """The finished cycles whose visits to directories are kept."""
    return range(max(1, last - KEPT_CYCLES + 1), last + 1)
