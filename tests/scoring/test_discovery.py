"""What visits brought: sums by their definition, and which pages are hubs."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring import discovery, terminals

VISITS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3) | st.just(10**6)), max_size=12)


def state_after(visits: list[tuple[int, int]], found_by: int = 7) -> tuple[dict[str, np.ndarray], int]:
    """Columns of a page first fetched in cycle 1 after visits (gap in cycles, new pages); the last cycle."""
    state = {name: np.zeros(1, dtype) for name, dtype in discovery.COLUMNS.items()}
    state |= {"last_cycle": np.array([1], np.int32), "found_by": np.array([found_by], np.uint32)}
    state["brought_cycle"][:] = cycle = 1
    for gap, brought in visits:
        cycle += gap
        discovery.observe(state, np.array([brought]), cycle)
        state["last_cycle"][:] = cycle
    return state, cycle


@given(VISITS, st.integers(1, 99))
def test_terminals_are_as_defined(visits: list[tuple[int, int]], t: int) -> None:
    """Both sums by their definition, as exactly as 16 bits hold them; no number of pages overflows."""
    state, cycle = state_after(visits)
    ages = [sum(gap for gap, _ in visits[n + 1 :]) for n in range(len(visits))]
    expected_values = {
        "brought_sum": [brought * 2 ** (-age / 8) for (_, brought), age in zip(visits, ages, strict=True)],
        "brought_cycles": [gap * 2 ** (-age / 8) for (gap, _), age in zip(visits, ages, strict=True)],
    }
    if all(brought < 10**6 for _, brought in visits):
        for name, parts in expected_values.items():
            assert math.isclose(state[name][0], math.fsum(parts), rel_tol=0.01, abs_tol=1e-4)
    values = terminals.compute(("brought", "brought_t"), state, cycle + t)
    new, looked = float(state["brought_sum"][0]), float(state["brought_cycles"][0])
    assert values["brought"][0] == (new + 0.5) / (looked + 1.0) < math.inf
    bringing = [cycle - age for (_, brought), age in zip(visits, ages, strict=True) if brought]
    assert values["brought_t"][0] == cycle + t - max([1, *bringing])


@given(st.integers(1, 9), st.sampled_from((7, 0, discovery.START)))
def test_pages_that_never_brought_anything_are_no_hubs(visits: int, found_by: int) -> None:
    """But for start requests, until two visits in vain; one that brings pages later is a hub again."""
    state, cycle = state_after([(1, 0)] * visits, found_by)
    expected = found_by == discovery.START and visits < 2
    assert discovery.is_hub(state, cycle + 1).tolist() == [expected]
    state, cycle = state_after([(1, 0)] * visits + [(3, 2)], found_by)
    assert discovery.is_hub(state, cycle + 1).tolist() == [True]
    assert discovery.is_hub(state, cycle + 200).tolist() == [True]  # still worth a look now and then
    state, cycle = state_after([(1, 0)] * visits + [(3, 2)] + [(1, 0)] * 60, found_by)
    assert discovery.is_hub(state, cycle + 200).tolist() == [False]


@given(
    st.lists(
        st.tuples(
            st.sampled_from((0.0, -0.0, 6e-8, 0.0499, 0.05, 0.06, 3.0)),
            st.sampled_from((0.0, 1.0, 30.0)),
            st.integers(1, 9),
            st.sampled_from((7, 0, discovery.START)),
        ),
        max_size=20,
    )
)
def test_hubs_are_as_defined(rows: list[tuple[float, float, int, int]]) -> None:
    """Pages with a yield, or start requests, that promise to bring a page in five visits; start requests
    whatever the gap."""
    brought, looked, last, found_by = (
        (np.array(column) for column in zip(*rows, strict=True)) if rows else [[]] * 4
    )
    state = {
        "brought_sum": np.asarray(brought, np.float16),
        "brought_cycles": np.asarray(looked, np.float16),
        "last_cycle": np.asarray(last, np.int32),
        "found_by": np.asarray(found_by, np.uint32),
    }
    expected = discovery.rate(state, 10)
    promises = expected * (10 - state["last_cycle"]) >= discovery.LEAST_EXPECTED
    has_yield = state["brought_sum"] >= discovery.LEAST_BROUGHT
    is_start = (state["found_by"] == discovery.START) & (expected >= discovery.LEAST_EXPECTED)
    assert discovery.is_hub(state, 10).tolist() == (promises & (has_yield | is_start)).tolist()
