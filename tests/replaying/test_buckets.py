"""Page states equal those of observing each page alone; buckets give the best pages of a full ranking."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.ranking import draw_salt, salted_draws, top_k
from training.replaying import evidence as module
from training.replaying.evidence import Buckets, PageStates

PAGES = 60


def _as_bits(values):
    return values.astype(np.float64).tobytes()


@given(seed=st.integers(0, 2**32), slack=st.sampled_from([0, 4096]))
@settings(max_examples=50, deadline=None)
def test_pages_have_what_observing_each_by_itself_gives(seed, slack):
    """Whatever is visited: all columns are those of pages that are observed one by one."""
    rng = np.random.default_rng(seed)
    expected = terminals.new_state(PAGES)
    with patch.object(module, "SLACK", slack):
        states = PageStates(terminals.new_state(1), np.zeros(PAGES, np.uint32))
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
        states = PageStates(state, np.zeros(4, np.uint32))
        states.observe(np.array([0, 1]), np.array([True, False]), 1)
        states.observe(np.array([0, 1]), np.array([False, True]), 2)
        assert states.number[0] == states.number[1]
        assert states.number[2] == states.number[3]
        for cycle in range(3, 30):
            states.observe(np.array([0, 1]), np.array([False, False]), cycle)
        assert states.states <= 6


SCORES = st.sampled_from([0.0, -0.0, 1.0, -1.0, -1.5, 2.0, 2.0 + 2**-40, 1e300, -1e300, 5e-324])


def _check_buckets(buckets, number, directory, is_out):
    """Every page in a bucket is in the one of its state and directory, and equal buckets are one."""
    bucket_of, count = buckets._memory.bucket_of, buckets._memory.count[: buckets.buckets]
    inside = np.flatnonzero(~is_out)
    assert buckets.state[bucket_of[inside]].tolist() == number[inside].tolist()
    assert buckets.directory[bucket_of[inside]].tolist() == directory[inside].tolist()
    assert count.tolist() == np.bincount(bucket_of[inside], minlength=len(count)).tolist()
    filled = np.flatnonzero(count)
    assert len({*zip(buckets.state[filled], buckets.directory[filled], strict=True)}) == len(filled)


@given(
    seed=st.integers(0, 2**32),
    directories=st.sampled_from([1, 6, 40]),
    scores=st.lists(SCORES, min_size=8, max_size=8),
    by_draw=st.booleans(),
    k=st.integers(1, 25),
)
@settings(max_examples=80, deadline=None)
def test_the_best_are_those_of_a_ranking_of_all_pages(seed, directories, scores, by_draw, k):
    """Round for round, whether `best` chose the visits or not; memory that is full is filled anew."""
    rng = np.random.default_rng(seed)
    number, directory = (
        rng.integers(0, 3, PAGES).astype(np.int32),
        rng.integers(0, directories, PAGES),
    )
    pages, buckets = np.arange(PAGES, dtype=np.uint64), Buckets(PAGES)
    buckets.gather(number, directory)
    first_buckets, anew, states = buckets.copy(), 0, 3
    buckets.gather(number[::-1].copy(), directory)
    buckets.restore(first_buckets)
    for cycle in range(8):
        salt = draw_salt(1, cycle)
        ties = salted_draws(pages, salt) if by_draw else pages
        is_out, visits = np.zeros(PAGES, np.bool_), []
        for turn in range(3):
            _check_buckets(buckets, number, directory, is_out)
            if turn == 1:
                chosen = rng.permutation(np.flatnonzero(~is_out))[:5].astype(np.uint32)
            else:
                of_pages = np.array(scores)[(number + directory) % 8]
                of_pages[is_out] = -np.inf
                bucket_scores = np.array(scores)[(buckets.state + buckets.directory) % 8]
                wanted = min(k, PAGES - np.count_nonzero(is_out))
                if not wanted:
                    continue
                chosen, page_scores, tie = buckets.best(bucket_scores, wanted, salt, by_draw)
                assert chosen.tolist() == top_k(of_pages, ties, wanted).tolist()
                assert page_scores.tobytes() == of_pages[chosen].tobytes()
                assert tie == ties[chosen[-1]]
            assert buckets.visit(chosen, turn != 1).tolist() == directory[chosen].tolist()
            is_out[chosen] = True
            visits.append(chosen)
        visited = np.concatenate(visits).astype(np.int64)
        assert buckets.departed_states.tolist() == number[visited].tolist()
        # Of the states before every other is dropped: those that are left get other numbers.
        kept = np.unique(np.append(number[~is_out], 0))
        target = np.zeros(states, np.intp)
        target[kept] = np.arange(len(kept))
        moved = len(kept) + rng.integers(0, 2, len(visited))
        number = target[number].astype(np.int32)
        number[visited], states = moved, len(kept) + 2
        if not buckets.observe(visited, moved, target):
            buckets.gather(number, directory)
            anew += 1
        buckets.begin()
    assert anew or k < 4
