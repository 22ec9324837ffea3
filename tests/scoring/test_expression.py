"""The score language: round trips, closed arithmetic, one evaluation whatever the blocks, hostile text."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import ExpressionError
from scrapy_gp4c.scoring import expression
from scrapy_gp4c.scoring.expression import (
    LARGE,
    MAX_DEPTH,
    PRIMITIVES,
    TINY,
    WATCH,
    Expression,
    check_terminals,
    parse,
)
from scrapy_gp4c.scoring.terminals import NAMES

LEAVES = st.sampled_from(NAMES) | st.floats(allow_nan=False, allow_infinity=False)
HOSTILE_NUMBERS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    TINY,
    -TINY,
    5e-324,
    1e-300,
    709.8,
    -745.2,
    1e154,
    1e308,
    -1e308,
    0.5,
]


@st.composite
def programs(draw, depth=6):
    if depth == 0 or draw(st.booleans()):
        return [draw(LEAVES)]
    name = draw(st.sampled_from(sorted(PRIMITIVES)))
    out = [name]
    for _ in range(PRIMITIVES[name].arity):
        out += draw(programs(depth=depth - 1))
    return out


@given(programs())
def test_text_and_tree_round_trip(program):
    """Writing a tree and reading it back gives the same tokens, to the bit of every constant."""
    tree = Expression(tuple(program))
    again = parse(tree.text)
    assert again == tree
    assert [math.copysign(1, x) for x in again.tokens if isinstance(x, float)] == [
        math.copysign(1, x) for x in tree.tokens if isinstance(x, float)
    ]
    assert again.text == tree.text
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert set(tree.terminals) <= set(NAMES)


@given(programs(), st.integers(0, 2**32))
def test_every_tree_is_finite_everywhere(program, seed):
    """Closed arithmetic: no input, infinite and NaN ones included, leads out of the finite numbers."""
    generator = np.random.default_rng(seed)
    rows = 200
    tree = Expression(tuple(program))
    pool = np.array([*HOSTILE_NUMBERS, math.inf, -math.inf, math.nan])
    values = {name: generator.choice(pool, rows) for name in tree.terminals}
    scores = tree(values, rows)
    assert scores.shape == (rows,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()


@given(programs(), st.integers(0, 2**32))
def test_filled_in_it_has_the_same_score(program, seed):
    """The text with numbers for terminals, read again, gives every row's score bit for bit."""
    generator = np.random.default_rng(seed)
    tree = Expression(tuple(program))
    pool = np.array([*HOSTILE_NUMBERS, math.inf, -math.inf, math.nan])
    values = {name: generator.choice(pool, 20) for name in tree.terminals}
    scores = tree(values, 20)
    for row in range(20):
        filled = tree.filled({name: float(column[row]) for name, column in values.items()})
        assert filled.terminals == ()
        assert parse(filled.text)({}, 1).tobytes() == scores[row : row + 1].tobytes()


@given(programs(), st.integers(0, 2**32), st.integers(1, 70))
def test_blocks_do_not_show(program, seed, block):
    """One row alone, blocks of any size and the whole array give the same bits."""
    generator = np.random.default_rng(seed)
    tree = Expression(tuple(program))
    rows = 67
    values = {name: generator.gamma(1.0, 3.0, rows) - 1.0 for name in tree.terminals}
    full = tree(values, rows)
    alone = [tree({k: v[i : i + 1] for k, v in values.items()}, 1)[0] for i in range(rows)]
    assert full.tobytes() == np.array(alone).tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expression, "BLOCK_ROWS", block)
        assert tree(values, rows).tobytes() == full.tobytes()


@given(st.sampled_from(["n", "X"]), st.sampled_from(["<i4", "u1", "<f8", "<u8", "?"]))
def test_columns_of_any_real_type(name, dtype):
    """Terminals come as they are stored; the arithmetic is float64."""
    values = np.array([0, 1, 1, 0]).astype(dtype)
    result = parse(f"{name} - 2")({name: values})
    assert result.tolist() == [-2.0, -1.0, -1.0, -2.0]


def test_arguments_are_left_alone():
    """Evaluation writes to its own buffers only."""
    x = np.array([4.0, 9.0])
    parse("sqrt(exp(X) - X)")({"X": x})
    assert x.tolist() == [4.0, 9.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("X / 0", 0.0),
        ("X / 1e-13", 0.0),
        ("X / -1e-11", -4e11),
        ("log(0 - X)", 0.0),
        ("log(0)", 0.0),
        ("sqrt(0 - X)", 0.0),
        ("exp(1000)", LARGE),
        ("exp(-1000)", 0.0),
        ("pow(10, 500)", LARGE),
        ("pow(-10, 501)", -LARGE),
        ("pow(0, -1)", 0.0),
        ("pow(-2, 0.5)", 0.0),
        ("pow(0, 0)", 1.0),
        ("1e308 * 10", 0.0),
        ("1e308 + 1e308", 0.0),
        ("2 ** 3 ** 2", 512.0),
        ("-X ** 2", -16.0),
        ("-2 ** 2", -4.0),
        ("(-2) ** 2", 4.0),
        ("7 - 2 - 1", 4.0),
        ("8 / 4 / 2", 1.0),
        ("abs(min(X, -3)) + max(1, X)", 7.0),
    ],
)
def test_values(text, value):
    """Precedence is Python's, and operators return what the module says outside their domain (X = 4)."""
    tree = parse(text)
    assert tree({"X": np.array([4.0])}, 1)[0] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "t *", "t X", "(t", "t)", "t; X", "t\nX", "__import__('os')", "t.real", "t[0]", "[t]",
        "{t}", "lambda: t", "t if X else n", "t == X", "t and X", "not t", "~t", "+t", "t % X", "t // X",
        "t @ X", "t := X", "exp", "exp()", "exp(t, X)", "exp(x=t)", "exp(*t)", "pow(t)", "log(t, 2)",
        "sin(t)", "t(X)", "exp(t)(X)", "1e999", "-1e999", "1j", "'t'", "b't'", "True", "None", "...",
        "f'{t}'", "9" * 400, "t\0", "1_0 +", "\ud800", "yield t", "await t", "t for t in X", "(t, X)",
        "print(t)", "(" * 150 + "t" + ")" * 150, "-" * 100 + "t", "exp(" * 80 + "t" + ")" * 80,
        "t+" * 200_000 + "t", "t+" * 90_000 + "t", "-" * 90_000 + "t", "t**" * 60_000 + "t",
    ],
)  # fmt: skip
def test_everything_else_is_refused(text):
    """Whatever is not in the language is an ExpressionError, quickly, and is never executed."""
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert len(str(caught.value)) < 700


@given(st.text(max_size=60) | st.text(alphabet="tXn+-*/().,0123456789e plogwx[]'=", max_size=40))
def test_any_text_is_read_or_refused(text):
    """No text leads to another exception than ExpressionError."""
    try:
        tree = parse(text)
    except ExpressionError:
        return
    assert parse(tree.text) == tree


def test_the_error_points_at_the_fault():
    """The text is shown with a caret below the first character that is wrong."""
    with pytest.raises(ExpressionError) as caught:
        parse("t * X + sin(n)")
    _, excerpt, caret = str(caught.value).splitlines()
    assert excerpt[caret.index("^") :].startswith("sin(n)")


def test_unknown_terminals_are_named():
    """The message names the terminal and those that exist."""
    with pytest.raises(ExpressionError, match=r"no terminal 'pagerank'.*cg.*nad"):
        check_terminals(parse("t * pagerank"), NAMES)
    check_terminals(parse("t * X"), NAMES)
    for text in ("t * top_k\u05c1", "ﬁne\u0301 + t"):  # a mark ends no word; Python reads names in NFKC
        with pytest.raises(ExpressionError, match="there is no terminal"):
            check_terminals(parse(text), NAMES)


@pytest.mark.parametrize("tokens", [(), ("+",), ("+", 1.0), (1.0, 2.0), ("exp",), ("t", "X")])
def test_programs_that_are_no_tree(tokens):
    """A prefix program must be one whole tree."""
    with pytest.raises(ExpressionError):
        Expression(tokens)


def test_depth_limit_is_exact():
    """The deepest tree allowed is read, one level more is not."""
    nested = "t"
    for _ in range(MAX_DEPTH - 1):
        nested = f"exp({nested})"
    assert parse(nested).terminals == ("t",)
    with pytest.raises(ExpressionError, match="deeper"):
        parse(f"exp({nested})")


def test_a_constant_needs_the_number_of_rows():
    """Without a terminal nothing tells how many pages there are."""
    assert parse("2")({}, 3).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(ExpressionError, match="number of rows"):
        parse("2")({})


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
"""Operators as plain functions of two numbers."""


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


@given(st.sampled_from(sorted(PRIMITIVES)), PAIRS)
def test_the_result_may_replace_an_argument(name, pairs):
    """Written over any of its arguments the result is the same to the last bit."""
    primitive = PRIMITIVES[name]
    columns = [np.array(column) for column in zip(*pairs, strict=True)][: primitive.arity]
    out = np.empty(len(pairs))
    with np.errstate(**WATCH):
        primitive.apply(*columns, out=out)
        for position in range(primitive.arity):
            copies = [column.copy() for column in columns]
            primitive.apply(*copies, out=copies[position])
            np.testing.assert_array_equal(copies[position].view(np.int64), out.view(np.int64))
