"""The plan of the open cycle, of which each shard keeps its pages, and where in each round they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.outcomes import PLAN, VISIT
from scrapy_gp4c.store.records import CycleRecord, RoundCounts
from scrapy_gp4c.store.shards.numbers import Numbers
from scrapy_gp4c.store.shards.part import Shard

Array = npt.NDArray[Any]

_CHUNK: Final = 16_384


def rounds_of(shards: Sequence[Shard]) -> list[RoundCounts]:
    """The rounds that all shards have."""
    own = [one.rounds() for one in shards]
    return [
        RoundCounts(planned=sum(one["planned"] for one in parts), seen=sum(one["seen"] for one in parts))
        for parts in zip(*own, strict=False)
    ]


def plan_of(shards: Sequence[Shard], numbers: Numbers) -> Iterator[Array]:
    """Yield the plan of these rounds, dtype `PLAN`, in chunks, first to visit first. Memory: a round."""
    rounds = rounds_of(shards)
    plans = [_split(one, len(rounds)) if rounds else [] for one in shards]
    for number, counts in enumerate(rounds):
        whole = np.empty(counts["planned"], PLAN)
        for shard, one in enumerate(shards):
            part = plans[shard][number].copy()
            part["page"] = numbers.pages_of(shard, part["page"])
            whole[one.positions(number)] = part
        for start in range(0, len(whole), _CHUNK):
            yield whole[start : start + _CHUNK]


def _split(shard: Shard, rounds: int) -> list[Array]:
    """The plan of a shard by round."""
    plan = np.concatenate([np.empty(0, PLAN), *shard.plan()])
    ends = np.cumsum([one["planned"] for one in shard.rounds()])
    return np.split(plan, ends)[:rounds]


def add_round(
    shards: Sequence[Shard],
    numbers: Numbers,
    chunks: Iterable[Array],
    seen: Sequence[int],
    about: CycleRecord,
) -> None:
    """Write the plan of the next round to all shards; ``seen``: visits of each that it was made from."""
    whole = np.concatenate([np.empty(0, PLAN), *chunks])
    nothing = np.empty(0, np.uint32)
    own = {part.shard: part for part in numbers.by_shard(whole["page"])}
    for shard, one in enumerate(shards):
        part, rows = np.empty(0, PLAN), nothing
        if shard in own:
            rows = own[shard].rows.astype(np.uint32)
            part = whole[rows]
            part["page"] = own[shard].pages
        one.add_part(part, rows, seen[shard], about)


def order_of_visits(shards: Sequence[Shard]) -> npt.NDArray[np.uint16]:
    """Shard of each visit of the open cycle, ``[V]``, in an order in which they may have been recorded.

    By time, but what a round has seen comes before what it has not, whatever the clock said.
    """
    time, segment, shard = [np.empty(0)], [np.empty(0, np.intp)], [np.empty(0, np.uint16)]
    for number, one in enumerate(shards):
        visits = one.open_visits() if one.open_cycle is not None else np.empty(0, VISIT)
        seen = [counts["seen"] for counts in one.rounds()] if one.open_cycle is not None else []
        # A clock that was set back must not turn a shard's own order.
        time.append(np.maximum.accumulate(visits["time"]))
        segment.append(
            np.searchsorted(
                np.maximum.accumulate(np.array(seen, np.int64)), np.arange(len(visits)), side="right"
            )
        )
        shard.append(np.full(len(visits), number, np.uint16))
    order = np.lexsort((np.concatenate(time), np.concatenate(segment)))
    return np.concatenate(shard)[order]
