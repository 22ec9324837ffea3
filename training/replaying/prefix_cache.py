"""Prefix cache of replays: a function that chooses as an earlier one did is not replayed again.

The order in which a function ranks the groups of each cycle, as far as pages are chosen, determines its
replay. A learning run evaluates many functions that differ only where it does not matter. The cache keeps
this order, a trail, of each replay whose states are all listed. Trails share their first cycles and so form
a tree; the scores of a function lead through it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.scoring.terminals import Clock
from training.replaying.kernels.cycles import CHILD, FIRST, LEAVES, LINKS, LIVE, NEXT, follow
from training.replaying.metrics import Tallies

WIDTH: Final = 510
"""Most groups of a cycle in a trail; most cycles have 50."""
MOST: Final = 16_384
"""Most trails in a cache."""
ROOM: Final = 2**22
"""Most rows in a cache, 2 bytes each; a trail takes some hundred."""

PrefixCaches = dict[tuple[tuple[str, ...], Clock, frozenset[str]], "PrefixCache"]
"""Prefix caches of one training set by state columns, clock and counted tallies."""


class PrefixCache:
    """Trails of replays by the same listed states; cleared when full."""

    def __init__(self, cycles: int) -> None:
        """``cycles``: scored cycles of a replay."""
        self._tallies: list[Tallies] = []
        self._used = 0
        self._rows = np.empty(ROOM, np.int16)
        self._starts = np.empty((MOST, cycles), np.int64)
        self._links = np.empty((LINKS, MOST), np.int32)

    def find(self, scores: Floats) -> Tallies | None:
        """Tallies of an earlier replay with the same choices; ``scores``: by row of the listed states."""
        if not self._tallies:
            return None
        trail, agreed = follow(scores, self._rows, self._starts, self._links)
        return self._tallies[trail] if agreed == self._starts.shape[1] else None

    def add(self, scores: Floats, trail: Array, tallies: Tallies) -> None:
        """Add the trail and tallies of a replay; ``trail``: of `blank`, filled by the replay."""
        groups = trail[:, LIVE].tolist()
        size = len(trail) * FIRST + sum(groups)
        if min(groups) < 0 or size > ROOM:
            return
        if len(self._tallies) == MOST or self._used + size > ROOM:
            self._tallies.clear()
            self._used = 0
        number, leaves = len(self._tallies), 0
        self._links[:, number] = -1
        if number:
            parent, leaves = follow(scores, self._rows, self._starts, self._links)
            if leaves == len(trail):
                return
            self._links[NEXT, number] = self._links[CHILD, parent]
            self._links[CHILD, parent] = number
        self._links[LEAVES, number] = leaves
        for cycle in range(leaves, len(trail)):
            begin, end = self._used, self._used + FIRST + groups[cycle]
            self._starts[number, cycle] = begin
            self._rows[begin:end] = trail[cycle, : end - begin]
            self._used = end
        self._tallies.append(tallies)


def blank(cycles: int) -> Array:
    """Empty trail that a replay fills: int16 ``[cycles, FIRST + WIDTH]``."""
    return np.empty((cycles, FIRST + WIDTH), np.int16)
