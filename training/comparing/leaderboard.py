"""All that has a name on one history: named functions and the policies of others, and who is on the front.

Replays with several seeds differ in what is drawn: ties, and what follows from them. With one seed intervals
are over the scored cycles; with several, over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies.table import POLICIES
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import DEFAULT, NAMED
from training.comparing import statistics
from training.comparing.evaluation import UNDER, Evaluation, Result, evaluate
from training.comparing.statistics import Floats, Mean
from training.evolution.evolve import Json
from training.evolution.front import undominated
from training.histories.history import ChangeHistory
from training.replaying import oracle_baselines
from training.replaying.baselines import BASELINES
from training.replaying.metrics import METRICS, ORACLE
from training.replaying.prepared import DEFAULTS, CrawlChoices
from training.replaying.replay import can_replay

FRONT: Final = ("change_rate", "freshness")
"""A row is on the front if no other is at least as good in both and better in one."""
STAND_IN: Final = "t*X"
"""What others are compared with where the default cannot be replayed."""


class Standing(NamedTuple):
    """A metric of a row."""

    mean: Mean
    ahead: Mean | None
    """Difference to the reference, paired; None for the reference itself."""
    per_seed: list[float]
    """Mean over the scored cycles, for every seed."""
    per_cycle: list[float]
    """Mean over the seeds, for every scored cycle."""

    def to_json(self) -> Json:
        """As `training.comparing.evaluation.Summary` has it, with seeds and the reference."""
        ahead = (None, None) if self.ahead is None else self.ahead
        return {
            "mean": self.mean.mean,
            "ci95": _number(self.mean.half_width),
            "per_cycle": self.per_cycle,
            "per_seed": self.per_seed,
            "ahead": ahead[0],
            "ahead_ci95": None if ahead[1] is None else _number(ahead[1]),
        }


class Row(NamedTuple):
    """What has a name, and how it does."""

    result: Result
    """With the first seed."""
    source: str
    meaning: str
    on_front: bool
    metrics: dict[str, Standing]
    """By the names of `training.replaying.metrics.METRICS`."""

    @property
    def name(self) -> str:
        """As it was given."""
        return self.result.score


@dataclass(frozen=True)
class Leaderboard:
    """The rows, in the order given."""

    evaluations: list[Evaluation]
    """One for each seed."""
    reference: str
    """The row that the others are compared with."""
    rows: list[Row]

    def to_json(self) -> Json:
        """The document of `Evaluation`, its counts those of the first seed, with what the board knows."""
        document = self.evaluations[0].to_json()
        document["settings"]["seeds"] = [one.settings.seed for one in self.evaluations]
        document["reference"] = self.reference
        for row, found in zip(self.rows, document["results"], strict=True):
            found |= {"source": row.source, "meaning": row.meaning, "on_front": row.on_front}
            found |= {"policy": row.result.policy}
            found |= {name: standing.to_json() for name, standing in row.metrics.items()}
        return document


def _number(value: float) -> float | None:
    """A number as JSON has it: None for what is none."""
    return None if math.isnan(value) else value


def names(history: ChangeHistory) -> list[str]:
    """All that has a name and can be replayed: the oracle, named functions, the policies of others.

    Functions of directories are left out where the history has no page names.
    """
    return [ORACLE, *(name for name in NAMED if can_replay(history, load(name))), *BASELINES]


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
    """Replay as `evaluate` with seeds ``crawl.seed``, ``crawl.seed + 1``, ...; errors as there.

    They are compared with the default, which joins them if it is not among them; on a history without the
    names of pages, which the default needs, with `STAND_IN`.
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
    """Compare the rows of evaluations that differ in nothing but the seed; ``against``: one of them."""
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
    leading = {number for number, is_best in zip(rows, on_front(points), strict=True) if is_best}
    board = []
    for number, result in enumerate(results[0]):
        standings = {
            name: _standing(of_metric[number], None if number == reference else of_metric[reference])
            for name, of_metric in values.items()
        }
        board.append(Row(result, *about(result.score), number in leading, standings))
    return Leaderboard(evaluations, against, board)


def _standing(values: Floats, reference: Floats | None) -> Standing:
    """Of values ``[seeds, cycles]``."""
    per_seed = values.mean(axis=1)
    mean = statistics.mean(per_seed if len(values) > 1 else values)
    ahead = None if reference is None else statistics.mean(statistics.paired(values, reference))
    return Standing(mean, ahead, per_seed.tolist(), values.mean(axis=0).tolist())


def on_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Tell of every point whether no other is at least as high everywhere and higher somewhere."""
    best = {points[number] for number in undominated(points)}
    return [point in best for point in points]


def about(name: str) -> tuple[str, str]:
    """Source and meaning of what is called so."""
    if name == ORACLE:
        return "the truth", "pages that changed first: no ranking finds more in a cycle"
    name = name.partition(UNDER)[0]
    if oracle_baselines.is_replays(name):
        return oracle_baselines.SOURCE, oracle_baselines.MEANINGS[name.partition("(")[0].strip()]
    known = NAMED.get(name) or BASELINES.get(name) or POLICIES.get(name.partition("(")[0])
    return ("as given", "") if known is None else (known.source, known.meaning)
