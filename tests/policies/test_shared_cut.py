"""The k best of several shards: against a sort of all candidates, in few and small sketches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.policy import Chosen
from scrapy_gp4c.policies.shared_cut import (
    BEFORE_ALL,
    BEHIND_ALL,
    EVERYWHERE,
    POINT,
    WHOLE,
    Ordered,
    Place,
    Range,
    Sketch,
    at_first,
    narrowed,
)
from scrapy_gp4c.policies.steps import Shard, divided
from tests.support.shards import together

Candidates = tuple[npt.NDArray[np.float64], npt.NDArray[np.uint64]]
MOST_BYTES = 1 + 32 + 16 * WHOLE


def in_order(scores: npt.NDArray[np.float64], draws: npt.NDArray[np.uint64]) -> Candidates:
    """A shard's candidates, best first."""
    order = np.lexsort((draws, -scores))
    return scores[order], draws[order]


class Taken(NamedTuple):
    """What shards have come to."""

    counts: list[int]
    """How many each has of the best."""
    last: tuple[float, int] | None
    """Score and draw of the last."""
    chosen: int
    sketches: int
    """That each has told."""
    ranked: list[list[int]]
    """How many candidates each was asked to rank, and ranked again."""


def taken(shards: list[Candidates], wanted: int, shares: Sequence[float] | None = None) -> Taken:
    """Divide them as a cycle does, all parts and answers as bytes."""
    ranked: list[list[int]] = [[] for _ in shards]
    sent: list[int] = []

    def best(shard: int) -> Callable[[int], Chosen]:
        scores, draws = shards[shard]

        def first(most: int) -> Chosen:
            ranked[shard].append(most)
            pages = np.arange(min(most, len(scores)), dtype=np.uint32)
            return Chosen(pages, scores[:most], None, ties=draws[:most])

        return first

    steps = [
        divided(best(number), wanted, Shard(number, len(shards)), None if shares is None else shares[number])
        for number in range(len(shards))
    ]
    found = together(steps, sent)
    assert max(sent, default=0) <= MOST_BYTES
    cut = found[0].own.cut
    last = None if cut is None else (cut.score, cut.tie)
    return Taken([len(one.own.pages) for one in found], last, found[0].all, len(sent), ranked)


def expected(shards: list[Candidates], wanted: int) -> tuple[list[int], tuple[float, int] | None]:
    """The same, and score and draw of the last, by sorting all."""
    scores, draws = (np.concatenate([one[column] for one in shards]) for column in (0, 1))
    number = np.repeat(np.arange(len(shards)), [len(one[0]) for one in shards])
    order = np.lexsort((number, draws, -scores))[:wanted]
    last = (float(scores[order[-1]]), int(draws[order[-1]])) if len(order) else None
    return np.bincount(number[order], minlength=len(shards)).tolist(), last


def check(shards: list[Candidates], wanted: int, shares: Sequence[float] | None = None) -> int:
    """Compare both; returns the sketches of a shard that it took."""
    found = taken(shards, wanted, shares)
    assert (found.counts, found.last) == expected(shards, wanted)
    assert found.chosen == sum(found.counts) == min(wanted, sum(len(one[0]) for one in shards))
    assert all(after <= 2 * before for asked in found.ranked for before, after in pairwise(asked))
    return found.sketches


@st.composite
def some_shards(draw: st.DrawFn) -> list[Candidates]:
    """Up to 40 shards, some of them empty, with few or many different scores and draws."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
    draws = draw(st.sampled_from([1, 3, 2**64]))
    is_continuous = draw(st.booleans())
    shards = []
    for size in draw(st.lists(st.sampled_from([0, 0, 1, 2, 7, 130, 900]), min_size=1, max_size=40)):
        scores = rng.normal(size=size) if is_continuous else rng.choice(values, size)
        shards.append(in_order(scores, rng.integers(0, draws, size, np.uint64)))
    return shards


@given(some_shards(), st.floats(0, 1.1))
def test_any_candidates_are_divided_as_a_sort_of_all_does(shards: list[Candidates], share: float) -> None:
    """Ties in scores and in draws, within shards and among them; nobody, some, all of them wanted."""
    assert check(shards, int(share * sum(len(one[0]) for one in shards))) <= 3


@given(
    some_shards(),
    st.floats(0, 1.1),
    st.lists(st.sampled_from([0.0, 0.01, 0.5, 1.0]), min_size=40, max_size=40),
    st.sampled_from([2, 3, 200]),
)
def test_what_shards_are_expected_to_have_says_what_they_rank_not_what_they_get(
    shards: list[Candidates], share: float, shares: list[float], spare: int
) -> None:
    """Far too few at first, or all: those that turn out to have more rank again; the best are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrapy_gp4c.policies.shared_cut.SPARE", spare)
        assert check(shards, int(share * sum(len(one[0]) for one in shards)), shares) <= 4


@given(some_shards(), st.integers(0, 40))
def test_few_are_wanted_of_many(shards: list[Candidates], wanted: int) -> None:
    """The first ones of all too."""
    assert check(shards, wanted) <= 3


def web(pages: int, shards: int, tied: float, rng: np.random.Generator) -> list[Candidates]:
    """Candidates of a crawl, a share of which has one score, in shards of unequal size."""
    number = rng.choice(shards, pages, p=rng.dirichlet(np.full(shards, 2.0)))
    scores = np.where(rng.random(pages) < tied, 0.0, rng.exponential(size=pages))
    draws = rng.integers(0, 2**64, pages, np.uint64)
    order = np.lexsort((draws, -scores, number))
    bounds = np.searchsorted(number[order], np.arange(shards + 1))
    return [(scores[order[begin:end]], draws[order[begin:end]]) for begin, end in pairwise(bounds.tolist())]


@pytest.mark.parametrize("shards", [1, 2, 8, 64, 1024])
@pytest.mark.parametrize("tied", [0.0, 0.97])
def test_a_million_take_two_sketches_where_shares_are_known(shards: int, tied: float) -> None:
    """Whatever part of them is wanted, and where 97% of them have one score; else at most four."""
    candidates = web(1_000_000, shards, tied, np.random.default_rng(shards))
    for wanted in (1, 50_000, 500_000, 999_999):
        shares = [len(scores) / 1_000_000 for scores, _ in candidates]
        assert check(candidates, wanted, shares) <= (2 if shards < 1024 else 3)
        assert check(candidates, wanted) <= 4


@pytest.mark.parametrize("shards", [2, 8, 64])
def test_shards_of_a_hash_take_two_sketches(shards: int) -> None:
    """Each has about as many of the best as any other, which the first sketch expects."""
    rng = np.random.default_rng(shards)
    number = np.sort(rng.integers(0, shards, 1_000_000))
    scores, draws = rng.exponential(size=len(number)), rng.integers(0, 2**64, len(number), np.uint64)
    bounds = np.searchsorted(number, np.arange(shards + 1)).tolist()
    candidates = [in_order(scores[begin:end], draws[begin:end]) for begin, end in pairwise(bounds)]
    for wanted in (50_000, 400_000):
        assert check(candidates, wanted) <= 2
        most = min(wanted, at_first(wanted // shards))
        assert taken(candidates, wanted).ranked == [[most]] * shards


@pytest.mark.parametrize("shards", [1, 2, 8, 64])
def test_small_shards_take_one_sketch(shards: int) -> None:
    """Which tells all candidates that they have, whatever each has of the best."""
    rng = np.random.default_rng(shards)
    sizes = rng.integers(0, WHOLE + 1, shards)
    candidates = [in_order(rng.exponential(size=size), rng.integers(0, 9, size, np.uint64)) for size in sizes]
    for wanted in (1, sum(sizes) // 4, sum(sizes)):
        assert check(candidates, wanted) <= 1


def test_a_shard_with_most_of_the_pages_ranks_its_share_once() -> None:
    """It is expected to have as much of the best; were it what the others have, it would rank thrice."""
    rng = np.random.default_rng(3)
    sizes = [700_000, 200_000, 50_000, 50_000]
    candidates = [
        in_order(rng.exponential(size=size), rng.integers(0, 2**64, size, np.uint64)) for size in sizes
    ]
    shares = [size / sum(sizes) for size in sizes]
    assert check(candidates, 200_000, shares) <= 3
    assert [len(asked) for asked in taken(candidates, 200_000, shares).ranked] == [1, 1, 1, 1]
    assert [len(asked) for asked in taken(candidates, 200_000).ranked] == [3, 3, 1, 1]


def worst(pages: int, shards: int) -> list[Candidates]:
    """Shards of which each has what the others have not, one behind the other."""
    sizes = np.full(shards, pages // shards)
    begin = np.cumsum(sizes) - sizes
    return [
        (-np.arange(first, first + size, dtype=np.float64), np.zeros(size, np.uint64))
        for first, size in zip(begin.tolist(), sizes.tolist(), strict=True)
    ]


@pytest.mark.parametrize("shards", [1, 2, 3, 8, 1024])
def test_shards_that_have_nothing_in_common_take_four_sketches(shards: int) -> None:
    """Four million candidates, those of one shard all better than those of the next."""
    for wanted in (1, 1_234_567, 2_000_001):
        assert check(worst(4_000_000, shards), wanted) <= 4


def test_places_and_ranges_and_sketches_come_back_from_bytes() -> None:
    """Numbers at the ends of their ranges; other bytes are refused."""
    where = Range(Place(-1e308, 2**64 - 1, 1023, 2**40), BEHIND_ALL, True, 2**50)
    assert Range.unpacked(where.packed()) == where
    assert Range.unpacked(EVERYWHERE.packed()) == EVERYWHERE
    sketch = Sketch(5, 2**40, 2, 3, np.array([(2.5, 7), (-0.5, 2**64 - 1)], POINT))
    again = Sketch.unpacked(sketch.packed())
    assert again[:4] == sketch[:4]
    assert again.points.tolist() == sketch.points.tolist()
    assert sketch.packed() == bytes.fromhex(
        "050000000000000000000000000100000200000000000000030000000000000000000000000004400700000000000000"
        "000000000000e0bfffffffffffffffff"
    )
    for raw in (b"", where.packed()[:-1], where.packed() + b"x"):
        with pytest.raises(PolicyError, match="expected a range"):
            Range.unpacked(raw)
    for raw in (b"", sketch.packed()[:-1], sketch.packed() + b"x"):
        with pytest.raises(PolicyError, match="expected a sketch"):
            Sketch.unpacked(raw)


def test_shards_that_want_different_numbers_are_refused() -> None:
    """The error names both."""
    empty = np.empty(0, POINT)
    with pytest.raises(PolicyError, match="0: 5, 1: 6"):
        narrowed([Sketch(5, 0, 0, 2, empty), Sketch(6, 0, 0, 3, empty)])


def test_a_sketch_of_too_few_points_is_refused() -> None:
    """Where its points are follows from how many candidates there are."""
    with pytest.raises(PolicyError, match="expected 3 points in the sketch of shard 0; found 0"):
        narrowed([Sketch(2, 0, 3, 2, np.empty(0, POINT))])


def test_nobody_is_before_all_and_all_are_before_behind_all() -> None:
    """The ends of the order, which no candidate has."""
    ordered = Ordered(np.array([1e308, 0.0, -1e308]), np.zeros(3, np.uint64), 0, 3)
    assert ordered.rows_upto(BEFORE_ALL) == 0
    assert ordered.rows_upto(BEHIND_ALL) == 3
