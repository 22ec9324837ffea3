"""Scores of many pages in few states: what a state scores is computed once, and then looked up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.functions import ScoreFunction

Array = npt.NDArray[Any]

MOST_STATES: Final = 2**18
"""States in a table, which stays in the processor's cache."""
LEAST_NODES: Final = 8
"""Of an expression: a shorter one takes no longer than looking its scores up."""
WHOLE: Final = frozenset(name for name, dtype in terminals.STATE.items() if np.dtype(dtype).kind in "iu")
"""Columns of whole numbers, of which most pages have small ones."""


class StateScores:
    """A score function in one cycle, for block after block of pages.

    Where it reads whole numbers alone, and these have few combinations between the least and the greatest of
    each, all combinations are scored once. No score differs by that, as a page's depends on its own numbers
    alone. A table is made when otherwise at least as many pages as it has states would be scored one by one.
    """

    def __init__(self, function: ScoreFunction, cycle: int) -> None:
        """Take a function and the planning cycle."""
        self._function, self._cycle = function, cycle
        is_long = function.expression is not None and len(function.expression.tokens) >= LEAST_NODES
        self._names = function.columns if is_long and WHOLE.issuperset(function.columns) else ()
        self._seen: list[tuple[int, int]] = []
        """Of each column, the least and the greatest number so far."""
        self._known: list[tuple[int, int]] = []
        """Of each column, the first and the last number of the table."""
        self._table: npt.NDArray[np.float64] = np.empty(0)
        self._one_by_one = 0

    def __call__(self, state: Mapping[str, Array]) -> npt.NDArray[np.float64]:
        """Scores of the pages of a block, float64 ``[rows]``, see `ScoreFunction.scores`."""
        columns = [state[name] for name in self._names]
        if columns and len(columns[0]) and self._covers(columns):
            return self._table.take(self._places(columns))
        return self._function.scores(state, self._cycle)

    def _covers(self, columns: Sequence[Array]) -> bool:
        """Whether the table has all states of a block; makes one that does when it is time for it."""
        ends = [(int(column.min()), int(column.max())) for column in columns]
        told = dict(zip(self._names, ends, strict=True))
        if "n" in told and "X" in told:
            # Pages that change at each visit are rare: a table without room for them is soon made anew.
            told["X"] = told["X"][0], max(told["X"][1], told["n"][1])
        own = list(told.values())
        self._seen = _spanned(self._seen, own) if self._seen else own
        if self._known and _spanned(self._known, own) == self._known:
            return True
        states = math.prod(last - first + 1 for first, last in self._seen)
        if states <= min(self._one_by_one + len(columns[0]), MOST_STATES):
            self._make([column.dtype for column in columns], states)
            return True
        self._one_by_one += len(columns[0])
        return False

    def _make(self, dtypes: Sequence[np.dtype[Any]], states: int) -> None:
        self._known, self._one_by_one = self._seen, 0
        number, state = np.arange(states), {}
        for name, dtype, (first, last) in zip(
            self._names[::-1], dtypes[::-1], self._known[::-1], strict=True
        ):
            number, digit = np.divmod(number, last - first + 1)
            state[name] = (digit + first).astype(dtype)
        with np.errstate(all="ignore"):  # no page has some of these states
            self._table = self._function.scores(state, self._cycle)

    def _places(self, columns: Sequence[Array]) -> npt.NDArray[np.int32]:
        place: npt.NDArray[np.int32] = np.zeros(len(columns[0]), np.int32)
        for column, (first, last) in zip(columns, self._known, strict=True):
            place *= np.int32(last - first + 1)
            place += np.subtract(column, first, dtype=np.int32)
        return place


def _spanned(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges that have both."""
    return [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]
