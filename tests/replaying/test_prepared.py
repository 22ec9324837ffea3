"""Prepared histories: the cache and its keys."""

from __future__ import annotations

import collections
import gc
import random
from functools import partial

import numpy as np
import pytest
from deap import gp
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import hints, terminals
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import ScoreFunction
from training.evolution.evolve import drawing_from, expression_of, primitive_set
from training.evolution.workers import load_fitness, values_of
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.replaying import prepared as states
from training.replaying.prepared import DEFAULTS, KEEP, CrawlChoices, prepare, prepare_for


def test_those_used_last_are_kept() -> None:
    """As many as `KEEP`, whatever was prepared first."""
    history = generate("poisson", 50, 6, 1)
    first, *others = [prepare(history, budget=0.1, seed=seed) for seed in range(KEEP)]
    assert prepare(history, budget=0.1, seed=0) is first
    prepare(history, budget=0.1, seed=KEEP)
    assert prepare(history, budget=0.1, seed=0) is first
    assert prepare(history, budget=0.1, seed=KEEP - 1) is others[-1]
    assert prepare(history, budget=0.1, seed=1) is not others[0]


def test_one_page_and_all_pages_are_two_budgets() -> None:
    """``1`` is a count and ``1.0`` a share, though Python says that they are equal."""
    history = generate("poisson", 50, 6, 1)
    assert [prepare(history, budget=budget).k for budget in (1, 1.0, 1)] == [1, 50, 1]


def test_the_clock_makes_no_difference_to_what_is_arranged() -> None:
    """It is the score function's affair; the defaults are those of every caller."""
    history = generate("poisson", 50, 6, 1)
    one = prepare_for(history, CrawlChoices(clock="cycles"))
    assert one is prepare_for(history, DEFAULTS)
    assert one is prepare(history, budget=DEFAULTS.budget)


def test_a_history_that_is_gone_is_not_mistaken_for_another() -> None:
    """Prepared histories go with their history: Python uses the ids of objects again."""
    gc.freeze()  # what other tests have left is not looked through each time
    for seed in range(20):
        history = generate("poisson", 50, 6, seed)
        assert (prepare(history, budget=0.1).changed == history.changed).all()
        del history
        gc.collect()
    gc.unfreeze()


DETERMINATE = tuple(
    name
    for name in terminals.NAMES
    if states.BY_PAGE.isdisjoint(terminals.columns_of([name]))
    and name not in {*terminals.UNREPLAYED, *hints.TERMINALS}
)


def function_of(text, clock="visits"):
    expression = parse(text)
    return ScoreFunction(text, expression, None, expression.terminals, clock)


def ranking(text, cycles=19, clock="visits"):
    """The ranking of the states in a small history."""
    truth = prepare(generate("poisson", 40, cycles, 1), budget=0.1)
    return states.ranking(truth, function_of(text, clock))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t * X", "10 * t * X"),
        ("t * X", "exp(0.5 * t * X)"),
        ("t", "t * t + 5"),
        ("t", "log(t)"),
    ],
)
def test_increasing_transforms_rank_alike(one, other):
    """Functions that put all states in the same order have the same ranking."""
    assert ranking(one) == ranking(other) is not None


@pytest.mark.parametrize(
    ("one", "other"), [("t", "X"), ("t", "0 - t"), ("t * X", "t * X + n / 1e6"), ("sad", "nad")]
)
def test_different_orders_are_different_rankings(one, other):
    """Ties that one function breaks and the other does not are a different order too."""
    assert ranking(one) != ranking(other)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.sampled_from(["random", "order"]),
    st.sampled_from(terminals.CLOCKS),
)
def test_equal_rankings_mean_equal_replays(seed, warmup, ties, clock):
    """Over random histories: functions of one ranking do exactly the same in every cycle."""
    rng = np.random.default_rng(seed)
    pages, cycles = 30, 9
    changed = rng.random((cycles, pages)) < rng.beta(0.5, 1.5, pages)
    truth = prepare(
        ChangeHistory(changed=changed, site=np.zeros(pages, np.int32)), budget=0.2, warmup=warmup, ties=ties
    )
    primitives = primitive_set(DETERMINATE)
    with drawing_from(random.Random(seed)):
        expressions = [expression_of(gp.genGrow(primitives, 1, 3)) for _ in range(40)]
    alike = collections.defaultdict(list)
    for expression in expressions:
        key = states.ranking(truth, function_of(expression.text, clock))
        if key is not None:
            alike[key].append(expression.text)
    assert alike or clock == "cycles"
    values = partial(values_of, truth, fitness=load_fitness("ndcg"), clock=clock)
    for texts in alike.values():
        for other in texts[1:4]:
            np.testing.assert_array_equal(values(other), values(texts[0]))


def test_no_ranking_where_states_cannot_be_listed():
    """Terminals whose states double from cycle to cycle, histories of too many states, and other clocks."""
    assert ranking("aad * gad * t", 12) is not None
    for text in ("gad * t", "random * t", "7"):
        assert ranking(text, 30) is None
    assert ranking("n * t * X", 30) is not None
    assert ranking("n * t * X", 120) is None
    assert ranking("nad", clock="cycles") is None, "on this clock it depends on the cycle"
    assert ranking("t * X", clock="cycles") == ranking("t * X"), "these are the same on both clocks"


@given(st.integers(0, 2**32), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_terminals_of_listed_states_are_finite(seed, cycles):
    """No state makes a terminal that is not finite: expressions are evaluated without a look at that."""
    truth = prepare(generate("poisson", 30, cycles + 2, seed % 1000), budget=0.1)
    listed = states.states_of(truth, states.WITH_G, "visits")
    assert listed is not None
    for name in DETERMINATE:
        listed.scores(parse(f"{name} + 0"))
        assert np.isfinite(listed.known[name]).all(), name


def test_scores_are_kept_for_a_second_look_only(monkeypatch):
    """No more scores stay in memory than agreed."""
    truth = prepare(generate("poisson", 40, 19, 1), budget=0.1)
    listed = states.states_of(truth, *states.state_columns(function_of("t * X")))
    assert listed is not None
    monkeypatch.setattr(states, "RECENT_SCORES", 3 * listed.rows)
    first = listed.scores(parse("t * X"))
    assert listed.scores(parse("t * X")) is first
    for number in range(5):
        listed.scores(parse(f"t * X + {number}"))
    assert len(listed.recent) == 3
    assert listed.scores(parse("t * X")) is not first
    np.testing.assert_array_equal(listed.scores(parse("t * X")), first)
