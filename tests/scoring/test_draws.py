"""Draws: one random number per page and cycle."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.ranking import draw_salt, draws, salted_draws


def test_draws_are_uniform_distinct_and_repeatable():
    """Draws of a cycle are distinct, spread evenly, unlike those of other cycles and seeds."""
    keys = np.arange(100_000, dtype=np.uint64)
    one = draws(keys, 5, 3)
    assert one.tobytes() == draws(keys[::-1].copy(), 5, 3)[::-1].tobytes()
    assert one.tobytes() == salted_draws(keys, draw_salt(5, 3)).tobytes()
    assert len(np.unique(one)) == len(keys)
    counts = np.bincount((one >> np.uint64(60)).astype(int), minlength=16)
    # Binomial with p = 1/16: standard deviation 77; 5 of them.
    assert abs(counts - len(keys) / 16).max() < 5 * 77
    for other in (draws(keys, 5, 4), draws(keys, 6, 3)):
        assert abs(np.corrcoef(one.astype(float), other.astype(float))[0, 1]) < 5 / np.sqrt(len(keys))


@given(st.integers(0, 2**70), st.integers(0, 10**6))
def test_any_seed_and_cycle(seed, cycle):
    """Seeds of any size can be used."""
    assert draws(np.zeros(1, np.uint64), seed, cycle).dtype == np.uint64
