"""The primitives of the score language: closed operators, finite wherever their arguments are.

Santos et al. 2014, section 4.2.1: protected operators return 0 outside their domain:

* ``x / y`` is 0 where ``|y| < TINY``; ``log(x)`` is 0 where ``x <= 0``; ``sqrt(x)`` is 0 where ``x < 0``;
* ``pow(x, y)`` is 0 where it is undefined (negative base with a broken exponent, 0 to a negative power);
* ``exp`` and ``pow`` saturate at ``LARGE`` instead of overflowing;
* any other result that is not finite is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

TINY: Final = 1e-12
"""A denominator below this magnitude counts as zero."""
LARGE: Final = math.exp(700.0)
"""Where ``exp`` and ``pow`` saturate: large, yet far enough from overflow to add and compare."""


def _divide(x: Array, y: Array, out: Array) -> None:
    tiny = np.abs(y) < TINY
    np.divide(x, y, out=out)
    if tiny.any():
        out[tiny] = 0.0
    make_finite(out)


def _power(x: Array, y: Array, out: Array) -> None:
    pole = (x == 0.0) & (y < 0.0)
    np.power(x, y, out=out)
    if pole.any():
        out[pole] = 0.0
    np.clip(out, -LARGE, LARGE, out=out)
    make_finite(out)


def _exp(x: Array, out: Array) -> None:
    np.minimum(x, 700.0, out=out)
    np.exp(out, out=out)


def _log(x: Array, out: Array) -> None:
    outside = x <= 0.0
    np.log(x, out=out)
    if outside.any():
        out[outside] = 0.0


def _sqrt(x: Array, out: Array) -> None:
    np.sqrt(np.maximum(x, 0.0, out=out), out=out)


def _closed(ufunc: np.ufunc) -> Callable[..., None]:
    def apply(x: Array, y: Array, out: Array) -> None:
        ufunc(x, y, out=out)
        make_finite(out)

    return apply


def make_finite(values: Array) -> None:
    """Replace what is not finite by 0, in place; one reduction tells that there is nothing to do."""
    if not math.isfinite(np.add.reduce(values)):
        values[~np.isfinite(values)] = 0.0


class Primitive(NamedTuple):
    """An operator of the score language."""

    arity: int
    apply: Callable[..., None]
    """``apply(*arguments, out=out)``: float64 arrays of one shape; ``out`` may be one of the arguments."""
    infix: int
    """Binding strength of the infix form; 0: written as a function call."""


PRIMITIVES: Final[dict[str, Primitive]] = {
    "+": Primitive(2, _closed(np.add), 1),
    "-": Primitive(2, _closed(np.subtract), 1),
    "*": Primitive(2, _closed(np.multiply), 2),
    "/": Primitive(2, _divide, 2),
    "neg": Primitive(1, np.negative, 3),
    "pow": Primitive(2, _power, 0),
    "exp": Primitive(1, _exp, 0),
    "log": Primitive(1, _log, 0),
    "sqrt": Primitive(1, _sqrt, 0),
    "abs": Primitive(1, np.abs, 0),
    "min": Primitive(2, np.minimum, 0),
    "max": Primitive(2, np.maximum, 0),
}
