"""Ranking: the k best of an array or of a stream of blocks, against a plain sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring.ranking import Best, best_k, top_k

SLACK_ROWS = 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 1e300]), max_size=60),
    st.integers(0, 70),
    st.integers(0, 2**32),
)
def test_top_k_is_a_plain_sort(scores, k, seed):
    """By score descending, ties ascending, position ascending, as Python's sort does it."""
    ties = np.random.default_rng(seed).integers(0, 5, len(scores))
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], ties[i], i))[:k]
    values = np.array(scores, dtype=float)
    assert top_k(values, ties, k).tolist() == expected
    assert best_k(values, ties, k).tolist() == sorted(expected)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=30), max_size=8),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 3),
)
def test_stream_of_blocks_selects_what_a_plain_sort_does(
    blocks: list[list[int]], k_bound: int, k: int, tie_values: int
) -> None:
    """In bounded memory, with as many ties as there can be, in scores and even in the draws."""
    k = min(k, k_bound)
    best = Best(k_bound, SLACK_ROWS)
    everything = []
    page = 0
    for block in blocks:
        scores = np.array(block, float)
        ties = np.array([(page + i) * 7 % tie_values for i in range(len(block))], np.uint64)
        pages = np.arange(page, page + len(block), dtype=np.uint32)
        everything += list(zip((-scores).tolist(), ties.tolist(), pages.tolist(), strict=True))
        best.add(scores, ties.__getitem__, pages)
        assert best._rows <= 2 * k_bound + 4 * SLACK_ROWS + len(block)
        page += len(block)
    found = best.result(k)
    expected = sorted(everything)[:k]
    assert found.pages.tolist() == [page for _, _, page in expected]
    assert found.scores.tolist() == [-score for score, _, _ in expected]
    assert found.ties.tolist() == [tie for _, tie, _ in expected]
