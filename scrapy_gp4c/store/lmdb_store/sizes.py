"""How much a store takes at a time."""

from __future__ import annotations

from typing import Final, NamedTuple

BLOCKS_TOGETHER: Final = 4
"""That are told at a time where some columns are read: what is done with each costs less then."""


class Sizes(NamedTuple):
    """How much a store takes at a time; a test takes little, to have many of each."""

    block_rows: int = 16_384
    """Pages per block of a new store; an existing store remembers its own."""
    commit_visits: int = 100
    visits_per_chunk: int = 16_384
    plan_rows: int = 16_384
    """Pages per chunk of a plan."""
    chunks_per_transaction: int = 64
    blocks_per_transaction: int = 4
    """Of a fold: what a transaction changes is in memory twice, and the system takes long to give that."""
    pages_per_transaction: int = 65_536
    map_size: int = 2**40
    """Address space in bytes, not disk: the most that a store can grow to."""


USUAL: Final = Sizes()
