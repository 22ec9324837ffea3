"""Leaderboard of named functions and baselines on one history, with their Pareto front in two metrics.

Replays with several seeds differ in the draws of ties. With one seed intervals are over the scored cycles;
with several, over the seeds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies.table import POLICIES
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import DEFAULT, NAMED, PURPOSES
from training.comparing import statistics
from training.comparing.evaluation import UNDER, Evaluation, Result, evaluate
from training.comparing.statistics import Mean
from training.evolution.evolve import Json
from training.evolution.front import undominated
from training.histories.history import ChangeHistory
from training.replaying.baselines import BASELINES, ORACLE_MEANINGS, ORACLE_SOURCE, is_oracle_baseline
from training.replaying.metrics import METRICS, ORACLE
from training.replaying.prepared import DEFAULTS, CrawlChoices
from training.replaying.replay import can_replay

FRONT: Final = ("change_rate", "freshness")
"""Metrics of the Pareto front: no other row is at least as good in both and better in one."""
STAND_IN: Final = "t*X"
"""Name of the reference row where the history cannot replay the default score function."""


class MetricStanding(NamedTuple):
    """Mean of a metric in a row, and its lead over the reference."""

    mean: Mean
    ahead: Mean | None
    """Mean paired difference to the reference row; None for the reference itself."""
    per_seed: list[float]
    per_cycle: list[float]

    def to_json(self) -> Json:
        return {
            "mean": self.mean.mean,
            "ci95": _number(self.mean.half_width),
            "per_cycle": self.per_cycle,
            "per_seed": self.per_seed,
            "ahead": None if self.ahead is None else self.ahead.mean,
            "ahead_ci95": None if self.ahead is None else _number(self.ahead.half_width),
        }


class LeaderboardRow(NamedTuple):
    result: Result
    """Result with the first seed."""
    source: str
    meaning: str
    on_front: bool
    metrics: dict[str, MetricStanding]

    @property
    def name(self) -> str:
        return self.result.score


@dataclass(frozen=True)
class Leaderboard:
    """Score functions, each compared with the reference, in the order of the evaluations."""

    evaluations: list[Evaluation]
    """The evaluation with each seed."""
    reference: str
    """Name of the row that the others are compared with."""
    rows: list[LeaderboardRow]

    def to_json(self) -> Json:
        """JSON document of the first seed's `Evaluation`, with each row's `MetricStanding`."""
        document = self.evaluations[0].to_json()
        document["settings"]["seeds"] = [one.settings.seed for one in self.evaluations]
        document["reference"] = self.reference
        for row, entry in zip(self.rows, document["results"], strict=True):
            entry |= {"source": row.source, "meaning": row.meaning, "on_front": row.on_front}
            entry |= {"policy": row.result.policy}
            entry |= {name: standing.to_json() for name, standing in row.metrics.items()}
        return document


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def names(history: ChangeHistory) -> list[str]:
    """Names of all that a history can replay: score functions of crawls, other ones, baselines, oracle."""
    known = [name for name in (*PURPOSES, *NAMED) if can_replay(history, load(name))]
    return [*dict.fromkeys(known), *BASELINES, ORACLE]


def leaderboard(
    history: ChangeHistory,
    scores: Sequence[str],
    crawl: CrawlChoices = DEFAULTS,
    seeds: int = 1,
    *,
    policies: Sequence[str] = (),
    first_cycle: int = 1,
    advance: Callable[[], object] = lambda: None,
) -> Leaderboard:
    """Replay score functions and policies with several seeds, and compare each with the reference.

    The seeds are ``crawl.seed``, ``crawl.seed + 1``, and so on. The reference row is the default function,
    or `STAND_IN` where the history cannot replay that one. Raises what `evaluate` raises.
    """
    if seeds < 1:
        raise HistoryError(f"--seeds: expected a whole number of at least 1; found {seeds}")
    reference = DEFAULT if can_replay(history, load(DEFAULT)) else STAND_IN
    shown = list(dict.fromkeys((*scores, reference)))
    evaluations = [
        evaluate(
            history,
            shown,
            crawl._replace(seed=crawl.seed + number),
            policies=policies,
            first_cycle=first_cycle,
            advance=advance,
        )
        for number in range(seeds)
    ]
    rows = [one.score for one in evaluations[0].results]
    return rank(evaluations, next(row for row in rows if row.partition(UNDER)[0] == reference))


def rank(evaluations: list[Evaluation], against: str) -> Leaderboard:
    """Compare the rows of evaluations with different seeds; ``against``: name of the reference row."""
    results = [one.results for one in evaluations]
    reference = next(number for number, one in enumerate(results[0]) if one.score == against)
    values = {
        name: [
            np.array([of_seed[number].metrics[name].per_cycle for of_seed in results])
            for number in range(len(results[0]))
        ]
        for name in METRICS
    }
    rows = [number for number, one in enumerate(results[0]) if one.score != ORACLE]
    first, second = FRONT
    points = [(float(values[first][row].mean()), float(values[second][row].mean())) for row in rows]
    best = {points[number] for number in undominated(points)}
    leading = {number for number, point in zip(rows, points, strict=True) if point in best}
    board = []
    for number, result in enumerate(results[0]):
        standings = {
            name: _metric_standing(of_metric[number], None if number == reference else of_metric[reference])
            for name, of_metric in values.items()
        }
        board.append(LeaderboardRow(result, *about(result.score), number in leading, standings))
    return Leaderboard(evaluations, against, board)


def _metric_standing(values: Floats, reference: Floats | None) -> MetricStanding:
    per_seed = values.mean(axis=1)
    mean = statistics.mean(per_seed if len(values) > 1 else values)
    ahead = None if reference is None else statistics.mean(statistics.paired(values, reference))
    return MetricStanding(mean, ahead, per_seed.tolist(), values.mean(axis=0).tolist())


def about(name: str) -> tuple[str, str]:
    """Source and meaning of a named function or policy."""
    if name == ORACLE:
        return "the truth", "pages that changed first: no ranking finds more in a cycle"
    name = name.partition(UNDER)[0]
    if is_oracle_baseline(name):
        return ORACLE_SOURCE, ORACLE_MEANINGS[name.partition("(")[0].strip()]
    known = NAMED.get(name) or BASELINES.get(name) or POLICIES.get(name.partition("(")[0])
    return ("as given", "") if known is None else (known.source, known.meaning)
