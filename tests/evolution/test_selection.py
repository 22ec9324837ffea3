"""Selection rules, the promotion test of a function that leads, and values that are replayed once."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scrapy_gp4c.errors import UndecidedError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.named import DEFAULT, FOUR_ROUNDS, NAMED
from scrapy_gp4c.scoring.terminals import RELATED
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import BestIndividual, Parameters
from training.evolution.selection import (
    ERRORS,
    FINALISTS,
    GROUPS,
    NAMED_RUN,
    Pairs,
    SelectionGoal,
    jackknife,
    named_or_better,
    pick,
    promotion_test,
    select,
)
from training.evolution.workers import PreparedSplit
from training.histories.history import ChangeHistory

LEADS = st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=2, max_size=8)


def constant(*means: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Candidates with these means in training and validation, in every cycle."""
    return [(np.full(5, mean), np.full(5, mean)) for mean in means]


@given(LEADS)
def test_the_variance_is_the_jackknifes(leads):
    """(m - 1) / m times the sum of the squared deviations, for each candidate."""
    m = len(leads)
    for candidate, variance in enumerate(jackknife(np.array(leads))):
        leads_of = [row[candidate] for row in leads]
        mean = math.fsum(leads_of) / m
        assert variance == pytest.approx(
            (m - 1) / m * math.fsum((one - mean) ** 2 for one in leads_of), abs=1e-12
        )


@given(LEADS, LEADS, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=3))
def test_the_surest_lead_is_taken(training, validation, means):
    """As the rule says it, in plain Python; the recommended function is the last of three candidates."""
    candidates = [(np.full(4, one), np.full(4, other)) for one, other in means]
    without = [np.array(training), np.array(validation)]

    def apart_of(rows):
        return [part[:, list(rows)] for part in without]

    def surely(number):
        leads = [means[number][part] - means[2][part] for part in (0, 1)]
        if min(leads) <= 0:
            return -math.inf
        variances = [jackknife(part[:, [number]] - part[:, [2]])[0] for part in without]
        return sum(leads) - ERRORS * math.sqrt(sum(variances))

    expected = max((0, 1), key=surely)
    chosen = promotion_test(candidates, 2, apart_of)
    if surely(expected) > 1e-9:
        assert surely(chosen) == pytest.approx(surely(expected))
    elif surely(expected) < -1e-9:
        assert chosen == 2


def test_a_lead_on_one_group_of_sites_is_no_lead():
    """Better everywhere is taken; better on a single group, which may be an accident, is not."""
    candidates = constant(0.5, 0.6)
    everywhere, once = np.tile([0.6, 0.5], (6, 1)), np.tile([0.6, 0.5], (6, 1))
    once[2] = 0.5, 0.5
    assert promotion_test(candidates, 0, lambda rows: [everywhere, everywhere]) == 1
    assert promotion_test(candidates, 0, lambda rows: [once, once]) == 0


def test_both_parts_have_to_show_it():
    """What is ahead in training and behind in validation, or has no value, is not considered."""
    flat = [(np.ones(4), np.ones(4))]
    for other in ((np.full(4, 2.0), np.full(4, 0.9)), (np.full(4, np.nan), np.full(4, 2.0))):
        assert promotion_test([*flat, other], 0) == 0
    assert promotion_test([*flat, (np.full(4, 2.0), np.full(4, 1.1))], 0) == 1


def test_without_groups_of_sites_cycles_are_what_differs():
    """A lead that comes from one cycle in ten is no lead."""
    one = np.zeros(10)
    one[3] = 1.0
    flat = np.zeros(10), np.zeros(10)
    assert promotion_test([flat, (one, one)], 0) == 0
    assert promotion_test([flat, (one + 0.5, one + 0.5)], 0) == 1


def test_a_single_group_proves_nothing():
    """Where a part cannot be divided, the recommended function stays."""
    assert promotion_test(constant(0.1, 0.9), 0, lambda rows: [np.zeros((1, len(rows)))] * 2) == 0
    assert promotion_test(constant(0.1, 0.9), 0, lambda rows: [np.zeros((0, len(rows)))] * 2) == 0


def test_only_finalists_are_replayed_without_sites():
    """The candidates with the largest leads, and the recommended one behind them."""
    asked = []

    def apart_of(rows):
        asked.append(list(rows))
        return [np.zeros((4, len(rows)))] * 2

    promotion_test(constant(*np.linspace(1.0, 2.0, 40)), 0, apart_of)
    assert asked == [[*range(39, 39 - FINALISTS, -1), 0]]


SITES = 24
RNG = np.random.default_rng(5)


def history() -> ChangeHistory:
    """Pages of 24 sites, on each of which those of one directory change together."""
    pages, cycles = SITES * 20, 30
    site = np.repeat(np.arange(SITES), 20).astype(np.int32)
    late = np.arange(pages) % 20 < 5
    release = RNG.random((cycles, SITES)) < 0.2
    changed = (release[:, site] & late) | (RNG.random((cycles, pages)) < 0.02)
    return ChangeHistory(
        changed, site, page_names=[f"{'a' if one else 'b'}/{i}" for i, one in enumerate(late)]
    )


def own_policy(text: str) -> str:
    return NAMED[text].policy or TOP_K.text


def poor() -> list[list[BestIndividual]]:
    """Evolved functions that are surely not better than named ones."""
    return [[BestIndividual(text, 0.1, 0.1, text, 1) for text in ("t", "n")]]


def values_on(split: PreparedSplit, goal: SelectionGoal) -> Callable[[list[str]], Pairs]:
    """Fitness per cycle of texts in training and validation."""
    return lambda texts: list(zip(*(goal.values(part, texts) for part in split[:2]), strict=True))


@pytest.mark.parametrize("fitness", ["ndcg", "freshness"])
def test_the_fall_back_is_what_rules_chose_for_the_fitness_under_its_own_policy(fitness):
    """It goes by its name. On a few pages the best of all named functions is one by chance."""
    choices = Choices(
        fitness=fitness, selection="guarded", division="sites", parameters=Parameters(RELATED), budget=0.1
    )
    split = prepare_splits(history(), choices)[0]
    chosen = pick(poor(), split, choices.goal, values_on(split, choices.goal))
    names = choices.goal.named
    assert names[0] == DEFAULT
    assert {"changes", "freshness"} < {*names}
    assert chosen.text == ("freshness" if fitness == "freshness" else DEFAULT)
    assert chosen.run == NAMED_RUN
    assert choices.goal.policy_of(chosen.text) == own_policy(chosen.text)


def test_another_named_function_has_to_be_surely_better():
    """As an evolved one: `nad` is far ahead in a few cycles of training and validation, but not by errors."""
    texts, random = ["nad", "default", "changes"], np.random.default_rng(3)
    choices = Choices(selection="guarded", division="pages", parameters=Parameters(RELATED))
    split = prepare_splits(history(), choices)[0]

    def values(spread):
        noise = random.normal(0, spread, (3, 2, 8))
        noise -= noise.mean(axis=-1, keepdims=True)
        return [tuple(level + rows) for level, rows in zip((0.6, 0.5, 0.4), noise, strict=True)]

    for spread, expected in ((0.4, "default"), (0.01, "nad")):
        assert texts[named_or_better(values(spread), texts, choices.goal, split)] == expected


def test_a_policy_that_was_asked_for_is_that_of_all():
    """Named functions are then judged under it, and written with it."""
    goal = Choices(policy="rounds(rounds=2)", named_policies=False, selection="guarded").goal
    assert {goal.policy_of(name) for name in goal.named} == {"rounds(rounds=2)"}
    goal = Choices(selection="guarded").goal
    assert {goal.policy_of(name) for name in goal.named} == {TOP_K.text, FOUR_ROUNDS}


def test_equal_candidates_are_no_choice():
    """Where all did the same in every cycle, nothing is chosen."""
    choices = Choices(selection="guarded", division="sites", parameters=Parameters(RELATED))
    split = prepare_splits(history(), choices)[0]

    def zeros(texts):
        return [(np.zeros((2, 8)), np.zeros((2, 8))) for _ in texts]

    with pytest.raises(UndecidedError, match=r"all .* candidates did the same"):
        pick(poor(), split, choices.goal, zeros)


def test_splits_of_sites_come_with_their_jackknife():
    """For the rule that tests a promotion by it, and for no other."""
    choices = Choices(
        selection="guarded", division="sites", policy=FOUR_ROUNDS, parameters=Parameters(RELATED)
    )
    parts = prepare_splits(history(), choices)[0]
    assert parts.leave_one_out is not None
    assert [len(part) for part in parts.leave_one_out] == [GROUPS, 5], "a fold has 5 of the 24 sites"
    assert prepare_splits(history(), replace(choices, selection="best"))[0].leave_one_out is None


values = arrays(np.float64, st.integers(1, 20), elements=st.floats(-1, 1))


def test_rules_choose_differently():
    """The best in training is not the best in both, and the steadiest is another one again."""
    fit = (np.array([0.9, 0.9]), np.array([0.3, 0.3]))
    high = (np.array([0.6, 1.1]), np.array([0.7, 1.2]))
    steady = (np.array([0.7, 0.7]), np.array([0.7, 0.7]))
    candidates = [fit, high, steady]
    assert select(candidates, "best") == 0
    assert select(candidates, "sum") == 1
    assert select(candidates, "avg") == 2


@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf])
def test_a_candidate_without_values_is_not_chosen(missing):
    """Neither where a draw of the training part has none, nor where validation has none."""
    good, none = np.array([0.5, 0.6]), np.array([0.5, missing])
    assert promotion_test([(good, good), (none, good)], 0) == 0
    assert promotion_test([(good, good), (good, none)], 0) == 0


def test_the_first_of_equals_is_chosen():
    """Candidates come best first, so that a tie goes to the one with the higher fitness."""
    same = (np.array([0.5]), np.array([0.5]))
    assert select([same, same], "sum") == 0
