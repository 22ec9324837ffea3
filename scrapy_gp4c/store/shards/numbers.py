"""The numbers of pages: which page of the whole is which of a shard, and which shard has a key.

Pages with columns come first, those of one shard behind those of another; then the pages that the open cycle
found, whatever shard they are in, in the order in which they were found.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring.discovery import GUESTS
from scrapy_gp4c.store.shards.part import Shard

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]


class Own(NamedTuple):
    """What of some pages is in one shard."""

    shard: int
    """Its place among the shards that are open."""
    rows: npt.NDArray[np.intp]
    """Which of the pages, ascending."""
    pages: npt.NDArray[np.uint32]
    """Their ids in the shard."""


class Numbers:
    """Page ids of the whole and of its shards."""

    def __init__(self, shards: Sequence[Shard], has_guests: bool = False) -> None:
        """Take the open shards; `load` reads them.

        ``has_guests``: pages from `GUESTS` on are in no shard; their place is behind the last one.
        """
        self._shards = shards
        self._guests = GUESTS if has_guests else 2**64
        self.load()

    def load(self) -> None:
        """Number the pages as the shards have them now: those found in the open cycle shard by shard."""
        self._merged = [one.merged_pages for one in self._shards]
        self.first: list[int] = [0, *np.cumsum(self._merged).tolist()]
        """First page of each shard."""
        self.merged = self.first[-1]
        groups = [len(one.directories()) for one in self._shards]
        self.first_group: list[int] = [0, *np.cumsum(groups).tolist()]
        """First directory of each shard."""
        self._new_shard, self._new_local = array("H"), array("I")
        self._new_of = [array("I") for _ in self._shards]
        self._new_key: dict[int, int] = {}
        self._keys: _Keys | None = None
        for number, one in enumerate(self._shards):
            for local in one.new_pages():
                if local >= self._merged[number]:  # else it has its columns: a fold was interrupted
                    self.add(number, local, one.page(local).key)

    @property
    def pages(self) -> int:
        """Number of known pages."""
        return self.merged + len(self._new_shard)

    def add(self, shard: int, local: int, key: int) -> int:
        """Number a page that was found just now; returns its id."""
        page = self.pages
        self._new_of[shard].append(page - self.merged)
        self._new_shard.append(shard)
        self._new_local.append(local)
        self._new_key[key] = page
        return page

    def place(self, page: int) -> tuple[int, int]:
        """Shard of a page, and its id there; raises ValueError where there is no such page."""
        if 0 <= page < self.merged:
            shard = bisect_right(self.first, page) - 1
            return shard, page - self.first[shard]
        if page >= self._guests:
            return len(self._shards), page
        if not self.merged <= page < self.pages:
            raise ValueError(f"there is no page {page}: the store has {self.pages}")
        return self._new_shard[page - self.merged], self._new_local[page - self.merged]

    def page(self, shard: int, local: int) -> int:
        """Id of a page of a shard."""
        merged = self._merged[shard]
        if local < merged:
            return self.first[shard] + local
        return self.merged + self._new_of[shard][local - merged]

    def pages_of(self, shard: int, local: Array) -> Ids:
        """Ids of pages of a shard, ``[P]``."""
        found, merged = local.astype(np.int64), self._merged[shard]
        is_new = found >= merged
        new = np.frombuffer(self._new_of[shard], np.uint32) if self._new_of[shard] else np.empty(0, np.uint32)
        return np.where(is_new, self.merged + _taken(new, found - merged), found + self.first[shard])

    def by_shard(self, pages: Array) -> Iterator[Own]:
        """Yield the shards that some pages are in; raises ValueError where there is no such page."""
        ids = pages.astype(np.int64)
        if len(ids):
            self.place(int(ids.min()))
            self.place(int(ids.max()))
        shard = np.searchsorted(self.first, ids, side="right") - 1
        local = ids - np.asarray(self.first)[np.minimum(shard, len(self._shards) - 1)]
        is_new = ids >= self.merged
        if is_new.any():
            at = ids[is_new] - self.merged
            shard[is_new] = np.frombuffer(self._new_shard, np.uint16)[at]
            local[is_new] = np.frombuffer(self._new_local, np.uint32)[at]
        order = np.argsort(shard, kind="stable")
        present, starts = np.unique(shard[order], return_index=True)
        for number, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=False):
            yield Own(number, rows, local[rows].astype(np.uint32))

    def find(self, key: int) -> int | None:
        """Id of a page by its key, or None."""
        page = self._new_key.get(key)
        if page is not None:
            return page
        for shard in self._known().candidates(key):
            local = self._shards[shard].find(key)
            if local is not None:
                return self.page(shard, local)
        return None

    def find_many(self, keys: npt.NDArray[np.uint64]) -> Ids:
        """Ids of pages by their keys, ``[K]``; -1 for those that are not known."""
        found = np.array([self._new_key.get(key, -1) for key in keys.tolist()], np.int64)
        for shard, rows in self._known().candidates_of(keys):
            local = self._shards[shard].hints.find(keys[rows])
            there = (local >= 0) & (found[rows] < 0)
            found[rows[there]] = self.pages_of(shard, local[there])
        return found

    def _known(self) -> _Keys:
        if self._keys is None:
            self._keys = _Keys(self._shards, self.merged)
        return self._keys


class _Keys:
    """In which shard a key may be: by its upper half, so that few are looked for in vain."""

    def __init__(self, shards: Sequence[Shard], pages: int) -> None:
        """Read the keys of all pages. Memory: 6 bytes each, 30 for a moment."""
        half, shard, at = np.empty(pages, np.uint32), np.empty(pages, np.uint16), 0
        for number, one in enumerate(shards):
            for _, block in one.blocks({"key"}):
                rows = slice(at, at + len(block["key"]))
                half[rows], shard[rows] = block["key"] >> np.uint64(32), number
                at = rows.stop
        order = np.argsort(half, kind="stable")
        self._half, self._shard = half[order], shard[order]
        self._halves = self._half.data  # a number of NumPy's takes longer to compare than to find

    def candidates(self, key: int) -> Sequence[int]:
        """Shards that may have a key."""
        half = key >> 32
        first = at = bisect_left(self._halves, half)
        while at < len(self._halves) and self._halves[at] == half:
            at += 1
        return self._shard[first:at].tolist() if at > first else ()

    def candidates_of(self, keys: npt.NDArray[np.uint64]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """Yield shards, and which of some keys each may have."""
        half = (keys >> np.uint64(32)).astype(np.uint32)
        first, stop = self._half.searchsorted(half), self._half.searchsorted(half, side="right")
        counts = stop - first
        rows = np.repeat(np.arange(len(keys)), counts)
        at = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(rows))
        shard = self._shard[at]
        for number in np.unique(shard).tolist():
            yield number, np.unique(rows[shard == number])


def _taken(values: Array, at: Ids) -> Array:
    """Values at some places; any value at places that there are not."""
    return (
        values.astype(np.int64)[np.clip(at, 0, len(values) - 1)]
        if len(values)
        else np.zeros(len(at), np.int64)
    )
