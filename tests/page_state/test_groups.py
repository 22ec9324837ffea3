"""Where a URL is: any text has a place, and what is one place for people is one place here."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.groups import (
    GROUP,
    GROUP_VISITS,
    NO_VISITS,
    PREFIXES,
    Place,
    add_up,
    count_visits,
    directories,
    in_scope,
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


@pytest.mark.parametrize(
    ("prefix", "inside"),
    [
        ("", [True, True, True, False]),
        ("a/", [False, True, True, False]),
        ("a/b/", [False, False, True, False]),
    ],
)
def test_what_is_below_a_path_is_of_its_site_alone(prefix: str, inside: list[bool]) -> None:
    """Without a path, all directories of the site are."""
    places = [Place("h", ""), Place("h", "a/"), Place("h", "a/b/"), Place("other", "a/b/")]
    numbered = np.array([place.keys() for place in places], GROUP)
    assert in_scope(numbered, "h", prefix).tolist() == inside
