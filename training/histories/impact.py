"""What refreshing pages would be worth, cycle by cycle, where contents and queries tell it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Impact:
    """delta-Q_A of every pair of versions of P pages, and which version is live in cycles 0..D."""

    version: npt.NDArray[np.int32]
    """``[D + 1, P]``: number of the version that each page has; the first of all its versions has 0."""
    start: npt.NDArray[np.int64]
    """``[P]``: where the pairs of each page begin in `gain`."""
    versions: npt.NDArray[np.int32]
    """``[P]``: versions of each page."""
    gain: npt.NDArray[np.float32]
    """By page, held version and live version: delta-Q_A of the refresh, in ppm of the ideal of cycle 0."""
    quality: Callable[[Ints], Floats] | None = None
    """Of the copies in the last C cycles, versions ``[C, P]``: the exact search quality ``[C]``; None: these
    are not all pages of the search."""
    difference: npt.NDArray[np.float32] | None = None
    """``[D, P]``: share of the shingles in which a page's text of each cycle differs from that before."""
    clicks: Callable[[], Floats] | None = None
    """How often users look at each page, mean over the cycles: ``[P]``; None: as of `quality`."""

    def between(self, held: Ints, live: Ints, pages: Ints | slice = slice(None)) -> Floats:
        """delta-Q_A of refreshing pages from held to live versions, ``[pages]``; 0 where they are one."""
        place = self.start[pages] + held.astype(np.int64) * self.versions[pages] + live
        found: Floats = self.gain[place].astype(np.float64)
        return found

    def take(self, pages: Ints | slice | None, cycles: slice, count: int) -> Impact:
        """Part of it, as `ChangeHistory.take` of a history of ``count`` cycles."""
        first, last, _ = cycles.indices(count)
        part = replace(self, version=self.version[first : last + 1])
        if self.difference is not None:
            part = replace(part, difference=self.difference[first:last])
        if last < count:
            part = replace(part, quality=None)  # which speaks of the last cycles
        if pages is None:
            return part
        return replace(
            part,
            version=part.version[:, pages],
            start=self.start[pages],
            versions=self.versions[pages],
            quality=None,
            difference=None,
            clicks=None,
        )

    def unrefreshed(self, warmup: int) -> Floats:
        """Summed delta-Q_A that copies of a cycle would gain in every later one: ``[D - warmup]``."""
        held = self.version[warmup]
        return np.array([self.between(held, live).sum() for live in self.version[warmup + 1 :]])
