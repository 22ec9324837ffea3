"""The own states of the pages of a replay: few, so that each is kept once, and visits make new ones of them.

As in `training.replaying.grouped`, but that pages are told one by one, by the number of their state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.draws import mix
from scrapy_gp4c.scoring.terminals import Array

SLACK: Final = 4096
"""States beyond twice as many as pages are in, by which they may grow until the others are dropped."""
MOST_WAITING: Final = 2
"""Visits that may wait until the states of all pages are brought up to date, in times the pages."""


class OwnStates(Mapping[str, Array]):
    """State columns of P pages by name, each ``[P]``, and the N states that these are in."""

    def __init__(self, state: Mapping[str, Array], number: npt.NDArray[Any]) -> None:
        """Take the columns of the first states, ``[N]``, and the state of each page, ``[P]``."""
        self.columns = dict(state)
        """Columns of `scrapy_gp4c.scoring.terminals.STATE` in the states, each ``[N]``."""
        self._number = number.astype(np.int32)
        self._moved: list[tuple[npt.NDArray[Any], npt.NDArray[np.intp]]] = []
        self._waiting = 0
        self.renumbered: npt.NDArray[np.intp] | None = None
        """Numbers of now by those before the last visits, where these have changed; 0 of what was dropped."""
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
    def number(self) -> npt.NDArray[np.int32]:
        """``[P]``: the state that each page is in; brought up to date when it is asked for."""
        for pages, number in self._moved:
            self._number[pages] = number
        self._moved, self._waiting = [], 0
        return self._number

    @property
    def states(self) -> int:
        """N."""
        return len(next(iter(self.columns.values())))

    def observe(
        self,
        pages: npt.NDArray[Any],
        changed: npt.NDArray[np.bool_],
        cycle: int,
        before: npt.NDArray[np.int32] | None = None,
    ) -> npt.NDArray[np.intp]:
        """Add a judged visit to distinct pages; whether each had changed: both ``[visits]``.

        ``before``: the states that they were in, ``[visits]``, where somebody knows. Returns the states that
        they are in now, and no page was in before: ``[visits]``.
        """
        self.renumbered = None
        if not len(pages):
            return np.empty(0, np.intp)
        moved = 2 * (self.number[pages] if before is None else before) + changed
        used = np.flatnonzero(np.bincount(moved))
        after = {name: values.take(used >> 1) for name, values in self.columns.items()}
        terminals.observe(after, used & 1, cycle)
        kept, state = _merged(after)
        target = np.empty(int(used[-1]) + 1, np.intp)
        target[used] = self.states + state
        self.columns = {
            name: np.concatenate((values, after[name][kept])) for name, values in self.columns.items()
        }
        number = target[moved]
        self._moved.append((pages, number))
        self._waiting += len(pages)
        if self._waiting > MOST_WAITING * len(self._number):
            _ = self.number
        for name, column in self._of_pages.items():
            column[pages] = self.columns[name].take(number)
        if self.states > self._most:
            self.renumbered = self._drop()
            number = self.renumbered[number]
        return np.asarray(number)

    def _drop(self) -> npt.NDArray[np.intp]:
        """Forget the states that no page is in; returns where the others are now."""
        kept = np.flatnonzero(np.bincount(self.number, minlength=self.states))
        target = np.zeros(self.states, np.intp)
        target[kept] = np.arange(len(kept))
        self._number[:] = target[self._number]
        self.columns = {name: values[kept] for name, values in self.columns.items()}
        self._most = 2 * len(kept) + SLACK
        return target


def _merged(state: Mapping[str, Array]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows that differ, and for each row which of those it equals; all of them where a hash cannot tell."""
    hashed = np.zeros(len(next(iter(state.values()))), np.uint64)
    bits = [values.astype(np.float64).view(np.uint64) for values in state.values()]
    with np.errstate(over="ignore"):
        for own in bits:
            hashed = mix(hashed + own)
    _, kept, number = np.unique(hashed, return_index=True, return_inverse=True)
    if any((own[kept][number] != own).any() for own in bits):
        everything = np.arange(len(hashed))
        return everything, everything
    return kept, number
