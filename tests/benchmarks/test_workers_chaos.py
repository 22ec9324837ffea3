"""A short part of the benchmark: a crawl by workers loses and doubles nothing, and goes on."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from benchmarks.workers_chaos import KILLS, SHARES, faults_of, run
from scrapy_gp4c.page_state.outcomes import KINDS, VISIT
from tests.support.postgres import NEEDS_POSTGRES
from tests.support.troubled import compared_cycle


@NEEDS_POSTGRES
def test_nothing_comes_of_twelve_faults() -> None:
    """Of all kinds, a part of them behind PgBouncer where there is one."""
    result = run(12, seed=2026)
    assert result.found.wrong == []
    assert sum(result.times.values()) == 12
    assert result.found.compared["acknowledged visits"] > 50
    assert result.found.compared["planned pages"] > 10


def test_faults_are_drawn_by_their_shares() -> None:
    """100 of them, every phase as often as the others; the same for the same seed."""
    found = Counter(one.partition(" ")[0] for one in faults_of(100, random.Random(1)))
    assert found == {kind: round(100 * share) for kind, share in SHARES.items()}
    phases = Counter(one for one in faults_of(100, random.Random(1)) if one.startswith("kill "))
    assert set(phases.values()) == {50 // len(KILLS)}
    assert faults_of(100, random.Random(1)) == faults_of(100, random.Random(1))
    assert len(faults_of(12, random.Random(3))) == 12


class Visited:
    """A store of one cycle."""

    def __init__(self, visits: np.ndarray) -> None:
        self._visits = visits

    def visits(self, first: int, last: int) -> list[tuple[int, np.ndarray]]:
        """Its visits."""
        return [(first, self._visits)]


@pytest.mark.parametrize(
    ("pages", "expected"), [([0, 1, 2], 0), ([0, 1, 1], 1), ([0, 1], 1), ([0, 1, 2, 3], 1)]
)
def test_what_is_doubled_or_missing_is_found(pages: list[int], expected: int) -> None:
    """Of a plan of three pages."""
    visits = np.zeros(len(pages), VISIT)
    visits["page"], visits["kind"] = pages, KINDS.index("ranked")
    record = {"cycle": 1, "planned": 3, "plan": {"new": 0}}
    assert len(list(compared_cycle(Visited(visits), record, Counter()))) == expected
