"""Groups of pages: which pages are in them, and rings of groups as rings of pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groupings import (
    LEVELS,
    NOWHERE,
    ClusterRanks,
    Grouping,
    Links,
    Numbers,
    by_place,
    tree_of_directories,
)
from scrapy_gp4c.page_state.groups import Directories, place_of_url

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
    result = grouping.pages_of(np.array(asked, np.intp))
    assert result.tolist() == expected
    assert result.dtype == np.uint32


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
    result = [ring.tolist() for ring in Grouping(np.array(number, np.intp), 5, OnALine()).rings(page, d)]
    if number[page] == NOWHERE:
        assert result == []
        return
    sign = 1 if d >= 0 else -1
    near = [number[page] + sign * step for step in range(abs(d) + 1)]
    assert result == [
        [other for other, own in enumerate(number) if own == group and group != NOWHERE] for group in near
    ]
    assert page in result[0]


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


PATHS = st.lists(st.sampled_from("ab"), max_size=4).map(lambda names: "".join(f"{name}/" for name in names))
PLACES = st.lists(st.tuples(st.sampled_from(["x.org", "y.org"]), PATHS), min_size=1, max_size=25)


def closure(places: list[tuple[str, str]]) -> set[tuple[str, tuple[str, ...]]]:
    """The directories with all above them."""
    whole = {(site, tuple(path.split("/")[:-1])) for site, path in places}
    return {(site, path[:depth]) for site, path in whole for depth in range(len(path) + 1)}


def steps(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[int, bool]:
    """Steps from a directory to another by their paths, and whether the other is lower."""
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return len(one) + len(other) - 2 * common, len(other) > len(one)


@given(PLACES, st.integers(-5, 5), st.data())
@settings(max_examples=80, deadline=None)
def test_rings_are_steps_between_paths(places: list[tuple[str, str]], d: int, data: st.DataObject) -> None:
    """Equation 2: each directory of the site once, at its distance, on the side that the sign says."""
    known = sorted(closure(places))
    grouping = tree_of_directories(
        np.arange(len(known)), [(site, "/".join([*path, ""])) for site, path in known]
    )
    tree = grouping.distances
    assert tree is not None
    numbers = dict(zip(known, grouping.number.tolist(), strict=True))
    assert grouping.groups == len(known) == len(set(numbers.values()))
    part = tree_of_directories(np.arange(len(places)), places)
    assert part.groups == len(known)  # the directories above these, too
    own_site, own = data.draw(st.sampled_from(known))
    expected: list[set[int]] = [set() for _ in range(abs(d) + 1)]
    expected[0].add(numbers[own_site, own])
    for (site, path), number in numbers.items():
        far, is_lower = steps(own, path)
        if site == own_site and 0 < far <= abs(d) and is_lower == (d < 0):
            expected[far].add(number)
    rings = [ring.tolist() for ring in tree.rings(numbers[own_site, own], d)]
    assert all(len(ring) == len(set(ring)) for ring in rings)
    assert list(map(set, rings)) == expected


def test_a_scripts_pages_are_where_the_script_is() -> None:
    """What differs by its query alone is in one directory of its own, and by the tree in the script's."""
    script, beside = (place_of_url(f"http://h/a/{name}") for name in ("item?id=1", "x.html"))
    assert script.directory.endswith("?")
    grouping = tree_of_directories(
        np.array([0, 1, 0]), [(place.site, place.directory) for place in (script, beside)]
    )
    assert len(set(grouping.number.tolist())) == 1
    assert [ring.tolist() for ring in grouping.rings(1, 0)] == [[0, 1, 2]]


def test_sites_of_equal_paths_are_strangers() -> None:
    """Not even a step up from the front page leads from one to the other."""
    grouping = tree_of_directories(np.arange(4), [("x", ""), ("y", ""), ("x", "a/"), ("y", "a/")])
    assert sorted(np.concatenate(list(grouping.rings(2, 9))).tolist()) == [0, 2]
    assert sorted(np.concatenate(list(grouping.rings(0, -9))).tolist()) == [0, 2]
    assert grouping.groups == 4


def test_links_of_the_figure() -> None:
    """Siblings are at 0 though there is a path to them; links are followed, or gone against."""
    # 0 links to the seed 1 and to 5; the seed to 4, 5 and 6, of which 4 links to 7; 8 links to nobody.
    links = Links(np.array([0, 0, 1, 1, 1, 4]), np.array([1, 5, 4, 5, 6, 7]), 9)
    assert [ring.tolist() for ring in links.rings(1, 2)] == [[1, 5], [4, 6], [7]]
    assert [ring.tolist() for ring in links.rings(1, -1)] == [[1, 5], [0]]
    assert [ring.tolist() for ring in links.rings(8, 1)] == [[8], []]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25),
    seed=st.integers(0, 9),
    d=st.integers(-4, 4),
)
def test_links_are_followed_breadth_first(pairs: list[tuple[int, int]], seed: int, d: int) -> None:
    """Equation 1 in plain Python."""
    edges = sorted({(a, b) for a, b in pairs if a != b})
    links = Links(np.array([a for a, _ in edges], int), np.array([b for _, b in edges], int), 10)
    parents = [a for a, b in edges if b == seed]
    siblings = {b for a, b in edges if a in parents} - {seed}
    hops, todo = {seed: 0}, deque([seed])
    while todo:
        page = todo.popleft()
        for a, b in edges if d > 0 else [(b, a) for a, b in edges]:
            if a == page and b not in hops:
                hops[b] = hops[page] + 1
                todo.append(b)
    rings = [set(ring.tolist()) for ring in links.rings(seed, d)]
    assert rings[0] == siblings | {seed}
    for at in range(1, abs(d) + 1):
        assert rings[at] == {page for page, hop in hops.items() if hop == at} - siblings


def test_page_rank() -> None:
    """Equation 9: two pages that link to a third, which links back to the first; a fourth without links."""
    rank = Links(np.array([0, 1, 2]), np.array([2, 2, 0]), 4).page_rank()
    base = 0.15 / 4 + 0.85 * rank[3] / 4
    expected = [base + 0.85 * rank[2], base, base + 0.85 * (rank[0] + rank[1]), base]
    assert np.allclose(rank, expected)
    assert abs(rank.sum() - 1.0) < 1e-12


def test_popularity_is_the_logarithm_from_0_to_10() -> None:
    """Zeros are least popular; where all others are equal, so are they."""
    assert groupings.popularity_of(np.array([1.0, 10.0, 100.0, 0.0, 1e10])).tolist() == [0, 1, 2, 0, 10]
    assert groupings.popularity_of(np.array([3.0, 0.0, 3.0])).tolist() == [0, 0, 0]


def test_clusters_by_rank() -> None:
    """Its own cluster, then the nearest ones; a negative d means its own alone."""
    ranks = ClusterRanks(np.array([[0, 2, 1], [1, 2, 0], [2, 1, 0]]))
    assert [ring.tolist() for ring in ranks.rings(1, 1)] == [[1], [2]]
    assert [ring.tolist() for ring in ranks.rings(1, -3)] == [[1]]
