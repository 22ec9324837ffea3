"""What a worker may take of the caps on new pages, for those that a cycle finds beside its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import LmdbShard
from scrapy_gp4c.store.shards.part import ShardOf


def with_quotas(settings: Settings, shards: Sequence[LmdbShard]) -> Settings:
    """Settings of who holds these shards, whose round 0 is planned: its caps are what they have together.

    A shard has the pages that it knows, or plans to fetch for the first time, and an equal share of what the
    cap leaves beside those of all shards: so all workers together never take more than it allows. A site is
    in one shard, hence caps on sites are as they are.
    """
    max_pages, new_pages = 0, 0
    for one in shards:
        plan = one.cycles()[-1]["plan"]
        if "whole" not in plan:  # it is the only one
            return settings
        whole = plan["whole"]
        max_pages += plan["known"] + share(settings.max_pages - whole["known"], one.shard_of)
        new_pages += plan["new"] + share((settings.new_pages or 0) - whole["new"], one.shard_of)
    if settings.new_pages is None:
        return dataclasses.replace(settings, max_pages=max_pages)
    return dataclasses.replace(settings, max_pages=max_pages, new_pages=new_pages)


def share(left: int, shard: ShardOf) -> int:
    """Return what a shard has of so many: the first ones have one more where it does not come out even."""
    return max(0, left) // shard.shards + (shard.number < max(0, left) % shard.shards)
