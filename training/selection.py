"""Which of the best individuals becomes the score function: Best, Sum_sigma or Avg_sigma.

Santos et al. 2014, section 4.2.3 and thesis 3.5, after de Almeida et al. 2007. With T and V an individual's
mean values over the training and the validation cycles, and sigma the (population) standard deviation
of its values over all training and validation cycles together:

* ``best``: T
* ``sum``: T + V - sigma
* ``avg``: (T + V) / 2 - sigma
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

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
