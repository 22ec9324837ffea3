"""Score functions: loading from every form, draws, and ranking against a plain sort."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.draws import draw_salt, draws, salted_draws
from scrapy_gp4c.scoring.functions import NAMED, load
from scrapy_gp4c.scoring.ranking import best_k, top_k

NUMBER = 7


def half_of_x(values):
    """A callable score function."""
    return values["X"] / 2


def broken(values):
    """A callable that returns one number for all pages."""
    return 1.0


def not_numbers(values):
    """A callable that returns no numbers."""
    return ["a"] * len(values["X"])


def not_finite(values):
    """A callable that returns NaN and infinities."""
    return np.array([np.nan, np.inf, -np.inf, 2.0])


def state_of(x):
    """States of pages that only differ in X."""
    state = terminals.new_state(len(x))
    state["X"][:] = state["n"][:] = x
    state["draw"] = draws(np.arange(len(x), dtype=np.uint64), 1, 1)
    return state


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 1e300]), max_size=60),
    st.integers(0, 70),
    st.integers(0, 2**32),
)
def test_top_k_is_a_plain_sort(scores, k, seed):
    """By score descending, ties ascending, position ascending, as Python's sort does it."""
    ties = np.random.default_rng(seed).integers(0, 5, len(scores))
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], ties[i], i))[:k]
    values = np.array(scores, dtype=float)
    assert top_k(values, ties, k).tolist() == expected
    assert best_k(values, ties, k).tolist() == sorted(expected)


def test_draws_are_uniform_distinct_and_repeatable():
    """Draws of a cycle are distinct, spread evenly, unlike those of other cycles and seeds."""
    keys = np.arange(100_000, dtype=np.uint64)
    one = draws(keys, 5, 3)
    assert one.tobytes() == draws(keys[::-1].copy(), 5, 3)[::-1].tobytes()
    assert one.tobytes() == salted_draws(keys, draw_salt(5, 3)).tobytes()
    assert len(np.unique(one)) == len(keys)
    counts = np.bincount((one >> np.uint64(60)).astype(int), minlength=16)
    # Binomial with p = 1/16: standard deviation 77; 5 of them.
    assert abs(counts - len(keys) / 16).max() < 5 * 77
    for other in (draws(keys, 5, 4), draws(keys, 6, 3)):
        assert abs(np.corrcoef(one.astype(float), other.astype(float))[0, 1]) < 5 / np.sqrt(len(keys))


@given(st.integers(0, 2**70), st.integers(0, 10**6))
def test_any_seed_and_cycle(seed, cycle):
    """Seeds of any size can be used."""
    assert draws(np.zeros(1, np.uint64), seed, cycle).dtype == np.uint64


def test_every_named_function_loads():
    """Each name of the table is an expression of known terminals."""
    for name, text in NAMED.items():
        function = load(name)
        assert function.text == name
        assert function.expression is not None
        assert load(text).expression == function.expression
        scores = function.scores(state_of([0, 1, 2]), 3)
        assert scores.shape == (3,)


def test_expression_and_callable_score_alike():
    """A dotted path to a callable gives what the expression gives."""
    state = state_of([0, 3, 5])
    assert load("X / 2").scores(state, 4).tolist() == [0.0, 1.5, 2.5]
    function = load("tests.scoring.test_functions.half_of_x")
    assert function.scores(state, 4).tolist() == [0.0, 1.5, 2.5]
    assert function.formula == "tests.scoring.test_functions.half_of_x"
    assert load("X/2").formula == "X / 2.0"


def test_a_callable_that_fails_is_named():
    """Wrong shapes and types are a ScoreError; what is not finite counts as 0."""
    state = state_of([0, 3, 5, 7])
    for name in ("broken", "not_numbers"):
        with pytest.raises(ScoreError, match=f"tests.scoring.test_functions.{name}"):
            load(f"tests.scoring.test_functions.{name}").scores(state, 4)
    assert load("tests.scoring.test_functions.not_finite").scores(state, 4).tolist() == [0.0, 0.0, 0.0, 2.0]


def test_score_file(tmp_path):
    """A score file brings its expression, its clock and its digest."""
    path = tmp_path / "score.json"
    path.write_text(json.dumps({"format": "gp4c-score/1", "expression": "t*X", "clock": "cycles"}))
    function = load(str(path))
    assert function.expression == load("t * X").expression
    assert function.clock == "cycles"
    assert function.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert function.text == str(path)


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("not json", ScoreError, "not JSON"),
        ("[" * 100_000, ScoreError, "not JSON"),
        ("[1]", ScoreError, "found 'list'"),
        ('{"format": "gp4c-score/9"}', ScoreError, "gp4c-score/9"),
        ('{"format": "gp4c-score/1"}', ScoreError, "expression"),
        ('{"format": "gp4c-score/1", "expression": "t *"}', ExpressionError, "score.json"),
        ('{"format": "gp4c-score/1", "expression": "t * pagerank"}', ExpressionError, "pagerank"),
        ('{"format": "gp4c-score/1", "expression": "t", "clock": "wall"}', ScoreError, "wall"),
    ],
)
def test_damaged_score_files(tmp_path, content, error, said):
    """Every damage to a score file is one clear error that names the file or the fault."""
    path = tmp_path / "score.json"
    path.write_text(content)
    with pytest.raises(error, match=said):
        load(str(path))


@pytest.mark.parametrize(
    ("given_text", "error", "said"),
    [
        ("", ScoreError, "a score function is"),
        ("missing.json", ScoreError, "missing.json"),
        ("no_such_module.function", ScoreError, "no_such_module"),
        ("tests.scoring.test_functions.nothing", ScoreError, "nothing"),
        ("tests.scoring.test_functions.NUMBER", ScoreError, "not callable"),
        ("2 + 3", ExpressionError, "names no terminal"),
        ("t * pagerank", ExpressionError, "pagerank"),
        ("bogus", ExpressionError, "bogus"),
        ("t *", ExpressionError, "neither a named score function"),
    ],
)
def test_what_cannot_be_loaded(given_text, error, said):
    """The error names what was given and what would be accepted."""
    with pytest.raises(error, match=said):
        load(given_text)
