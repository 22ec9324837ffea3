"""The papers' policy: the pages with the highest scores (Santos 2013, thesis Algorithm 2; journal 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import (
    NOBODY,
    Block,
    Chosen,
    Cut,
    Evidence,
    PolicySettings,
    Round,
    Scorer,
    ranking_of,
)
from scrapy_gp4c.scoring.common_subexpressions import StateScores
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import Best, Ranked, cut_of_sample


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


@dataclass(frozen=True)
class Scored:
    """A `Scorer`: a score function in a cycle."""

    function: ScoreFunction
    cycle: int

    @cached_property
    def _of_states(self) -> StateScores:
        return StateScores(self.function, self.cycle)

    def __call__(self, block: Block) -> npt.NDArray[np.float64]:
        """Scores of the pages of a block, ``[rows]``."""
        return self._of_states(block.state)


def scored_by(settings: PolicySettings, round: Round) -> Scored:
    """The score function of the settings, in the cycle of a round."""
    return Scored(settings.score_function, round.cycle)


class Few(NamedTuple):
    """Some of the candidates."""

    block: Block
    share: float
    """Of all candidates, about."""


class Foretelling(Protocol):
    """Evidence that has some candidates, from everywhere among them, in much less time than all."""

    def few(self) -> Few | None:
        """Tell of some; None where that would not pay."""


def best_candidates(scores_of: Scorer, k: int, evidence: Evidence) -> Chosen:
    """The k candidates with the highest scores, best first; ties by `Block.ties_of`, then by page.

    Where a few candidates can be told before the others, their scores tell where the k best begin, so that
    most of the others need not be kept for a while; if that was wrong, all are gone through again.
    """
    if k <= 0:
        return NOBODY
    ranking = ranking_of(evidence)
    if ranking is not None:
        return ranking.best(scores_of, k)
    few = cast(Foretelling, evidence).few() if hasattr(evidence, "few") else None
    cut = None if few is None else cut_of_sample(scores_of(few.block), k * few.share)
    found = _best_from(cut, scores_of, k, evidence)
    if cut is not None and len(found.pages) < k:
        found = _best_from(None, scores_of, k, evidence)
    pages, scores, ties = found
    last = Cut(float(scores[-1]), int(ties[-1])) if len(pages) else None
    return Chosen(np.asarray(pages, np.uint32), scores, last)


def _best_from(cut: float | None, scores_of: Scorer, k: int, evidence: Evidence) -> Ranked:
    """The k best of the candidates that score at least so much; None: of all."""
    best = Best(k, cut=cut)
    for block in evidence.candidates():
        if len(block.pages):
            best.add(scores_of(block), block.ties_of, block.pages)
    return best.result(k)
