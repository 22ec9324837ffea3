"""Score functions: loading from every form."""

import argparse
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.scoring import hints, refresh_value, terminals
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import (
    ScoreParser,
    is_dotted,
    load,
    of_expression,
    recorded,
    score_argument,
)
from scrapy_gp4c.scoring.named import NAMED
from scrapy_gp4c.scoring.ranking import draws

NUMBER = 7


def half_of_x(values):
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
    for number, column in enumerate(terminals.ROUND):
        state[column] = np.full(len(x), 0.1 * number)
    state |= {name: np.full(len(x), 2.0) for name in refresh_value.COLUMNS}
    state |= {name: np.zeros(len(x), dtype) for name, dtype in hints.COLUMNS.items()}
    state["draw"] = draws(np.arange(len(x), dtype=np.uint64), 1, 1)
    return state


def test_every_named_function_loads():
    """Each name of the table is an expression of known terminals."""
    for name, row in NAMED.items():
        function = load(name)
        assert function.text == name
        assert function.expression is not None
        assert load(row.expression).expression == function.expression
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


def test_a_callable_stays_as_it_is_for_pages_without_claims():
    """It may read any terminal, and nobody can fill in those that are known."""
    function = load("tests.scoring.test_functions.half_of_x")
    assert function.for_pages() is function


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
        ("neighbors", ExpressionError, "did you mean neighbours"),
        ("t *", ExpressionError, "neither a named score function"),
    ],
)
def test_what_cannot_be_loaded(given_text, error, said):
    """The error names what was given and what would be accepted."""
    with pytest.raises(error, match=said):
        load(given_text)


def test_the_same_function_on_another_clock():
    """All else stays; without another clock the function is the same object."""
    function = load("nad")
    other = function.on_clock("cycles")
    assert other == of_expression(parse("nad"), clock="cycles")
    assert other.on_clock(None) is other
    assert other.on_clock("cycles") is other
    assert other.on_clock("visits") == function


def test_a_function_of_an_expression_needs_terminals_that_exist():
    """What it was given as is kept; otherwise it goes by its canonical text."""
    assert of_expression(parse("t*X")).text == "t * X"
    assert of_expression(parse("t*X"), "t*X").text == "t*X"
    with pytest.raises(ExpressionError, match="pagerank"):
        of_expression(parse("t * pagerank"))


@pytest.mark.parametrize(
    ("text", "dotted"),
    [
        ("package.module.name", True),
        ("a.b", True),
        ("a", False),
        ("0.5", False),
        ("a.b ", False),
        ("t * X", False),
    ],
)
def test_how_dotted_paths_look(text: str, dotted: bool) -> None:
    """Names with at least one dot between them, and nothing else."""
    assert is_dotted(text) == dotted


@pytest.mark.parametrize("score", ["-t*X", "-t", "-2*X", "-(t + X)", "-exp(n)", "- t * X"])
def test_a_score_that_begins_with_a_minus_sign_is_a_value(score: str) -> None:
    """Whatever else stands on the line, options included."""
    parser = ScoreParser()
    parser.add_argument("history")
    parser.add_argument("--score", nargs="+", type=score_argument)
    parser.add_argument("-o")
    options = parser.parse_args(["h.tsv", "--score", "age", score, "-o", "out"])
    assert options == argparse.Namespace(history="h.tsv", score=["age", score], o="out")


def test_an_option_stays_an_option() -> None:
    """Also one that is not known: a wrong option is no score."""
    parser = ScoreParser()
    parser.add_argument("--score", type=score_argument)
    parser.add_argument("-o")
    assert parser.parse_known_args(["-ofile", "--score", "t", "-q"]) == (
        argparse.Namespace(score="t", o="file"), ["-q"],
    )  # fmt: skip


def test_a_parser_in_a_parser_takes_scores_too() -> None:
    """As the actions of ``scrapy gp4c`` are: the outer parser may be any."""
    outer = argparse.ArgumentParser()
    action = outer.add_subparsers(parser_class=ScoreParser).add_parser("plan")
    action.add_argument("spider")
    action.add_argument("--score", type=score_argument)
    assert outer.parse_args(["plan", "news", "--score", "-t*X"]).score == "-t*X"


def test_the_command_line_of_the_process_is_taken() -> None:
    """Where no arguments are given."""
    code = (
        "from scrapy_gp4c.scoring.functions import ScoreParser as P, score_argument; p = P(); "
        "p.add_argument('--score', type=score_argument); print(p.parse_args().score)"
    )
    done = subprocess.run([sys.executable, "-c", code, "--score", "-t*X"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("-t*X\n", "")


def test_a_recorded_function_is_the_configured_one_of_the_same_formula() -> None:
    """A dotted path is taken from the settings alone; another formula is read anew."""
    configured = load("tests.scoring.test_functions.half_of_x")
    assert recorded(configured.formula, configured) is configured
    assert recorded("t * X", configured).formula == "t * X"
    with pytest.raises(ScoreError, match="only settings may name"):
        recorded("tests.scoring.test_functions.other", configured)
