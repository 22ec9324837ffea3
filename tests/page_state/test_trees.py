"""The tree of a site's directories: numbers, and rings against paths in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.page_state.places import place_of_url
from scrapy_gp4c.page_state.trees import Numbering, of_directories

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
    numbering = Numbering()
    for site, path in places:
        numbering.number_of(site, path)
    tree = numbering.tree()
    known = closure(places)
    assert len(tree) == len(known)
    numbers = {(site, path): numbering.number_of(site, "/".join([*path, ""])) for site, path in known}
    assert len(numbering) == len(known) == len(set(numbers.values()))  # asking for what is known adds nothing
    own_site, own = data.draw(st.sampled_from(sorted(known)))
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
    grouping = of_directories(
        np.array([0, 1, 0]), [(place.site, place.directory) for place in (script, beside)]
    )
    assert len(set(grouping.number.tolist())) == 1
    assert [ring.tolist() for ring in grouping.rings(1, 0)] == [[0, 1, 2]]


def test_a_path_must_end_where_a_directory_does() -> None:
    """A page's name in it would become a directory unseen."""
    with pytest.raises(AssertionError):
        Numbering().number_of("h", "a/page.html")


def test_sites_of_equal_paths_are_strangers() -> None:
    """Not even a step up from the front page leads from one to the other."""
    grouping = of_directories(np.arange(4), [("x", ""), ("y", ""), ("x", "a/"), ("y", "a/")])
    assert sorted(np.concatenate(list(grouping.rings(2, 9))).tolist()) == [0, 2]
    assert sorted(np.concatenate(list(grouping.rings(0, -9))).tolist()) == [0, 2]
    assert grouping.groups == 4
