"""Counting what visits found in directories, against the same in plain Python."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.groups import GROUP_VISITS, NO_VISITS, add_up, count_visits, directories

Visit = tuple[int, bool, float]
VISITS = st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.floats(0.0, 1.0)), max_size=40)


def counted(visits: list[Visit]) -> npt.NDArray[np.void]:
    """`count_visits` of visits: directory, whether it had changed, and the probability of that."""
    columns = ([visit[column] for visit in visits] for column in range(3))
    return count_visits(
        *(np.array(values, dtype) for values, dtype in zip(columns, ("u4", "?", "f8"), strict=True))
    )


def expected(visits: list[Visit]) -> list[tuple[int, int, int, float]]:
    """The same by definition: sums by directory, of probabilities in units of 2**-24."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for group, changed, predicted in visits:
        for place, value in enumerate((1, int(changed), round(predicted * 2**24))):
            sums[group][place] += value
    return [(group, n, found, units / 2**24) for group, (n, found, units) in sorted(sums.items())]


@given(visits=VISITS)
def test_visits_are_counted_by_directory(visits: list[Visit]) -> None:
    """Visits, changes and expected changes of each directory visited, by its number."""
    table = counted(visits)
    assert table.dtype == GROUP_VISITS
    assert table.tolist() == expected(visits)


@given(visits=VISITS, cuts=st.lists(st.integers(0, 40), max_size=5), data=st.data())
def test_parts_add_up_to_the_whole_in_any_order(
    visits: list[Visit], cuts: list[int], data: st.DataObject
) -> None:
    """However the visits of a cycle are dealt out, and whatever order they come in: equal bits."""
    mixed = data.draw(st.permutations(visits))
    edges = [0, *sorted(cuts), len(mixed)]
    parts = [counted(mixed[start:stop]) for start, stop in pairwise(edges)]
    parts = data.draw(st.permutations(parts))
    assert add_up(parts).tobytes() == counted(visits).tobytes()
    assert add_up([add_up(parts[:2]), *parts[2:]]).tobytes() == counted(visits).tobytes()


def test_of_no_visits_nothing_is_told() -> None:
    """Empty tables, whatever is added up."""
    for table in (add_up([]), add_up([NO_VISITS]), add_up([NO_VISITS, NO_VISITS]), counted([])):
        assert table.dtype == GROUP_VISITS
        assert not len(table)


@given(keys=st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_directories_are_of_the_sites_that_their_keys_name(keys: list[int]) -> None:
    """Equal keys are one site, and every site is numbered."""
    known = directories(np.array(keys, np.uint64))
    assert len(known) == len(keys)
    assert known.sites == len(set(keys))
    of_key = dict(zip(keys, known.site.tolist(), strict=True))
    assert [of_key[key] for key in keys] == known.site.tolist()
    assert sorted(of_key.values()) == list(range(known.sites))
