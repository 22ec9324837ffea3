"""State columns of the pages of a replay: those of observing each page by itself."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import terminals
from training.histories.history import ChangeHistory
from training.replaying import page_states
from training.replaying.dense import replay_dense
from training.replaying.metrics import METRICS
from training.replaying.page_states import PageStates
from training.replaying.prepared import prepare
from training.replaying.replay import load

STATE_PAGES = 60


def _as_bits(values):
    return values.astype(np.float64).tobytes()


@given(seed=st.integers(0, 2**32), slack=st.sampled_from([0, 4096]))
def test_pages_have_what_observing_each_by_itself_gives(seed, slack):
    """Whatever is visited: all columns are those of pages that are observed one by one."""
    rng = np.random.default_rng(seed)
    expected = terminals.new_state(STATE_PAGES)
    with patch.object(page_states, "SLACK", slack):
        states = PageStates(terminals.new_state(1), np.zeros(STATE_PAGES, np.uint32))
        for cycle in range(1, 12):
            pages = rng.permutation(STATE_PAGES)[: rng.integers(0, STATE_PAGES)]
            changed = rng.random(len(pages)) < 0.4
            visited = {name: values[pages] for name, values in expected.items()}
            terminals.observe(visited, changed, cycle)
            for name, values in visited.items():
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
    with patch.object(page_states, "SLACK", 0):
        states = PageStates(state, np.zeros(4, np.uint32))
        states.observe(np.array([0, 1]), np.array([True, False]), 1)
        states.observe(np.array([0, 1]), np.array([False, True]), 2)
        assert states.number[0] == states.number[1]
        assert states.number[2] == states.number[3]
        for cycle in range(3, 30):
            states.observe(np.array([0, 1]), np.array([False, False]), cycle)
        assert states.states <= 6


TALLIES = {metric.tally for metric in METRICS.values() if metric.tally is not None}


@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=3)", "rounds(rounds=3, sample=0.3)"])
@pytest.mark.parametrize(
    "score",
    [
        "t * (X + 0.5) * near",
        "(t + spent) * X * size_lift",
        "p / near_dir - near_site",
        "random * surprise_dir",
    ],
)
def test_states_that_are_dropped_on_the_way_change_no_replay(score, policy):
    """All visits and all metrics are the same, however soon states without pages are dropped."""
    rng = np.random.default_rng(3)
    pages = 300
    names = [f"d{rng.integers(0, 9)}/{page}" for page in range(pages)]
    changed = rng.random((14, pages)) < rng.random(pages)
    site = rng.integers(0, 5, pages).astype(np.int32)
    history = ChangeHistory(changed, site, page_names=names, size=rng.integers(0, 9, pages))
    prepared = prepare(history, budget=0.2)
    replays = []
    for slack in (0, page_states.SLACK):
        visits = []
        with patch.object(page_states, "SLACK", slack):
            tallies = replay_dense(
                prepared,
                load(score),
                TALLIES,
                lambda cycle, pages, changed, to=visits: to.append((cycle, pages.tolist(), changed.tolist())),
                load_policy(policy),
            )
        replays.append((visits, {name: tallies[name].tolist() for name in TALLIES}))
    assert replays[0] == replays[1]
