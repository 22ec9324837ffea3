"""Prepared histories: the cache and its keys."""

import gc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring import hints, terminals
from scrapy_gp4c.scoring.expression import parse
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


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_terminals_of_listed_states_are_finite(seed, cycles):
    """No state makes a terminal that is not finite: expressions are evaluated without a look at that."""
    truth = prepare(generate("poisson", 30, cycles + 2, seed % 1000), budget=0.1)
    listed = states.states_of(truth, states.WITH_G, "visits")
    assert listed is not None
    for name in DETERMINATE:
        listed.scores(parse(f"{name} + 0"))
        assert np.isfinite(listed.known[name]).all(), name
