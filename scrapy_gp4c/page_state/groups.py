"""Groups of pages: sites, path prefixes and directories, and sums over the visits to them.

The directory of a page is the path without its last segment; a slash at the end belongs to that segment, so
that ``/blog/first/`` and ``/blog/second/`` are neighbours. The pages of one script, ``/item?id=1`` and
``/item?id=2``, share ``item?``. Nothing is decoded, and any text has a place: hostile URLs cost their length.

A directory has its place and, for each of the last 8 cycles in which it was visited, three sums; those of a
site or of the crawl are sums over directories. All are exact in any order of summation, so that a crawl and
a replay come to the same bits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.scoring.rates import whole_units

PREFIXES: Final = 3
"""Levels between a site and its directories: the pages whose paths share 1, 2, 3 segments."""
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,60})://([^/?#]*)(.*)", re.DOTALL)
"""Scheme, what stands before the path, and the rest."""
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class Place(NamedTuple):
    """Place of a page; each text is without a leading slash."""

    site: str
    directory: str

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The first 1, 2, 3 segments of the directory, as far as there are so many."""
        segments = self.directory.split("/", PREFIXES)[:-1]
        return tuple("/".join(segments[: n + 1]) + "/" for n in range(len(segments)))

    @property
    def site_key(self) -> int:
        """Key of the site, 64 bits."""
        return _key(self.site)

    def keys(self) -> tuple[int, ...]:
        """Keys of directory, site and the three prefixes, 64 bits each; 0: there is none."""
        prefixes = (*self.prefixes, *[None] * PREFIXES)[:PREFIXES]
        return (
            _key(self.site, "\n", self.directory),
            self.site_key,
            *(0 if prefix is None else _key(self.site, "\t", prefix) for prefix in prefixes),
        )


def place_of_url(url: str) -> Place:
    """The place of a URL: by host and port, without what else stands before the path."""
    match = _URL.match(url)
    if match is None:
        return Place("", directory_of(url))
    scheme, host, path = match.groups()
    site = host.rpartition("@")[2].lower().removesuffix(".")
    if ":" in site:
        site = site.replace(".:", ":")
        site = site.removesuffix(_DEFAULT_PORTS.get(scheme.lower(), "\n"))
    return Place(site, directory_of(path))


def directory_of(path: str) -> str:
    """The directory of a path, which may have a query and a fragment."""
    path, query, _ = path.partition("#")[0].partition("?")
    path = path.removeprefix("/")
    if query:
        return f"{path}?"
    head, slash, _ = path.removesuffix("/").rpartition("/")
    return head + slash


def in_scope(directories: Array, site: str, prefix: str) -> npt.NDArray[np.bool_]:
    """Mask ``[G]`` of the directories, dtype `GROUP`, below a path of a site; an empty path has all."""
    is_inside = (directories["site"] == _key(site)) & (prefix == "")
    for name, mark in (("key", "\n"), *((f"prefix_{n}", "\t") for n in range(1, PREFIXES + 1))):
        is_inside |= directories[name] == _key(site, mark, prefix)
    return np.asarray(is_inside)


def _key(*parts: str) -> int:
    """Hash of texts, 64 bits; never 0, which means no group."""
    raw = "".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") or 1


KEPT_CYCLES: Final = 8
"""Finished cycles whose visits to groups are stored."""

GROUP: Final = np.dtype(
    [("key", "<u8"), ("site", "<u8"), *[(f"prefix_{n}", "<u8") for n in range(1, PREFIXES + 1)]]
)
"""A directory by the numbers of `scrapy_gp4c.page_state.groups.Place.keys`."""
GROUP_VISITS: Final = np.dtype(
    [
        ("group", "<u4"),  # number of the directory
        ("visits", "<u4"),  # judged
        ("changes", "<u4"),  # changes
        ("predicted", "<f8"),  # changes expected, whole units of `scrapy_gp4c.scoring.rates.UNIT`
        ("warmup_visits", "<u4"),  # judged ones in the warm-up, outside the budget
        ("warmup_changes", "<u4"),  # changes that these found
    ]
)
"""Sums over the visits of a cycle to one directory."""
SUMS: Final = (GROUP_VISITS.names or ())[1:]
NO_VISITS: Final = np.empty(0, GROUP_VISITS)


@dataclass(frozen=True)
class Directories:
    """Directories 0..G-1, and how they make up sites 0..S-1."""

    site: npt.NDArray[np.intp]
    """``[G]``: number of the site."""
    sites: int
    unnamed: bool = False
    """Whether only sites are known: each is taken for one directory."""

    def __len__(self) -> int:
        return len(self.site)


def directories(keys_of_sites: Array) -> Directories:
    """Directories by the keys of their sites, ``[G]``."""
    keys, number = np.unique(keys_of_sites, return_inverse=True)
    return Directories(number.astype(np.intp, copy=False), len(keys))


def count_visits(
    groups: Array, changed: Array, predicted: Array | None, is_warmup: Bools | None = None
) -> npt.NDArray[Any]:
    """Sums over judged visits by directory, ascending: dtype `GROUP_VISITS`.

    ``groups``: directory of each visit, ``[V]``; ``changed``: bool ``[V]``; ``predicted``: probability of a
    change before the visit, ``[V]``, or None; ``is_warmup``: ``[V]``, None: no visit is. Crawls and replays
    update groups by this function alone.
    """
    if not len(groups):
        return NO_VISITS
    numbers = np.flatnonzero(np.bincount(groups) > 0)

    def count(which: Bools | slice) -> Array:
        return np.bincount(groups[which], minlength=numbers[-1] + 1)[numbers]

    table = np.zeros(len(numbers), GROUP_VISITS)
    table["group"], table["visits"], table["changes"] = numbers, count(slice(None)), count(changed)
    if predicted is not None:
        table["predicted"] = np.bincount(groups, whole_units(predicted))[numbers]
    if is_warmup is not None:
        table["warmup_visits"], table["warmup_changes"] = count(is_warmup), count(is_warmup & changed)
    return table


def count_changes(groups: Array, changed: Array) -> npt.NDArray[Any]:
    """`count_visits` where nothing is predicted, and some pages are in no group (a negative number)."""
    known = groups >= 0
    return count_visits(groups[known], changed[known], None)


def add_up(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Sum of several tables, dtype `GROUP_VISITS`: of the parts of a cycle, or of several cycles."""
    joined = np.concatenate([NO_VISITS, *parts])
    if len(parts) < 2 or not len(joined):
        return joined
    group = joined["group"]
    numbers = np.flatnonzero(np.bincount(group) > 0)
    table = np.empty(len(numbers), GROUP_VISITS)
    table["group"] = numbers
    for name in SUMS:
        table[name] = np.bincount(group, joined[name])[numbers]
    return table
