"""What sites claim, what visits gained and what pages weigh, in several shards as in one store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.records import TRUST
from scrapy_gp4c.store.shards.numbers import Numbers
from scrapy_gp4c.store.shards.part import Shard

Array = npt.NDArray[Any]


class ShardedHints:
    """What `scrapy_gp4c.store.page_store.PageHints` describes."""

    def __init__(self, shards: Sequence[Shard], numbers: Numbers) -> None:
        """Take the shards."""
        self._shards, self._numbers = shards, numbers

    def find(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Page ids of page keys, ``[K]``; -1 for those that are not known."""
        return self._numbers.find_many(keys)

    def note(self, pages: Array, kind: str, values: Array) -> None:
        """Note claims of pages in the open cycle; each shard commits its own."""
        for own in self._numbers.by_shard(pages):
            self._shards[own.shard].hints.note(own.pages, kind, values[own.rows])

    def tell(self, pages: Array, time_s: float) -> None:
        """Note that pages have changed at a time, and commit."""
        for own in self._numbers.by_shard(pages):
            self._shards[own.shard].hints.tell(own.pages, time_s)

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield the claims of finished cycles, dtype `CLAIM`."""
        end = min(one.last_cycle for one in self._shards)
        for cycle in range(first, (end if last is None else min(last, end)) + 1):
            for shard, one in enumerate(self._shards):
                for _, claimed in one.hints.of_cycles(cycle, cycle):
                    yield cycle, renumbered(self._numbers, shard, claimed)

    def trust(self) -> Array:
        """Counts of all sites, dtype `TRUST`, by site: no site is in two shards."""
        rows = np.concatenate([np.empty(0, TRUST), *(one.hints.trust() for one in self._shards)])
        return np.sort(rows, order="site")


class ShardedGains:
    """What `scrapy_gp4c.store.page_store.PageGains` describes; nothing more can be measured."""

    def __init__(self, shards: Sequence[Shard], numbers: Numbers) -> None:
        """Take the shards."""
        self._shards, self._numbers = shards, numbers

    @property
    def log(self) -> str | None:
        """What the gains are measured by; None: nothing was ever measured."""
        return self._shards[0].gains.log

    @property
    def since(self) -> int:
        """First cycle whose gains are in the columns."""
        return self._shards[0].gains.since

    def begin(self, log: str, since: int | None = None) -> bool:
        """Raise StoreError: a search index knows pages by numbers that shards do not keep."""
        raise self._unmeasured()

    def keep(self, gains: Array) -> None:
        """Raise StoreError."""
        raise self._unmeasured()

    def _unmeasured(self) -> StoreError:
        return StoreError(
            f"expected one store to measure searches by; found the shards in {self._shards[0].path.parent}. "
            "Crawl without GP4C_QUERY_LOG, or join the shards first."
        )

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, gains) of finished cycles, dtype `GAIN`."""
        end = min(one.last_cycle for one in self._shards)
        for cycle in range(first, (end if last is None else min(last, end)) + 1):
            for shard, one in enumerate(self._shards):
                for _, gains in one.gains.of_cycles(cycle, cycle):
                    yield cycle, renumbered(self._numbers, shard, gains)


class ShardedWeights:
    """What `scrapy_gp4c.store.page_store.PageWeights` describes."""

    def __init__(self, shards: Sequence[Shard], numbers: Numbers) -> None:
        """Take the shards."""
        self._shards, self._numbers = shards, numbers

    def of(self, page: int) -> float:
        """Weight of a page, as the newest request or list has it."""
        shard, local = self._numbers.place(page)
        return self._shards[shard].weights.of(local)

    def put(self, pages: Array, values: npt.NDArray[np.float64]) -> None:
        """Set the weights of pages, ``[P]``, and commit."""
        for own in self._numbers.by_shard(pages):
            self._shards[own.shard].weights.put(own.pages, values[own.rows])


def renumbered(numbers: Numbers, shard: int, rows: Array) -> Array:
    """Rows of a shard with a field ``page``, under the ids of the whole."""
    moved = rows.copy()
    moved["page"] = numbers.pages_of(shard, rows["page"])
    return moved
