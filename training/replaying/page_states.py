"""State columns of the pages of a replay, stored once for pages in equal state."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.scoring import terminals

SLACK: Final = 4096
"""Number of states, beyond twice those in use, from which on unused ones are dropped."""


class PageStates(Mapping[str, Array]):
    """State columns of P pages by name, each ``[P]``; stored once for each of N distinct states."""

    def __init__(self, state: Mapping[str, Array], number: npt.NDArray[Any]) -> None:
        """``state``: columns of the first states, ``[N]``; ``number``: state of each page, ``[P]``."""
        self.columns = dict(state)
        """Columns of `scrapy_gp4c.scoring.terminals.STATE` by state, each ``[N]``."""
        self.number = number.astype(np.int32)
        """``[P]``: state of each page."""
        self.pages = np.bincount(self.number, minlength=self.states)
        """``[N]``: pages in each state."""
        self._of_pages: dict[str, Array] = {}
        self._most = 2 * self.states + SLACK

    def __getitem__(self, name: str) -> Array:
        column = self._of_pages.get(name)
        if column is None:  # from now on it is kept up to date
            column = self._of_pages[name] = self.columns[name].take(self.number)
        return column

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def states(self) -> int:
        return len(next(iter(self.columns.values())))

    def observe(self, pages: npt.NDArray[Any], changed: npt.NDArray[np.bool_], cycle: int) -> None:
        """Add a judged visit to each of some distinct pages; ``changed``: ``[visits]``."""
        if not len(pages):
            return
        moved = 2 * self.number[pages] + changed
        moves = np.bincount(moved)
        used = np.flatnonzero(moves)
        moves = moves[used]
        after = {name: values.take(used >> 1) for name, values in self.columns.items()}
        terminals.observe(after, used & 1, cycle)
        distinct, state = _merged(after)
        target = np.empty(int(used[-1]) + 1, np.intp)
        target[used] = self.states + state
        departures, arrivals = np.bincount(used >> 1, moves, self.states), np.bincount(state, moves)
        self.pages = np.concatenate((self.pages - departures.astype(np.intp), arrivals.astype(np.intp)))
        self.columns = {
            name: np.concatenate((values, after[name][distinct])) for name, values in self.columns.items()
        }
        number = target[moved]
        self.number[pages] = number
        for name, column in self._of_pages.items():
            column[pages] = self.columns[name].take(number)
        if self.states > self._most:
            self._drop()

    def _drop(self) -> None:
        used = np.flatnonzero(self.pages)
        target = np.zeros(self.states, np.intp)
        target[used] = np.arange(len(used))
        self.number = target[self.number].astype(np.int32)
        self.pages = self.pages[used]
        self.columns = {name: values[used] for name, values in self.columns.items()}
        self._most = 2 * len(used) + SLACK


def _merged(state: Mapping[str, Array]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Positions of distinct rows of `state`, and for each row the number of its distinct row."""
    columns = np.array([values.astype(np.float64) for values in state.values()])
    order = np.lexsort(columns)
    ordered = columns[:, order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    number = np.empty(len(order), np.intp)
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number
