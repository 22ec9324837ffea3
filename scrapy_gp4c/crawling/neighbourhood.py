"""Evidence that a policy plans by: columns, visits so far, related pages, clusters and sites.

Related pages are those of a page's directory, site or cluster (`Neighbourhood`). Where nobody has made
clusters for a store, no page has neighbours by cluster or link, and sampling policies visit none.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.claims import (
    KINDS_OF,
    SiteClaims,
    evidence_of_ages,
    finder_pages,
    pages_with_claims,
)
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groupings import (
    NOWHERE,
    Grouping,
    Links,
    Name,
    PageGroups,
    by_place,
    popularity_by_links,
)
from scrapy_gp4c.page_state.groups import (
    KEPT_CYCLES,
    NO_VISITS,
    Directories,
    count_changes,
    count_visits,
    directories,
    place_of_url,
)
from scrapy_gp4c.page_state.outcomes import CHANGED, CHOSEN, JUDGED, WARMUP, among
from scrapy_gp4c.page_state.related import (
    WINDOW_CYCLES,
    Clustered,
    PageSums,
    RecentVisits,
    Related,
    RoundState,
)
from scrapy_gp4c.policies.base import NO_VISITS_YET, Block, CycleVisits, Pages, Planned
from scrapy_gp4c.scoring import discovery, hints, measured, sizes, terminals, weights
from scrapy_gp4c.scoring.ranking import draw_salt, draws_of
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.records import StoredGroups, StoredRequest

UNRELATED: Final = {"draw", "spent"}.union(
    terminals.STATE, discovery.COLUMNS, measured.COLUMNS, hints.COLUMNS, weights.COLUMNS
)
"""Columns that do not depend on other pages."""
PLAIN: Final = frozenset((*COLUMNS, *terminals.ROUND, *measured.LINKED)) - {*terminals.CLUSTERED, *KINDS_OF}
"""Columns that follow from stored columns (`COLUMNS`) and directories, without clusters or claims."""
MANY_PAGES: Final = 1_000_000
"""Least number of pages for which scoring a sample first saves time."""
_LIFTED: Final = frozenset(KINDS_OF)
"""Columns that depend on how much claims of a site (such as ``lastmod``) raise the chance of a change."""


class KnownPages(Protocol):
    """Interface of the pages that planning reads: those of a store, or a copy of them in memory."""

    @property
    def merged_pages(self) -> int:
        """Number of pages, P, whose columns are final: pages that the open cycle found are left out."""

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield the columns of all pages, in blocks, each with its first page.

        ``names``: columns that are needed, others may come too; None: all.
        """

    def columns_of(self, pages: Pages, names: Collection[str] | None = None) -> Columns:
        """Return columns of pages, ids ascending; ``names``: as in `blocks`."""

    def site_keys(self) -> npt.NDArray[np.uint64]:
        """Return the key of each directory's site, ``[G]``, for the directory numbers in ``group``."""

    def group_visits(self, cycle: int) -> Array:
        """Return the counts of visits to directories in a finished cycle, dtype `GROUP_VISITS`."""

    def trust(self) -> Array:
        """Return counts of right and wrong claims of sites about their pages, dtype `TRUST`."""

    def each_request(self, pages: Array) -> Iterator[StoredRequest]:
        """Yield the stored requests of `pages`, in that order."""

    def clusters(self) -> StoredGroups | None:
        """Return clusters of pages and links between pages; None: nobody made any."""

    def visits(self, first_cycle: int = 1, last_cycle: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield finished cycles and their visits, dtype `VISIT`; a cycle may come in several parts."""


def columns_in_order(known: KnownPages, pages: Array, names: Collection[str] | None = None) -> Columns:
    """Return columns of known pages that may be in any order; ``names``: needed ones, None: all."""
    order = np.argsort(pages)
    row = np.argsort(order)
    columns = known.columns_of(pages[order].astype(np.uint32), names)
    return {name: column[row] for name, column in columns.items()}


_NOBODY: Final = np.empty(0, np.intp)
NO_GROUPS: Final = StoredGroups(
    PageGroups(np.empty(0, np.int32), np.empty((0, 0), np.int32), Links(_NOBODY, _NOBODY, 0), ""),
    np.empty(0, np.uint8),
)
"""Clusters and links of a store that has none."""


class Neighbourhood:
    """Columns of related pages (of a page's site, directory, cluster) for the rounds of a cycle.

    What they are made of is read from the store once, when it is needed.
    """

    def __init__(self, known: KnownPages, cycle: int, columns: Collection[str]) -> None:
        """Prepare for a cycle; ``columns``: names of all columns that policy and score function read."""
        self._known = known
        self._cycle = cycle
        self._is_lifted = not _LIFTED.isdisjoint(columns) and len(known.trust()) > 0
        if not self._is_lifted and "claimed_cycle" not in columns:
            # No visit has judged a claim: all lifts are 0, without the columns of claims.
            columns = tuple(name for name in columns if name not in (*_LIFTED, *hints.COLUMNS))
        self.is_needed = not UNRELATED.issuperset(columns)
        """Whether a column depends on other pages."""
        looks_back = any(name.startswith("surprise") for name in columns)
        self._kept_cycles = KEPT_CYCLES if looks_back else WINDOW_CYCLES
        self._last: tuple[CycleVisits, Array] = NO_VISITS_YET, NO_VISITS
        self._is_clustered = any(name in terminals.CLUSTERED for name in columns)
        self._is_linked = not measured.LINKED.keys().isdisjoint(columns)
        group_columns = ("group", "last_cycle") if self.is_needed else ()
        page_columns = {"key", *group_columns, *columns} & COLUMNS.keys()
        self.of_pages = page_columns if PLAIN.issuperset(columns) else None
        """Names of the columns of the pages themselves that are read; None: any may be."""
        self._groupings: dict[Name, Grouping] = {}

    def seen_by(self, visits: CycleVisits = NO_VISITS_YET, spent: float = 0.0) -> Related:
        """Return columns of related pages for a round that has seen `visits` of the cycle.

        ``spent``: share of the cycle's budget that earlier rounds have used.
        """
        recent = self._recent(visits)._replace(spent=spent)
        known = self._directories if self.is_needed else directories(np.empty(0, np.uint64))
        clustered = self._clustered(visits) if self._is_clustered else None
        claims = (
            cache(lambda: SiteClaims(*self._site_claims, self._cycle, self._ages))
            if self._is_lifted
            else None
        )
        return Related(
            known, recent, lambda: self._site_sums, clustered, claims, size_sums=lambda: self._size_sums
        )

    def _recent(self, visits: CycleVisits) -> RecentVisits:
        if not self.is_needed:
            return RecentVisits(self._cycle, [])
        if self._last[0] is not visits:
            self._last = visits, self._counted(visits)
        return RecentVisits(self._cycle, self._finished, self._last[1])

    def columns(self, columns: Mapping[str, Array], pages: slice | Array) -> Mapping[str, Array]:
        """Return `columns` of `pages`, and ``cluster`` and ``popularity`` if policy or score needs them."""
        if self._is_linked:
            columns = {**columns, "popularity": self._linked_popularity[pages]}
        return {**columns, "cluster": self._cluster[pages]} if self._is_clustered else columns

    @cached_property
    def _linked_popularity(self) -> npt.NDArray[np.float64]:
        parts = (columns["found_by"] for _, columns in self._known.blocks({"found_by"}))
        finder = finder_pages(np.concatenate([*parts, np.empty(0, np.uint32)]))
        return popularity_by_links(finder.astype(np.intp), self._stored.groups.links)

    def grouping(self, name: Name) -> Grouping:
        """Return the grouping `name` of all pages that were known at the cycle's start."""
        if name not in self._groupings:
            self._groupings[name] = self._grouped(name)
        return self._groupings[name]

    def _grouped(self, name: Name) -> Grouping:
        if name in ("cluster", "links"):
            return self._stored.groups.grouping(name)
        parts = (columns["group"] for _, columns in self._known.blocks({"group"}))
        group = np.concatenate([*parts, np.empty(0, np.uint32)])
        return self._tree(group) if name == "tree" else by_place(group, self._directories, name)

    def _tree(self, group: Array) -> Grouping:
        """Return the tree of the directories `group`, by one page's URL in each: the store has only keys."""
        _, first, position = np.unique(group, return_index=True, return_inverse=True)
        places = (place_of_url(stored["url"]) for stored in self._known.each_request(first))
        parents = ((url_place.site, url_place.directory) for url_place in places)
        return groupings.tree_of_directories(position.astype(np.uint32), parents)

    @cached_property
    def _directories(self) -> Directories:
        return directories(self._known.site_keys())

    @cached_property
    def _finished(self) -> list[Array]:
        """Counts of visits to directories, for each of the last finished cycles, newest first."""
        last = self._cycle - 1
        return [
            self._known.group_visits(cycle) for cycle in range(last, max(0, last - self._kept_cycles), -1)
        ]

    @cached_property
    def _site_sums(self) -> PageSums:
        number, sites = self._directories.site, self._directories.sites
        sums = PageSums(np.zeros(sites), np.zeros(sites))
        for _, columns in self._known.blocks({"group", "E", "T"}):
            site = number[columns["group"]]
            np.add.at(sums.expected, site, columns["E"])
            np.add.at(sums.cycles, site, columns["T"].astype(np.float64))
        return sums

    @cached_property
    def _size_sums(self) -> PageSums:
        sums = PageSums(np.zeros(sizes.CLASSES), np.zeros(sizes.CLASSES))
        for _, columns in self._known.blocks({"size", "E", "T"}):
            of_block = PageSums.by(columns["size"], sizes.CLASSES, columns["E"], columns["T"])
            sums = PageSums(sums.expected + of_block.expected, sums.cycles + of_block.cycles)
        return sums

    @cached_property
    def _site_claims(self) -> tuple[Array, Array]:
        """Counts by site: right and wrong claims of finished cycles, and pages with claims now."""
        keys, number = np.unique(self._known.site_keys(), return_inverse=True)
        rows = self._known.trust()
        counts = np.zeros((len(keys), *rows["counts"].shape[1:]))
        counts[np.searchsorted(keys, rows["site"])] = rows["counts"]
        parts = ((number[columns["group"]], columns) for _, columns in self._known.blocks())
        return counts, pages_with_claims(parts, len(keys), self._cycle)

    def _ages(self) -> npt.NDArray[np.int64]:
        """Return evidence that pages' ages when found predict changes, per site: see `evidence_of_ages`."""
        number, sums = self._directories.site, self._site_sums
        parts = ((number[columns["group"]], columns) for _, columns in self._known.blocks())
        return evidence_of_ages(parts, self._directories.sites, sums.crawl_rate)

    def _counted(self, visits: CycleVisits) -> Array:
        """Return counts of this cycle's visits to directories, as the cycle's close will store them."""
        judged = among(visits.outcomes, JUDGED) & (visits.pages < self._known.merged_pages)
        pages, outcomes = visits.pages[judged], visits.outcomes[judged]
        if not len(pages):
            return NO_VISITS
        state = columns_in_order(self._known, pages, ("group", *terminals.PREDICTED))
        predicted = terminals.change_probability(state, self._cycle)
        return count_visits(state["group"], outcomes == CHANGED, predicted, visits.kinds[judged] == WARMUP)

    # --- clusters and links, which `scrapy gp4c cluster` made

    @cached_property
    def _stored(self) -> StoredGroups:
        """Clusters and links of all pages; pages that became known since these were made have none."""
        (groups, popularity), pages = self._known.clusters() or NO_GROUPS, self._known.merged_pages
        new = pages - len(popularity)
        cluster = np.append(groups.cluster, np.full(new, NOWHERE, np.int32))
        groups = replace(groups, cluster=cluster, links=replace(groups.links, pages=pages))
        return StoredGroups(groups, np.append(popularity, np.zeros(new, np.uint8)))

    @cached_property
    def _cluster(self) -> npt.NDArray[np.intp]:
        """Number of each page's cluster, ``[P]``; `NOWHERE` for a page in none."""
        return self._stored.groups.cluster.astype(np.intp)

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Return the popularity of each page, from 0 to 10, ``[P]``; 0: it is not known."""
        return self._stored.popularity

    def _clustered(self, visits: CycleVisits) -> Clustered:
        """Return counts of visits by cluster: in the last cycles, and in this one by its `visits` so far."""
        clusters = len(self._stored.groups.order)
        now = self._counted_by_cluster(visits.pages, visits.outcomes)
        return Clustered(clusters, self._finished_by_cluster, now)

    @cached_property
    def _finished_by_cluster(self) -> list[Array]:
        """Counts of visits to clusters, for each of the last `WINDOW_CYCLES` cycles, newest first."""
        first = max(1, self._cycle - WINDOW_CYCLES)
        parts: dict[int, list[Array]] = {cycle: [] for cycle in range(self._cycle - 1, first - 1, -1)}
        for cycle, visits in self._known.visits(first, self._cycle - 1):
            parts[cycle].append(visits[["page", "outcome"]])
        none = np.empty(0, [("page", np.uint32), ("outcome", np.uint8)])
        of_cycles = [np.concatenate([none, *visits]) for visits in parts.values()]
        return [self._counted_by_cluster(visits["page"], visits["outcome"]) for visits in of_cycles]

    def _counted_by_cluster(self, pages: Array, outcomes: Array) -> Array:
        counts = among(outcomes, JUDGED) & (pages < len(self._cluster))
        return count_changes(self._cluster[pages[counts]], outcomes[counts] == CHANGED)


def missing_clusters(settings: Settings, known: KnownPages) -> str | None:
    """Return the log line for a crawl that needs clusters its store does not have; None: none are missing."""
    if not settings.asks_for_clusters or known.clusters() is not None:
        return None
    return (
        "The store has no clusters of its pages and no links between them, which the policy or the score "
        "function asks for: pages are sampled, and none is followed. Once they have been fetched, "
        "`scrapy gp4c cluster SPIDER` makes clusters of the descriptions of copies that are kept from now on"
    )


class LiveEvidence:
    """Evidence for the policy in one round of a crawl: candidates, their columns, visits and groups."""

    def __init__(
        self,
        store: KnownPages,
        rankable: npt.NDArray[np.bool_],
        salt: tuple[int, int],
        planned: Planned,
        visits: CycleVisits,
        neighbourhood: Neighbourhood,
        related: Related,
    ) -> None:
        """Take the data of the cycle before the round.

        ``rankable``: ``[P]``, whether the policy may choose a page in this cycle; ``salt``: seed and cycle,
        for draws; ``planned``: pages of the plan so far, of all kinds; ``visits``: those so far; ``related``:
        columns of related pages for this round.
        """
        self._store = store
        self._salt = draw_salt(*salt)
        self._visits = visits
        self._neighbourhood = neighbourhood
        self.grouping, self.popularity = neighbourhood.grouping, neighbourhood.popularity
        self._related = related
        chosen = among(planned.kinds, CHOSEN)
        self._planned = Planned(planned.pages[chosen], planned.kinds[chosen])
        self._open = rankable.copy()
        for taken in (planned.pages, visits.pages):
            self._open[taken[taken < len(self._open)]] = False

    def candidates(self) -> Iterator[Block]:
        """Yield the rankable pages that this cycle has neither planned nor visited, block by block."""
        for first, columns in self._store.blocks(self._neighbourhood.of_pages):
            ids = slice(first, first + len(columns["key"]))
            is_open = self._open[ids]
            if is_open.all():
                pages = np.arange(ids.start, ids.stop, dtype=np.uint32)
                yield self._block(pages, columns, ids, slice(None))
            else:
                rows = np.flatnonzero(is_open)
                yield self._block((rows + first).astype(np.uint32), columns, ids, rows)

    def sample(self) -> tuple[Block, float] | None:
        """Return candidates in 128 stretches of pages, and the share of these in all; None if all are few."""
        pages = len(self._open)
        if pages < MANY_PAGES:
            return None
        places = np.linspace(0, pages - 4_096, 128).astype(np.uint32)
        sample = np.add.outer(places, np.arange(0, 4_096, 64, dtype=np.uint32)).ravel()
        candidates = sample[self._open[sample]]
        columns = self._store.columns_of(candidates, self._neighbourhood.of_pages)
        return self._block(candidates, columns, candidates, slice(None)), len(sample) / pages

    def _block(
        self, pages: Pages, columns: Columns, ids: slice | Array, rows: slice | npt.NDArray[np.intp]
    ) -> Block:
        """Return the block of `pages`, at `rows` of `columns`; ``ids``: page of each row of `columns`."""
        known, draws = self._neighbourhood.columns(columns, ids), draws_of(columns["key"], self._salt)
        state = RoundState(known, rows, self._related, draws)
        return Block(
            pages, state, draws if isinstance(rows, slice) else draws_of(columns["key"][rows], self._salt)
        )

    def may_visit(self, pages: Pages) -> npt.NDArray[np.bool_]:
        known = pages < len(self._open)
        known[known] = self._open[pages[known]]
        return known

    def rows(self, pages: Pages) -> Block:
        order = np.argsort(pages)
        columns = self._store.columns_of(pages[order])
        return self._block(pages, columns, pages[order], np.argsort(order))

    def visits(self) -> CycleVisits:
        return self._visits

    def planned(self) -> Planned:
        return self._planned
