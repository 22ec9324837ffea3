"""The decision on two score functions: which is better on a history that neither was learned on.

docs/closing-the-loop.md tells what is compared and how, and how often the decision errs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.functions import ScoreFunction
from training.evolution.choices import Choices
from training.evolution.fitness import Fitness, load_fitness
from training.evolution.preference import GUARD
from training.histories.history import ChangeHistory
from training.replaying.arranged import ArrangedHistory, prepare_for
from training.replaying.replay import run

Floats = npt.NDArray[np.float64]

LEVEL: Final = 0.025
"""A gain is significant if one as large or larger had at most this probability by chance."""
REPLAYS: Final = 5
"""Replays, each with its own draws of ties, whose mean is compared: what differs is not to be luck."""
BLOCK_CYCLES: Final = 2
BLOCKS_FROM_CYCLES: Final = 16
LEAST_CYCLES: Final = 6
GUARD_MARGIN: Final = 0.01
"""A loss up to this counts as none: with enough cycles, any difference becomes significant."""
GUARD_LEVEL: Final = 0.05
"""Of a loss beyond the margin: doubt counts against the challenger."""


@dataclass(frozen=True)
class Decision:
    """What came of the comparison; the means are over the judged cycles."""

    promoted: bool
    reason: str
    metric: str
    champion: float
    challenger: float
    probability: float
    """Of a difference of `metric` as large or larger if both were equally good."""
    champion_freshness: float
    challenger_freshness: float
    freshness_probability: float
    """Of a loss of freshness as large or larger if it were `GUARD_MARGIN` in truth."""
    pages: int
    cycles: int

    def __str__(self) -> str:
        """Decision, reason and numbers for people."""
        return (
            f"{'PROMOTED' if self.promoted else 'KEPT the function in use'}: {self.reason}\n"
            f"judged on {self.pages:,} held-out pages, the newest {self.cycles} cycles:\n"
            f"  {self.metric}: in use {self.champion:.4f}, challenger {self.challenger:.4f} "
            f"(p = {self.probability:.3g} for a gain by chance)\n"
            f"  {GUARD}: in use {self.champion_freshness:.4f}, challenger {self.challenger_freshness:.4f} "
            f"(p = {self.freshness_probability:.3g} for a loss above {GUARD_MARGIN:g} by chance)"
        )


@dataclass(frozen=True)
class DecisionOnTwo(Decision):
    """What came of the comparison by two objectives: the fitness, and freshness."""

    loss_probability: float
    """Of a loss of `metric` as large or larger if it were `GUARD_MARGIN` in truth."""
    freshness_gain_probability: float
    """Of a difference of freshness as large or larger if both were equally fresh."""

    def __str__(self) -> str:
        """Decision, reason and numbers for people."""
        return (
            f"{super().__str__()}\n"
            f"  and the other way round: p = {self.loss_probability:.3g} for a loss of {self.metric} above "
            f"{GUARD_MARGIN:g} by chance, p = {self.freshness_gain_probability:.3g} for a gain of {GUARD} by "
            "chance"
        )


def chance(differences: Floats) -> float:
    """Probability that the mean of paired differences is as large or larger by chance, if it is 0 in truth.

    ``differences``: float64 ``[cycles]``. One-sided paired t-test. What a score function does not find in
    a cycle is still there in the next: differences of neighbouring cycles have opposite signs more often than
    not (correlation about -0.3). So the test is over means of `BLOCK_CYCLES` consecutive cycles (the
    oldest ones that fill no block are left out); over single cycles if there are fewer than
    `BLOCKS_FROM_CYCLES`, where blocks would cost more degrees of freedom than they win. If they
    are positively correlated nonetheless (r with the one before), the statistic is reduced by
    sqrt((1 - r) / (1 + r)), the effective sample size of a first-order autoregression (Bayley & Hammersley
    1946). 1 if all differences are 0.
    """
    size = BLOCK_CYCLES if len(differences) >= BLOCKS_FROM_CYCLES else 1
    blocks = len(differences) // size
    means = differences[len(differences) - blocks * size :].reshape(blocks, size).mean(axis=1)
    rest = means - means.mean()
    total = float(rest @ rest)
    if total <= 1e-30:
        return 0.0 if means.mean() > 1e-15 else 1.0
    correlation = min(0.99, max(0.0, float(rest[1:] @ rest[:-1]) / total))
    statistic = means.mean() / math.sqrt(total / (blocks - 1) / blocks)
    statistic *= math.sqrt((1.0 - correlation) / (1.0 + correlation))
    return float(stats.t.sf(statistic, blocks - 1))


def arrangements_of(history: ChangeHistory, choices: Choices) -> list[ArrangedHistory]:
    """The history arranged for `REPLAYS` replays, each with its own draws of ties."""
    crawl = choices.crawl()
    return [prepare_for(history, crawl._replace(seed=crawl.seed + i)) for i in range(REPLAYS)]


def values_on(
    arranged: Sequence[ArrangedHistory],
    function: ScoreFunction,
    fitness: Fitness,
    policy: str = TOP_K.text,
) -> Floats:
    """Fitness and freshness per scored cycle, the mean of several replays: float64 ``[2, scored cycles]``."""
    wanted = tuple(dict.fromkeys((*fitness.metrics, GUARD)))
    results = [run(one, function, metrics=wanted, policy=policy) for one in arranged]
    rows = [np.array([fitness.values(result), getattr(result, GUARD)]) for result in results]
    return np.asarray(np.mean(rows, axis=0))


def decide(
    history: ChangeHistory,
    champion: ScoreFunction,
    challenger: ScoreFunction,
    choices: Choices,
    cycles: int,
) -> Decision:
    """Compare two score functions on the newest `cycles` of a history that neither was learned on.

    Both are replayed from the beginning of `history`, so that each is judged on the state that it brought
    about itself. Raises HistoryError for too few cycles.
    """
    if not LEAST_CYCLES <= cycles <= history.cycles - choices.warmup:
        raise HistoryError(
            f"judging needs at least {LEAST_CYCLES} cycles after {choices.warmup} of warm-up; "
            f"{history.source} has {history.cycles}, of which {cycles} are to be judged: crawl on, or give "
            "a smaller --warmup"
        )
    fitness = load_fitness(choices.fitness)
    arranged = arrangements_of(history, choices)
    values = [
        values_on(arranged, function, fitness, choices.policy)[:, -cycles:]
        for function in (champion, challenger)
    ]
    goals = [
        Verdict.of(name, values[1][row] - values[0][row], 2 if choices.front else 1)
        for row, name in enumerate((fitness.name, GUARD))
    ]
    promoted, reason = (on_two if choices.front else on_one)(*goals)
    if not any(goal.differs for goal in goals):
        reason = "both rank alike in every judged cycle"
    means = [[float(row.mean()) for row in pair] for pair in values]
    first, second = goals
    found = (
        promoted,
        reason,
        fitness.name,
        means[0][0],
        means[1][0],
        first.gain,
        means[0][1],
        means[1][1],
        second.loss,
        history.pages,
        cycles,
    )
    return DecisionOnTwo(*found, first.loss, second.gain) if choices.front else Decision(*found)


class Verdict(NamedTuple):
    """What the differences in one objective say of the challenger."""

    name: str
    differs: bool
    gain: float
    """Probability of a gain as large or larger by chance."""
    loss: float
    """Probability of a loss as large or larger by chance, if it is `GUARD_MARGIN` in truth."""
    better: bool
    worse: bool

    @classmethod
    def of(cls, name: str, differences: Floats, chances: int) -> Verdict:
        """``chances``: objectives in which a gain counts; they share the level (Bonferroni)."""
        gain, loss = chance(differences), chance(-differences - GUARD_MARGIN)
        better = bool(differences.mean() > 0 and gain <= LEVEL / chances)
        return cls(name, bool(differences.any()), gain, loss, better, loss <= GUARD_LEVEL)


def on_one(goal: Verdict, guard: Verdict) -> tuple[bool, str]:
    """Better in the fitness, and not staler: whether to promote, and why."""
    if not goal.better:
        return False, f"its {goal.name} is not significantly better (p above {LEVEL:g})"
    if guard.worse:
        return (
            False,
            f"its {goal.name} is significantly better, but its {guard.name} significantly worse",
        )
    return True, f"its {goal.name} is significantly better and its {guard.name} not worse"


def on_two(one: Verdict, other: Verdict) -> tuple[bool, str]:
    """Better in one objective and not worse in the other: whether to promote, and why."""
    better = [goal for goal in (one, other) if goal.better]
    worse = [goal for goal in (one, other) if goal.worse]
    if not better:
        return (
            False,
            f"neither its {one.name} nor its {other.name} is significantly better (p above {LEVEL / 2:g})",
        )
    if worse:
        return on_one(better[0], worse[0])
    if len(better) == 2:
        return True, f"its {one.name} and its {other.name} are significantly better"
    return on_one(better[0], other if better[0] is one else one)
