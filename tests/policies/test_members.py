"""The groups of a cycle: their pages in turn, their values, and what samples came to."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.page_state.groupings import NOWHERE, Grouping
from scrapy_gp4c.page_state.outcomes import NEIGHBOUR, SAMPLE
from scrapy_gp4c.policies.base import Selection
from scrapy_gp4c.policies.members import Members, SampleResult, group_samples, members_of, remaining_pages
from tests.policies.test_sampling import Web, webs


def planned(pages: list[int], kind: int) -> Selection:
    """A plan of some pages of one kind."""
    own = np.array(pages, np.uint32)
    return Selection(own, np.full(len(own), np.nan), None, np.full(len(own), kind, np.uint8))


@given(web=webs(), taken=st.sets(st.integers(0, 49), max_size=9), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_members_are_all_pages_by_group_and_turn(web: Web, taken: set[int], seed: int) -> None:
    """Chosen ones too, so that a group stays what it is; pages in no group are left out."""
    pages = len(web.urls)
    number = np.random.default_rng(seed).integers(NOWHERE, 3, pages)
    memory = web.memory(block_rows=7)
    memory.visit(planned(sorted(page for page in taken if page < pages), SAMPLE))
    actual = members_of(memory, Grouping(number, 3), lambda block: block.pages.astype(np.float64))
    expected = defaultdict(list)
    for page in sorted(range(pages), key=web.turn):
        expected[int(number[page])].append(page)
    expected.pop(NOWHERE, None)
    assert actual.number.tolist() == sorted(expected)
    for position, group in enumerate(sorted(expected)):
        assert actual.first(position).tolist() == expected[group]
        assert actual.first(position, 2).tolist() == expected[group][:2]
        assert actual.value[position] == sum(expected[group]) / len(expected[group])
    assert actual.positions(np.array([NOWHERE, 7])).tolist() == []
    assert actual.positions(actual.number).tolist() == list(range(len(expected)))


def some_members(sizes: list[int]) -> Members:
    """Groups of so many pages, numbered through."""
    begin = np.append(0, np.cumsum(sizes)).astype(np.intp)
    groups = len(sizes)
    return Members(
        np.arange(begin[-1], dtype=np.uint32), begin, np.arange(groups), np.zeros(groups, np.uint64),
        np.zeros(groups), np.empty(0, np.uint32),
    )  # fmt: skip


def test_pages_to_sample_of_a_group() -> None:
    """The root of the visits that each group would get; at least one, with groups or without."""
    assert some_members([10] * 4).sample_pages(100) == 5
    assert some_members([10] * 4).sample_pages(1) == 1
    assert some_members([]).sample_pages(100) == 1


@given(
    sizes=st.lists(st.integers(1, 6), max_size=6),
    each=st.integers(1, 4),
    wanted=st.integers(0, 15),
    most=st.integers(0, 15),
)
def test_samples_of_whole_groups_until_enough_are_sent(
    sizes: list[int], each: int, wanted: int, most: int
) -> None:
    """Never a group without its sample unless the budget ends in it."""
    parts = group_samples(np.arange(len(sizes)), some_members(sizes), each, wanted, most)
    full = [min(each, size) for size in sizes]
    needed = next((at for at in range(len(full) + 1) if sum(full[:at]) >= min(wanted, most)), len(full))
    expected = full[:needed]
    if sum(expected) > most:
        expected[-1] -= sum(expected) - most
    assert [len(part) for part in parts] == expected


def test_rests_are_what_may_be_visited() -> None:
    """In the order of the groups, within the budget; behind the first only what leaves enough spare."""
    web = Web(["http://h/"] * 9, [0] * 9, [1] * 9, [[]] * 9, [False] * 9, list(range(9)), [0] * 9)
    memory = web.memory()
    memory.visited = np.array([0, 1, 2, 4], np.uint32)
    members, order = some_members([3, 3, 3]), np.array([0, 1, 2])
    assert remaining_pages(order, members, 9, memory).tolist() == [3, 5, 6, 7, 8]
    assert remaining_pages(order[::-1], members, 4, memory).tolist() == [6, 7, 8, 3]
    assert remaining_pages(order, members, 5, memory, 1).tolist() == [3, 5]
    assert remaining_pages(order, members, 6, memory, 1).tolist() == [3, 5, 6, 7, 8]
    assert remaining_pages(order, members, 2, memory, 9).tolist() == [3, 5]  # at once
    assert remaining_pages(order, members, 0, memory).tolist() == []


def test_results_of_samples() -> None:
    """A group is complete when all its samples are in; neighbours tell nothing of it."""
    changed = [True, False, True, True, True, False]
    web = Web(["http://h/"] * 6, [0, 0, 1, 1, 2, 2], [1] * 6, [[]] * 6, changed, [9, 8, 7, 6, 5, 4], [0] * 6)
    memory = web.memory()
    grouping = memory.groupings["site"]
    members = members_of(memory, grouping)
    memory.visit(planned([0, 1, 2], SAMPLE))
    memory.visit(planned([4], NEIGHBOUR))
    result = SampleResult.of(memory, grouping, members)
    assert result.sampled.tolist() == result.complete.tolist() == [True, True, False]
    assert result.share.tolist() == [0.5, 1.0, 0.0]
    assert result.is_all
    assert result.awaited == 0
    memory.heard = 1  # only page 0 is in
    result = SampleResult.of(memory, grouping, members)
    assert result.complete.tolist() == [False, False, False]
    assert result.share.tolist() == [1.0, 0.0, 0.0]
    assert result.awaited == 1, "page 3: nothing is left of the other group"
    assert not result.is_all
    memory = web.memory()
    memory.visit(planned([3], NEIGHBOUR))
    memory.visit(planned([2], SAMPLE))
    memory.heard = 1  # the neighbour is in, the sample is not
    assert SampleResult.of(memory, grouping, members).complete.tolist() == [False, False, False]
