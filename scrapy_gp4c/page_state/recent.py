"""Visits to groups of pages in the last cycles and in this one, as a round may see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groups import NO_VISITS
from scrapy_gp4c.page_state.shares import Sums

Array = npt.NDArray[Any]

WINDOW_CYCLES: Final = 3
"""Finished cycles whose visits say how much changes near a page."""


class Recent(NamedTuple):
    """Visits to directories."""

    cycle: int
    """The one that is planned."""
    finished: Sequence[Array]
    """Of the last cycles, newest first, at most `KEPT_CYCLES`: dtype `GROUP_VISITS`."""
    now: Array = NO_VISITS
    """Of this cycle, before the round."""
    spent: float = 0.0
    """Share of this cycle's budget that earlier rounds used."""
    crawl: tuple[int, int] | None = None
    """`counted` of the whole crawl; None: these are all its pages."""

    @property
    def window(self) -> Sequence[Array]:
        """Of this cycle so far and of the last `WINDOW_CYCLES`: dtype `GROUP_VISITS`."""
        return [self.now, *self.finished[:WINDOW_CYCLES]]

    @property
    def counted(self) -> tuple[int, int]:
        """Changes and visits of the window."""
        found, visits = (sum(int(part[name].sum()) for part in self.window) for name in ("found", "visits"))
        return found, visits

    @property
    def in_crawl(self) -> Sums:
        """Changes and visits of the window in the whole crawl: two numbers."""
        found, visits = self.counted if self.crawl is None else self.crawl
        return Sums(np.array(float(found)), np.array(float(visits)))


class Clustered(NamedTuple):
    """Visits to clusters; a page's column ``cluster`` has its own, or -1."""

    clusters: int
    finished: Sequence[Array]
    """Of the last cycles, newest first: dtype `GROUP_VISITS`, by number of the cluster."""
    now: Array
    """Of this cycle, before the round."""
