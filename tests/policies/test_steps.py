"""What shards ask each other, and what follows from their parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.policy import NOBODY, Chosen, Cut
from scrapy_gp4c.policies.shared_cut import EVERYWHERE, POINT, Range, Sketch
from scrapy_gp4c.policies.steps import (
    ONLY,
    Shard,
    Steps,
    Sums,
    alone,
    combined,
    divided,
    packed,
    summed,
    unpacked,
)
from tests.support.shards import together

COUNT = st.integers(-(2**40), 2**40)


@given(st.integers(0, 5).flatmap(lambda n: st.lists(st.lists(COUNT, min_size=n, max_size=n), min_size=1)))
def test_sums_are_exact_in_any_order(shards: list[list[int]]) -> None:
    """Every shard is sent the sums over all, whichever comes first."""
    expected = tuple(map(sum, zip(*shards, strict=True)))
    assert together([summed(*one) for one in shards]) == [expected] * len(shards)
    assert combined([Sums(tuple(one)) for one in reversed(shards)]) == Sums(expected)


def candidates(scores: list[float], draws: list[int]) -> Chosen:
    """What a shard's policy chose."""
    pages = np.arange(len(scores), dtype=np.uint32)
    return Chosen(pages, np.array(scores), None, ties=np.array(draws, np.uint64))


def test_shards_are_told_what_they_have_of_the_best_and_the_cut_of_all() -> None:
    """Of six pages the four best, of which one shard has three and one none."""
    shards = [candidates([3.0, 1.0], [5, 2]), candidates([3.0, 3.0, 1.0], [1, 9, 3]), candidates([0.5], [0])]
    found = together([divided(own.first, 4, Shard(number, 3)) for number, own in enumerate(shards)])
    assert [one.own.pages.tolist() for one in found] == [[0, 1], [0, 1], []]
    assert [(one.own.cut, one.all) for one in found] == [(Cut(1.0, 2), 4)] * 3
    assert all(one.own.ties is not None and len(one.own.ties) == len(one.own.pages) for one in found[:2])


def test_nobody_has_no_cut() -> None:
    """Where no shard has candidates, or none are wanted."""
    assert alone(divided(NOBODY.first, 5, ONLY)).own.cut is None
    nobody = alone(divided(candidates([1.0], [1]).first, 0, ONLY))
    assert (len(nobody.own.pages), nobody.own.cut, nobody.all) == (0, None, 0)


def test_one_process_is_its_own_answer() -> None:
    """It goes through the same steps, to the end."""

    def steps() -> Steps[tuple[int, ...]]:
        first = yield from summed(1, 2)
        return (yield from summed(*first, 3))

    assert alone(steps()) == (1, 2, 3)


def test_parts_of_different_steps_are_refused() -> None:
    """The error says what was found."""
    sketch = Sketch(1, 0, 0, 1, np.empty(0, POINT))
    for parts in ([], [Sums((1,)), sketch], [Sums((1,)), Sums((1, 2))]):
        with pytest.raises(PolicyError, match="expected parts of one step, from all shards; found"):
            combined(parts)


def test_an_answer_to_another_question_is_refused() -> None:
    """Sums are no range, and a range is no sums."""
    for steps, answer in ((summed(1), EVERYWHERE), (divided(NOBODY.first, 1, ONLY), Sums((1,)))):
        next(steps)  # type: ignore[call-overload] # of either kind of steps
        with pytest.raises(PolicyError, match="as answer"):
            steps.send(answer)  # type: ignore[attr-defined] # likewise


def test_parts_and_answers_come_back_from_bytes() -> None:
    """Of all kinds; other bytes are refused."""
    for told in (Sums(()), Sums((-1, 2**62)), EVERYWHERE, Range(*EVERYWHERE[:2], True, 7)):
        assert unpacked(packed(told)) == told
    sketch = unpacked(packed(Sketch(3, 4, 1, 2, np.zeros(1, POINT))))
    assert isinstance(sketch, Sketch)
    assert sketch[:4] == (3, 4, 1, 2)
    for raw in (b"", b"x", b"s1", b"r", b"k" + b"\0" * 25):
        with pytest.raises(PolicyError, match="expected"):
            unpacked(raw)
