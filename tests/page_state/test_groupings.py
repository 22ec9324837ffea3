"""Groups of pages: which pages are in them, and rings of groups as rings of pages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.groupings import LEVELS, NOWHERE, Grouping, Numbers, by_place
from scrapy_gp4c.page_state.groups import Directories

NUMBERS = st.lists(st.integers(NOWHERE, 4), max_size=20)


class OnALine:
    """Groups 0 to 4 side by side; d counts to the right, or to the left where it is negative."""

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield one group a step, nobody beyond the ends."""
        for step in range(abs(d) + 1):
            other = group + (step if d >= 0 else -step)
            yield np.array([other] if 0 <= other < 5 else [], np.intp)


@given(NUMBERS, st.lists(st.integers(0, 4), max_size=5, unique=True))
def test_pages_of_groups_come_group_by_group(number: list[int], asked: list[int]) -> None:
    """In the order asked for, ascending within each; a group without pages has none."""
    grouping = Grouping(np.array(number, np.intp), 5)
    expected = [page for group in asked for page, own in enumerate(number) if own == group]
    found = grouping.pages_of(np.array(asked, np.intp))
    assert found.tolist() == expected
    assert found.dtype == np.uint32


@given(
    st.lists(st.one_of(st.integers(NOWHERE, 4), st.integers(65_530, 65_545), st.just(131_075)), max_size=50)
)
def test_pages_are_in_the_order_of_many_groups(number: list[int]) -> None:
    """Ascending within each, those in none before all: as one stable sort of the numbers has them."""
    order, begin = Grouping(np.array(number, np.intp), 131_076).by_group
    assert order.tolist() == sorted(range(len(number)), key=number.__getitem__)
    assert len(begin) == 131_077
    for group in {0, 131_075, *number} - {NOWHERE}:
        own = [page for page, other in enumerate(number) if other == group]
        assert order[begin[group] : begin[group + 1]].tolist() == own


@given(NUMBERS.filter(bool), st.integers(-5, 5), st.data())
def test_rings_of_pages_are_those_of_their_groups(number: list[int], d: int, data: st.DataObject) -> None:
    """The page's own group is at 0, itself included; a page in no group has no rings at all."""
    page = data.draw(st.integers(0, len(number) - 1))
    found = [ring.tolist() for ring in Grouping(np.array(number, np.intp), 5, OnALine()).rings(page, d)]
    if number[page] == NOWHERE:
        assert found == []
        return
    sign = 1 if d >= 0 else -1
    near = [number[page] + sign * step for step in range(abs(d) + 1)]
    assert found == [
        [other for other, own in enumerate(number) if own == group and group != NOWHERE] for group in near
    ]
    assert page in found[0]


def test_places_are_directories_or_their_sites() -> None:
    """A directory that no page is in counts too."""
    directories = Directories(np.array([0, 1, 0, 1]), 2)
    group = np.array([2, 2, 1, 0], np.uint32)
    by_directory = by_place(group, directories, "directory")
    assert (by_directory.number.tolist(), by_directory.groups) == ([2, 2, 1, 0], 4)
    by_site = by_place(group, directories, "site")
    assert (by_site.number.tolist(), by_site.groups) == ([0, 0, 1, 0], 2)
    assert by_site.pages_of(np.array([0])).tolist() == [0, 1, 3]
    assert LEVELS == ("site", "directory", "cluster")
