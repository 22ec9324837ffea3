"""The directories of a store's pages, and what the last cycles' visits found in them.

`groups` has the directories in blocks, in the order in which they were come upon; `group_visits` what a
cycle's visits tell of them: one value when the cycle is over, and until then one of every part of its fold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import (
    GROUP,
    GROUP_VISITS,
    KEPT_CYCLES,
    Place,
    add_up,
    count_visits,
    place_of_url,
)
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.scoring.terminals import change_probability
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR, Table, decode

Array = npt.NDArray[Any]


class Numbered(NamedTuple):
    """The directories of some pages."""

    group: npt.NDArray[np.uint32]
    """Of each page, ``[P]``."""
    new: Array
    """Those that were not known before, dtype `GROUP`: their numbers go on from the known ones'."""


class Numbering:
    """The numbers of all directories: what pages that are added in bulk get theirs from."""

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
        """Tell the directories of pages by their URLs; new ones are known from then on."""
        came_upon: dict[Place, int] = {}
        of_page = [came_upon.setdefault(place_of_url(url), len(came_upon)) for url in urls]
        places = directories_at(came_upon)
        if not len(places):
            return Numbered(np.empty(0, np.uint32), places)
        unknown = places[~np.isin(places["key"], self._keys)]
        first = np.sort(np.unique(unknown["key"], return_index=True)[1])
        self._learn(unknown["key"][first])
        numbers = self._numbers[np.searchsorted(self._keys, places["key"])]
        return Numbered(numbers[of_page], unknown[first])


def directories_at(places: Sequence[Place] | dict[Place, int]) -> Array:
    """Directories by their places, dtype `GROUP`."""
    return np.array([place.keys() for place in places], GROUP)


def urls_of(requests: Sequence[bytes]) -> list[str]:
    """URLs of stored requests as JSON; empty for what has none. Raises ValueError for what is no JSON."""
    decoded = decode(b"[" + b",".join(requests) + b"]")
    return [str(request.get("url", "")) if isinstance(request, dict) else "" for request in decoded]


def keep_first_url(txn: Any, table: Table, page: int, known: bytes, request: bytes) -> None:
    """Keep the URL that a page was found by, if its request is replaced by one to another directory.

    Its directory stays, as what was found there cannot move with it. The first URL stays too.
    """
    old, new = urls_of([known, request])
    if old != new and place_of_url(old) != place_of_url(new):
        table.put(txn, U32.pack(page), json.dumps(old).encode(), overwrite=False)


def append(txn: Any, table: Table, directories: Array, count: int, rows: int) -> None:
    """Append directories, dtype `GROUP`, to the `count` that are there, in blocks of `rows`."""
    start = 0
    while start < len(directories):
        block, filled = divmod(count + start, rows)
        part = directories[start : start + rows - filled].tobytes()
        old = bytes(table.view(txn, U32.pack(block))[: filled * GROUP.itemsize]) if filled else b""
        table.put(txn, U32.pack(block), old + part)
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


class Told(NamedTuple):
    """What judged visits tell of the directories of their pages, each ``[V]``."""

    group: Array
    changed: Array
    predicted: Array


def told(state: Columns, rows: npt.NDArray[np.intp], outcome: Array, cycle: int) -> Told:
    """What visits of `cycle` tell, by the columns as they were before: ``rows``, ``outcome`` ``[V]``."""
    judged = among(outcome, JUDGED)
    before = {name: state[name][rows[judged]] for name in ("group", "E", "T", "last_cycle")}
    return Told(before["group"], outcome[judged] == CHANGED, change_probability(before, cycle))


def counted(parts: Sequence[Told]) -> Array:
    """Count what some visits tell, at a cost by the visits and not by the directories: `GROUP_VISITS`."""
    if not parts:
        return np.empty(0, GROUP_VISITS)
    group, changed, predicted = map(np.concatenate, zip(*parts, strict=True))
    numbers, local = np.unique(group, return_inverse=True)
    visits = count_visits(local, changed, predicted)
    visits["group"] = numbers
    return visits


def put_part(txn: Any, table: Table, cycle: int, number: int, part: Array) -> None:
    """Keep a part of what a cycle's visits tell, dtype `GROUP_VISITS`, until `sum_up`."""
    table.put(txn, U32_PAIR.pack(cycle, number), part.tobytes())


def sum_up(txn: Any, table: Table, cycle: int) -> None:
    """Make one value of the parts of a cycle, and drop what is older than `KEPT_CYCLES` cycles."""
    whole = visits_of(txn, table, cycle)
    last_dropped = cycle - KEPT_CYCLES
    for key in [key for key, _ in _parts(txn, table, 0, last_dropped)]:
        table.delete(txn, key)
    for key in [key for key, _ in _parts(txn, table, cycle, cycle)]:
        table.delete(txn, key)
    put_part(txn, table, cycle, 0, whole)


def visits_of(txn: Any, table: Table, cycle: int) -> Array:
    """What the visits of a cycle tell, dtype `GROUP_VISITS`; empty for one without, or dropped."""
    return add_up([np.frombuffer(value, GROUP_VISITS) for _, value in _parts(txn, table, cycle, cycle)])


def _parts(txn: Any, table: Table, first_cycle: int, last_cycle: int) -> list[tuple[bytes, memoryview]]:
    """Keys and values of the parts of some cycles."""
    start, stop = U32_PAIR.pack(max(0, first_cycle), 0), U32_PAIR.pack(max(0, last_cycle + 1), 0)
    return list(table.items(txn, start, stop))
