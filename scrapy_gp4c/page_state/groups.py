"""Groups of pages: sites, path prefixes and directories, and sums over the visits to them.

The directory of a page is the path without its last segment; a slash at the end belongs to that segment, so
that ``/blog/first/`` and ``/blog/second/`` are neighbours. The pages of one script, ``/item?id=1`` and
``/item?id=2``, share ``item?``. Nothing is decoded, any text has a directory, and time is linear in the URL.

A directory has, for each of the last 8 cycles in which it was visited, the sums of `GROUP_VISITS`; those of a
site or of the crawl are sums over directories. All are multiples of one unit, and so exact in any order of
summation: a crawl and a replay come to the same bits.
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
"""Scheme, host with port and user, and the rest of a URL."""
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class Place(NamedTuple):
    """Site and directory of a page."""

    site: str
    """Host and port, in lower case, without a default port."""
    directory: str
    """Path without its last segment and the leading slash, such as ``blog/2024/``."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The first 1, 2, 3 segments of the directory, such as ``blog/``, as far as it has so many."""
        segments = self.directory.split("/", PREFIXES)[:-1]
        return tuple("/".join(segments[: n + 1]) + "/" for n in range(len(segments)))

    @property
    def site_key(self) -> int:
        """Hash of the site's name, 64 bits."""
        return _key(self.site)

    def keys(self) -> tuple[int, ...]:
        """Hashes of directory, site and the three prefixes, 64 bits each; 0: no such prefix."""
        prefixes = (*self.prefixes, *[None] * PREFIXES)[:PREFIXES]
        return (
            _key(self.site, "\n", self.directory),
            self.site_key,
            *(0 if prefix is None else _key(self.site, "\t", prefix) for prefix in prefixes),
        )


def place_of_url(url: str) -> Place:
    """Return site and directory of a URL; scheme, user and default port make no difference."""
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
    """Return the directory of a URL's path, which may be followed by a query and a fragment."""
    path, query, _ = path.partition("#")[0].partition("?")
    path = path.removeprefix("/")
    if query:
        return f"{path}?"
    head, slash, _ = path.removesuffix("/").rpartition("/")
    return head + slash


def in_scope(directories: Array, site: str, prefix: str) -> npt.NDArray[np.bool_]:
    """Mask ``[G]`` of the directories, dtype `GROUP`, of a site whose path begins with `prefix` (all: "")."""
    is_inside = (directories["site"] == _key(site)) & (prefix == "")
    for name, mark in (("key", "\n"), *((f"prefix_{n}", "\t") for n in range(1, PREFIXES + 1))):
        is_inside |= directories[name] == _key(site, mark, prefix)
    return np.asarray(is_inside)


def _key(*parts: str) -> int:
    """Hash the joined texts to 64 bits; never 0, which stands for no group."""
    raw = "".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") or 1


KEPT_CYCLES: Final = 8
"""Number of last finished cycles whose sums of visits by directory are stored."""

GROUP: Final = np.dtype(
    [("key", "<u8"), ("site", "<u8"), *[(f"prefix_{n}", "<u8") for n in range(1, PREFIXES + 1)]]
)
"""A directory as the hashes of `Place.keys`."""
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
    """Site of each directory; the G directories and S sites are numbered from 0."""

    site: npt.NDArray[np.intp]
    """``[G]``: number of each directory's site."""
    sites: int
    """Number of sites."""
    unnamed: bool = False
    """Whether only sites are known, and each of them stands for one directory."""

    def __len__(self) -> int:
        return len(self.site)


def directories(keys_of_sites: Array) -> Directories:
    """Number the sites of directories, given the key of each directory's site, ``[G]``."""
    keys, number = np.unique(keys_of_sites, return_inverse=True)
    return Directories(number.astype(np.intp, copy=False), len(keys))


def count_visits(
    groups: Array, changed: Array, predicted: Array | None, is_warmup: Bools | None = None
) -> npt.NDArray[Any]:
    """Sum up judged visits (outcomes `JUDGED`) by directory: dtype `GROUP_VISITS`, directories ascending.

    ``groups``: directory of each visit, ``[V]``; ``changed``: bool ``[V]``; ``predicted``: probability of a
    change before the visit, ``[V]``, or None; ``is_warmup``: ``[V]``, None: no visit is in the warm-up.
    Crawls and replays sum up by this function alone.
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
    """Count visits and changes by group, as `count_visits`, of visits that have a group (0 or above)."""
    known = groups >= 0
    return count_visits(groups[known], changed[known], None)


def add_up(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Add up tables of dtype `GROUP_VISITS`, as of the parts of a cycle, into one row per directory."""
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
