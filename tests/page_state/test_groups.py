"""Where a URL is: any text has a place, and what is one place for people is one place here."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
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
from scrapy_gp4c.page_state.groups import (
    GROUP_VISITS,
    NO_VISITS,
    PREFIXES,
    Directories,
    Place,
    add_up,
    count_visits,
    directories,
    place_of_url,
)

TEXT = st.text(max_size=30)
SEGMENT = st.text(alphabet="ab%2FÄ.:@;=+~ \\", max_size=4)
HOST = st.from_regex(r"[a-z0-9.-]{0,11}[a-z0-9-]", fullmatch=True)

PLACES = {
    "http://h/": ("h", ""),
    "http://h": ("h", ""),
    "http://h/a": ("h", ""),
    "http://h/a/": ("h", ""),
    "http://h/blog/first": ("h", "blog/"),
    "http://h/blog/first/": ("h", "blog/"),
    "http://h/a/b/c.html": ("h", "a/b/"),
    "http://h/item?id=1": ("h", "item?"),
    "http://h/item?id=2&x=/a/b/c#there": ("h", "item?"),
    "http://h/item?": ("h", "item?"),
    "http://h/a/item?x": ("h", "a/item?"),
    "http://h?id=1": ("h", "?"),
    "http://h/?id=1": ("h", "?"),
    "http://h#part": ("h", ""),
    "http://h/a/b#c/d/e": ("h", "a/"),
    "http://h//": ("h", ""),
    "http://h//a": ("h", "/"),
    "http://h/a//b//c": ("h", "a//b//"),
    "http://h/a%2Fb/c": ("h", "a%2Fb/"),
    "http://h/%2e%2e/c": ("h", "%2e%2e/"),
    "http://h:80/a/b": ("h", "a/"),
    "https://h:443/a/b": ("h", "a/"),
    "https://h:80/a/b": ("h:80", "a/"),
    "http://h:8080/a/b": ("h:8080", "a/"),
    "http://h.example./a/b": ("h.example", "a/"),
    "http://h.example.:8080/a/b": ("h.example:8080", "a/"),
    "HTTP://H.Example:80/A/b": ("h.example", "A/"),
    "http://user:secret@h/a/b": ("h", "a/"),
    "http://a@b@h/c": ("h", ""),
    "http://[::1]:8080/a/b": ("[::1]:8080", "a/"),
    "http://bücher.example/ä/ö": ("bücher.example", "ä/"),
    "http://xn--bcher-kva.example/a/b": ("xn--bcher-kva.example", "a/"),
    "ftp://h/a/b": ("h", "a/"),
    "s3://bucket/a/b": ("bucket", "a/"),
    "file:///etc/a": ("", "etc/"),
    "mailto:somebody@h": ("", ""),
    "data:text/html,a/b": ("", "data:text/html,a/"),
    "javascript:void(0)": ("", ""),
    "//h/a/b": ("", "/h/a/"),
    "/a/b": ("", "a/"),
    "": ("", ""),
    "a b://h/c/d": ("", "a b://h/c/"),
    "\udcff://h/a": ("", "\udcff://h/"),
}
"""URL -> site and directory."""


@pytest.mark.parametrize("url", PLACES)
def test_places_of_urls(url: str) -> None:
    """Host and port in lower case, without what else stands before the path; nothing is decoded."""
    assert place_of_url(url) == PLACES[url]


@given(text=TEXT)
def test_any_text_has_a_place(text: str) -> None:
    """No error, no more characters than the text has, and keys of 64 bits, 0 only where there is no group."""
    url_place = place_of_url(text)
    assert len(url_place.site) <= len(text) * 3  # lower case may be longer
    assert len(url_place.directory) <= len(text) + 1
    keys = url_place.keys()
    assert len(keys) == 2 + PREFIXES
    assert all(0 < key < 2**64 for key in keys[: 2 + len(url_place.prefixes)])
    assert not any(keys[2 + len(url_place.prefixes) :])
    assert place_of_url(text) == url_place


@given(host=HOST, segments=st.lists(SEGMENT, max_size=6), last=st.text(alphabet="ab%2F.~", max_size=4))
def test_neighbours_share_a_directory(host: str, segments: list[str], last: str) -> None:
    """Pages are told apart by their last segment alone, a slash behind it or a fragment included."""
    path = "/".join([*segments, "x"])
    url_place = place_of_url(f"http://{host}/{path}")
    assert url_place.site == host
    assert url_place.directory == path[:-1]
    for page in (f"{path}/", f"{path}#{last}", f"{path}{last}", f"{path}{last}/"):
        assert place_of_url(f"http://{host}/{page}") == url_place
    assert place_of_url(f"https://{host}:443/{path}") == url_place
    assert place_of_url(f"https://{host}:444/{path}") != url_place


@given(segments=st.lists(st.sampled_from(["a", "b", "", "%2F"]), max_size=6))
def test_prefixes_nest(segments: list[str]) -> None:
    """The prefixes are the first 1, 2 and 3 segments of the directory, as many as it has."""
    directory = "".join(f"{segment}/" for segment in segments)
    url_place = Place("h", directory)
    expected = ["".join(f"{s}/" for s in segments[:n]) for n in range(1, min(len(segments), PREFIXES) + 1)]
    assert list(url_place.prefixes) == expected
    assert all(directory.startswith(prefix) for prefix in url_place.prefixes)


@given(places=st.lists(st.tuples(st.sampled_from(["", "h", "g"]), st.text("ab/?", max_size=5)), max_size=20))
def test_keys_tell_groups_apart(places: list[tuple[str, str]]) -> None:
    """Equal places have equal keys; a site, a prefix and a directory by one name have different ones."""
    meaning: dict[int, tuple[object, ...]] = {}
    for site, directory in places:
        url_place = Place(site, directory)
        names = [
            ("directory", *url_place),
            ("site", site),
            *(("prefix", site, p) for p in url_place.prefixes),
        ]
        for key, name in zip(url_place.keys(), names, strict=False):
            assert meaning.setdefault(key, name) == name


def test_the_pages_of_one_script_share_a_directory() -> None:
    """A query makes the path itself the directory: that is where the script's pages are."""
    places = {place_of_url(f"http://h/forum/item.php?id={number}&s=a/b") for number in range(5)}
    assert places == {Place("h", "forum/item.php?")}
    assert place_of_url("http://h/forum/item.php") == Place("h", "forum/")


@pytest.mark.parametrize(
    "path",
    ["/".join(["s"] * 100_000), "/" * 100_000, "%2F" * 100_000, "?" * 100_000, "#" * 100_000, "é/" * 100_000],
)
def test_a_hostile_url_costs_its_length(path: str) -> None:
    """100,000 segments, empty or not, encoded or not, make one directory with at most three prefixes."""
    url_place = place_of_url(f"http://h/{path}")
    assert url_place.site == "h"
    assert len(url_place.directory) <= len(path) + 1
    assert len(url_place.prefixes) <= PREFIXES
    assert all(len(prefix) <= 12 for prefix in url_place.prefixes)
    assert len(url_place.keys()) == 2 + PREFIXES


Visit = tuple[int, bool, float, bool]
VISITS = st.lists(
    st.tuples(st.integers(0, 8), st.booleans(), st.floats(0.0, 1.0), st.booleans()), max_size=40
)


def counted(visits: list[Visit]) -> npt.NDArray[np.void]:
    """`count_visits` of visits: directory, whether it had changed, the probability of that, and warm-up."""
    columns = ([visit[column] for visit in visits] for column in range(4))
    return count_visits(
        *(np.array(values, dtype) for values, dtype in zip(columns, ("u4", "?", "f8", "?"), strict=True))
    )


def expected(visits: list[Visit]) -> list[tuple[int, int, int, float, int, int]]:
    """The same by definition: sums by directory, of probabilities in units of 2**-24."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for group, changed, predicted, warmup in visits:
        values = (1, changed, round(predicted * 2**24), warmup, warmup and changed)
        for position, value in enumerate(values):
            sums[group][position] += value
    return [(group, n, result, units / 2**24, *of) for group, (n, result, units, *of) in sorted(sums.items())]


@given(visits=VISITS)
def test_visits_are_counted_by_directory(visits: list[Visit]) -> None:
    """Visits, changes and expected changes of each directory visited, and those of the warm-up."""
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
    assert groupings.popularity_of(np.array([3.0, 0.0, 3.0])).tolist() == [0, 0, 0]
