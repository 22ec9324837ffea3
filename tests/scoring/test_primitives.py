"""The closed operators: finite everywhere, as defined, whichever array takes the result."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring.expression import LARGE, PRIMITIVES, TINY, WATCH

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NEAR_THE_EDGES = st.sampled_from(
    [
        0.0,
        -0.0,
        TINY,
        -TINY,
        TINY / 2,
        1.0,
        -1.0,
        0.5,
        3.0,
        700.0,
        701.0,
        -746.0,
        5001.0,
        -1e200,
        1e154,
        -1e154,
        1.7e308,
    ]
)
PAIRS = st.lists(st.tuples(FINITE | NEAR_THE_EDGES, FINITE | NEAR_THE_EDGES), min_size=1, max_size=20)


def power(x: float, y: float) -> float:
    """The mathematical power, saturating; 0 where there is none."""
    try:
        return max(-LARGE, min(LARGE, math.pow(x, y)))
    except OverflowError:
        return -LARGE if x < 0 and y % 2 == 1 else LARGE
    except ValueError:
        return 0.0


def or_zero(value: float) -> float:
    """The value if it is finite."""
    return value if math.isfinite(value) else 0.0


MEANING = {
    "+": lambda x, y: or_zero(x + y),
    "-": lambda x, y: or_zero(x - y),
    "*": lambda x, y: or_zero(x * y),
    "/": lambda x, y: 0.0 if abs(y) < TINY else or_zero(x / y),
    "div": lambda x, y: math.copysign(1 / TINY, x) if abs(y) < TINY else or_zero(x / y),
    "neg": lambda x: -x,
    "pow": power,
    "exp": lambda x: math.exp(min(x, 700.0)),
    "log": lambda x: math.log(x) if x > 0 else 0.0,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else 0.0,
    "abs": abs,
    "min": min,
    "max": max,
}
"""What each operator means, number by number."""


@settings(max_examples=300)
@given(st.sampled_from(sorted(PRIMITIVES)), PAIRS)
def test_operators_do_what_they_mean(name, pairs):
    """Every result is finite and the defined one; the arguments stay as they are."""
    primitive = PRIMITIVES[name]
    columns = [np.array(column) for column in zip(*pairs, strict=True)][: primitive.arity]
    before = [column.copy() for column in columns]
    out = np.empty(len(pairs))
    with np.errstate(**WATCH):
        primitive.apply(*columns, out=out)
    assert np.isfinite(out).all()
    expected = [MEANING[name](*numbers) for numbers in zip(*(c.tolist() for c in before), strict=True)]
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=0)
    for column, copy in zip(columns, before, strict=True):
        np.testing.assert_array_equal(column, copy)


@settings(max_examples=300)
@given(st.sampled_from(sorted(PRIMITIVES)), PAIRS)
def test_the_result_may_replace_an_argument(name, pairs):
    """Written over any of its arguments the result is the same to the last bit."""
    primitive = PRIMITIVES[name]
    columns = [np.array(column) for column in zip(*pairs, strict=True)][: primitive.arity]
    out = np.empty(len(pairs))
    with np.errstate(**WATCH):
        primitive.apply(*columns, out=out)
        for place in range(primitive.arity):
            own = [column.copy() for column in columns]
            primitive.apply(*own, out=own[place])
            np.testing.assert_array_equal(own[place].view(np.int64), out.view(np.int64))
