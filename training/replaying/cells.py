"""Cells: the pages in equal own state and of one directory, which many score functions score alike.

They are far fewer than pages (a fifth to an eighth of 250,000), so that each is scored once, and the best
are looked for among them. A page that is visited leaves its cell, and gets into another when the cycle is
over.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import Pages
from scrapy_gp4c.scoring.ranking import best_k
from training.replaying.metrics import Floats

AHEAD: Final = 4
"""Times the pages of a round that are looked for at once, for the rounds to come."""
FEW_MORE: Final = 1.5
"""Times the pages of a round up to which sorting what is not needed takes less than leaving it out."""

Cell = npt.NDArray[np.int32]


class Cells:
    """The cells of P pages, none at first: `gather` or `restore` makes them."""

    def __init__(self, pages: int) -> None:
        """Take P."""
        from training.replaying.kernels import bits, cells, selection  # compile: only when they are used

        self._kernels: Any = cells
        self._fill_keys: Any = bits.fill_keys
        self._selection: Any = selection

        def memory(dtype: type, *size: int) -> npt.NDArray[Any]:
            return np.empty(size, dtype)

        self._memory = cells.Memory(
            cell_of=memory(np.int32, pages),
            shares=memory(np.int32, pages, 2),
            count=memory(np.int32, pages),
            listed=memory(np.int32, pages, 2),
            arena=memory(np.uint32, 2 * pages),
            sizes=np.zeros(cells.SIZES, np.int64),
        )
        # One more: the kernels write every row before they know whether it counts.
        self._rows = memory(np.int32, pages + 1)
        self._found = tuple(memory(dtype, pages + 1) for dtype in (np.uint32, np.float64, np.int32))
        self._told = memory(np.int32, 0)
        self._left = memory(np.int32, pages, 2)

    def gather(self, number: Cell, directory: npt.NDArray[np.intp]) -> None:
        """Put all pages into cells, by their states and directories, each ``[P]``."""
        self._memory.sizes[:] = 0
        pages = np.arange(len(number))
        self._kernels.put_in(pages, number.astype(np.intp), directory.astype(np.int32), self._memory)
        self.begin()

    def copy(self) -> Any:
        """What `restore` makes the same cells of, as long as no page has left its own."""
        used = dict.fromkeys(("shares", "count", "listed"), self.cells)
        used |= dict.fromkeys(("cell_of", "arena"), len(self._left)) | {"sizes": self._kernels.SIZES}
        return self._memory._replace(
            **{name: getattr(self._memory, name)[:size].copy() for name, size in used.items()}
        )

    def restore(self, copied: Any) -> None:
        """Have the cells of then."""
        for own, other in zip(self._memory, copied, strict=True):
            own[: len(other)] = other
        self.begin()

    def begin(self) -> None:
        """A cycle begins."""
        self._least: float | None = None
        self._visited = 0
        own, directory = self._memory.shares[: self.cells].T
        self.own: npt.NDArray[np.intp] = own.astype(np.intp)
        """State of each cell's pages, ``[C]``."""
        self.directory: npt.NDArray[np.intp] = directory.astype(np.intp)
        """Directory of each cell, ``[C]``."""

    @property
    def cells(self) -> int:
        """C, with those that are empty."""
        return int(self._memory.sizes[self._kernels.CELLS])

    @property
    def left(self) -> Cell:
        """States of the pages that have left their cells, in that order, before: ``[visits]``."""
        return self._left[: self._visited, self._kernels.OWN]

    def visit(self, pages: Pages, are_told: bool) -> Cell:
        """Pages leave their cells; returns their directories. ``are_told``: `best` has just told these."""
        cells = self._told if are_told else self._memory.cell_of[pages]
        shares = self._left[self._visited : self._visited + len(pages)]
        self._kernels.take_out(pages, cells, self._memory, shares)
        self._visited += len(pages)
        return shares[:, self._kernels.DIRECTORY]

    def observe(
        self,
        pages: npt.NDArray[np.int64],
        number: npt.NDArray[np.intp],
        renumbered: npt.NDArray[np.intp] | None,
    ) -> bool:
        """The pages that have left their cells, in that order, get into those of their states of now.

        ``renumbered``: see `OwnStates`. False: there is no room for them, all are to be gathered anew.
        """
        if self._memory.sizes[self._kernels.TAIL] + len(pages) > len(self._memory.arena):
            return False
        if renumbered is not None:
            self._memory.shares[: self.cells, self._kernels.OWN] = renumbered[self.own]
        directory = self._left[: self._visited, self._kernels.DIRECTORY].copy()
        self._kernels.put_in(pages, number, directory, self._memory)
        return True

    def best(self, scores: Floats, k: int, salt: np.uint64, by_draw: bool) -> tuple[Pages, Floats, int]:
        """The k pages of the highest scores, these, and what decides among ties for the last: best first.

        That is a draw with the salt, or the page's number. ``scores``: of each cell, ``[C]``, not NaN; ``k``:
        at least 1, at most the pages in cells.
        """
        rows = self._candidates(scores, k)
        found = self._kernels.spread(rows, scores, self._memory, *self._found)
        pages, own, cells = (one[:found] for one in self._found)
        keys = np.empty(found, np.uint64)
        self._fill_keys(pages, salt, by_draw, keys)
        if found > FEW_MORE * k:  # most of them are of the lowest score
            higher, lowest = np.flatnonzero(own > own.min()), np.flatnonzero(own == own.min())
            among = best_k(np.zeros(len(lowest)), keys[lowest], k - len(higher))
            kept = np.concatenate((higher, lowest[among]))
            pages, own, cells, keys = (one[kept] for one in (pages, own, cells, keys))
        order = self._selection.in_order(own, keys)[:k]
        self._told = cells[order]
        return pages[order], own[order], int(keys[order[-1]])

    def _candidates(self, scores: Floats, k: int) -> Cell:
        """Cells that hold the k best pages; not more pages beyond, but for ties, than are few."""
        count = self._memory.count[: self.cells]
        found = pages = 0
        if self._least is not None:
            found, pages = self._kernels.reaching(scores, count, self._least, self._rows)
        if not k <= pages <= 2 * AHEAD * k:
            # Later rounds of a cycle find theirs above the same bound.
            wanted = k if self._least is None else min(AHEAD * k, len(self._left) - self._visited)
            self._least = self._selection.start_of_bin(self._kernels.border(scores, count, wanted))
            found, pages = self._kernels.reaching(scores, count, self._least, self._rows)
        rows = self._rows[:found]
        if pages <= FEW_MORE * k:
            return rows
        return rows[: self._kernels.narrowed(rows, scores, count, k)]
