"""Clusters and links of a store's pages, as a cycle sees them; `scrapy gp4c cluster` writes them.

A store without any knows of no pages that are near: its pages are sampled, and nothing is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import NOWHERE, ClusterRanks, Grouping, Links, Name
from scrapy_gp4c.page_state.groups import count_changes
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.page_state.related import WINDOW_CYCLES, Clustered
from scrapy_gp4c.policies.base import CycleVisits
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.records import StoredGroups

Array = npt.NDArray[Any]

COMMAND = "scrapy gp4c cluster SPIDER"


class GroupedPages(Protocol):
    """What this reads of a store; `scrapy_gp4c.store.page_store.PageStore` describes it."""

    @property
    def merged_pages(self) -> int:
        """Number of pages."""

    def clusters(self) -> StoredGroups | None:
        """Their clusters and links."""

    def visits(self, first_cycle: int = 1, last_cycle: int | None = None) -> Iterator[tuple[int, Array]]:
        """Visits of finished cycles."""


class Clusters:
    """Clusters, links and popularity in the open cycle; the store is asked once, if it must be."""

    def __init__(self, store: GroupedPages, cycle: int) -> None:
        """Take a store."""
        self._store, self._cycle = store, cycle

    @cached_property
    def _stored(self) -> StoredGroups | None:
        return self._store.clusters()

    @cached_property
    def number(self) -> npt.NDArray[np.intp]:
        """``[P]``: cluster of each page; `NOWHERE`: of those that were found since, too."""
        number = np.full(self._store.merged_pages, NOWHERE)
        if self._stored is not None:
            known = self._stored.groups.cluster[: len(number)]
            number[: len(known)] = known
        return number

    @property
    def clusters(self) -> int:
        """How many there are."""
        return 0 if self._stored is None else len(self._stored.groups.order)

    def grouping(self, name: Name) -> Grouping:
        """The pages by cluster, or each on its own among links."""
        pages = len(self.number)
        if name == "cluster":
            order = np.empty((0, 0), np.int32) if self._stored is None else self._stored.groups.order
            return Grouping(self.number, self.clusters, ClusterRanks(order))
        nothing = np.empty(0, np.intp)
        links = Links(nothing, nothing, pages)
        if self._stored is not None:
            links = self._stored.groups.links
            links = Links(links.source, links.target, pages)
        return Grouping(np.arange(pages), pages, links)

    def popularity(self) -> npt.NDArray[np.uint8]:
        """From 0 to 10, ``[P]``; 0 of pages that nothing is known of."""
        popularity = np.zeros(self._store.merged_pages, np.uint8)
        if self._stored is not None:
            known = self._stored.popularity[: len(popularity)]
            popularity[: len(known)] = known
        return popularity

    def seen_by(self, found: CycleVisits) -> Clustered:
        """What a round tells of clusters that has seen these visits of the cycle."""
        return Clustered(self.clusters, self._finished, self._counted(found.pages, found.outcomes))

    @cached_property
    def _finished(self) -> list[Array]:
        """What the finished cycles that count tell of clusters, newest first."""
        first = max(1, self._cycle - WINDOW_CYCLES)
        parts: dict[int, list[Array]] = {cycle: [] for cycle in range(self._cycle - 1, first - 1, -1)}
        for cycle, visits in self._store.visits(first, self._cycle - 1):
            parts[cycle].append(visits[["page", "outcome"]])
        return [
            self._counted(*(np.concatenate([np.empty(0, dtype), *(part[name] for part in own)])
                            for name, dtype in (("page", np.uint32), ("outcome", np.uint8))))
            for own in parts.values()
        ]  # fmt: skip

    def _counted(self, pages: Array, outcomes: Array) -> Array:
        told = among(outcomes, JUDGED) & (pages < len(self.number))
        return count_changes(self.number[pages[told]], outcomes[told] == CHANGED)

    def columns(self, columns: Mapping[str, Array], pages: slice | Array) -> Mapping[str, Array]:
        """The columns of some pages, and the cluster of each."""
        return {**columns, "cluster": self.number[pages]}


def missing(settings: Settings, store: GroupedPages) -> str | None:
    """Return the line for a crawl that asks for clusters which its store has not."""
    if not settings.asks_for_clusters or store.clusters() is not None:
        return None
    return (
        "The store has no clusters of its pages and no links between them, which the policy or the score "
        "function asks for: pages are sampled, and none is followed. Once they have been fetched, "
        f"`{COMMAND}` makes them of the descriptions that are kept of all copies from now on"
    )
