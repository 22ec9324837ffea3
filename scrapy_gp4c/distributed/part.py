"""What a worker has of a cycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.distributed.catching_up import Home
from scrapy_gp4c.distributed.leases import Lease
from scrapy_gp4c.distributed.rounds import Exchange, SharedRounds
from scrapy_gp4c.distributed.shared_store import SharedStore


class Part(NamedTuple):
    """Its shards, open and caught up, and the cycle as they have it."""

    cycle: Cycle
    store: SharedStore
    rounds: SharedRounds
    exchange: Exchange
    leases: list[Lease]
    home: Home


Again = Callable[[int], Awaitable[Part]]
"""Opens a part of this cycle anew, with shards that others lost; raises NothingDueError if it is over."""
