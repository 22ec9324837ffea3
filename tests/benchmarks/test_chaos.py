"""A short part of `make chaos`: nothing is lost, doubled, silent, hangs, or ends badly."""

import pytest

from benchmarks.chaos import HEADER, TROUBLE, Count, run

SHORT = {
    "kill -9 of crawls": 0.002,
    "whose clocks jump": 0.04,
    "disks that fail": 0.05,
    "kill -9 of backup": 0.02,
    "power cuts": 0.05,
    "disks without room": 0.03,
    "flipped bits": 0.02,
    "lost ends": 0.03,
    "four writers": 0.03,
    "cycles with": 0.03,
    "wrong bytes": 0.04,
    "diffs of": 0.05,
    "damaged archives": 0.05,
    "damaged search": 0.05,
    "signals to": 0.05,
    "torn queues": 0.05,
}
"""Trouble -> the share of its usual times."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_nothing_comes_of_some_trouble(name: str) -> None:
    """Each kind a few times, from a seed of its own."""
    result = run(SHORT[name], seed=2026, only=name)
    assert result
    for count in result.values():
        assert count[1:6] == (0, 0, 0, 0, 0), count


def test_the_table_has_a_column_for_each_count() -> None:
    """And there is trouble of every kind."""
    assert len(HEADER) == len(Count._fields) + 1
    assert len(TROUBLE) == 19
