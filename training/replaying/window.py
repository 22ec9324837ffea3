"""What the visits of the last cycles found, by directory and site: kept up to date, not counted anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scrapy_gp4c.page_state.groups import Directories
from scrapy_gp4c.page_state.recent import WINDOW_CYCLES
from scrapy_gp4c.page_state.related import Level
from scrapy_gp4c.page_state.shares import Sums
from scrapy_gp4c.scoring.terminals import Array


class Window:
    """Sums over the last `WINDOW_CYCLES` finished cycles."""

    def __init__(self, directories: Directories, finished: Sequence[Array]) -> None:
        """Take the directories, and the cycles so far, newest first: dtype `GROUP_VISITS`."""
        self._directories = directories
        sizes: dict[Level, int] = {"directory": len(directories), "site": directories.sites}
        self._sums = {level: Sums(np.zeros(size), np.zeros(size)) for level, size in sizes.items()}
        self._finished = list(finished[:WINDOW_CYCLES])
        for visits in self._finished:
            self._add(self._sums, visits)

    def finish(self, visits: Array) -> None:
        """Add a cycle, and leave out the oldest one."""
        self._add(self._sums, visits)
        self._finished.insert(0, visits)
        if len(self._finished) > WINDOW_CYCLES:
            self._add(self._sums, self._finished.pop(), -1.0)

    def so_far(self, now: Array) -> dict[Level, Sums]:
        """Sums over these cycles and one that is not over, each ``[G or S]``, not to be written to."""
        if not len(now):
            return self._sums
        sums = {level: Sums(*(one.copy() for one in own)) for level, own in self._sums.items()}
        self._add(sums, now)
        return sums

    def _add(self, sums: dict[Level, Sums], visits: Array, sign: float = 1.0) -> None:
        group = visits["group"].astype(np.intp)
        site = self._directories.site[group]
        for name, of_directory, of_site in zip(("found", "visits"), *sums.values(), strict=True):
            values = sign * visits[name]
            of_directory[group] += values  # each of them is there once
            of_site += np.bincount(site, values, len(of_site))
