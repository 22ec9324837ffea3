"""Ranking: the k best of an array or of a stream of blocks, against a plain sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.ranking import (
    FEW_ROWS,
    Best,
    best_k,
    draw_salt,
    draws,
    in_order,
    places_in_order,
    salted_draws,
    top_k,
)

SLACK_ROWS = 2


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


@pytest.mark.parametrize("values", [20, 10**9])
def test_a_stream_that_rises_takes_little_memory(values: int) -> None:
    """Every block is better than those before, so that any cut is below what comes next."""
    scores = np.sort(np.random.default_rng(1).integers(0, values, 200_000).astype(float))
    ties = np.arange(len(scores), dtype=np.uint64)[::-1]
    k, best = 25_000, Best(25_000, SLACK_ROWS)
    for start in range(0, len(scores), 1_000):
        rows = slice(start, start + 1_000)
        best.add(scores[rows], ties[rows].__getitem__, np.arange(200_000, dtype=np.uint32)[rows])
        assert best._rows <= 2 * k + 4 * SLACK_ROWS
    assert best.result(k).pages.tolist() == top_k(scores, ties, k).tolist()


@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.5, -1.5, 5e-324, -5e-324, 1.7e308, -1.7e308]), min_size=1),
    st.sampled_from([1, 2**32, 2**33, 2**64]),
    st.integers(0, 2**32),
)
def test_order_by_counting_is_a_plain_sort(values: list[float], ties_below: int, seed: int) -> None:
    """The best of many rows are the same whatever ties and signs the scores have."""
    rng = np.random.default_rng(seed)
    scores = rng.choice(np.array(values), 4 * FEW_ROWS)
    scores[: seed % len(scores)] *= rng.random(seed % len(scores))
    some = np.append(rng.integers(0, ties_below, 50, np.uint64), np.uint64(0))
    ties = rng.choice(some, len(scores))
    assert in_order(scores, ties).tolist() == np.lexsort((ties, -scores)).tolist()


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
