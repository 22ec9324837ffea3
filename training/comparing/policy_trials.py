"""What policies find, over several seeds: means of the seeds by cycle, with intervals over the cycles.

A cycle's draws are a small part of what differs between cycles; hence a mean over the seeds stands for each
cycle, and what two policies differ by is paired by cycle.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from training.comparing import statistics
from training.comparing.evaluation import RANDOM
from training.comparing.statistics import Floats, Mean
from training.histories.history import ChangeHistory
from training.replaying.arranged import CrawlChoices, prepare_for
from training.replaying.metrics import ORACLE, TRIO
from training.replaying.replay import run


class PolicyTrial(NamedTuple):
    """One policy's replays."""

    policy: str
    """Its text, or `ORACLE`."""
    score: str
    """What it ranks by; `RANDOM` for one that asks for no score function."""
    per_cycle: dict[str, Floats]
    """Metric of `training.replaying.metrics.METRICS` -> mean over the seeds, ``[scored cycles]``."""

    def mean(self, metric: str) -> Mean:
        """Over the cycles, with the 95% interval of their mean."""
        return statistics.mean(self.per_cycle[metric])

    def ahead(self, other: PolicyTrial, metric: str) -> Mean:
        """How far it is ahead of another of the same cycles, paired by cycle."""
        return statistics.mean(self.per_cycle[metric] - other.per_cycle[metric])


def try_policy(
    history: ChangeHistory,
    policy: str,
    crawl: CrawlChoices,
    seeds: int,
    metrics: Collection[str] = TRIO,
    score: str = RANDOM,
) -> PolicyTrial:
    """Replay a policy (or `ORACLE`) with seeds ``crawl.seed``, ``crawl.seed + 1``, ...

    ``metrics``: those of `training.replaying.metrics.METRICS` to measure; ``score``: what it ranks by.
    Raises HistoryError, ScoreError, ExpressionError or PolicyError as `training.replaying.replay.run`.
    """
    results = []
    for number in range(seeds):
        arranged = prepare_for(history, crawl._replace(seed=crawl.seed + number))
        given = (ORACLE, None) if policy == ORACLE else (score, policy)
        results.append(run(arranged, given[0], clock=crawl.clock, metrics=metrics, policy=given[1]))
    per_cycle = {
        metric: np.mean([getattr(result, metric) for result in results], axis=0) for metric in metrics
    }
    return PolicyTrial(policy, score, per_cycle)


def written(value: Mean, digits: int = 3, sign: str = "") -> str:
    """A mean as tables have it: 0.354 ± 0.004; without an interval where there is none."""
    text = f"{value.mean:{sign}.{digits}f}"
    return text if math.isnan(value.half_width) else f"{text} ± {value.half_width:.{digits}f}"
