"""The papers' policy: the pages with the highest scores (Santos 2013, thesis Algorithm 2; journal 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import NOBODY, Block, Chosen, Cut, Evidence, PolicySettings, Round
from scrapy_gp4c.scoring.ranking import Best


@dataclass(frozen=True)
class TopK:
    """Spend the whole budget on the pages of the highest score, in one round."""

    settings: PolicySettings

    @property
    def name(self) -> str:
        """``top_k``."""
        return "top_k"

    @property
    def rounds(self) -> int:
        """One."""
        return 1

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Rank the candidates in one pass; memory is bounded by the plan, not by the candidates."""
        return best_candidates(scored_by(self.settings, round), round.remaining, evidence)


Scorer = Callable[[Block], npt.NDArray[np.float64]]
"""Scores of the pages of a block, finite, ``[rows]``."""


def scored_by(settings: PolicySettings, round: Round) -> Scorer:
    """The score function of the settings, in the cycle of a round."""
    return lambda block: settings.score_function.scores(block.state, round.cycle)


def best_candidates(scores_of: Scorer, k: int, evidence: Evidence) -> Chosen:
    """The k candidates with the highest scores, best first; ties by `Block.ties`, then by page."""
    if k <= 0:
        return NOBODY
    best = Best(k)
    for block in evidence.candidates():
        if len(block.pages):
            best.add(scores_of(block), block.ties, block.pages)
    pages, scores = best.result(k)
    return Chosen(np.asarray(pages, np.uint32), scores, None if best.cut is None else Cut(*best.cut))
