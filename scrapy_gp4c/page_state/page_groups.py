"""Clusters of pages and links between them, from outside: a file of groups, or what a store was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import popularity
from scrapy_gp4c.page_state.distances import ClusterRanks, Links
from scrapy_gp4c.page_state.groupings import NOWHERE, Grouping, Name


@dataclass(frozen=True, eq=False)
class PageGroups:
    """Clusters of P pages, and their links."""

    cluster: npt.NDArray[np.int32]
    """``[P]``; `NOWHERE`: in none."""
    order: npt.NDArray[np.int32]
    """``[C, C]``: the clusters by the distance of their centroids from each one, itself first."""
    links: Links
    identity: str
    """Digest of the pages that they are of."""
    keys: npt.NDArray[np.uint64] | None = None
    """``[P]``: keys of the pages of a store; None: of a history, in its order."""

    @property
    def sizes(self) -> npt.NDArray[np.intp]:
        """Pages of each cluster, ``[C]``."""
        return np.bincount(self.cluster[self.cluster != NOWHERE], minlength=len(self.order))

    def grouping(self, name: Name) -> Grouping:
        """The pages by cluster, or each on its own among links."""
        if name == "cluster":
            return Grouping(self.cluster.astype(np.intp), len(self.order), ClusterRanks(self.order))
        return Grouping(np.arange(len(self.cluster)), len(self.cluster), self.links)

    def popularity(self) -> npt.NDArray[np.uint8]:
        """From 0 to 10, by the PageRank of the links: ``[P]``."""
        return popularity.of_values(self.links.page_rank())

    def of_pages(self, pages: npt.NDArray[np.integer[Any]]) -> PageGroups:
        """Those of some pages, in this order; `NOWHERE`: a page of which nothing is known."""
        known = pages != NOWHERE
        cluster = np.where(known, self.cluster[pages], np.int32(NOWHERE))
        at = np.full(len(self.cluster), NOWHERE)
        at[pages[known]] = np.flatnonzero(known)
        source, target = at[self.links.source], at[self.links.target]
        both = (source != NOWHERE) & (target != NOWHERE)
        links = Links(source[both], target[both], len(pages))
        return PageGroups(cluster, self.order, links, self.identity)
