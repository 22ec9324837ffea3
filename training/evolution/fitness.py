"""Fitness of a score function: one number per scored cycle of its replay.

Santos et al. 2014, section 4.2.2: the fitness of an individual is the mean over the scored cycles of the
training set. Higher is better for every measure: a metric that is to be small counts negative.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import (
    NotCallableError,
    ScoreFunction,
    is_dotted,
    load_callable,
    of_expression,
)
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.evolve import Outcome
from training.evolution.named_start import expression_of
from training.replaying.metrics import IMPACT, MEASURES, METRICS
from training.replaying.prepared import PreparedHistory
from training.replaying.replay import ReplayResult, run_all
from training.replaying.states import ranking


class JackknifeParts(NamedTuple):
    """A split without one group of sites after the other, for the jackknife of `promotion_test`."""

    training: tuple[PreparedHistory, ...]
    validation: tuple[PreparedHistory, ...]


class PreparedSplit(NamedTuple):
    """Training, validation and test split of one fold, prepared for replay."""

    training: PreparedHistory
    validation: PreparedHistory
    test: PreparedHistory
    draws: tuple[PreparedHistory, ...] = ()
    """The training split as other draws of `training.evolution.choices.forgetful` leave it, for the rule
    ``guarded``."""
    leave_one_out: JackknifeParts | None = None
    """For the rule ``guarded``, where splits are of whole sites."""


if TYPE_CHECKING:
    from training.replaying.grouped import PrefixCaches  # its loops are imported where they are used

Values = npt.NDArray[np.float64]


class Fitness(NamedTuple):
    """Measure that evolution maximizes."""

    name: str
    metrics: tuple[str, ...]
    """Metrics that the replay must compute for it."""
    sign: float
    """-1 for a metric that is to be small: the fitness is the metric times the sign."""
    custom: Callable[[ReplayResult], npt.ArrayLike] | None = None

    def values(self, result: ReplayResult) -> Values:
        """Fitness per scored cycle, float64 ``[scored cycles]``, higher is better.

        Raises LearningError when a custom function returns something else.
        """
        if self.custom is None:
            metric = getattr(result, self.name)
            return np.asarray(self.sign * metric, dtype=np.float64)
        try:
            values = np.array(self.custom(result), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise LearningError(f"the fitness function {self.name!r} failed: {error}") from error
        if values.shape != result.scored_cycles.shape:
            raise LearningError(
                f"the fitness function {self.name!r} must return one number per scored cycle, shape "
                f"{result.scored_cycles.shape}; it returned shape {values.shape}"
            )
        return values


@lru_cache
def load_fitness(name: str) -> Fitness:
    """The fitness of this name: a metric of `MEASURES` or the dotted path of a function.

    The function is called with a `ReplayResult` that has every metric and returns one number per scored
    cycle, higher is better. Raises LearningError for anything else.
    """
    if name in MEASURES or name == IMPACT:
        return Fitness(name, (name,), MEASURES.get(name, 1.0))
    if not is_dotted(name):
        raise LearningError(
            f"there is no fitness {name!r}; there are: {', '.join((*MEASURES, IMPACT))}, or give the dotted "
            "path of a function that takes a training.replaying.replay.ReplayResult and returns one "
            "number per scored cycle"
        )
    try:
        function = load_callable(name)
    except ImportError as error:
        raise LearningError(f"cannot load the fitness function {name!r}: {error}") from error
    except NotCallableError as error:
        raise LearningError(f"the fitness {name!r} is a {error}, not a function") from None
    return Fitness(name, tuple(METRICS), 1.0, function)


class FitnessPair(NamedTuple):
    """Two measures that evolution maximizes at once; their values are two rows."""

    first: Fitness
    second: Fitness

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that the replay must compute for both."""
        return tuple(dict.fromkeys((*self.first.metrics, *self.second.metrics)))

    def values(self, result: ReplayResult) -> Values:
        """Both per scored cycle, float64 ``[2, scored cycles]``; errors as those of `Fitness.values`."""
        return np.array([self.first.values(result), self.second.values(result)])


def load_measure(text: str) -> Fitness | FitnessPair:
    """The fitness of a name, or the pair of two names with a comma between.

    Raises LearningError as `load_fitness`.
    """
    first, comma, second = text.partition(",")
    return FitnessPair(load_fitness(first), load_fitness(second)) if comma else load_fitness(first)


def values_of(
    prepared: PreparedHistory,
    text: str,
    fitness: Fitness | FitnessPair,
    clock: Clock,
    policy: str = TOP_K.text,
) -> Values:
    """Fitness per scored cycle of the score expression `text`; of a pair, in two rows."""
    return values_of_all(prepared, [text], fitness, clock, policy)[0]


def values_of_all(
    prepared: PreparedHistory,
    texts: Iterable[str],
    fitness: Fitness | FitnessPair,
    clock: Clock,
    policy: str = TOP_K.text,
) -> list[Values]:
    """Fitness per scored cycle of every text, in order; replayed together."""
    functions = [of_expression(expression_of(text), text, clock) for text in texts]
    return [
        fitness.values(result)
        for result in run_all(prepared, functions, metrics=fitness.metrics, policy=policy)
    ]


class TextFitness:
    """Evaluates score expressions on one training set, never the same ranking twice.

    ``replays`` counts the functions replayed so far, ``replay_s`` the processor time that it took to score
    the states and to replay, in seconds.
    """

    def __init__(
        self,
        prepared: PreparedHistory,
        fitness: Fitness | FitnessPair,
        clock: Clock,
        policy: str = TOP_K.text,
    ) -> None:

        self.replays = 0
        self.replay_s = 0.0
        self._prepared = prepared
        self._fitness = fitness
        self._clock = clock
        self._policy = policy
        self._prefix_caches: PrefixCaches = {}
        self._known: dict[bytes | str, Outcome] = {}

    def outcomes(
        self, functions: Mapping[str, Expression], compiled: Path | None = None
    ) -> dict[str, Outcome]:
        """Outcome of every function, by text; `compiled` as for `values`."""
        loaded = self._loaded(functions)
        start = time.thread_time()
        # Another policy may ask for more than the order of the pages.
        ranked = self._policy == TOP_K.text
        keys = [
            (ranking(self._prepared, function) if ranked else None) or function.text for function in loaded
        ]
        self.replay_s += time.thread_time() - start
        new = {key: function for key, function in zip(keys, loaded, strict=True) if key not in self._known}
        values = self._replayed(list(new.values()), compiled)
        outcomes = {key: _outcome(outcome_values) for key, outcome_values in zip(new, values, strict=True)}
        self._known |= {key: outcome for key, outcome in outcomes.items() if isinstance(key, bytes)}
        return {
            text: outcomes.get(key) or self._known[key] for text, key in zip(functions, keys, strict=True)
        }

    def values(self, functions: Mapping[str, Expression], compiled: Path | None = None) -> dict[str, Values]:
        """Fitness per scored cycle of every function, by text.

        ``compiled``: a file that is there once the code is compiled, see `training.evolution.learning`;
        until then functions are replayed one by one, without compiled loops.
        """
        return dict(zip(functions, self._replayed(self._loaded(functions), compiled), strict=True))

    def _loaded(self, functions: Mapping[str, Expression]) -> list[ScoreFunction]:
        return [of_expression(expression, text, self._clock) for text, expression in functions.items()]

    def _replayed(self, functions: Sequence[ScoreFunction], compiled: Path | None) -> list[Values]:
        start = time.thread_time()
        values: list[Values] = []
        while len(values) < len(functions):
            waiting = compiled is not None and not compiled.exists()
            results = run_all(
                self._prepared,
                functions[len(values) :][: 1 if waiting else None],
                engine="dense" if waiting else "auto",
                metrics=self._fitness.metrics,
                policy=self._policy,
                prefix_caches=self._prefix_caches,
            )
            values += [self._fitness.values(result) for result in results]
        self.replay_s += time.thread_time() - start
        self.replays += len(functions)
        return values


def _outcome(values: Values) -> Outcome:
    behaviour = hashlib.blake2b(values.tobytes(), digest_size=12).hexdigest()
    first, *without_group = np.atleast_1d(values.mean(axis=-1)).tolist()
    return Outcome(first, behaviour, *without_group)
