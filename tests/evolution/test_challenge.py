"""Whether what evolved takes the place of the recommended function."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.named import DEFAULT, FOUR_ROUNDS, NAMED
from scrapy_gp4c.scoring.terminals import RELATED
from training.evolution.choices import Choices, arrange
from training.evolution.evolve import BestIndividual, Parameters
from training.evolution.named_start import recommended
from training.evolution.selection import ERRORS, FINALISTS, GROUPS, choose, jackknife, promotion_test
from training.evolution.simplification import canonical
from training.histories.history import ChangeHistory

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
    parts = arrange(history(), choices)[0]
    assert parts.apart is not None
    assert [len(part) for part in parts.apart] == [GROUPS, min(GROUPS, len(np.unique(history().site)) // 8)]
    poor = [BestIndividual(text, 0.1, 0.1, text, 1) for text in ("t", "n")]
    assert choose([poor], parts, choices.goal).text == recommended("ndcg")
    for other in (replace(choices, selection="best"), replace(choices, parameters=Parameters(("t", "X")))):
        assert arrange(history(), other)[0].apart is None


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
