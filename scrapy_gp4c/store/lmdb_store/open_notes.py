"""The notes of the open cycle: buffered until a commit, then in the table `notes` until the fold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.notes import NO_NOTES, NOTE, WHAT, of_weights
from scrapy_gp4c.store.lmdb_store.sealed import U32_PAIR, Table


class OpenNotes:
    """What the open cycle learnt of pages beside its visits."""

    def __init__(self, txn: Any, table: Table) -> None:
        """Read what is committed; ``table``: `notes`."""
        self._table = table
        self._kept = [np.frombuffer(bytes(value), NOTE) for _, value in table.items(txn)]
        self._parts: list[npt.NDArray[Any]] = []
        self._buffer: list[tuple[int, int, float]] = []
        self.weights: dict[int, float] = {}
        """Page -> the weight that was said last."""
        for notes in self._kept:
            own = notes[of_weights(notes)]
            self.weights.update(zip(own["page"].tolist(), own["value"].tolist(), strict=True))

    def __bool__(self) -> bool:
        """Whether there are notes that are not committed."""
        return bool(self._parts or self._buffer)

    def add(self, page: int, what: str, value: float) -> None:
        """Note a value for what is one of `WHAT`."""
        self._buffer.append((page, WHAT.index(what), value))
        if what == "weight":
            self.weights[page] = value

    def add_many(self, pages: npt.NDArray[Any], what: str, values: npt.NDArray[Any]) -> None:
        """Note values of many pages."""
        notes = np.zeros(len(pages), NOTE)
        notes["page"], notes["what"], notes["value"] = pages, WHAT.index(what), values
        self._parts = [*self._unwritten(), notes]
        if what == "weight":
            self.weights.update(zip(pages.tolist(), values.tolist(), strict=True))

    def _unwritten(self) -> list[npt.NDArray[Any]]:
        """What is buffered, in order."""
        if self._buffer:
            self._parts.append(np.array(self._buffer, NOTE))
            self._buffer = []
        return self._parts

    def write(self, txn: Any, cycle: int) -> None:
        """Write what is buffered; `written` when the transaction is committed."""
        if self:
            notes = np.concatenate(self._unwritten())
            self._table.put(txn, U32_PAIR.pack(cycle, len(self._kept)), notes.tobytes())

    def written(self) -> None:
        """Note that what was buffered is committed."""
        if self:
            self._kept.append(np.concatenate(self._unwritten()))
            self._parts = []

    def all(self) -> npt.NDArray[Any]:
        """All of the cycle, dtype `NOTE`, in the order in which they were made."""
        return np.concatenate([NO_NOTES, *self._kept, *self._unwritten()])
