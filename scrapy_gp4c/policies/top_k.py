"""The papers' policy: the pages with the highest scores (Santos 2013, thesis Algorithm 2; journal 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, cast

import numpy as np

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.policies.base import (
    NOTHING_CHOSEN,
    Block,
    Cut,
    Evidence,
    PolicySettings,
    Round,
    Scorer,
    Selection,
    ranking_of,
)
from scrapy_gp4c.scoring.common_subexpressions import StateScores
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import Best, Ranked, cut_of_sample


@dataclass(frozen=True)
class TopK:
    """Spend the whole budget on the pages of the highest score, in one round."""

    settings: PolicySettings
    name: str = "top_k"
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Rank the candidates in one pass; memory is bounded by the plan, not by the candidates."""
        return best_candidates(scored_by(self.settings, round), round.remaining, evidence)


@dataclass(frozen=True)
class CycleScorer:
    """A `Scorer`: a score function in a cycle."""

    function: ScoreFunction
    cycle: int

    @cached_property
    def _of_states(self) -> StateScores:
        return StateScores(self.function, self.cycle)

    def __call__(self, block: Block) -> Floats:
        """Scores of the pages of a block, ``[rows]``."""
        return self._of_states(block.state)


def scored_by(settings: PolicySettings, round: Round) -> CycleScorer:
    """The score function of the settings, in the cycle of a round."""
    return CycleScorer(settings.score_function, round.cycle)


class SpreadSample(NamedTuple):
    """Some of the candidates, spread over the whole store."""

    block: Block
    share: float
    """Share of all candidates, about."""


class _Sampling(Protocol):
    """Evidence that reads a sample of its candidates in much less time than all of them."""

    def spread_sample(self) -> SpreadSample | None:
        """Return a sample; None where that would not pay."""


def best_candidates(scores_of: Scorer, k: int, evidence: Evidence) -> Selection:
    """The k candidates with the highest scores, best first; ties by `Block.ties_of`, then by page.

    Where the evidence has a sample, its scores tell where the k best begin, so that most of the others need
    not be kept for a while; where that was wrong, all candidates are read again.
    """
    if k <= 0:
        return NOTHING_CHOSEN
    ranking = ranking_of(evidence)
    if ranking is not None:
        return ranking.best(scores_of, k)
    sample = cast(_Sampling, evidence).spread_sample() if hasattr(evidence, "spread_sample") else None
    cut = None if sample is None else cut_of_sample(scores_of(sample.block), k * sample.share)
    ranked = _best_from(cut, scores_of, k, evidence)
    if cut is not None and len(ranked.pages) < k:
        ranked = _best_from(None, scores_of, k, evidence)
    pages, scores, ties = ranked
    last = Cut(float(scores[-1]), int(ties[-1])) if len(pages) else None
    return Selection(np.asarray(pages, np.uint32), scores, last)


def _best_from(cut: float | None, scores_of: Scorer, k: int, evidence: Evidence) -> Ranked:
    """The k best of the candidates that score at least so much; None: of all."""
    best = Best(k, cut=cut)
    for block in evidence.candidates():
        if len(block.pages):
            best.add(scores_of(block), block.ties_of, block.pages)
    return best.result(k)
