"""Canonical forms are exact, and simplification changes nothing that a test of behaviour sees."""

from __future__ import annotations

import random

import numpy as np
import pytest
from deap import gp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import LARGE, TINY, Expression, parse
from training.evolution.simplification import canonical, simplify, simplify_all
from training.evolution.variation import drawing_from, expression_of, primitive_set

SET = primitive_set(terminals.PAPERS)
VALUES = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 17.0, 56.0, 0.5, 1 / 3, -0.25, 1e-3, 700.0, 710.0, -750.0, 1e6),
        *(TINY, TINY / 2, -TINY, 5e-324, 1e-300, 1e300, -1e300, LARGE, -LARGE, 0.1 + 0.2, 0.7, 1e16),
    ]
)


def rows(seed: int) -> dict[str, np.ndarray]:
    """200 rows of awkward values for every terminal."""
    rng = np.random.default_rng(seed)
    return {name: rng.choice(VALUES, 200) for name in terminals.PAPERS}


def bits(expression: Expression, columns: dict[str, np.ndarray]) -> np.ndarray:
    """The scores as integers, so that 0.0 and -0.0 differ."""
    return expression(columns, 200).view(np.int64)


@settings(max_examples=500)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_canonical_form_scores_bit_for_bit_alike(tree_seed, seed):
    """On every kind of value, signed zeros and overflow included, and it is a fixed point."""
    with drawing_from(random.Random(tree_seed)):
        expression = expression_of(gp.genGrow(SET, 1, 7))
    form = canonical(expression)
    columns = rows(seed)
    np.testing.assert_array_equal(bits(form, columns), bits(expression, columns))
    assert canonical(form).text == form.text
    assert len(form.tokens) <= len(expression.tokens)
    assert parse(form.text).tokens == form.tokens


numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(VALUES.tolist()))
programs = st.recursive(
    st.one_of(st.sampled_from(["t", "X"]).map(lambda name: (name,)), numbers.map(lambda x: (x,))),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/", "div", "pow", "min", "max"]), inner, inner).map(
            lambda node: (node[0], *node[1], *node[2])
        ),
        st.tuples(st.sampled_from(["neg", "exp", "log", "sqrt", "abs"]), inner).map(
            lambda node: (node[0], *node[1])
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=500)
@given(programs, st.integers(0, 2**32))
@example(("-", "*", "t", 0.0, "*", "t", -0.0), 0)
@example(("+", "X", "-", -0.0, 0.0), 0)
def test_any_expression_of_the_language(program, seed):
    """The same for every operator and any finite constant, not only those that learning uses."""
    expression = Expression(program)
    columns = rows(seed)
    np.testing.assert_array_equal(bits(canonical(expression), columns), bits(expression, columns))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("X * t", "X * t"),
        ("t * X", "X * t"),
        ("10 * t", "t * 10.0"),
        ("(t + X) * n", "n * (X + t)"),
        ("t * 1 / 1 - (3 - 3)", "t"),
        ("1 * (X - X) + t", "t + 0.0"),
        ("log(0.0 - 5) + exp(0)", "1.0"),
        ("t / t", "t / t"),
        ("t * 0", "t * 0.0"),
        ("pow(t, 1)", "pow(t, 1.0)"),
        ("t - X", "t - X"),
    ],
)
def test_forms(text, form):
    """Commutative operands in order, constants folded, neutral elements gone, the rest as it was."""
    assert canonical(parse(text)).text == form


def test_associativity_is_left_alone():
    """(a + b) + c and a + (b + c) round differently, so they keep different forms."""
    assert canonical(parse("(t + 0.1) + X")) != canonical(parse("t + (0.1 + X)"))


BASIC_SET = primitive_set(terminals.BASIC)
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
        expression = expression_of(gp.genGrow(BASIC_SET, 1, 6))
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
