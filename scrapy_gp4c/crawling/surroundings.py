"""What related pages tell the rounds of a cycle, and where a store says what these are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.clusters import Clusters, GroupedPages
from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.blocks import EXTRAS
from scrapy_gp4c.page_state.claims import KINDS_OF, SiteClaims, pages_with_claims
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groupings import Grouping, Name, by_place
from scrapy_gp4c.page_state.groups import (
    KEPT_CYCLES,
    NO_VISITS,
    Directories,
    count_visits,
    directories,
    place_of_url,
)
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.page_state.related import WINDOW_CYCLES, RecentVisits, Related, SiteSums
from scrapy_gp4c.policies.base import CycleVisits
from scrapy_gp4c.scoring import discovery, terminals, weights
from scrapy_gp4c.store.page_store import SiteTrust
from scrapy_gp4c.store.records import StoredRequest

Array = npt.NDArray[Any]

UNRELATED: Final = frozenset(
    (*terminals.STATE, *discovery.COLUMNS, *EXTRAS, *weights.COLUMNS, "draw", "spent")
)
"""Columns that are told without a look at other pages."""
PLAIN: Final = frozenset((*COLUMNS, *terminals.ROUND)) - {*terminals.CLUSTERED, *KINDS_OF}
"""Columns that are told by those which every page has, and by its group."""
REQUESTS: Final = 4_096
"""Requests in memory at a time, where one of every directory is read."""
SLICE: Final = 262_144
"""Pages whose numbers are in memory at a time, where the first of every directory is looked for."""
NOTHING: Final = CycleVisits(np.empty(0, np.uint32), np.empty(0, np.uint8), np.empty(0, np.uint8))
"""What a cycle has found before its first visit."""


class KnownPages(GroupedPages, Protocol):
    """What planning reads of the pages of a store; `scrapy_gp4c.store.page_store.PageStore` describes it."""

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield their columns; ``names``: at least these; None: all."""

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        """Columns of some of them; ``names``: at least these; None: all."""

    def directories(self) -> Array:
        """Directories of them all."""

    def group_visits(self, cycle: int) -> Array:
        """What the visits of a finished cycle tell of directories."""

    @property
    def hints(self) -> SiteTrust:
        """What sites claim of them."""

    def requests(self, pages: Array) -> list[StoredRequest]:
        """How some of them are requested."""


class Surroundings:
    """What related pages tell the rounds of the open cycle; the store is asked once, if it must be."""

    def __init__(self, store: KnownPages, cycle: int, columns: Collection[str]) -> None:
        """Take a store; ``columns``: what policy and score function read."""
        self._store = store
        self._cycle = cycle
        self.is_needed = not UNRELATED.issuperset(columns)
        """Whether anything of other pages is read."""
        looks_back = any(name.startswith("surprise") for name in columns)
        self._kept_cycles = KEPT_CYCLES if looks_back else WINDOW_CYCLES
        self._last: tuple[CycleVisits, Array] = NOTHING, NO_VISITS
        self._is_clustered = any(name in terminals.CLUSTERED for name in columns)
        beside = ("group", "last_cycle") if self.is_needed else ()
        self.of_pages = {"key", *beside, *columns} & COLUMNS.keys() if PLAIN.issuperset(columns) else None
        """Columns of the pages themselves that are read; None: any may be."""
        self.clusters = Clusters(store, cycle)
        self._groupings: dict[Name, Grouping] = {}

    def seen_by(self, found: CycleVisits, spent: float) -> Related:
        """What a round may read that has seen these visits of the cycle.

        ``spent``: share of the cycle's budget that the rounds before have used.
        """
        recent = self._recent(found)._replace(spent=spent)
        known = self._directories if self.is_needed else directories(np.empty(0, np.uint64))
        clustered = self.clusters.seen_by(found) if self._is_clustered else None
        claims = cache(lambda: SiteClaims(*self._site_claims, self._cycle))
        return Related(known, recent, lambda: self._site_sums, clustered, claims)

    def _recent(self, found: CycleVisits) -> RecentVisits:
        if not self.is_needed:
            return RecentVisits(self._cycle, [])
        if self._last[0] is not found:
            self._last = found, self._counted(found)
        return RecentVisits(self._cycle, self._finished, self._last[1])

    def columns(self, columns: Mapping[str, Array], pages: slice | Array) -> Mapping[str, Array]:
        """The columns of some pages, with their clusters where these are read."""
        return self.clusters.columns(columns, pages) if self._is_clustered else columns

    def grouping(self, name: Name) -> Grouping:
        """How all pages of `blocks` fall into groups; what a cycle finds new is in none."""
        found = self._groupings.get(name)
        if found is None and name in ("cluster", "links"):
            found = self._groupings[name] = self.clusters.grouping(name)
        if found is None:
            parts = (columns["group"] for _, columns in self._store.blocks({"group"}))
            group = np.concatenate([*parts, np.empty(0, np.uint32)])
            found = self._tree(group) if name == "tree" else by_place(group, self._directories, name)
            self._groupings[name] = found
        return found

    def _tree(self, group: Array) -> Grouping:
        """The store knows directories by their keys alone: where one is, says the URL of a page in it."""
        first = np.full(int(group.max(initial=0)) + 1, -1)
        for stop in range(len(group), 0, -SLICE):  # what is written last stays: a directory's first page
            rows = np.arange(stop - 1, max(0, stop - SLICE) - 1, -1)
            first[group[rows]] = rows
        is_used = first >= 0
        position, first = (np.cumsum(is_used, dtype=np.uint32) - np.uint32(1))[group], first[is_used]
        parts = np.split(first, range(REQUESTS, len(first), REQUESTS))
        requests = (stored for part in parts for stored in self._store.requests(part))
        places = (place_of_url(stored["url"]) for stored in requests)
        return groupings.tree_of_directories(position, ((place.site, place.directory) for place in places))

    @cached_property
    def _directories(self) -> Directories:
        return directories(self._store.directories()["site"])

    @cached_property
    def _finished(self) -> list[Array]:
        """Visits to groups in the finished cycles that count, newest first."""
        last = self._cycle - 1
        return [
            self._store.group_visits(cycle) for cycle in range(last, max(0, last - self._kept_cycles), -1)
        ]

    @cached_property
    def _site_sums(self) -> SiteSums:
        number, sites = self._directories.site, self._directories.sites
        sums = SiteSums(np.zeros(sites), np.zeros(sites))
        for _, columns in self._store.blocks({"group", "E", "T"}):
            site = number[columns["group"]]
            np.add.at(sums.expected, site, columns["E"])
            np.add.at(sums.cycles, site, columns["T"].astype(np.float64))
        return sums

    @cached_property
    def _site_claims(self) -> tuple[Array, Array]:
        """What the finished cycles tell of the claims of sites, and how many pages have any."""
        keys, number = np.unique(self._store.directories()["site"], return_inverse=True)
        rows = self._store.hints.trust()
        counts = np.zeros((len(keys), *rows["counts"].shape[1:]))
        counts[np.searchsorted(keys, rows["site"])] = rows["counts"]
        parts = ((number[columns["group"]], columns) for _, columns in self._store.blocks())
        return counts, pages_with_claims(parts, len(keys), self._cycle)

    def _counted(self, found: CycleVisits) -> Array:
        """What visits of this cycle tell of groups, as its fold will count them."""
        judged = among(found.outcomes, JUDGED) & (found.pages < self._store.merged_pages)
        pages, outcomes = found.pages[judged], found.outcomes[judged]
        if not len(pages):
            return NO_VISITS
        order = np.argsort(pages)
        state = self._store.columns_of(pages[order], ("group", *terminals.PREDICTED))
        predicted = terminals.change_probability(state, self._cycle)
        return count_visits(state["group"], outcomes[order] == CHANGED, predicted)
