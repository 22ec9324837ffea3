"""Terminals: the O(1) state against the printed sums over the whole history."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring import (
    discovery,
    first_visits,
    hints,
    measured,
    refresh_value,
    sizes,
    terminals,
    weights,
)
from scrapy_gp4c.scoring.terminals import (
    BASIC,
    CLOCKS,
    NAMES,
    PAPERS,
    STATE,
    TERMINALS,
)
from tests.replaying.test_replay import terminal_values

OWN_PAST = tuple(name for name in NAMES if set(terminals.columns_of([name])) <= set(STATE))
"""Terminals of a page's own past; the others are told by the round."""


@st.composite
def visit_lists(draw):
    """Judged visits [(cycle, outcome)] of one page first fetched at some cycle, and a planning cycle."""
    first = draw(st.integers(0, 50))
    gaps = draw(st.lists(st.integers(1, 4), max_size=400))
    outcomes = draw(st.lists(st.booleans(), min_size=len(gaps), max_size=len(gaps)))
    cycles = [int(c) for c in first + np.cumsum([0, *gaps])[1:]]
    last = cycles[-1] if cycles else first
    visits = [(c, int(o)) for c, o in zip(cycles, outcomes, strict=True)]
    return first, visits, last + draw(st.integers(1, 30))


@given(visit_lists(), st.sampled_from(CLOCKS))
def test_state_equals_printed_sums(case, clock):
    """Terminals from O(1) state equal their sums over up to 400 visits, to 1e-12 (E is kept in 2**-24)."""
    first, visits, cycle = case
    state = terminals.new_state(1)
    for name in ("first_cycle", "last_cycle", "found_cycle"):
        state[name][:] = first
    for c, outcome in visits:
        terminals.observe(state, np.array([bool(outcome)]), c)
    expected = terminal_values(visits, first, cycle, clock)
    result = terminals.compute(OWN_PAST, state, cycle, clock)
    assert set(expected) == set(OWN_PAST)
    for name in OWN_PAST:
        units = 1e-6 if name in ("rate", "p") else 1e-12
        assert result[name][0] == pytest.approx(expected[name], rel=units, abs=units), name


def test_long_histories_neither_overflow_nor_vanish():
    """After 400 visits that all found a change every rate is 1; 2**(i - 1) would overflow."""
    state = terminals.new_state(1)
    for cycle in range(1, 2001):
        terminals.observe(state, np.array([True]), cycle)
    for clock in CLOCKS:
        values = terminals.compute(("nad_rate", "sad_rate", "aad_rate", "gad_rate"), state, 2001, clock)
        for name, value in values.items():
            assert value[0] == pytest.approx(1.0, abs=1e-12), (clock, name)


@given(visit_lists(), st.sampled_from(CLOCKS), st.sampled_from(OWN_PAST))
def test_columns_named_are_columns_needed(case, clock, name):
    """A terminal computed from just the columns it names, updated alone, is bit-equal to the full state's."""
    first, visits, cycle = case
    full = terminals.new_state(1)
    full["first_cycle"][:] = full["last_cycle"][:] = first
    # last_cycle always lives in the state: replay and store need it to know t.
    part = {c: full[c].copy() for c in (*terminals.columns_of([name], clock), "last_cycle")}
    for c, outcome in visits:
        terminals.observe(full, np.array([bool(outcome)]), c)
        terminals.observe(part, np.array([bool(outcome)]), c)
    one = terminals.compute([name], full, cycle, clock)[name]
    assert one.tobytes() == terminals.compute([name], part, cycle, clock)[name].tobytes()


def test_a_page_never_judged():
    """n = 0: every rate of the papers and cg is 0, the posterior is its prior, ages count from the fetch."""
    state = terminals.new_state(3)
    for clock in CLOCKS:
        values = terminals.compute(OWN_PAST, state, 5, clock)
        expected = {"t": 5, "found_t": 5, "rate": 0.1, "p": -np.expm1(-0.5)}
        for name, value in values.items():
            assert (value == expected.get(name, 0)).all(), name


def test_nad_of_the_cycle_clock_grows_with_t_times_x():
    """At one planning cycle 1 - exp(-t X / (c - 1)) never falls where t X rises."""
    cycle = 57
    pairs = [(x, last) for last in range(cycle) for x in range(last + 1)]
    state = terminals.new_state(len(pairs))
    state["X"][:] = [x for x, _ in pairs]
    state["last_cycle"][:] = [last for _, last in pairs]
    product = state["X"] * (cycle - state["last_cycle"])
    nad = terminals.compute(["nad"], state, cycle, "cycles")["nad"]
    order = np.argsort(product, kind="stable")
    assert (np.diff(nad[order]) >= -1e-15).all()
    exact = [Fraction(int(x), cycle - 1) * (cycle - int(last)) for x, last in pairs]
    assert nad == pytest.approx(-np.expm1([-float(rate) for rate in exact]), rel=1e-12)


def test_random_is_uniform_from_the_draw():
    """The draw is scaled into [0, 1]."""
    state = {"draw": np.array([0, 2**63, 2**64 - 1], np.uint64)}
    values = terminals.compute(["random"], state, 9)["random"]
    assert values.tolist() == [0.0, 0.5, 1.0]


def test_tables_are_complete():
    """Both clocks have the same terminals, made of known columns; the papers' sets are among them."""
    assert tuple(TERMINALS["visits"]) == tuple(TERMINALS["cycles"]) == NAMES
    assert set(BASIC) < set(PAPERS) < set(NAMES)
    for clock in CLOCKS:
        for terminal in TERMINALS[clock].values():
            known = {*STATE, *discovery.COLUMNS, *hints.COLUMNS, *weights.COLUMNS, *refresh_value.COLUMNS}
            known |= {*sizes.COLUMNS, *measured.COLUMNS, *measured.LINKED}
            assert set(terminal.columns) <= known | {*terminals.ROUND, *first_visits.TERMINALS}
            assert terminal.meaning
    assert terminals.columns_of(["nad", "t", "nad"]) == ("n", "X", "last_cycle")
