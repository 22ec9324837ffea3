"""Computing directories, rates and what cycles found in directories anew, from the URLs and the visits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import (
    GROUP,
    GROUP_VISITS,
    KEPT_CYCLES,
    NO_VISITS,
)
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.store.lmdb_store import groups
from scrapy_gp4c.store.lmdb_store.groups import Numbering, Told, told
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import Tables

Array = npt.NDArray[Any]

_RATE: Final = ("E", "T", "found_cycle")


def directories(tables: Tables) -> Iterator[str]:
    """Yield what is wrong with the directories of pages whose requests can be read."""
    with tables.transaction() as txn:
        first_urls = {
            U32.unpack(page)[0]: json.loads(bytes(url)) for page, url in tables.db["first_urls"].items(txn)
        }
    numbering, expected = Numbering(np.empty(0, np.uint64)), [np.empty(0, GROUP)]
    for first, block in tables.blocks():
        stop = first + len(block["n"])
        try:
            urls = tables.urls(first, stop)
        except StoreError:  # of which the caller has told
            return
        numbered = numbering.number(
            [first_urls.get(page, url) for page, url in zip(range(first, stop), urls, strict=True)]
        )
        expected.append(numbered.new)
        wrong = np.flatnonzero(block["group"] != numbered.group)
        if len(wrong):
            row = wrong[0]
            yield (
                f"page {first + row} is in directory {block['group'][row]}, but in {numbered.group[row]} by "
                f"its URL (and so are {len(wrong) - 1} other pages of its block)"
            )
    kept, told_by_urls = tables.directories(), np.concatenate(expected)
    if len(kept) != len(told_by_urls):
        yield f"there should be {len(told_by_urls)} directories by the URLs; found {len(kept)}"
    elif len(wrong := np.flatnonzero(kept != told_by_urls)):
        yield f"directory {wrong[0]} has other keys than by its URLs (and so have {len(wrong) - 1} others)"


class Replay:
    """The columns that rates are made of, and what is kept of directories, by the visits alone."""

    def __init__(self, tables: Tables) -> None:
        """Begin before the first cycle. Memory: 28 bytes per page."""
        self._tables = tables
        pages = tables.merged_pages
        self._state: Columns = {
            name: np.zeros(pages, terminals.STATE[name]) for name in ("n", "last_cycle", *_RATE)
        }
        self._state["group"] = np.zeros(pages, np.uint32)
        for first, block in tables.blocks():
            group = block["group"][: pages - first]  # a damaged block may have any size
            self._state["group"][first : first + len(group)] = group
        self._parts: list[Told] = []

    def visit(self, visits: Array, cycle: int) -> None:
        """Take some visits of a cycle."""
        rows = visits["page"].astype(np.intp)
        if cycle > self._tables.last_cycle - KEPT_CYCLES:
            self._parts.append(told(self._state, rows, visits["outcome"], cycle))
        columns.observe(self._state, rows, visits["outcome"], cycle)

    def end_cycle(self, cycle: int) -> Iterator[str]:
        """Compare what is kept of a cycle, all of whose visits were taken."""
        expected, kept = groups.counted(self._parts), self._tables.group_visits(cycle)
        self._parts = []
        if cycle <= self._tables.last_cycle - KEPT_CYCLES:
            expected = NO_VISITS
        if cycle <= self._tables.dropped or np.array_equal(expected, kept):
            return
        if self._tables.dropped:  # what was to be expected, the dropped visits told
            names = ["group", "visits", "found"]
            if np.array_equal(expected[names], kept[names]):
                return
        sums = [dict(zip(one["group"].tolist(), one.tolist(), strict=True)) for one in (expected, kept)]
        group = min(number for number in sums[0] | sums[1] if sums[0].get(number) != sums[1].get(number))
        shown = [_in_words(one.get(group)) for one in sums]
        yield f"of cycle {cycle}, {shown[1]} are kept for directory {group}; by its visits it has {shown[0]}"

    def columns(self) -> Columns:
        """Columns of all pages, all visits taken."""
        return {name: self._state[name] for name in _RATE}

    def end(self) -> Iterator[str]:
        """Look for what should have been dropped."""
        with self._tables.transaction() as txn:
            keys = [U32_PAIR.unpack(key) for key in self._tables.db["group_visits"].keys(txn)]
        last = self._tables.last_cycle
        if keys != [(cycle, 0) for cycle in range(max(1, last - KEPT_CYCLES + 1), last + 1)]:
            yield f"the visits to directories should be those of the last {KEPT_CYCLES} cycles; found {keys}"


def _in_words(visits: tuple[Any, ...] | None) -> str:
    _, judged, found, predicted = visits or (0,) * len(GROUP_VISITS.names or ())
    return f"{judged} judged visits with {found} changes, {predicted} expected"
