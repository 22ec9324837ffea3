"""What the visits of the last cycles found, by directory and site: kept up to date, not counted anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groups import Directories
from scrapy_gp4c.page_state.related import WINDOW_CYCLES, Level, Sums
from scrapy_gp4c.scoring.terminals import Array

Floats = npt.NDArray[np.float64]


class _Part(NamedTuple):
    """Visits, or sums of several to one directory: each ``[V]``."""

    group: npt.NDArray[np.intp]
    found: Floats
    tried: Floats


class Window:
    """Sums over the last `WINDOW_CYCLES` finished cycles, and over one that is not over."""

    def __init__(self, directories: Directories, finished: Sequence[Array]) -> None:
        """Take the directories, and the cycles so far, newest first: dtype `GROUP_VISITS`."""
        self._directories = directories
        self._sums = self._zeros()
        self._now: list[_Part] = []
        self._finished: list[list[_Part]] = []
        for visits in finished[:WINDOW_CYCLES]:
            found, tried = (visits[name].astype(np.float64) for name in ("found", "visits"))
            self._finished.append([_Part(visits["group"].astype(np.intp), found, tried)])
            self._add(self._sums, self._finished[-1])

    def add(self, group: npt.NDArray[np.intp], changed: npt.NDArray[np.bool_]) -> None:
        """Add visits of the cycle that is not over: their directories, and whether each found a change."""
        self._now.append(_Part(group, changed.astype(np.float64), np.ones(len(group))))
        self._add(self._sums, self._now[-1:])

    def finish(self) -> None:
        """That cycle is over, and the oldest one is left out."""
        self._finished.insert(0, self._now)
        self._now = []
        if len(self._finished) > WINDOW_CYCLES:
            self._add(self._sums, self._finished.pop(), -1.0)

    def window(self, level: Level) -> Sums:
        """Sums over all of these cycles, ``[G or S]``, until the next visits, and not to be written to."""
        return self._sums[level]

    def begun(self, level: Level) -> Sums:
        """Sums over the cycle that is not over, ``[G or S]``."""
        sums = self._zeros()
        self._add(sums, self._now)
        return sums[level]

    def _zeros(self) -> dict[Level, Sums]:
        sizes: dict[Level, int] = {"directory": len(self._directories), "site": self._directories.sites}
        return {level: Sums(np.zeros(size), np.zeros(size)) for level, size in sizes.items()}

    def _add(self, sums: dict[Level, Sums], parts: Sequence[_Part], sign: float = 1.0) -> None:
        from training.replaying.kernels import tallies  # compiles: only when it is used

        both = tuple(sums["directory"]), tuple(sums["site"])
        for part in parts:
            tallies.add(*part, sign, self._directories.site, *both)
