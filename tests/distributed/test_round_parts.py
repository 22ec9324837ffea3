"""Parts of plans as they travel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.distributed.rounds import deflated, inflated
from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.shared_cut import EVERYWHERE, Ordered
from scrapy_gp4c.policies.steps import Sums, packed, unpacked


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
