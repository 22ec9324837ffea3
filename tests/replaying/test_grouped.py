"""Compiled programs give the numbers of `Expression.evaluate`, bit for bit."""

from __future__ import annotations

import random

import numpy as np
from deap import gp
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring.expression import WATCH, Expression, parse
from training.evolution.variation import drawing_from, expression_of, primitive_set
from training.replaying.grouped import Program

NUMBERS = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        3.0,
        -7.25,
        1e-12,
        -9e-13,
        5e-324,
        1e300,
        -1e300,
        1.7976931348623157e308,
        700.5,
    ]
)
NAMES = ["X", "cg", "n", "t"]


def assert_equal_bits(expression: Expression, values: np.ndarray, begin: int, rows: int) -> None:
    """The program's numbers for some columns, and those of the expression."""
    block = dict(zip(NAMES, np.ascontiguousarray(values[:, begin : begin + rows]), strict=True))
    expected, found = np.empty(rows), np.empty(rows)
    expression.evaluate({name: block[name] for name in expression.terminals}, expected)
    with np.errstate(**WATCH):
        Program(expression, NAMES).evaluate(values, begin, found)
    np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64), err_msg=expression.text)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 300))
def test_a_program_has_the_numbers_of_its_expression(seed, begin, rows):
    """Any tree over numbers from nothing to the largest, whatever stands before and behind them."""
    generator = np.random.default_rng(seed)
    values = generator.choice(NUMBERS, (len(NAMES), begin + rows + 3))
    ordinary = generator.random(values.shape) < generator.random()
    values[ordinary] = generator.normal(0, 5, ordinary.sum())
    primitives = primitive_set(NAMES, (), generator.choice(["zero", "large"]))
    with drawing_from(random.Random(seed)):
        expression = expression_of(gp.genGrow(primitives, 0, 7))
    assert_equal_bits(expression, values, begin, rows)


def test_operators_that_are_not_compiled_are_those_of_the_primitives():
    """Every operator of the score language, its operands in their places, a constant, a lone terminal."""
    generator = np.random.default_rng(1)
    values = generator.normal(1, 2, (len(NAMES), 50))
    texts = ["t", "2.5", "-t", "min(t, n) - max(X, 2.0)", "sqrt(abs(cg)) / log(t)", "pow(X, t) - pow(t, X)"]
    for text in [*texts, "exp(t - n) * (n - t)", "(X - t) / (t / X)"]:
        assert_equal_bits(parse(text), values, 7, 31)
