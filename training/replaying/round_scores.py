"""Scores of all pages in the rounds of a cycle: from the second on, what stands still is not told anew."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scrapy_gp4c.policies.policy import Block, Scorer
from scrapy_gp4c.policies.top_k import Scored
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.standing import Divided, divided
from training.replaying.metrics import Floats


class RoundScores:
    """Memory for the scores of P pages."""

    def __init__(self, pages: int) -> None:
        """Take P."""
        self._scores = np.empty(pages)
        self._function: ScoreFunction | None = None
        self._divided: Divided | None = None
        self._parts: dict[str, Floats] = {}

    def begin(self) -> None:
        """A cycle begins: nothing of the last one stands."""
        self._function, self._divided = None, None

    def tell(self, scores_of: Scorer, blocks: Iterable[tuple[slice, Block]]) -> Floats:
        """Scores of all pages, ``[P]``, in memory that the next call writes to.

        ``blocks``: all pages, and where each block is among them.
        """
        is_begun = self._divided is not None
        whole = self._parts_of(scores_of)
        for rows, block in blocks:
            if whole is None:
                self._scores[rows] = scores_of(block)
                continue
            assert isinstance(scores_of, Scored)
            if not is_begun:
                for name, part in whole.parts(block.state, scores_of.cycle).items():
                    self._parts[name][rows] = part
            parts = {name: values[rows] for name, values in self._parts.items()}
            whole.finish(parts, block.state, scores_of.cycle, self._scores[rows])
        return self._scores

    def _parts_of(self, scores_of: Scorer) -> Divided | None:
        """The parts of a score function that was asked for in this cycle before."""
        if not isinstance(scores_of, Scored):
            return None
        if scores_of.function is not self._function:
            self._function, self._divided = scores_of.function, None
        elif self._divided is None:
            self._divided = divided(scores_of.function)
            if self._divided is not None:
                self._parts = {name: np.empty(len(self._scores)) for name in self._divided.standing}
        return self._divided
