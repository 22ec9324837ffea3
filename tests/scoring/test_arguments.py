"""Scores on command lines."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from scrapy_gp4c.scoring.arguments import ScoreParser, as_given


@pytest.mark.parametrize("score", ["-t*X", "-t", "-2*X", "-(t + X)", "-exp(n)", "- t * X"])
def test_a_score_that_begins_with_a_minus_sign_is_a_value(score: str) -> None:
    """Whatever else stands on the line, options included."""
    parser = ScoreParser()
    parser.add_argument("history")
    parser.add_argument("--score", nargs="+", type=as_given)
    parser.add_argument("-o")
    given = parser.parse_args(["h.tsv", "--score", "age", score, "-o", "out"])
    assert given == argparse.Namespace(history="h.tsv", score=["age", score], o="out")


def test_an_option_stays_an_option() -> None:
    """Also one that is not known: a wrong option is no score."""
    parser = ScoreParser()
    parser.add_argument("--score", type=as_given)
    parser.add_argument("-o")
    assert parser.parse_known_args(["-ofile", "--score", "t", "-q"]) == (
        argparse.Namespace(score="t", o="file"), ["-q"],
    )  # fmt: skip


def test_a_parser_in_a_parser_takes_scores_too() -> None:
    """As the actions of ``scrapy gp4c`` are: the outer parser may be any."""
    outer = argparse.ArgumentParser()
    action = outer.add_subparsers(parser_class=ScoreParser).add_parser("plan")
    action.add_argument("spider")
    action.add_argument("--score", type=as_given)
    assert outer.parse_args(["plan", "news", "--score", "-t*X"]).score == "-t*X"


def test_the_command_line_of_the_process_is_taken() -> None:
    """Where no arguments are given."""
    code = (
        "from scrapy_gp4c.scoring.arguments import ScoreParser as P, as_given; p = P(); "
        "p.add_argument('--score', type=as_given); print(p.parse_args().score)"
    )
    done = subprocess.run([sys.executable, "-c", code, "--score", "-t*X"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("-t*X\n", "")
