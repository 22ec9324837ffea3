"""Groups of pages: which pages are in them, and rings of groups as rings of pages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groupings import (
    LEVELS,
    NOWHERE,
    Grouping,
    Links,
    by_place,
    tree_of_directories,
)
from scrapy_gp4c.page_state.groups import Directories, place_of_url


@given(
    st.lists(st.one_of(st.integers(NOWHERE, 4), st.integers(65_530, 65_545), st.just(131_075)), max_size=50)
)
def test_pages_are_in_the_order_of_many_groups(number: list[int]) -> None:
    """Ascending within each, those in none before all: as one stable sort of the numbers has them."""
    order, begin = Grouping(np.array(number, np.intp), 131_076).by_group
    assert order.tolist() == sorted(range(len(number)), key=number.__getitem__)
    assert len(begin) == 131_077
    for group in {0, 131_075, *number} - {NOWHERE}:
        members = [page for page, other in enumerate(number) if other == group]
        assert order[begin[group] : begin[group + 1]].tolist() == members


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


def test_page_rank() -> None:
    """Equation 9: two pages that link to a third, which links back to the first; a fourth without links."""
    rank = Links(np.array([0, 1, 2]), np.array([2, 2, 0]), 4).page_rank()
    base = 0.15 / 4 + 0.85 * rank[3] / 4
    expected = [base + 0.85 * rank[2], base, base + 0.85 * (rank[0] + rank[1]), base]
    assert np.allclose(rank, expected)
    assert abs(rank.sum() - 1.0) < 1e-12


def test_popularity_by_links_is_page_rank_with_the_finders() -> None:
    """A link that is told twice counts once; what is on the page's number does not matter."""
    finder, links = np.array([NOWHERE, 0, 0, 1]), Links(np.array([0, 3]), np.array([1, 0]), 4)
    popularity = groupings.popularity_by_links(finder, links)
    rank = Links(np.array([0, 0, 1, 3]), np.array([1, 2, 3, 0]), 4).page_rank()
    assert popularity == pytest.approx(4 * rank, abs=1e-6)
    order = np.array([2, 0, 3, 1])  # number of each page in another order
    others = np.full(4, NOWHERE)
    others[order[1:]] = order[finder[1:]]
    moved = groupings.popularity_by_links(others, Links(order[links.source], order[links.target], 4))
    assert moved[order].tolist() == popularity.tolist()


def test_popularity_is_the_logarithm_from_0_to_10() -> None:
    """Zeros are least popular; where all others are equal, so are they."""
    assert groupings.popularity_of(np.array([1.0, 10.0, 100.0, 0.0, 1e10])).tolist() == [0, 1, 2, 0, 10]
    assert groupings.popularity_of(np.array([0.01, 1.0, 0.0, 100.0])).tolist() == [0, 5, 0, 10]
    assert groupings.popularity_of(np.array([3.0, 0.0, 3.0])).tolist() == [0, 0, 0]
