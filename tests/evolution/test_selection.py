"""Selection rules, the promotion test of a function that leads, and values that are replayed once."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.named import DEFAULT, FOUR_ROUNDS, NAMED
from scrapy_gp4c.scoring.terminals import RELATED
from training.evolution import selection
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import BestIndividual, Evolution, Parameters
from training.evolution.named_start import recommended
from training.evolution.selection import (
    ERRORS,
    FINALISTS,
    GROUPS,
    SELECTIONS,
    SHORTER_ERRORS,
    FoldPick,
    FoldValues,
    choose,
    guarded,
    jackknife,
    promotion_test,
    select,
)
from training.evolution.simplification import canonical
from training.evolution.workers import Evaluator, workers
from training.histories.history import ChangeHistory
from training.histories.models import generate

LEADS = st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=2, max_size=8)


def constant(*means: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Candidates with these means in training and validation, in every cycle."""
    return [(np.full(5, mean), np.full(5, mean)) for mean in means]


@given(LEADS)
def test_the_variance_is_the_jackknifes(leads):
    """(m - 1) / m times the sum of the squared deviations, for each candidate."""
    m = len(leads)
    for candidate, found in enumerate(jackknife(np.array(leads))):
        own = [row[candidate] for row in leads]
        mean = math.fsum(own) / m
        assert found == pytest.approx((m - 1) / m * math.fsum((one - mean) ** 2 for one in own), abs=1e-12)


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


def test_learning_ends_with_the_recommended_function_or_one_that_surely_beats_it():
    """Parts of sites come with their jackknife; poor candidates leave the recommended function in place."""
    choices = Choices(
        selection="guarded", division="halves", policy=FOUR_ROUNDS, parameters=Parameters(RELATED)
    )
    parts = prepare_splits(history(), choices)[0]
    assert parts.leave_one_out is not None
    assert [len(part) for part in parts.leave_one_out] == [
        GROUPS,
        min(GROUPS, len(np.unique(history().site)) // 8),
    ]
    poor = [BestIndividual(text, 0.1, 0.1, text, 1) for text in ("t", "n")]
    assert choose([poor], parts, choices.goal).text == recommended("ndcg")
    for other in (replace(choices, selection="best"), replace(choices, parameters=Parameters(("t", "X")))):
        assert prepare_splits(history(), other)[0].leave_one_out is None


def test_what_is_recommended_depends_on_what_is_wanted():
    """Current copies are another aim than changes."""
    wanted = {
        prefer: Choices(front=True, prefer=prefer, parameters=Parameters(RELATED))
        for prefer in ("changes", "balanced", "freshness")
    }
    found = {prefer: choices.goal.recommended for prefer, choices in wanted.items()}
    assert len({*found.values(), recommended("ndcg")}) == 4
    assert Choices(parameters=Parameters(RELATED)).goal.recommended == recommended("change_rate")
    assert found["balanced"] == canonical(parse(NAMED[DEFAULT].expression)).text
    assert Choices(fitness="freshness", parameters=Parameters(RELATED)).goal.recommended == found["freshness"]


CHOICES = Choices(
    protocol="journal",
    budget=0.2,
    parameters=Parameters(population=40, generations=3, best_count=8),
)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_workers_select_is_what_this_process_selects(jobs):
    """By every rule and in every fold: the same text, run and value; a second rule replays nothing anew."""
    folds = prepare_splits(generate("poisson", 400, 30, 3), CHOICES)
    goal = CHOICES.goal
    with workers(jobs) as pool:
        sets = [parts.training for parts in folds] + [parts.validation for parts in folds]
        evaluator = Evaluator(sets, CHOICES.measure, CHOICES.clock, pool)
        runs = []
        for fold in range(len(folds)):
            evolution = Evolution(CHOICES.parameters, 1, (fold, 0))
            while not evolution.finished:
                evaluator.evaluate([(fold, evolution.ask())])
                evolution.tell(evaluator.known[fold])
            runs.append([evolution.best_individuals])
        selecting = FoldValues(evaluator, len(folds))
        picks, replays = [], []
        for rule in selection.SELECTIONS:
            for fold, parts in enumerate(folds):
                picked = selection.pick(
                    runs[fold],
                    parts,
                    goal._replace(rule=rule),
                    lambda texts, fold=fold: selecting.pairs(fold, texts),
                )
                picks.append(FoldPick(fold, picked))
            replays.append(evaluator.replays)
        assert replays[0] < replays[1] == replays[2]
        chosen = selecting.chosen(picks)
    expected = [
        selection.choose(runs[fold], parts, goal._replace(rule=rule))
        for rule in selection.SELECTIONS
        for fold, parts in enumerate(folds)
    ]
    assert chosen == expected
    assert any(len(one.text) < len(pick.picked.text) for one, pick in zip(chosen, picks, strict=True))


values = arrays(np.float64, st.integers(1, 20), elements=st.floats(-1, 1))


def series(cycles: int) -> st.SearchStrategy[np.ndarray]:
    """Values of so many cycles."""
    return arrays(np.float64, cycles, elements=st.floats(-1, 1))


@given(values, values)
def test_rules_are_the_formulas(training, validation):
    """Best: T. Sum: T + V - sigma. Avg: (T + V)/2 - sigma. Sigma runs over all cycles of both sets."""
    t, v = statistics.fmean(training), statistics.fmean(validation)
    sigma = statistics.pstdev([*training, *validation])
    expected = {"best": t, "sum": t + v - sigma, "avg": (t + v) / 2 - sigma}
    assert set(SELECTIONS) == set(expected)
    for name, rule in SELECTIONS.items():
        assert rule(training, validation) == pytest.approx(expected[name], abs=1e-9)


def test_rules_choose_differently():
    """The best in training is not the best in both, and the steadiest is another one again."""
    fit = (np.array([0.9, 0.9]), np.array([0.3, 0.3]))
    high = (np.array([0.6, 1.1]), np.array([0.7, 1.2]))
    steady = (np.array([0.7, 0.7]), np.array([0.7, 0.7]))
    candidates = [fit, high, steady]
    assert select(candidates, "best") == 0
    assert select(candidates, "sum") == 1
    assert select(candidates, "avg") == 2


def as_good(values: np.ndarray, reference: np.ndarray, errors: float = 1.0) -> bool | None:
    """Not behind by more than so many standard errors of the difference; None: rounding decides."""
    lead = (values - reference).tolist()
    error = statistics.stdev(lead) / len(lead) ** 0.5 if len(lead) > 1 else 0.0
    margin = statistics.fmean(lead) + errors * error
    if abs(margin) < 1e-12 and any(lead):
        return None
    return margin > -1e-12


@given(
    st.integers(1, 12).flatmap(
        lambda cycles: st.tuples(
            st.lists(st.tuples(*2 * [series(cycles)]), min_size=1, max_size=6),
            st.lists(series(cycles), min_size=1, max_size=4),
        )
    ),
    st.lists(st.integers(1, 5), min_size=6, max_size=6),
)
def test_guarded_is_the_shortest_as_good_as_the_best_in_training_of_those_that_stand(case, nodes):
    """It stands who is behind the best named function in validation by at most one standard error.

    As good is who is behind in training and in validation by at most half of one.
    """
    candidates, named = case
    reference = max(named, key=np.mean)
    standing = [as_good(validation, reference) for _, validation in candidates]
    stand = [number for number, stands in enumerate(standing) if stands]
    chosen = guarded(candidates, named, nodes)
    if None in standing:
        return
    if not stand:
        assert candidates[chosen][1].mean() == max(validation.mean() for _, validation in candidates)
        return
    best = max(stand, key=lambda number: candidates[number][0].mean())
    good = [
        [as_good(candidates[number][part], candidates[best][part], SHORTER_ERRORS) for part in (0, 1)]
        for number in stand
    ]
    if any(None in pair for pair in good):
        return
    short = [number for number, pair in zip(stand, good, strict=True) if all(pair)]
    assert chosen in short
    fewest = min(nodes[number] for number in short)
    assert nodes[chosen] == fewest
    assert candidates[chosen][0].mean() == max(
        candidates[number][0].mean() for number in short if nodes[number] == fewest
    )


def test_guarded_prefers_the_shorter_only_where_the_difference_may_be_chance():
    """A lead beyond half a standard error over the shorter function is believed, in either part."""
    long = np.array([0.9, 0.8, 0.9, 0.8])
    level = np.array([0.95, 0.74, 0.95, 0.74])  # behind by 0.005, with a standard error of 0.032
    behind = np.array([0.88, 0.77, 0.88, 0.77])
    named = [np.full(4, 0.5)]
    assert guarded([(long, long), (level, level)], named, [9, 3]) == 1
    assert guarded([(long, long), (behind, long)], named, [9, 3]) == 0
    assert guarded([(long, long), (long - 1e-9, behind)], named, [9, 3]) == 0


def test_a_named_function_without_values_is_no_reference():
    """A reference of NaN, as a fitness of one's own may give, does not veto anything."""
    candidate = (np.array([0.5, 0.6]), np.array([0.4, 0.5]))
    assert guarded([candidate], [np.array([np.nan, np.nan]), np.array([0.1, 0.1])], [1]) == 0


@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf])
def test_a_candidate_without_values_is_not_chosen(missing):
    """Neither where a draw of the training part has none, nor where validation has none."""
    good, none = np.array([0.5, 0.6]), np.array([0.5, missing])
    assert guarded([(none, good), (good, good)], [good], [1, 9]) == 1
    assert guarded([(none, good), (none, good)], [good], [9, 1]) == 0
    if np.isnan(missing):
        assert guarded([(good, none), (good, good)], [good], [1, 9]) == 1
        assert guarded([(good, none), (good, good - 0.4)], [good], [1, 9]) == 1


def test_the_first_of_equals_is_chosen():
    """Candidates come best first, so that a tie goes to the one with the higher fitness."""
    same = (np.array([0.5]), np.array([0.5]))
    assert select([same, same], "sum") == 0
