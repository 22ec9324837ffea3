"""Which of the best individuals becomes the score function: Best, Sum_sigma or Avg_sigma.

Santos et al. 2014, section 4.2.3 and thesis 3.5, after de Almeida et al. 2007. With T and V an individual's
mean values over the training and the validation cycles, and sigma the (population) standard deviation
of its values over all training and validation cycles together:

* ``best``: T
* ``sum``: T + V - sigma
* ``avg``: (T + V) / 2 - sigma

`choose` applies the rule to what the runs of a fold kept, and shortens what it picks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.expression import Expression, parse
from scrapy_gp4c.terminals import Clock
from training.evolve import Kept
from training.fitness import load_fitness, values_of
from training.simplify import simplify
from training.truth import Truth

Values = npt.NDArray[np.float64]


def best(training: Values, validation: Values) -> float:
    """Mean over the training cycles."""
    return float(np.mean(training))


def sum_sigma(training: Values, validation: Values) -> float:
    """Sum of both means, less the standard deviation over all cycles."""
    return float(np.mean(training) + np.mean(validation)) - _sigma(training, validation)


def avg_sigma(training: Values, validation: Values) -> float:
    """Mean of both means, less the standard deviation over all cycles."""
    return float(np.mean(training) + np.mean(validation)) / 2 - _sigma(training, validation)


def _sigma(training: Values, validation: Values) -> float:
    return float(np.std(np.concatenate((training, validation))))


SELECTIONS: Final[dict[str, Callable[[Values, Values], float]]] = {
    "best": best,
    "sum": sum_sigma,
    "avg": avg_sigma,
}
"""Name -> ``rule(training, validation)``; both float64 ``[cycles]``, higher is better; so is the result."""


def select(candidates: Sequence[tuple[Values, Values]], rule: str) -> int:
    """Index of the candidate with the highest value under ``rule``; the first of equals."""
    return int(np.argmax([SELECTIONS[rule](*candidate) for candidate in candidates]))


Pairs = list[tuple[Values, Values]]
"""Values per cycle of training and validation."""

Prefer = Callable[[Sequence[str]], "str | None"]
"""Picks one of the texts, which come best first; None: the selection rule is to decide."""


class Chosen(NamedTuple):
    """What was chosen of a fold's runs."""

    text: str
    """Simplified as far as it stays the same in training and validation."""
    run: int
    """The run that found it."""
    selected: float
    """Its value under the selection rule."""


def choose(
    kept: Sequence[Sequence[Kept]],
    truths: Sequence[Truth],
    rule: str,
    fitness: str,
    clock: Clock,
    values: Callable[[list[str]], Pairs] | None = None,
    prefer: Prefer | None = None,
) -> Chosen:
    """Choose one of the best individuals that the runs of a fold kept.

    ``kept``: of every run; ``truths``: training and validation part; ``rule``: key of `SELECTIONS`.
    ``values``: fitness per cycle of texts on both parts, where another process knows them; None: they are
    replayed here. ``prefer`` is asked first. Raises LearningError if no individual has a value.
    """
    candidates = sorted(
        ((one, run) for run, best_of_run in enumerate(kept) for one in best_of_run),
        key=lambda candidate: (-candidate[0].value, candidate[0].nodes, candidate[0].text, candidate[1]),
    )
    if not candidates:
        raise LearningError(
            f"no individual has a value for the fitness {fitness!r}: all were NaN or constant"
        )
    preferred = prefer([one.text for one, _ in candidates]) if prefer is not None else None
    if preferred is not None:
        candidates = [candidate for candidate in candidates if candidate[0].text == preferred][:1]
    elif rule == "best":  # looks at training alone, and that is known
        candidates = candidates[:1]
    texts = [one.text for one, _ in candidates]
    pairs = _replayed(texts, truths, fitness, clock) if values is None else values(texts)
    chosen = select(pairs, rule)
    text = _shorten(texts[chosen], pairs[chosen], truths, fitness, clock)
    return Chosen(text, candidates[chosen][1], SELECTIONS[rule](*pairs[chosen]))


def _replayed(texts: list[str], truths: Sequence[Truth], fitness: str, clock: Clock) -> Pairs:
    measure = load_fitness(fitness)
    training, validation = ([values_of(truth, text, measure, clock) for text in texts] for truth in truths)
    return list(zip(training, validation, strict=True))


def _shorten(
    text: str, values: tuple[Values, Values], truths: Sequence[Truth], fitness: str, clock: Clock
) -> str:
    """Simplify a function without changing its fitness in any cycle of training and validation."""
    measure = load_fitness(fitness)

    def same(expression: Expression) -> bool:
        return all(
            np.array_equal(values_of(truths[i], expression.text, measure, clock), values[i])
            for i in (1, 0)  # the smaller part first
        )

    return simplify(parse(text), same).text
