"""Fitness of score expressions by replay."""

from __future__ import annotations

import numpy as np
import pytest

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.expression import parse
from training.evolution.fitness import TextFitness, load_fitness, values_of
from training.histories.models import generate
from training.replaying import metrics
from training.replaying.prepared import prepare
from training.replaying.replay import ReplayResult, run

TRUTH = prepare(generate("poisson", 300, 12, 1), budget=0.1)


def mixed(result: ReplayResult) -> np.ndarray:
    """A fitness of a user's own: freshness and change rate in one."""
    assert result.freshness is not None
    return result.freshness + result.change_rate


def scalar(result: ReplayResult) -> float:
    """Not one number per cycle."""
    return float(np.mean(result.change_rate))


def broken(result: ReplayResult) -> str:
    """Not a number at all."""
    return "good"


NOT_A_FUNCTION = 3


@pytest.mark.parametrize("name", sorted(metrics.MEASURES))
def test_measures_are_the_metrics_of_the_replay(name):
    """One value per scored cycle; staleness and age count negative, so that higher is always better."""
    result = run(TRUTH, "t * X", metrics=(name,))
    values = values_of(TRUTH, "t * X", load_fitness(name), "visits")
    sign = -1.0 if name in ("harmonic_staleness", "age") else 1.0
    np.testing.assert_array_equal(values, sign * getattr(result, name))
    assert len(values) == TRUTH.cycles - TRUTH.warmup
    assert name in metrics.METRICS


def test_dotted_path():
    """A user's function sees every metric and gives one number per scored cycle."""
    values = values_of(TRUTH, "t", load_fitness(f"{__name__}.mixed"), "visits")
    result = run(TRUTH, "t")
    np.testing.assert_array_equal(values, result.freshness + result.change_rate)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("speed", "there is no fitness 'speed'; there are: change_rate, ndcg"),
        ("no_such.module", "cannot load the fitness function 'no_such.module'"),
        (f"{__name__}.missing", "cannot load"),
        (f"{__name__}.NOT_A_FUNCTION", "is a int, not a function"),
    ],
)
def test_unknown_fitness(name, words):
    """The error names what was given and what exists."""
    with pytest.raises(LearningError, match=words):
        load_fitness(name)


@pytest.mark.parametrize(("name", "words"), [("scalar", r"returned shape \(\)"), ("broken", "failed: ")])
def test_fitness_function_of_wrong_shape(name, words):
    """A custom function that does not return one number per cycle is named in the error."""
    with pytest.raises(LearningError, match=words):
        values_of(TRUTH, "t", load_fitness(f"{__name__}.{name}"), "visits")


def test_judge_agrees_with_replay_and_spares_equal_rankings():
    """Mean over the cycles; functions that rank alike take one replay, the others one each."""
    judge = TextFitness(TRUTH, load_fitness("ndcg"), "visits")
    texts = ["t * X", "X * t * 10", "t", "log(t)", "aad", "aad * 2", "X"]
    by_text = judge.outcomes({text: parse(text) for text in texts})
    for text, outcome in by_text.items():
        assert outcome.value == values_of(TRUTH, text, load_fitness("ndcg"), "visits").mean()
    outcomes = [by_text[text] for text in texts]
    assert judge.replays == 4
    assert judge.replay_s > 0
    assert outcomes[0] == outcomes[1]
    assert outcomes[4] == outcomes[5]
    assert (outcomes[0].behaviour == outcomes[2].behaviour) == (outcomes[0].value == outcomes[2].value)
