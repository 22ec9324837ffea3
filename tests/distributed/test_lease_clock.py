"""The worker's own judgement of its lease: never later than the server's."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.distributed.lease_clock import MARGIN, LeaseClock, steady_s


def test_nothing_may_be_sent_before_the_first_renewal() -> None:
    """A lease begins with an answer."""
    assert LeaseClock(30.0).left_s == 0


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20)), min_size=1, max_size=10))
def test_a_worker_stops_before_its_lease_ends(renewals: list[tuple[float, float]]) -> None:
    """Whatever a renewal took on its way: the server's lease, which began later, ends a margin later."""
    now = 100.0
    lease = LeaseClock(30.0, lambda: now)
    for pause, way in renewals:
        now += pause
        sent = lease.now()
        now += way
        lease.renewed(sent)
        assert lease.left_s <= max(0.0, sent + 30.0 * (1 - MARGIN) - now)
    now += 30.0 * (1 - MARGIN)
    assert lease.left_s == 0


def test_late_answers_do_not_shorten_a_lease() -> None:
    """An older renewal that is answered after a newer one changes nothing."""
    now = 0.0
    lease = LeaseClock(30.0, lambda: now)
    lease.renewed(5.0)
    lease.renewed(1.0)
    assert lease.left_s == pytest.approx(5.0 + 20.0)
    assert lease.renewed_s == -5.0


def test_the_clock_counts_suspension_and_is_never_set() -> None:
    """Linux's clock since boot is ahead of the one that stops with the machine, or equal."""
    assert steady_s() >= time.monotonic() - 1.0
    first = steady_s()
    assert steady_s() >= first
