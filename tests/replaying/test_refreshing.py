"""SBR and EBR: exact allocations, and cycles for them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from training.replaying.allocations import REGULAR_FRESHNESS, allocate
from training.replaying.refreshing import allocate_visits, change_rates, current_share, slots


@given(
    st.lists(st.floats(0.05, 4.0), min_size=1, max_size=3),
    st.lists(st.floats(0.1, 3.0), min_size=3, max_size=3),
    st.integers(1, 3),
)
def test_allocations_are_the_best_of_all(rates: list[float], weights: list[float], budget: int) -> None:
    """Against every way to give the visits, three cycles."""
    rates, weights = np.array(rates), np.array(weights[: len(rates)])

    def value(visits) -> float:
        return float(weights @ current_share(np.array(visits, float), rates * 3))

    found = allocate_visits(rates, weights, budget, 3)
    assert found.sum() <= budget * 3
    assert found.max() <= 3
    ways = (way for way in product(range(4), repeat=len(rates)) if sum(way) <= budget * 3)
    assert value(found) == pytest.approx(max(map(value, ways)), rel=1e-12)


def test_with_many_cycles_they_are_the_known_optimum() -> None:
    """Within 1% of the Lagrange solution; a page that changes all the time is left alone."""
    rates = np.array([0.05, 0.1, 0.4, 1.0, 50.0])
    found = allocate_visits(rates, np.ones(5), 1, 2_000) / 2_000
    wanted = allocate(REGULAR_FRESHNESS, rates, 1.0)
    objective = [current_share(x, rates).sum() for x in (found, wanted)]
    assert objective[0] == pytest.approx(objective[1], rel=0.01)
    assert found[-1] == 0.0


def test_rates_follow_the_updates_seen() -> None:
    """None at all: rate 0, no visits."""
    rates = change_rates(np.array([0, 10, 57]), 57)
    assert rates[0] == 0.0
    assert rates[1] == pytest.approx(-np.log(47.5 / 57.5))
    assert allocate_visits(rates[:1], np.ones(1), 1, 57).tolist() == [0]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 99))
def test_slots_shift_as_little_as_the_linear_program(counts: list[int], budget: int, seed: int) -> None:
    """Against the transportation problem of single visits (no page twice a cycle left aside)."""
    cycles = 5
    visits = np.array(counts)
    if visits.sum() > budget * cycles:
        budget = -(-int(visits.sum()) // cycles)
    phase = np.random.default_rng(seed).random(len(visits))
    rows = slots(visits, budget, cycles, phase)
    assert all(len(row) <= budget for row in rows)
    for row in rows:
        assert len(set(row.tolist())) == len(row)
    assert np.bincount(np.concatenate(rows), minlength=len(visits)).tolist() == counts
    wanted = [
        int(np.clip(np.ceil((j - phase[p]) * cycles / x), 1, cycles))
        for p, x in enumerate(counts)
        for j in range(1, x + 1)
    ]
    if not wanted:
        return
    cost = np.abs(np.array(wanted)[:, None] - np.arange(1, cycles + 1)).ravel()
    n = len(wanted)
    each = np.kron(np.eye(n), np.ones(cycles))
    in_cycle = np.kron(np.ones(n), np.eye(cycles))
    least = linprog(cost, A_ub=in_cycle, b_ub=np.full(cycles, budget), A_eq=each, b_eq=np.ones(n)).fun
    made = np.cumsum([len(row) for row in rows])
    shift = np.abs(made - np.cumsum(np.bincount(wanted, minlength=cycles + 1)[1:])).sum()
    assert shift == pytest.approx(least, abs=1e-6)
