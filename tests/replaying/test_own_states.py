"""The own states of the pages of a replay."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import terminals
from training.replaying import own_states as module
from training.replaying.own_states import OwnStates

PAGES = 30


def _as_bits(values):
    return values.astype(np.float64).tobytes()


@given(seed=st.integers(0, 2**32), slack=st.sampled_from([0, 4096]), is_hashed=st.booleans())
@settings(max_examples=50, deadline=None)
def test_pages_have_what_observing_each_by_itself_gives(seed, slack, is_hashed):
    """Whatever is visited: all columns are those of pages that are observed one by one."""
    rng = np.random.default_rng(seed)
    expected = terminals.new_state(PAGES)
    hashing = module.mix if is_hashed else np.zeros_like
    with patch.object(module, "SLACK", slack), patch.object(module, "mix", hashing):
        states = OwnStates(terminals.new_state(1), np.zeros(PAGES, np.uint32))
        for cycle in range(1, 12):
            pages = rng.permutation(PAGES)[: rng.integers(0, PAGES)]
            changed = rng.random(len(pages)) < 0.4
            own = {name: values[pages] for name, values in expected.items()}
            terminals.observe(own, changed, cycle)
            for name, values in own.items():
                expected[name][pages] = values
            states.observe(pages, changed, cycle)
            if cycle == 3:
                states["E"]  # kept for each page from now on
            for name, values in states.columns.items():
                assert _as_bits(values[states.number]) == _as_bits(expected[name])
            assert _as_bits(states["E"]) == _as_bits(expected["E"])
    assert _as_bits(states["X"]) == _as_bits(expected["X"])


def test_pages_in_equal_state_share_it():
    """Two ways to one state end in one; states without pages are dropped when they are many."""
    state = {name: values for name, values in terminals.new_state(1).items() if name in ("X", "last_cycle")}
    with patch.object(module, "SLACK", 0):
        states = OwnStates(state, np.zeros(4, np.uint32))
        states.observe(np.array([0, 1]), np.array([True, False]), 1)
        states.observe(np.array([0, 1]), np.array([False, True]), 2)
        assert states.number[0] == states.number[1]
        assert states.number[2] == states.number[3]
        for cycle in range(3, 30):
            states.observe(np.array([0, 1]), np.array([False, False]), cycle)
        assert states.states <= 6
