"""How far pages are from each other by clusters and by links (Tan et al. 2007, sections 4.1 and 4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import Numbers


@dataclass(frozen=True, eq=False)
class ClusterRanks:
    """Clusters by the distances of their centroids; no distance is negative."""

    order: npt.NDArray[np.int32]
    """``[C, C]``: the clusters from each one, itself first, then the nearest."""

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield the cluster itself and, where d is positive, the d nearest ones, one by one."""
        for other in self.order[group, : max(d, 0) + 1].tolist():
            yield np.array([other], np.intp)


@dataclass(frozen=True, eq=False)
class Links:
    """Links between P pages, each within a site."""

    source: Numbers
    """``[L]``: the linking page."""
    target: Numbers
    """``[L]``: the page that it links to."""
    pages: int

    @cached_property
    def _out(self) -> tuple[Numbers, Numbers]:
        return self._listed(self.source, self.target)

    @cached_property
    def _into(self) -> tuple[Numbers, Numbers]:
        return self._listed(self.target, self.source)

    def _listed(self, begin: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
        """What links lead to, page by page; and where each page begins."""
        order = np.argsort(begin, kind="stable")
        return end[order], np.searchsorted(begin[order], np.arange(self.pages + 1))

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield a page and its siblings, to which some page links too; then what is 1, 2, ... hops away.

        Equation 1: along the links if d is positive, against them if it is negative.
        """
        parents = _step(self._into, np.array([group]))
        siblings = np.setdiff1d(_step(self._out, parents), [group])
        yield np.append(group, siblings)
        seen = np.zeros(self.pages, np.bool_)
        seen[group] = True
        front = np.array([group])
        for _ in range(abs(d)):
            front = _step(self._out if d > 0 else self._into, front)
            front = front[~seen[front]]
            seen[front] = True
            yield np.setdiff1d(front, siblings)

    def page_rank(self, damping: float = 0.85, steps: int = 100) -> npt.NDArray[np.float64]:
        """Equation 9, ``[P]``; the mass of pages without links is spread over all."""
        count = np.bincount(self.source, minlength=self.pages)
        rank = np.full(self.pages, 1.0 / self.pages)
        for _ in range(steps):
            share = rank / np.maximum(count, 1)
            arriving = np.bincount(self.target, share[self.source], self.pages)
            rank = (1.0 - damping + damping * rank[count == 0].sum()) / self.pages + damping * arriving
        return rank


def _step(lists: tuple[Numbers, Numbers], pages: Numbers) -> Numbers:
    ends, begin = lists
    parts = [ends[begin[page] : begin[page + 1]] for page in pages.tolist()]
    return np.unique(np.concatenate([*parts, ends[:0]]))
