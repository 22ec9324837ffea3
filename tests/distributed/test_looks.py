"""Looks for the parts of the others: as often as these come, and ever less often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.distributed.looks import BESIDE, HEARD, LONGEST_S, SOON, Pace, pause_s


@given(
    st.sampled_from([SOON, HEARD, BESIDE]),
    st.floats(0, 1e4),
    st.integers(0, 1024),
    st.integers(0, 1024),
    st.integers(0, 1024),
    st.integers(0, 1024),
)
def test_looks_follow_the_parts_that_come(
    pace: Pace, waited_s: float, arrived: int, missing: int, more: int, others: int
) -> None:
    """Ever less often; the sooner, the fewer are missing of those that came at that pace."""
    of = 1 + missing + more + others
    found_s = pause_s(pace, waited_s, arrived, missing, of)
    least_s = max(pace.shortest_s, pace.spread_s * missing / of - waited_s)
    assert pace.shortest_s <= found_s <= LONGEST_S
    assert found_s <= max(least_s, waited_s / 2)
    assert found_s >= min(LONGEST_S, waited_s * pace.least_waited)
    assert found_s <= pause_s(pace, waited_s, arrived, missing + more, of)
    assert found_s >= pause_s(pace, waited_s, arrived + more, missing, of)
    if arrived:
        last_s = waited_s * missing / arrived  # until then, at the pace so far
        most_s = max(least_s, waited_s * pace.least_waited, last_s / 2)
        assert found_s <= most_s * (1 + 1e-9)


@pytest.mark.parametrize(("pace", "looks"), [(SOON, 14), (HEARD, 1), (BESIDE, 4)])
def test_who_waits_for_a_second_looks_a_dozen_times(pace: Pace, looks: int) -> None:
    """While no part comes at all; fewer times while the others are crawling."""
    waited_s, found = 0.0, 0
    while waited_s < 1.0:
        waited_s += pause_s(pace, waited_s, 0, 7, 8)
        found += 1
    assert found == looks
