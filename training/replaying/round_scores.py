"""Scores of all pages in the rounds of a cycle: what many pages share is told once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import Block, Scorer
from scrapy_gp4c.policies.top_k import Scored
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.standing import Divided, Level, divided
from scrapy_gp4c.scoring.terminals import Array
from training.replaying.metrics import Floats

_SHARED = (Level.OWN, Level.DIRECTORY)


class Shared(NamedTuple):
    """Those who share something, N of them."""

    state: Mapping[str, Array]
    """Their columns, each ``[N]``."""
    number: npt.NDArray[np.intp]
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

    def begin(self) -> None:
        """A cycle begins: nothing of the last one stands."""
        self._asked = 0

    def tell(
        self, scores_of: Scorer, shared: Mapping[Level, Shared], blocks: Iterable[tuple[slice, Block]]
    ) -> Floats:
        """Scores of all pages, ``[P]``, in memory that the next call writes to.

        ``shared``: pages in equal own state and pages of one directory. ``blocks``: all pages, and where each
        block is among them.
        """
        whole = self._parts_of(scores_of)
        if whole is None:
            for rows, block in blocks:
                self._scores[rows] = scores_of(block)
            return self._scores
        assert isinstance(scores_of, Scored)
        tables = {
            name: (whole.told(name, level, shared[level].state, scores_of.cycle), shared[level].number)
            for level in _SHARED
            for name in whole.parts[level]
        }
        if not self._multiplied(whole, tables):
            self._finished(whole, tables, scores_of.cycle, blocks)
        return self._scores

    def _parts_of(self, scores_of: Scorer) -> Divided | None:
        """The parts of a score function."""
        if not isinstance(scores_of, Scored):
            return None
        if scores_of.function is not self._function:
            self._function, self._divided = scores_of.function, divided(scores_of.function)
            self._asked = 0
        self._asked += 1
        return self._divided

    def _multiplied(self, whole: Divided, tables: Mapping[str, tuple[Floats, npt.NDArray[np.intp]]]) -> bool:
        """Score by the product of two tables, in one go; False: it is not one."""
        tokens = whole.rest.tokens
        if len(tokens) != 3 or tokens[0] != "*" or len(tables) != 2 or not tables.keys() >= {*tokens[1:]}:
            return False
        (one, of_one), (other, of_other) = tables.values()
        with np.errstate(over="ignore"):
            if not np.isfinite(np.abs(one).max() * np.abs(other).max()):
                return False
        from training.replaying.kernels import scores  # compiles: only when it is used

        scores.multiply(one, of_one, other, of_other, self._scores)
        return True

    def _finished(
        self,
        whole: Divided,
        tables: Mapping[str, tuple[Floats, npt.NDArray[np.intp]]],
        cycle: int,
        blocks: Iterable[tuple[slice, Block]],
    ) -> None:
        """Score block by block; from the second round on, what stands still is put aside."""
        still = whole.parts[Level.STILL]
        if still and self._asked == 2:
            self._still = {name: np.empty(len(self._scores)) for name in still}
        for rows, block in blocks:
            parts = {name: table.take(number[rows]) for name, (table, number) in tables.items()}
            for name in still:
                if self._asked < 3:
                    parts[name] = whole.told(name, Level.STILL, block.state, cycle)
                    if self._asked == 2:
                        self._still[name][rows] = parts[name]
                else:
                    parts[name] = self._still[name][rows]
            whole.finish(parts, block.state, cycle, self._scores[rows])
