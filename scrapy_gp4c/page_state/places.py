"""Where a page is: its site, the first segments of its path, and its directory.

The directory is the path without its last segment; a slash at the end belongs to that segment, so that
``/blog/first/`` and ``/blog/second/`` are neighbours. The pages of one script, ``/item?id=1`` and
``/item?id=2``, share ``item?``. Nothing is decoded, and any text has a place: hostile URLs cost their length.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final, NamedTuple

PREFIXES: Final = 3
"""Levels between a site and its directories: the pages whose paths share 1, 2, 3 segments."""
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,60})://([^/?#]*)(.*)", re.DOTALL)
"""Scheme, what stands before the path, and the rest."""
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class Place(NamedTuple):
    """Where a page is; each text is without a leading slash."""

    site: str
    directory: str

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The first 1, 2, 3 segments of the directory, as far as there are so many."""
        segments = self.directory.split("/", PREFIXES)[:-1]
        return tuple("/".join(segments[: n + 1]) + "/" for n in range(len(segments)))

    @property
    def site_key(self) -> int:
        """64 bits that tell the site from others."""
        return _key(self.site)

    def keys(self) -> tuple[int, ...]:
        """64 bits each that tell directory, site and the three prefixes from others; 0: there is none."""
        prefixes = (*self.prefixes, *[None] * PREFIXES)[:PREFIXES]
        return (
            _key(self.site, "\n", self.directory),
            self.site_key,
            *(0 if prefix is None else _key(self.site, "\t", prefix) for prefix in prefixes),
        )


def place_of_url(url: str) -> Place:
    """The place of a URL: by host and port, without what else stands before the path."""
    found = _URL.match(url)
    if found is None:
        return Place("", directory_of(url))
    scheme, host, rest = found.groups()
    site = host.rpartition("@")[2].lower()
    if ":" in site:
        site = site.removesuffix(_DEFAULT_PORTS.get(scheme.lower(), "\n"))
    return Place(site, directory_of(rest))


def place_of_page(site: str, page: str) -> Place:
    """The place of a page of a history: ``page`` is a path, or the whole URL."""
    return Place(site, place_of_url(page).directory)


def directory_of(path: str) -> str:
    """The directory of a path, which may have a query and a fragment."""
    path, query, _ = path.partition("#")[0].partition("?")
    path = path.removeprefix("/")
    if query:
        return f"{path}?"
    head, slash, _ = path.removesuffix("/").rpartition("/")
    return head + slash


def _key(*parts: str) -> int:
    """Never 0: that is no group."""
    raw = "".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") or 1
