"""How all pages fall into groups that policies sample, and how far groups are from each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groups import Directories

Numbers = npt.NDArray[np.intp]
Pages = npt.NDArray[np.uint32]

Level = Literal["site", "directory", "cluster"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""Levels of groups, of which every page is in one at most."""
Name = Literal["site", "directory", "cluster", "tree", "links"]
"""`Level`, the tree of directories, and the links between pages."""
NOWHERE: Final = -1
"""Number of the group of a page that is in none."""


class Distances(Protocol):
    """How far groups are from each other."""

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield the groups at distance 0, 1, ..., abs(d) of a group, on the side that d's sign says."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of P pages."""

    number: Numbers
    """``[P]``: number of the page's group; `NOWHERE`: it is in none."""
    groups: int
    distances: Distances | None = None

    @cached_property
    def by_group(self) -> tuple[Pages, Numbers]:
        """Pages by group, ascending within each; and where each group begins, ``[groups + 1]``."""
        begin = np.cumsum(np.bincount(self.number + 1, minlength=self.groups + 1))
        # NumPy sorts numbers in place, and in a fraction of the time that it sorts their places in.
        both = self.number.astype(np.uint64)
        both += np.uint64(1)
        both <<= np.uint64(32)
        both |= np.arange(len(both), dtype=np.uint32)
        both.sort()
        return both.astype(np.uint32), begin.astype(np.intp, copy=False)

    def pages_of(self, groups: Numbers) -> Pages:
        """Pages of some groups, those of the first group first, ascending within each."""
        order, begin = self.by_group
        return np.concatenate(
            [order[begin[group] : begin[group + 1]] for group in groups.tolist()] or [order[:0]]
        )

    def rings(self, page: int, d: int) -> Iterator[Pages]:
        """Yield the pages at distance 0, 1, ..., abs(d) of a page; none where it is in no group."""
        group = int(self.number[page])
        if group == NOWHERE:
            return
        assert self.distances is not None
        for ring in self.distances.rings(group, d):
            yield self.pages_of(ring)


def by_place(group: npt.NDArray[np.integer], directories: Directories, level: Name) -> Grouping:
    """Directories, or sites; ``group``: number of every page's directory, ``[P]``."""
    if level == "directory":
        return Grouping(group.astype(np.intp, copy=False), len(directories))
    return Grouping(directories.site[group], directories.sites)
