"""Measurements of visits: bits of changes by definition, download times, and their terminals."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring import measured

FINGERPRINTS = st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=9)


@given(FINGERPRINTS)
def test_distances_are_counted_by_definition(fingerprints: list[int]) -> None:
    """The mean over changes of bits that differ; a copy that is not known, 0, compares with nothing."""
    state = {name: np.zeros(1, dtype) for name, dtype in measured.COLUMNS.items()}
    distances = []
    for before, after in itertools.pairwise(fingerprints):
        pair = (np.array([one], np.uint64) for one in (before, after))
        measured.observe(state, measured.flips(*pair))
        if before and after and before != after:
            distances.append(bin(before ^ after).count("1"))
    mean = measured.TERMINALS["distance_mean"][1](state, 9)
    assert mean.tolist() == [sum(distances) / len(distances) if distances else 0.0]
    assert state["distance_n"].tolist() == [len(distances)]


def test_a_full_count_takes_no_more() -> None:
    """Neither the number nor the sum, so that the mean stays."""
    state = {"distance_sum": np.array([5], np.uint32), "distance_n": np.array([2**16 - 1], np.uint16)}
    measured.observe(state, np.array([7], np.uint64))
    assert [column.tolist() for column in state.values()] == [[5], [2**16 - 1]]


def test_a_download_that_nobody_measured_takes_a_second() -> None:
    """Others take what they took."""
    cost_s = measured.TERMINALS["cost_s"][1]({"latency_ms": np.array([0, 1, 65_535], np.uint16)}, 1)
    assert cost_s.tolist() == [1.0, 0.001, 65.535]
