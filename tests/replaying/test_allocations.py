"""Optimal visits per cycle: they spend the budget, meet the first-order condition, and nothing beats them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.replaying.allocations import (
    HARMONIC,
    POISSON_FRESHNESS,
    REGULAR_FRESHNESS,
    Floats,
    Objective,
    allocate,
)


def poisson_freshness(rate: float, visits: float) -> float:
    """Share of time in which a copy is current, visits being a Poisson process (Azar et al. 2018)."""
    return visits / (visits + rate)


def harmonic_staleness(rate: float, visits: float) -> float:
    """Mean harmonic penalty, visits being a Poisson process, negative (Kolobov et al. 2019)."""
    return -math.log((visits + rate) / visits)


def regular_freshness(rate: float, visits: float) -> float:
    """Share of time in which a copy is current, visits being regular (Cho & Garcia-Molina 2003)."""
    return visits / rate * (1 - math.exp(-rate / visits))


VALUES: dict[str, tuple[Objective, Callable[[float, float], float]]] = {
    "azar": (POISSON_FRESHNESS, poisson_freshness),
    "lambda-crawl": (HARMONIC, harmonic_staleness),
    "cho-garcia-molina": (REGULAR_FRESHNESS, regular_freshness),
}
objectives = st.sampled_from(list(VALUES))
change_rates = st.lists(st.floats(0.0003, 3.0), min_size=2, max_size=40).map(np.array)
shares = st.floats(0.005, 0.995)


@given(objectives, change_rates, shares)
@settings(deadline=None)
def test_visits_add_up_to_the_budget(name: str, rates: Floats, share: float) -> None:
    """And no page is visited less than never or more than once a cycle."""
    visits = allocate(VALUES[name][0], rates, share * len(rates))
    assert visits.sum() == pytest.approx(share * len(rates), rel=1e-8)
    assert ((visits >= 0) & (visits <= 1)).all()


@given(objectives, change_rates, shares)
@settings(deadline=None)
def test_the_first_order_condition_holds(name: str, rates: Floats, share: float) -> None:
    """All pages between the bounds gain the same; those never visited would gain less, those always, more."""
    objective = VALUES[name][0]
    visits = allocate(objective, rates, share * len(rates))
    between = (visits > 0) & (visits < 1)
    always, never = visits == 1, visits == 0
    prices = objective.gain(rates[between], visits[between])
    least = prices.min() if len(prices) else objective.gain(rates[always], visits[always]).min()
    most = prices.max() if len(prices) else least
    assert most <= least * (1 + 1e-6)
    assert (objective.gain(rates[always], visits[always]) >= most * (1 - 1e-6)).all()
    assert (objective.gain(rates[never], np.full(never.sum(), 1e-9)) <= least * (1 + 1e-6)).all()


@given(objectives, st.floats(0.001, 3.0), st.floats(0.02, 1.0))
def test_the_gain_is_the_derivative_of_the_objective(name: str, rate: float, visits: float) -> None:
    """By a central difference."""
    objective, value = VALUES[name]
    step = 1e-5 * visits
    slope = (value(rate, visits + step) - value(rate, visits - step)) / (2 * step)
    assert objective.gain(np.array([rate]), np.array([visits]))[0] == pytest.approx(slope, rel=1e-4, abs=1e-6)


@given(objectives, change_rates, shares, st.data())
@settings(deadline=None)
def test_no_other_way_to_spend_the_budget_is_better(
    name: str, rates: Floats, share: float, data: st.DataObject
) -> None:
    """Moving some visits from one page to another, within the bounds, gains nothing."""
    objective, value = VALUES[name]
    visits = np.maximum(allocate(objective, rates, share * len(rates)), 1e-12)
    giver, taker = (data.draw(st.integers(0, len(rates) - 1)) for _ in range(2))
    moved = data.draw(st.floats(0.0, 0.9)) * min(visits[giver], 1.0 - visits[taker])
    before = value(rates[giver], visits[giver]) + value(rates[taker], visits[taker])
    after = value(rates[giver], visits[giver] - moved) + value(rates[taker], visits[taker] + moved)
    assert giver == taker or after <= before + 1e-9


def test_pages_that_change_too_often_are_not_visited_for_freshness() -> None:
    """What Cho & Garcia-Molina found: the copy is outdated again at once, so the visit goes elsewhere."""
    visits = allocate(REGULAR_FRESHNESS, np.array([0.01, 0.1, 50.0]), 0.2)
    assert visits[2] == 0
    assert 0 < visits[0] < visits[1]


@given(objectives, change_rates)
def test_a_budget_for_all_visits_all(name: str, rates: Floats) -> None:
    """In every cycle."""
    assert allocate(VALUES[name][0], rates, len(rates)).tolist() == [1.0] * len(rates)
