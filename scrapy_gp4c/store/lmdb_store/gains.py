"""What visits gained a search: by visit in the table `gains`, and by page, in blocks, in the table `worths`.

Both are empty until a log of queries is given. A block begins with the last cycle that it has, so that an
interrupted fold, which begins again, adds no gain twice.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.scoring.refresh_value import GAIN, NO_GAINS, observe_gains
from scrapy_gp4c.store.lmdb_store.salvage import LOST, Values, remapped
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import Tables

Array = npt.NDArray[Any]

_CYCLE: Final = struct.Struct("<I")
_META: Final = "query_log"


class Gains:
    """The gains of a store's visits; `scrapy_gp4c.store.page_store.PageGains` describes it."""

    def __init__(self, tables: Tables) -> None:
        """Take the tables of a store."""
        self._tables = tables

    def _meta(self) -> dict[str, Any]:
        with self._tables.transaction() as txn:
            return self._tables.get_meta(txn, _META) or {}

    @property
    def log(self) -> str | None:
        """What the gains are measured by; None: nothing was ever measured."""
        return self._meta().get("log")

    @property
    def since(self) -> int:
        """First cycle whose gains are in the columns."""
        return int(self._meta().get("since", 0))

    def begin(self, log: str, since: int | None = None) -> bool:
        """Measure by this log from now on; True if it is another: what pages gained by the last is forgotten.

        ``since``: the first cycle that is measured so; None: the one that is open, or will be.
        """
        if log == self.log:
            return False
        tables = self._tables
        tables.check_writable()
        with tables.transaction(write=True) as txn:
            tables.db["worths"].drop(txn)
            about = {"log": log, "since": tables.last_cycle + 1 if since is None else since}
            tables.put_meta(txn, _META, about)
        return True

    def keep(self, gains: Array, number: int = 0, cycle: int | None = None) -> None:
        """Keep gains, dtype `GAIN`, of the open cycle, or of a cycle, in place of those with this number."""
        tables = self._tables
        with tables.transaction(write=True) as txn:
            key = U32_PAIR.pack(tables.last_cycle + 1 if cycle is None else cycle, number)
            tables.db["gains"].put(txn, key, gains.tobytes())

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, gains) of finished cycles, dtype `GAIN`."""
        stop = self._tables.last_cycle if last is None else min(last, self._tables.last_cycle)
        for cycle in range(first, stop + 1):
            if len(found := self.of(cycle)):
                yield cycle, found

    def of(self, cycle: int) -> Array:
        """Gains of a cycle, the open one's too; dtype `GAIN`."""
        with self._tables.transaction() as txn:
            first, stop = U32_PAIR.pack(cycle, 0), U32_PAIR.pack(cycle + 1, 0)
            found = self._tables.db["gains"].items(txn, first, stop)
            parts = [np.frombuffer(bytes(part), GAIN) for _, part in found]
        return np.concatenate([NO_GAINS, *parts])

    def drop(self, cycle: int) -> None:
        """Drop the gains of visits up to a cycle; the columns stay."""
        table = self._tables.db["gains"]
        with self._tables.transaction(write=True) as txn:
            for key, _ in list(table.items(txn, stop=U32_PAIR.pack(cycle + 1, 0))):
                table.delete(txn, key)

    def blocks(self) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block, with `refresh_value.COLUMNS` if any was measured."""
        measured = self.log is not None
        for first, state in self._tables.blocks():
            if measured:
                state |= self.block(first // self._tables.block_rows, len(state["n"]))
            yield first, state

    def block(self, number: int, rows: int) -> Columns:
        """`refresh_value.COLUMNS` of a block of so many pages; empty where nothing was ever measured."""
        with self._tables.transaction() as txn:
            if self._tables.get_meta(txn, _META) is None:
                return {}
            return self._read(txn, number, rows)[1]

    def _read(self, txn: Any, number: int, rows: int) -> tuple[int, Columns]:
        """The last cycle of a block, and its columns, of `rows` pages."""
        value = self._tables.db["worths"].get(txn, U32.pack(number))
        if value is None:
            return 0, {name: np.zeros(rows, dtype) for name, dtype in refresh_value.COLUMNS.items()}
        kept = columns.read_columns(value[_CYCLE.size :], refresh_value.COLUMNS)
        return _CYCLE.unpack_from(value)[0], {
            name: np.concatenate((column[:rows], np.zeros(max(0, rows - len(column)), column.dtype)))
            for name, column in kept.items()
        }

    def fold(self, cycle: int) -> None:
        """Add the gains of a cycle to the columns, a block in a transaction; twice is as once."""
        gains = self.of(cycle)
        of_block = gains["page"] // self._tables.block_rows
        for number in np.flatnonzero(np.bincount(of_block)).tolist():
            self._add(number, gains[of_block == number], cycle)

    def _add(self, number: int, own: Array, cycle: int) -> None:
        first, rows = number * self._tables.block_rows, self._tables.block_rows
        with self._tables.transaction(write=True) as txn:
            last, state = self._read(txn, number, min(rows, self._tables.merged_pages - first))
            if last < cycle:
                observe_gains(state, (own["page"] - first).astype(np.intp), own)
                self._put(txn, number, state, cycle)

    def _put(self, txn: Any, number: int, state: Columns, cycle: int) -> None:
        packed = b"".join(
            np.ascontiguousarray(state[name], dtype).data for name, dtype in refresh_value.COLUMNS.items()
        )
        self._tables.db["worths"].put(txn, U32.pack(number), _CYCLE.pack(cycle) + packed)

    def counted(self) -> Columns:
        """`refresh_value.COLUMNS` of all pages by the gains that are kept. Memory: 28 bytes per page."""
        state = {
            name: np.zeros(self._tables.merged_pages, dtype) for name, dtype in refresh_value.COLUMNS.items()
        }
        for cycle, gains in self.of_cycles(max(1, self.since)):
            if gains["page"].max() >= self._tables.merged_pages:
                raise self._tables.db["gains"].wrong(
                    U32_PAIR.pack(cycle, 0), "it has a page that does not exist"
                )
            observe_gains(state, gains["page"].astype(np.intp), gains)
        return state

    def put_columns(self, state: Columns) -> None:
        """Write the blocks of all pages, which have the gains of all finished cycles."""
        rows = self._tables.block_rows
        for number in range(-(-self._tables.merged_pages // rows)):
            block = {name: column[number * rows : (number + 1) * rows] for name, column in state.items()}
            with self._tables.transaction(write=True) as txn:
                self._put(txn, number, block, self._tables.last_cycle)

    def problems(self) -> Iterator[str]:
        """Compute the columns anew from the gains that are kept; yield a sentence per block that differs."""
        if self.log is None:
            return
        known, dropped = self.counted(), self._tables.dropped >= self.since
        for first, block in self.blocks():
            told = {name: known[name][first : first + len(block["n"])] for name in refresh_value.COLUMNS}
            # What visits that were dropped gained is in columns alone.
            wrong = block["dq_n"] < told["dq_n"]
            if not dropped:
                wrong = np.logical_or.reduce([block[name] != told[name] for name in refresh_value.COLUMNS])
            if len(found := np.flatnonzero(wrong)):
                yield (
                    f"page {first + found[0]} has gained otherwise than by its visits (and so have "
                    f"{len(found) - 1} other pages of its block)"
                )


def moved(old: Tables, new: Tables, kept: npt.NDArray[np.uint32], new_id: Array) -> None:
    """Write what the pages that stay gained into a store with these alone; ``kept``: their old ids."""
    before, after = Gains(old), Gains(new)
    if before.log is None:
        return
    after.begin(before.log, before.since)
    for cycle, gains in before.of_cycles():
        after.keep(remapped(gains, new_id), cycle=cycle)
    state = {name: [np.empty(0, dtype)] for name, dtype in refresh_value.COLUMNS.items()}
    for _, block in before.blocks():
        for name, parts in state.items():
            parts.append(block[name])
    after.put_columns({name: np.concatenate(parts)[kept] for name, parts in state.items()})


def rebuilt(tables: Tables, values: Values, new_id: Array, dropped: int) -> int:
    """Write what is left of the gains of a damaged store; returns the pages whose past gains are lost.

    ``tables``: of the new store, with its pages and finished cycles; ``new_id``: new ids of the old pages;
    ``dropped``: the last cycle whose visits are not all there.
    """
    gains = Gains(tables)
    about = json.loads(values["meta"].get(_META.encode(), b"null"))
    for key, value in values["gains"].items():
        cycle, number = U32_PAIR.unpack(key)
        gains.keep(remapped(np.frombuffer(value, GAIN), new_id), number, cycle)
    if about is None:
        return 0
    gains.begin(about["log"], about["since"])
    state, lost = gains.counted(), 0
    if dropped >= about["since"]:  # then the blocks alone know all
        for number in range(-(-len(new_id) // tables.block_rows)):
            own = new_id[number * tables.block_rows : (number + 1) * tables.block_rows]
            block = values["worths"].get(U32.pack(number))
            if block is None or _CYCLE.unpack_from(block)[0] > tables.last_cycle:
                lost += int(np.count_nonzero(own != LOST))
                continue
            kept = columns.read_columns(block[_CYCLE.size :], refresh_value.COLUMNS)
            rows = own[: len(kept["dq_n"])]
            for name, column in kept.items():
                state[name][rows[rows != LOST]] = column[rows != LOST]
    gains.put_columns(state)
    return lost
