"""Ranking: the k best of an array or of a stream of blocks, against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import ranking
from scrapy_gp4c.scoring.ranking import (
    FEW_ROWS,
    PART_ROWS,
    Best,
    best_k,
    cut_of_sample,
    in_order,
    likely_cut,
    places_in_order,
    spread_rows,
    top_k,
)

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
    actual = best.result(k)
    expected = sorted(everything)[:k]
    assert actual.pages.tolist() == [page for _, _, page in expected]
    assert actual.scores.tolist() == [-score for score, _, _ in expected]
    assert actual.ties.tolist() == [tie for _, tie, _ in expected]


@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("values", [20, 10**9])
def test_sample_tells_where_the_best_begin(rising: bool, values: int) -> None:
    """A stream of many pages is cut by a sample of them, a little below the k-th best, in any order."""
    scores = np.random.default_rng(1).integers(0, values, 200_000).astype(float)
    if rising:  # every block is better than those before, so that any cut is below what comes next
        scores.sort()
    ties = np.arange(len(scores), dtype=np.uint64)[::-1]
    k, best = 25_000, Best(25_000, SLACK_ROWS)
    for start in range(0, len(scores), 1_000):
        rows = slice(start, start + 1_000)
        best.add(scores[rows], ties[rows].__getitem__, np.arange(200_000, dtype=np.uint32)[rows])
        assert best._rows <= 2 * k + 4 * SLACK_ROWS
    assert best.result(k).pages.tolist() == top_k(scores, ties, k).tolist()
    cut = likely_cut([scores], k)
    assert cut is not None
    assert k <= np.count_nonzero(scores >= cut) < 1.5 * k
    assert likely_cut([scores[:30_000]], k) is None  # too few to draw a sample of


@settings(deadline=None)
@given(st.integers(499_712, 2**32))
def test_spread_sample_is_from_everywhere(rows: int) -> None:
    """8,192 different rows, ascending, some of every fortieth part, and none that there is not."""
    sample = spread_rows(rows)
    assert len(sample) == 8_192
    assert (np.diff(sample) > 0).all()
    assert 0 <= sample[0] <= sample[-1] < rows
    assert np.bincount(sample * 40 // rows, minlength=40).min() > 100


@given(st.integers(0, 2_000), st.integers(1, 1_000))
def test_stream_with_a_cut_has_all_that_score_as_much(seed: int, likely: int) -> None:
    """From the score on that a sample tells, the best come as without, and nothing that scores less."""
    scores = np.random.default_rng(seed).integers(0, 50, 1_000).astype(float)
    cut = cut_of_sample(scores.copy(), likely)
    best = Best(1_000, SLACK_ROWS, cut)
    best.add(scores, np.arange(1_000, dtype=np.uint64).__getitem__, np.arange(1_000, dtype=np.uint32))
    wanted = len(scores) if cut is None else np.count_nonzero(scores >= cut)
    assert wanted > min(likely, 999)
    assert best.result(1_000).pages.tolist() == top_k(scores, np.arange(1_000), wanted).tolist()


def test_misleading_sample_costs_nothing_but_time() -> None:
    """Where every 15th page is better than all others, or all are equal, the k best are found as ever."""
    scores = np.zeros(80_000)
    scores[::15] = 1.0  # what a sample of 64,000 looks at
    for values in (scores, np.zeros(80_000)):
        ties = np.random.default_rng(1).permutation(80_000).astype(np.uint64)
        best = Best(30_000, SLACK_ROWS)
        for start in range(0, 80_000, 8_000):
            rows = slice(start, start + 8_000)
            best.add(values[rows], ties[rows].__getitem__, np.arange(80_000, dtype=np.uint32)[rows])
        assert best.result(30_000).pages.tolist() == top_k(values, ties, 30_000).tolist()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.5, -1.5, 5e-324, -5e-324, 1.7e308, -1.7e308]), min_size=1),
    st.sampled_from([1, 2**32, 2**33, 2**64]),
    st.sampled_from([FEW_ROWS // 2, FEW_ROWS, PART_ROWS]),
    st.integers(0, 2**32),
)
def test_order_by_counting_is_a_plain_sort(
    values: list[float], ties_below: int, part_rows: int, seed: int
) -> None:
    """Of many rows, in one part or some, whichever halves of ties are equal, whatever signs scores have."""
    rng = np.random.default_rng(seed)
    scores = rng.choice(np.array(values), 4 * FEW_ROWS)
    scores[: seed % len(scores)] *= rng.random(seed % len(scores))
    some = np.append(rng.integers(0, ties_below, 50, np.uint64), np.uint64(0))
    ties = rng.choice(some, len(scores))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "PART_ROWS", part_rows)
        assert in_order(scores, ties).tolist() == np.lexsort((ties, -scores)).tolist()


def test_a_long_plan_is_ordered_in_parts() -> None:
    """As a plain sort, with scores that are all different, a few, and one for nearly all."""
    rng = np.random.default_rng(1)
    rows = 3 * PART_ROWS
    for scores in (
        rng.random(rows),
        rng.integers(-5, 5, rows).astype(float),
        (rng.random(rows) < 1e-4) * 1.0,
    ):
        ties = rng.integers(0, 2**40, rows, np.uint64)
        assert (in_order(scores, ties) == np.lexsort((ties, -scores))).all()


FAR = 2**63
NUMBERS = st.lists(
    st.one_of(
        st.integers(0, 2**64 - 1),
        st.integers(0, 3),
        st.just(5 << 40),
        st.integers(FAR, FAR + 100),  # which differ in bits that have no room where others are 0
    ),
    max_size=40,
)


@given(st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]), NUMBERS)
def test_numbers_ascend_and_equal_ones_stay(dtype: type, numbers: list[int]) -> None:
    """Of any width, whichever bits differ."""
    values = np.array([number % 2 ** (8 * np.dtype(dtype).itemsize) for number in numbers], dtype)
    before = values.copy()
    assert places_in_order(values).tolist() == np.argsort(values, kind="stable").tolist()
    assert (values == before).all()


@given(st.integers(2, 5_000), st.integers(1, 70), st.integers(0, 2**32))
def test_numbers_that_differ_in_few_bits_are_in_order(count: int, values: int, seed: int) -> None:
    """Whether those bits find room beside a place or not."""
    generator = np.random.default_rng(seed)
    numbers = np.append(generator.integers(FAR, FAR + values, count, np.uint64), np.uint64(0))
    assert places_in_order(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
