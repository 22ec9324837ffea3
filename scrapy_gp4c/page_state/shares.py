"""Shares of visits that found changes, from sums over the visits to groups."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


def share(found: Array, visits: Array) -> Floats:
    """Share of visits to groups that found changes, each ``[G]``: what ``near_dir`` and ``near_site`` are."""
    return np.asarray((found + 0.1) / (visits + 1.0))


class Sums(NamedTuple):
    """Sums over the visits to groups."""

    found: Floats
    """Changes."""
    tried: Floats
    """Visits, or the changes that they were expected to find."""


def shrunk(group: Sums, above: Floats) -> Floats:
    """Share of the visits to a group that found changes, begun with the share `above`, as one visit."""
    return np.asarray((group.found + above) / (group.tried + 1.0))


def near(directory: Sums, site: Sums, crawl: Sums) -> Floats:
    """Share of the visits to a directory that found changes, shrunk to that of its site, and of the crawl."""
    return shrunk(directory, shrunk(site, share(*crawl)))


def so_far(now: Sums, window: Sums) -> Floats:
    """Share of this cycle's visits that found changes, begun with the share of those before, as one visit.

    ``window``: those before and this cycle's.
    """
    before = share(window.found - now.found, window.tried - now.tried)
    return np.asarray((now.found + before) / (now.tried + 1.0))


def surprise(expected: Sums) -> Floats:
    """Changes found by changes expected."""
    return np.asarray((expected.found + 1.0) / (expected.tried + 1.0))
