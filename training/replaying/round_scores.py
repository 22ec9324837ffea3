"""Scores of all pages in the rounds of a cycle: what many pages share is told once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import Block, Scorer
from scrapy_gp4c.policies.top_k import Scored
from scrapy_gp4c.scoring.common_subexpressions import Divided, Level, divided
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import Array
from training.replaying.metrics import Floats

_SHARED = (Level.OWN, Level.DIRECTORY)


class Shared(NamedTuple):
    """Those who share something, N of them."""

    state: Mapping[str, Array]
    """Their columns, each ``[N]``."""
    number: npt.NDArray[Any]
    """``[P]``: which of them each page is of."""


class RoundScores:
    """Memory for the scores of P pages."""

    def __init__(self, pages: int) -> None:
        """Take P."""
        self._scores = np.empty(pages)
        self._function: ScoreFunction | None = None
        self._divided: Divided | None = None
        self._asked = 0
        self._still: dict[str, Floats] = {}
        self._own: dict[str, Floats] = {}

    def begin(self) -> None:
        """A cycle begins: nothing of the last one stands."""
        self._asked = 0
        self._own = {}

    def parts_of(self, scores_of: Scorer) -> Divided | None:
        """The parts of a score function; None: there are none."""
        if not isinstance(scores_of, Scored):
            return None
        if scores_of.function is not self._function:
            self._function, self._divided = scores_of.function, divided(scores_of.function)
            self.begin()
        return self._divided

    def of_blocks(self, scores_of: Scorer, blocks: Iterable[tuple[slice, Block]]) -> Floats:
        """Scores of all pages by what cannot be parted, ``[P]``, in memory that the next call writes to.

        ``blocks``: all pages, and where each block is among them.
        """
        for rows, block in blocks:
            self._scores[rows] = scores_of(block)
        return self._scores

    def tell(
        self,
        cycle: int,
        shared: Mapping[Level, Shared],
        states: Iterable[tuple[slice, Mapping[str, Array]]],
    ) -> Floats:
        """Scores of R rows by the parts asked for last, ``[R]``, in memory that the next call writes to.

        ``shared``: rows in equal own state and rows of one directory. ``states``: columns of all rows, block
        by block, and where each block is among them.
        """
        assert self._divided is not None
        whole, scores = self._divided, self._scores[: len(shared[Level.OWN].number)]
        self._asked += 1
        tables = {
            name: (self._table(whole, name, level, shared[level].state, cycle), shared[level].number)
            for level in _SHARED
            for name in whole.parts[level]
        }
        if not self._multiplied(whole, tables, scores):
            self._finished(whole, tables, cycle, states, scores)
        return scores

    def _table(
        self, whole: Divided, name: str, level: Level, state: Mapping[str, Array], cycle: int
    ) -> Floats:
        """One shared part; own states stand still in a cycle, but for numbers of the round."""
        table = self._own.get(name)
        if table is None:
            table = whole.told(name, level, state, cycle)
            if level is Level.OWN and whole.stands_still(name):
                self._own[name] = table
        return table

    def _multiplied(
        self, whole: Divided, tables: Mapping[str, tuple[Floats, npt.NDArray[Any]]], out: Floats
    ) -> bool:
        """Score by the product of two tables, in one go; False: it is not one, or not always finite."""
        tokens = whole.rest.tokens
        if len(tokens) != 3 or tokens[0] != "*" or len(tables) != 2 or not tables.keys() >= {*tokens[1:]}:
            return False
        (one, of_one), (other, of_other) = tables.values()
        from training.replaying.kernels import scores  # compiles: only when it is used

        return bool(scores.multiply(one, of_one, other, of_other, out))

    def _finished(
        self,
        whole: Divided,
        tables: Mapping[str, tuple[Floats, npt.NDArray[Any]]],
        cycle: int,
        states: Iterable[tuple[slice, Mapping[str, Array]]],
        out: Floats,
    ) -> None:
        """Score block by block; from the second round on, what stands still is put aside."""
        still = whole.parts[Level.STILL]
        if still and self._asked == 2:
            self._still = {name: np.empty(len(out)) for name in still}
        for rows, state in states:
            parts = {name: table.take(number[rows]) for name, (table, number) in tables.items()}
            for name in still:
                if self._asked < 3:
                    parts[name] = whole.told(name, Level.STILL, state, cycle)
                    if self._asked == 2:
                        self._still[name][rows] = parts[name]
                else:
                    parts[name] = self._still[name][rows]
            whole.finish(parts, state, cycle, out[rows])
