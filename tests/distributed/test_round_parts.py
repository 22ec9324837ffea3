"""Parts of plans as they travel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.distributed.round_parts import (
    Begun,
    answer_of,
    begun_combined,
    deflated,
    inflated,
    part_packed,
    parts_combined,
)
from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.shared_cut import EVERYWHERE, Ordered
from scrapy_gp4c.policies.steps import Sums, combined, packed, unpacked


@given(part=st.binary(max_size=300))
def test_any_part_comes_back(part: bytes) -> None:
    """Of any length."""
    assert inflated(deflated(part)) == part


def test_other_bytes_are_refused() -> None:
    """They are no part of a plan."""
    with pytest.raises(PolicyError, match="expected a deflated part of a plan; found other bytes"):
        inflated(b"k" + bytes(40))


def test_a_sketch_takes_fewer_bytes() -> None:
    """Scores as crawls have them, with ties; and what it tells is the same."""
    rng = np.random.default_rng(1)
    scores = np.sort(np.round(rng.beta(0.3, 2.0, 60_000) * 40) / rng.integers(3, 41, 60_000))[::-1]
    draws = np.sort(rng.integers(0, 2**64, 60_000, np.uint64))
    raw = packed(Ordered(scores, draws, 0, len(scores)).sketch(EVERYWHERE, 500_000, 62_500))
    assert len(deflated(raw)) < 0.8 * len(raw)
    assert packed(unpacked(inflated(deflated(raw)))) == raw
    sums = packed(Sums((1, 2**40, -3)))
    assert inflated(deflated(sums)) == sums


@given(seen=st.integers(0, 2**64 - 1), values=st.lists(st.integers(-(2**40), 2**40), max_size=5))
def test_what_begins_a_round_comes_back(seen: int, values: list[int]) -> None:
    """With its part; of those of all shards follows what follows from the parts."""
    begun = Begun(seen, Sums(tuple(values)))
    assert Begun.unpacked(begun.packed()) == begun
    parts = [begun.part, Sums(tuple(range(len(values))))]
    of_all = [Begun(number, part).packed() for number, part in enumerate(parts)]
    assert answer_of(begun_combined(of_all)) == combined(parts)
    assert answer_of(parts_combined([part_packed(part) for part in parts])) == combined(parts)


def test_a_round_that_begins_with_other_bytes_is_refused() -> None:
    """Too few of them."""
    with pytest.raises(PolicyError, match="expected what a shard has seen in 8 bytes; found 7"):
        Begun.unpacked(bytes(7))
