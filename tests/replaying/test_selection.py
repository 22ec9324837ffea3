"""Selecting the k best of all pages of a replay."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring.ranking import top_k
from training.replaying import selection as module
from training.replaying.selection import Selection

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, -5e-324, 1e300, -1e300, 0.1, 0.1 + 1e-16]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@example([0.0, 0.0, 0.0, 0.0, -0.0], 2, 1, False)
@example([1.0, 2.0] * 60, 110, 1, True)
@given(st.lists(SCORES, min_size=1, max_size=80), st.integers(0, 80), st.integers(0, 2**32), st.booleans())
@settings(max_examples=300, deadline=None)
def test_it_selects_what_a_ranking_of_all_would(scores, k, seed, few_ties):
    """The same rows in the same order as `top_k`, whatever the scores, with equal ties and large ones."""
    values = np.array(scores)
    rng = np.random.default_rng(seed)
    ties = rng.integers(0, 3 if few_ties else 2**64 - 1, len(values), dtype=np.uint64)
    k = min(k, len(values))
    selection = Selection(len(values))
    for few in (0, len(values) - 1, 100):  # its memory is used again
        with patch.object(module, "FEW", few):
            found = selection.best(values, k, lambda rows: ties[rows])
        assert found.tolist() == top_k(values, ties, k).tolist()


def test_ties_are_asked_for_where_they_decide():
    """Of the pages that are chosen, and of those at the border: never of all."""
    scores = np.arange(3000.0)
    scores[2600:2650] = 2600.0
    asked = []

    def ties_of(rows):
        asked.append(np.sort(rows).tolist())
        return rows.astype(np.uint64)

    Selection(3000).best(scores, 375, ties_of)
    assert asked == [list(range(2600, 2650)), [*range(2600, 2625), *range(2650, 3000)]]
