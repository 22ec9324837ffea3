"""What a policy may look at in a crawl: the store's columns, and what this cycle has visited so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.policies.policy import Block, Found, Pages
from scrapy_gp4c.scoring.draws import draws
from scrapy_gp4c.store.page_store import PageStore


class RowsOf(Mapping[str, npt.NDArray[Any]]):
    """Some rows of a block's columns, gathered when they are asked for: most scores need few columns."""

    def __init__(self, columns: Columns, rows: npt.NDArray[np.int64], draw: npt.NDArray[np.uint64]) -> None:
        """Take columns ``[P]``, rows ``[R]`` and what ``draw`` is for these, ``[R]``."""
        self._columns = columns
        self._rows = rows
        self._gathered: Columns = {"draw": draw}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        found = self._gathered.get(name)
        if found is None:
            found = self._gathered[name] = self._columns[name][self._rows]
        return found

    def __iter__(self) -> Iterator[str]:
        yield "draw"
        yield from self._columns

    def __len__(self) -> int:
        return 1 + len(self._columns)


class LiveEvidence:
    """The evidence of one round of a crawl."""

    def __init__(
        self,
        store: PageStore,
        rankable: list[npt.NDArray[np.uint8]],
        salt: tuple[int, int],
        taken: Pages,
        found: Found,
    ) -> None:
        """Take what the survey found.

        ``rankable``: for every block of the store, bits of its pages: those that may be ranked in this cycle;
        ``salt``: seed and cycle of the draws; ``taken``: pages that this cycle has planned or visited, in any
        order, ``[T]``; ``found``: its visits so far.
        """
        self._store = store
        self._rankable = rankable
        self._salt = salt
        self._taken = np.sort(taken)
        self._found = found

    def candidates(self) -> Iterator[Block]:
        """Yield the rankable pages that this cycle has neither planned nor visited, block by block."""
        for (first, columns), bits in zip(self._store.blocks(), self._rankable, strict=True):
            keys = columns["key"]
            open_to = np.unpackbits(bits, count=len(keys)).view(np.bool_)
            start, stop = np.searchsorted(self._taken, (first, first + len(keys)))
            open_to[self._taken[start:stop] - np.uint32(first)] = False
            rows = np.flatnonzero(open_to)
            draw = draws(keys[rows], *self._salt)
            yield Block((rows + first).astype(np.uint32), RowsOf(columns, rows, draw), draw)

    def visits(self) -> Found:
        """Return the visits that had an outcome when the round was planned."""
        return self._found
