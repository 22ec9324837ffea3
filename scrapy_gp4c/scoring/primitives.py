"""The primitives of the score language: closed operators, finite wherever their arguments are.

Santos et al. 2014, section 4.2.1: protected operators return 0 outside their domain:

* ``x / y`` is 0 where ``|y| < TINY``; ``log(x)`` is 0 where ``x <= 0``; ``sqrt(x)`` is 0 where ``x < 0``;
* ``pow(x, y)`` is 0 where it is undefined (negative base with a broken exponent, 0 to a negative power);
* ``exp`` and ``pow`` saturate at ``LARGE`` instead of overflowing;
* any other result that is not finite is 0.

The thesis (2013, section 3.2) reads division as ``div(x, y)``: `LARGE_QUOTIENT` with the sign of x
where ``|y| < TINY``. The text leaves open how large the "very large number" is, and its sign for 0 / 0 (+).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

TINY: Final = 1e-12
"""A denominator below this magnitude counts as zero."""
LARGE_QUOTIENT: Final = 1.0 / TINY
"""Quotient of ``div`` by zero: 1 / TINY, so that products of several of them stay finite."""
LARGE: Final = math.exp(700.0)
"""Where ``exp`` and ``pow`` saturate: large, yet far enough from overflow to add and compare."""


class _Watch(TypedDict):
    over: Literal["raise"]
    invalid: Literal["raise"]
    divide: Literal["raise"]
    under: Literal["ignore"]


WATCH: Final[_Watch] = {"over": "raise", "invalid": "raise", "divide": "raise", "under": "ignore"}
"""Options of ``np.errstate`` under which the primitives work: from finite numbers no other one comes
without a flag of the processor (IEEE 754, section 7), so that results need not be searched for it."""


def _watched(ufunc: np.ufunc) -> Callable[..., None]:
    """The ufunc, with 0 where its result is not finite; the processor's flags show whether that happened."""

    def apply(*arguments: Array, out: Array) -> None:
        try:
            ufunc(*arguments, out=out)
        except FloatingPointError:  # raised when all of `out` is written
            make_finite(out)

    return apply


_quotient = _watched(np.divide)
_exponential = _watched(np.exp)
_SMALL: Final = 2 * TINY * np.finfo(np.float64).max
"""Overflows when divided by anything below TINY (and by some of what is below 2 * TINY)."""


def _divide(x: Array, y: Array, out: Array) -> None:
    try:
        np.divide(_SMALL, y)
        _quotient(x, y, out=out)
    except FloatingPointError:
        tiny = np.abs(y) < TINY
        _quotient(x, np.where(tiny, 1.0, y), out=out)
        out[tiny] = 0.0


def _divide_large(x: Array, y: Array, out: Array) -> None:
    tiny = np.abs(y) < TINY
    large = np.copysign(LARGE_QUOTIENT, x)
    _quotient(x, np.where(tiny, 1.0, y), out=out)
    np.copyto(out, large, where=tiny)


def _power(x: Array, y: Array, out: Array) -> None:
    result = np.empty_like(out)
    try:
        np.power(x, y, out=result)
    except FloatingPointError:
        result[((x == 0.0) & (y < 0.0)) | np.isnan(result)] = 0.0
    np.minimum(result, LARGE, out=out)
    np.maximum(out, -LARGE, out=out)


def _exp(x: Array, out: Array) -> None:
    np.minimum(x, 700.0, out=out)
    _exponential(out, out=out)


def make_finite(values: Array) -> None:
    """Replace what is not finite by 0, in place."""
    known = np.isfinite(values)
    if np.count_nonzero(known) < len(values):
        values[~known] = 0.0


def finite(values: npt.NDArray[Any]) -> Array:
    """Numbers of any real dtype as float64, 0 where they are not finite; the same array where all is well."""
    numbers = values.astype(np.float64, copy=False)
    if values.dtype.kind == "f":
        known = np.isfinite(numbers)
        if np.count_nonzero(known) < len(numbers):
            return np.where(known, numbers, 0.0)
    return numbers


class Primitive(NamedTuple):
    """An operator of the score language."""

    arity: int
    apply: Callable[..., None]
    """``apply(*arguments, out=out)``: finite float64 arrays of one shape; ``out`` may be one of the
    arguments. To be called under ``np.errstate(**WATCH)``."""
    infix: int
    """Binding strength of the infix form; 0: written as a function call."""


PRIMITIVES: Final[dict[str, Primitive]] = {
    "+": Primitive(2, _watched(np.add), 1),
    "-": Primitive(2, _watched(np.subtract), 1),
    "*": Primitive(2, _watched(np.multiply), 2),
    "/": Primitive(2, _divide, 2),
    "div": Primitive(2, _divide_large, 0),
    "neg": Primitive(1, _watched(np.negative), 3),
    "pow": Primitive(2, _power, 0),
    "exp": Primitive(1, _exp, 0),
    "log": Primitive(1, _watched(np.log), 0),
    "sqrt": Primitive(1, _watched(np.sqrt), 0),
    "abs": Primitive(1, _watched(np.abs), 0),
    "min": Primitive(2, _watched(np.minimum), 0),
    "max": Primitive(2, _watched(np.maximum), 0),
}
