"""Shortening learned functions: shorter, never different."""

from __future__ import annotations

import random

import numpy as np
import pytest
from deap import gp
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, parse
from training.evolution.simplification import canonical, simplify, simplify_all
from training.evolution.variation import drawing_from, expression_of, primitive_set

SET = primitive_set(terminals.BASIC)
RNG = np.random.default_rng(1)
COLUMNS = {"n": RNG.integers(2, 20, 80), "t": RNG.integers(1, 20, 80), "X": RNG.integers(0, 3, 80)}


def order(expression: Expression) -> bytes:
    """The order in which an expression puts the rows, ties included."""
    return np.unique(expression(COLUMNS, 80), return_inverse=True)[1].tobytes()


def test_several_at_once_become_what_each_becomes_alone():
    """Whoever is done is asked no more, and nobody is asked about two candidates at a time."""
    texts = ["exp(t * X) + 1000", "t", "t * X + 0.012345678 * n", "(t + n * 0.0001234) / (1 + 0)"]
    expressions = [parse(text) for text in texts]
    orders = [order(expression) for expression in expressions]
    sizes = []

    def same(asked):
        sizes.append(len(asked))
        return {number: order(one) == orders[number] for number, one in asked.items()}

    alone = [
        simplify(one, lambda other, own=own: order(other) == own)
        for one, own in zip(expressions, orders, strict=True)
    ]
    assert simplify_all(expressions, same) == alone
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (3, 1)
    assert simplify_all([], same) == []


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("exp(t * X) + 1000", "X * t"),
        ("0.3678794 * (t * X - 5)", "X * t"),
        ("t", "t"),
        ("t * X + 0.012345678 * n", "X * t + n * 0.01"),
        ("(t + n * 0.0001234) / (1 + 0)", "t + n * 0.0001"),
    ],
)
def test_what_does_not_matter_goes(text, short):
    """Increasing wrappers, factors and digits go where only the order counts."""
    before = order(parse(text))
    if text == "exp(t * X) + 1000":
        before = order(parse("t * X"))
    assert simplify(parse(text), lambda e: order(e) == before).text == short


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_never_longer_never_different(seed):
    """On any tree: the same order, no more nodes than before, and at least one terminal."""
    with drawing_from(random.Random(seed)):
        expression = expression_of(gp.genGrow(SET, 1, 6))
    if not canonical(expression).terminals:
        return
    before = order(expression)
    after = simplify(expression, lambda e: order(e) == before)
    assert order(after) == before
    assert len(after.tokens) <= len(canonical(expression).tokens)
    assert after.terminals


def test_nothing_goes_that_matters():
    """With a test that accepts nothing, the canonical form comes back."""
    assert simplify(parse("t * X + 0.123"), lambda e: False).text == "0.123 + X * t"
