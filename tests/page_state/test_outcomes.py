"""Outcomes: the sets of those that count alike."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.outcomes import (
    CHANGED,
    COPIED,
    FAILED,
    JUDGED,
    OUTCOMES,
    SAME,
    VISIT,
    VISIT_BYTES,
    among,
)

EVERY = range(len(OUTCOMES))


def test_an_outcome_is_a_success_or_a_failure() -> None:
    """What failed brought no copy and told nothing; everything else did one or the other."""
    assert set(COPIED) | set(JUDGED) == set(EVERY) - set(FAILED)
    assert set(SAME) | {CHANGED} == set(JUDGED)


@given(st.lists(st.sampled_from(EVERY)), st.sets(st.sampled_from(EVERY)))
def test_among_tells_the_members_of_a_set(outcomes: list[int], codes: set[int]) -> None:
    """As `in` does."""
    result = among(np.array(outcomes, np.uint8), tuple(codes))
    assert result.tolist() == [outcome in codes for outcome in outcomes]


def test_the_bytes_of_a_visit_are_those_of_its_dtype() -> None:
    """A crawl packs single visits; all else reads them as arrays."""
    values = (1.5, 2**64 - 1, 7, 2**32 - 1, 65_535, 3, 2, 255)
    (visit,) = np.frombuffer(VISIT_BYTES.pack(*values), VISIT).tolist()
    assert visit == values
