"""Metrics of score functions on test sets, and of policies over several seeds, cycle by cycle."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.scoring import named
from training.comparing import statistics
from training.comparing.evaluation import RANDOM
from training.comparing.statistics import Mean
from training.evolution.choices import Choices
from training.histories.history import ChangeHistory
from training.replaying.metrics import METRICS, ORACLE, TRIO
from training.replaying.prepared import CrawlChoices, prepare_for
from training.replaying.replay import run

Series = dict[str, list[list[float]]]
"""Metric -> for each fold, values by scored cycle of the fold's test set."""
Functions = Mapping[str, Sequence[str]]
"""Name -> text of the score function for each fold (the same text if it was not learned on folds)."""

SMALLER: Final = (0.2, 0.4, 0.6, 0.8)
"""Factors of the budget for replays with smaller ones (journal Figure 5: 1% to 5% of the pages)."""


class Trials(NamedTuple):
    """Metrics of score functions on the same test sets."""

    series: dict[str, Series]
    """Name of a score function -> its metrics."""
    first_cycle: int
    budget: float
    """Visits per cycle, as a share of a test set's pages."""
    smaller_budgets: dict[str, dict[str, Series]]
    """Share of the pages, as text -> the series of some of the functions."""


def held_out(history: ChangeHistory, choices: Choices) -> list[ChangeHistory]:
    """Test set of every fold by the protocol of `choices`. Raises HistoryError as `Choices.split`."""
    return [split.test for split in choices.split(history)]


def try_out(
    tests: Sequence[ChangeHistory],
    functions: Functions,
    at_smaller_budgets: Collection[str],
    crawl: CrawlChoices,
) -> Trials:
    """Replay every function on the test set of every fold.

    ``at_smaller_budgets``: names of those that are replayed with the budgets of `SMALLER` too, except budgets
    below one page. Raises HistoryError, ScoreError or ExpressionError as `training.replaying.replay.replay`.
    """
    series, budget = _series(tests, functions, crawl), crawl.budget
    tried = {name: texts for name, texts in functions.items() if name in at_smaller_budgets}
    smaller = {
        f"{budget * share:g}": {
            name: {metric: values[metric] for metric in TRIO}
            for name, values in _series(tests, tried, crawl._replace(budget=budget * share)).items()
        }
        for share in SMALLER
        if budget * share * min(test.pages for test in tests) >= 1.0
    }
    return Trials(series, crawl.warmup + 1, budget, smaller)


def _series(tests: Sequence[ChangeHistory], functions: Functions, crawl: CrawlChoices) -> dict[str, Series]:
    series: dict[str, Series] = {}
    title, console = f"Replaying at {crawl.budget:.1%}", Console(stderr=True)
    for name, texts in track(functions.items(), title, console=console):
        results = [
            run(prepare_for(test, crawl), text, clock=crawl.clock, policy=crawl.policy)
            for test, text in zip(tests, texts, strict=True)
        ]
        series[name] = {metric: [getattr(r, metric).tolist() for r in results] for metric in METRICS}
    return series


BASELINES: Final = tuple(named.BASELINES)

COMPETITIVE: Final = ("nad", "sad", "aad", "gad", "cg", "t*X")
"""Baselines in Table 3 of the journal: it leaves out random and age, which lose every cycle."""

SHOWN: Final = (*TRIO, "harmonic_staleness")


def values(trials: Trials, name: str, metric: str) -> Floats:
    """Values of a score function on the test sets: ``[folds, scored cycles]``."""
    return np.array(trials.series[name][metric], dtype=np.float64)


def best_baseline(trials: Trials, metric: str) -> str:
    """Name of the baseline with the highest mean of a metric on the test sets."""
    return max(BASELINES, key=lambda name: float(values(trials, name, metric).mean()))


class PolicyTrial(NamedTuple):
    """Results of one policy over several seeds."""

    policy: str
    score: str
    """Score function that the policy ranks by; `RANDOM` for a policy without one."""
    per_cycle: dict[str, Floats]
    """Metric of `training.replaying.metrics.METRICS` -> mean over the seeds, ``[scored cycles]``."""

    def mean(self, metric: str) -> Mean:
        """Mean of a metric over the cycles, with its interval."""
        return statistics.mean(self.per_cycle[metric])

    def ahead(self, other: "PolicyTrial", metric: str) -> Mean:
        """Mean of this policy's lead over `other` in a metric, paired by cycle."""
        return statistics.mean(self.per_cycle[metric] - other.per_cycle[metric])


def try_policy(
    history: ChangeHistory,
    policy: str,
    crawl: CrawlChoices,
    seeds: int,
    metrics: Collection[str] = TRIO,
    score: str = RANDOM,
) -> PolicyTrial:
    """Replay a policy (or `ORACLE`) with ``seeds`` seeds: ``crawl.seed``, ``crawl.seed + 1``, ...

    ``metrics``: of `training.replaying.metrics.METRICS`; ``score``: score function of the ranking. Raises
    HistoryError, ScoreError, ExpressionError or PolicyError as `training.replaying.replay.run`.
    """
    results = []
    for number in range(seeds):
        prepared = prepare_for(history, crawl._replace(seed=crawl.seed + number))
        function, chooser = (ORACLE, None) if policy == ORACLE else (score, policy)
        results.append(run(prepared, function, clock=crawl.clock, metrics=metrics, policy=chooser))
    per_cycle = {
        metric: np.mean([getattr(result, metric) for result in results], axis=0) for metric in metrics
    }
    return PolicyTrial(policy, score, per_cycle)


def written(value: Mean, digits: int = 3, sign: str = "") -> str:
    """Text of a mean with its interval, such as 0.354 ± 0.004."""
    text = f"{value.mean:{sign}.{digits}f}"
    return text if math.isnan(value.half_width) else f"{text} ± {value.half_width:.{digits}f}"
