"""Segments: what goes in comes out, bit by bit, small, and nothing else is taken for one."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.distributed.segments import MOST_BYTES, SHORT, Segment, deflated, pack, read, segment, unpack
from scrapy_gp4c.page_state.outcomes import VISIT
from tests.support.ledgers import visits_of


@given(hnp.arrays(VISIT, st.integers(0, 200)), st.binary(max_size=500))
def test_what_is_packed_is_unpacked(visits: npt.NDArray[Any], rest: bytes) -> None:
    """Any bits, NaN among them; the same bytes for the same, which is what a repetition is known by."""
    body = pack(visits, rest)
    found, found_rest = unpack(body)
    assert found.tobytes() == visits.tobytes()
    assert found.dtype == VISIT
    assert found_rest == rest
    assert pack(visits.copy(), rest) == body


@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_segment(body: bytes) -> None:
    """Nor do they let it fail otherwise."""
    with pytest.raises(ValueError, match="expected"):
        unpack(body)


@given(st.data())
def test_a_foreign_change_is_never_taken_for_the_segment(data: st.DataObject) -> None:
    """Any byte changed, any end lost: an error that names the segment."""
    whole = segment(7, 3, visits_of(10), b"rest")
    if data.draw(st.booleans()):
        body = whole.body[: data.draw(st.integers(0, len(whole.body) - 1))]
    else:
        position = data.draw(st.integers(0, len(whole.body) - 1))
        changed = bytes([whole.body[position] ^ data.draw(st.integers(1, 255))])
        body = whole.body[:position] + changed + whole.body[position + 1 :]
    with pytest.raises(LedgerDamagedError, match="segment 3 of shard 7, cycle 5, is damaged"):
        read(whole._replace(body=body), whole.sha256, 5)


def test_what_claims_too_much_is_not_unpacked() -> None:
    """A small segment that would fill the memory."""
    bomb = bytearray(pack(visits_of(1), bytes(1000)))
    bomb[13:17] = (MOST_BYTES + 1).to_bytes(4, "little")
    with pytest.raises(ValueError, match=f"expected at most {MOST_BYTES} bytes"):
        unpack(bytes(bomb))


def test_other_arrays_are_refused() -> None:
    """By who appends them, not by who rebuilds."""
    with pytest.raises(ValueError, match="expected visits of dtype VISIT"):
        pack(np.zeros(3))


def test_a_full_segment_takes_at_most_40_bytes_a_visit() -> None:
    """100 visits, none of whose fingerprints, sizes and times repeat, with its row's other columns."""
    one = segment(0, 0, visits_of(100))
    row = len(one.sha256) + 2 + 4 + 4 + 8 + 4 + 24  # columns, and the header of PostgreSQL's row
    assert (len(one.body) + row) / one.visits <= 40
    assert isinstance(one, Segment)


@given(st.integers(0, 2 * SHORT), st.binary(min_size=1, max_size=64))
def test_what_is_deflated_with_small_tables_is_inflated_by_any(size: int, pattern: bytes) -> None:
    """Of any length about that from which on the usual tables are taken; nothing gets much longer by it."""
    data = (pattern * (size // len(pattern) + 1))[:size]
    assert zlib.decompress(deflated(data)) == data
    assert len(deflated(data)) <= len(zlib.compress(data)) + len(data) // 50 + 8
