"""Which shard a page belongs to: all pages of a host are in one, whatever port and scheme they have.

The rule is for ever: a shard that was made by it is looked for by it. What is hashed is the name of the host
as DNS knows it, so that all spellings of a name are one.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_intdigest

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.groups import place_of_url

SHARDS: Final = 64
"""How many shards a store is divided into, unless somebody says otherwise."""
MOST_SHARDS: Final = 1024
HOSTLESS: Final = 0
"""Shard of what has no host."""


def check_shards(shards: int) -> None:
    """Raise StoreError for a number of shards that is none."""
    if not 1 <= shards <= MOST_SHARDS:
        raise StoreError(f"expected 1 to {MOST_SHARDS:,} shards; found {shards:,}. Give another number.")


def host_name(host: str) -> bytes:
    """The name of a host as it is hashed: in ASCII (IDNA 2003), lower case, without port, dot at the end
    and one ``www.``.

    ``host``: as in a URL, without user and password. What IDNA cannot write (a label of more than 63 bytes)
    is taken as it is, in UTF-8.
    """
    bare = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    try:
        name = bare.encode("ascii" if bare.isascii() else "idna")
    except UnicodeError:
        name = bare.encode("utf-8", "surrogatepass")
    return name.lower().rstrip(b".").removeprefix(b"www.")


def shard_of(host: str, shards: int = SHARDS) -> int:
    """The shard of a host's pages, 0..shards-1: the XXH3 hash (64 bits) of `host_name`, modulo ``shards``.

    ``host``: with or without a port; `HOSTLESS` of an empty one. Raises StoreError for a number of shards
    beyond 1..1,024.
    """
    check_shards(shards)
    name = host_name(host)
    return xxh3_64_intdigest(name) % shards if name else HOSTLESS


def shard_of_url(url: str, shards: int) -> int:
    """The shard of a page that was found by this URL."""
    return shard_of(place_of_url(url).site, shards)
