"""Directories of a store's pages, and what the visits of the last cycles found in them.

`groups` has the directories in blocks, by number: that is the order of their first pages. `group_visits` has
the sums of a cycle's visits by directory: one value when the cycle is finished, before that one for every
part of its fold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import (
    GROUP,
    KEPT_CYCLES,
    Place,
    add_up,
    count_visits,
    place_of_url,
)
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.scoring.terminals import change_probability
from scrapy_gp4c.store.lmdb_store.environment import U32, Table, decode
from scrapy_gp4c.store.lmdb_store.optional_tables import GROUP_ROWS, Handles


class Numbered(NamedTuple):
    """Directories of some pages."""

    group: npt.NDArray[np.uint32]
    """Number of each page's directory, ``[P]``."""
    new: Array
    """New directories, dtype `GROUP`; their numbers follow those of the known directories."""


class Numbering:
    """Numbers of all directories, by which pages that are added in bulk get theirs."""

    def __init__(self, known: Array) -> None:
        """Take the keys of the known directories, uint64 ``[G]``. Memory: 12 bytes each, 28 for a moment."""
        self._keys = np.empty(0, np.uint64)
        self._numbers = np.empty(0, np.uint32)
        self._learn(known)

    def _learn(self, keys: Array) -> None:
        order = np.argsort(keys)
        places = np.searchsorted(self._keys, keys[order])
        numbers = (order + len(self._keys)).astype(np.uint32)
        self._keys = np.insert(self._keys, places, keys[order])
        self._numbers = np.insert(self._numbers, places, numbers)

    def number(self, urls: Sequence[str]) -> Numbered:
        """Return the directories of pages by their URLs; new ones are known from then on."""
        place_numbers: dict[Place, int] = {}
        of_page = [place_numbers.setdefault(place_of_url(url), len(place_numbers)) for url in urls]
        places = directories_at(place_numbers)
        if not len(places):
            return Numbered(np.empty(0, np.uint32), places)
        unknown = places[~np.isin(places["key"], self._keys)]
        first = np.sort(np.unique(unknown["key"], return_index=True)[1])
        self._learn(unknown["key"][first])
        numbers = self._numbers[np.searchsorted(self._keys, places["key"])]
        return Numbered(numbers[of_page], unknown[first])


def directories_at(places: Sequence[Place] | dict[Place, int]) -> Array:
    """Directories by their places, dtype `GROUP`."""
    return np.array([url_place.keys() for url_place in places], GROUP)


def urls_of(requests: Sequence[bytes]) -> list[str]:
    """URLs of stored requests as JSON; empty for what has none. Raises ValueError for what is no JSON."""
    decoded = decode(b"[" + b",".join(requests) + b"]")
    return [str(request.get("url", "")) if isinstance(request, dict) else "" for request in decoded]


def keep_first_url(txn: Any, table: Table, page: int, known: bytes, request: bytes) -> None:
    """Keep the URL that a page was found by where another directory's request replaces its request.

    The page stays in the directory of its first URL, as the sums of past visits cannot move with it.
    """
    old, new = urls_of([known, request])
    if old != new and place_of_url(old) != place_of_url(new):
        table.put(txn, U32.pack(page), json.dumps(old).encode(), overwrite=False)


def append(txn: Any, table: Table, directories: Array, count: int, rows: int) -> None:
    """Append directories, dtype `GROUP`, to the `count` that are there, in blocks of `rows`."""
    start = 0
    while start < len(directories):
        block, filled = divmod(count + start, rows)
        added = directories[start : start + rows - filled].tobytes()
        old = bytes(table.view(txn, U32.pack(block))[: filled * GROUP.itemsize]) if filled else b""
        table.put(txn, U32.pack(block), old + added)
        start += rows - filled


def read(txn: Any, table: Table, count: int) -> Array:
    """Read the first `count` directories, dtype `GROUP`."""
    parts = [np.frombuffer(value, GROUP) for value in _blocks(txn, table, count)]
    return np.concatenate([np.empty(0, GROUP), *parts])[:count]


def read_keys(txn: Any, table: Table, count: int) -> npt.NDArray[np.uint64]:
    """Read the keys of the first `count` directories, uint64."""
    parts = [np.frombuffer(value, GROUP)["key"].copy() for value in _blocks(txn, table, count)]
    return np.concatenate([np.empty(0, np.uint64), *parts])[:count]


def _blocks(txn: Any, table: Table, count: int) -> Iterator[memoryview]:
    """Yield the blocks of the first `count` directories."""
    read = 0
    for number, (key, value) in enumerate(table.items(txn)):
        if key != U32.pack(number):
            raise table.wrong(key, f"block {number} is missing")
        yield value
        read += len(value) // GROUP.itemsize
    if read < count:
        raise table.wrong(U32.pack(0), f"there should be {count} directories by the URLs; found {read}")


class JudgedVisits(NamedTuple):
    """Judged visits and the directories of their pages, each ``[V]``."""

    group: Array
    changed: Array
    predicted: Array


def judged_visits(state: Columns, rows: npt.NDArray[np.intp], outcome: Array, cycle: int) -> JudgedVisits:
    """Judged ones among visits of `cycle`; ``state``: columns before; ``rows``, ``outcome``: ``[V]``."""
    judged = among(outcome, JUDGED)
    before = {name: state[name][rows[judged]] for name in ("group", "E", "T", "last_cycle")}
    return JudgedVisits(before["group"], outcome[judged] == CHANGED, change_probability(before, cycle))


def sums_by_group(parts: Sequence[JudgedVisits]) -> Array:
    """Sums of visits by directory, `GROUP_VISITS`, at a cost by the visits and not by the directories."""
    if not parts:
        return GROUP_ROWS.none()
    group, changed, predicted = map(np.concatenate, zip(*parts, strict=True))
    numbers, local = np.unique(group, return_inverse=True)
    visits = count_visits(local, changed, predicted)
    visits["group"] = numbers
    return visits


def sum_up(txn: Any, db: Handles, cycle: int) -> None:
    """Make one value of the parts of a cycle, and drop what is older than `KEPT_CYCLES` cycles."""
    sums = visits_of(txn, db, cycle)
    GROUP_ROWS.drop(txn, db, 0, cycle - KEPT_CYCLES)
    GROUP_ROWS.drop(txn, db, cycle, cycle)
    GROUP_ROWS.put(txn, db, cycle, 0, sums)


def visits_of(txn: Any, db: Handles, cycle: int) -> Array:
    """Sums of a cycle's visits by directory, dtype `GROUP_VISITS`; empty for one without, or dropped."""
    return add_up([rows for _, rows in GROUP_ROWS.parts(txn, db, cycle, cycle)])
