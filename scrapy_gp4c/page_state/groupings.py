"""Groups of pages that policies sample: directories, sites, clusters and links, and distances between them.

Distances are those of Tan et al. 2007, section 4. In a site's tree of directories the distance is the number
of steps up and down from one page's directory to the other's (equation 2). It is positive where the other
page is on the same level or above, else negative, as sections 4.2 and 6.2 say; equation 2 is printed with the
opposite sign. Popularity has the scale from 0 to 10 that section 6.2 took from Google.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groups import Directories

Numbers = npt.NDArray[np.intp]
Pages = npt.NDArray[np.uint32]

Level = Literal["site", "directory", "cluster"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""Kinds of groups of which every page is in at most one."""
Name = Literal["site", "directory", "cluster", "tree", "links"]
"""`Level`, the tree of directories, and the links between pages."""
DAMPING: Final = 0.85
RANK_STEPS: Final = 100
"""Steps of the power iteration of PageRank."""
NOWHERE: Final = -1
"""Group number of a page that is in no group."""


class Distances(Protocol):
    """Protocol of distances between the groups of a `Grouping`."""

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield the groups at distance 0, 1, ..., abs(d) from `group`, in the direction of d's sign."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """A division of P pages into groups, with distances between groups."""

    number: Numbers
    """``[P]``: number of the page's group; `NOWHERE`: it is in none."""
    groups: int
    """Number of groups."""
    distances: Distances | None = None

    @cached_property
    def groups_with_pages(self) -> int:
        """Number of groups with a page; part of a history still numbers the sites of the whole."""
        return int(np.count_nonzero(np.bincount(self.number + 1)[1:]))

    @cached_property
    def by_group(self) -> tuple[Pages, Numbers]:
        """Pages sorted by group, then id; and where each group begins in them, ``[groups + 1]``."""
        begin = np.cumsum(np.bincount(self.number + 1, minlength=self.groups + 1))
        return np.argsort(self.number, kind="stable").astype(np.uint32), begin.astype(np.intp, copy=False)

    def pages_of(self, groups: Numbers) -> Pages:
        """Pages of the given groups, group by group, ascending within a group."""
        order, begin = self.by_group
        return np.concatenate(
            [order[begin[group] : begin[group + 1]] for group in groups.tolist()] or [order[:0]]
        )

    def rings(self, page: int, d: int) -> Iterator[Pages]:
        """Yield the pages of each of the `Distances.rings` of the page's group, first those of the group.

        Nothing where the page is in no group.
        """
        group = int(self.number[page])
        if group == NOWHERE:
            return
        assert self.distances is not None
        for ring in self.distances.rings(group, d):
            yield self.pages_of(ring)


def by_place(group: npt.NDArray[np.integer], directories: Directories, level: Name) -> Grouping:
    """Group pages by directory or site, as `level` says; ``group``: directory of each page, ``[P]``."""
    if level == "directory":
        return Grouping(group.astype(np.intp, copy=False), len(directories))
    return Grouping(directories.site[group], directories.sites)


class Tree:
    """Trees of directories, one for each site, as `Distances`. Memory: 12 bytes per directory."""

    def __init__(self, parent: Sequence[int]) -> None:
        """``parent``: number of each directory's parent, lower than its own; -1: a site's root."""
        above = np.asarray(parent, np.int32)
        children = np.argsort(above, kind="stable").astype(np.int32)
        begin = np.searchsorted(above[children], np.arange(len(above) + 1)).astype(np.int32)
        # Arrays of Python's: numbers are taken out of them one by one.
        self._parent, self._children, self._begin = (
            array("i", one.tobytes()) for one in (above, children, begin)
        )

    def __len__(self) -> int:
        return len(self._parent)

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield `group`, then for each number of steps 1, ..., abs(d) the directories at that distance.

        For d >= 0 those at its level or above, for d < 0 those deeper in the tree.
        """
        rings: list[list[int]] = [[] for _ in range(abs(d) + 1)]
        rings[0].append(group)
        came, ancestor = -1, group
        for up in range(abs(d) + 1):
            nodes = [ancestor]
            for down in range(abs(d) - up + 1):
                if (down > up) == (d < 0) and up + down:
                    rings[up + down] += nodes
                if d >= 0 and down == up:
                    break
                nodes = [child for node in nodes for child in self._below(node) if child != came]
                if not nodes:
                    break
            came, ancestor = ancestor, self._parent[ancestor]
            if ancestor < 0:
                break
        for ring in rings:
            yield np.array(ring, np.intp)

    def _below(self, node: int) -> Sequence[int]:
        return self._children[self._begin[node] : self._begin[node + 1]]


def tree_of_directories(number: npt.NDArray[np.integer], places: Iterable[tuple[str, str]]) -> Grouping:
    """Group pages by directory, with distances in the tree of directories.

    ``number``: each page's directory, ``[P]``; ``places``: (site, path) of each directory. Parent directories
    without pages are added; a script's pages (``item?``) belong to the directory of the script.
    """
    parent = array("i")
    children: dict[tuple[int, str], int] = {}

    def node_of(site: str, directory: str) -> int:
        node = -1
        for segment in (site, *directory.split("/")[:-1]):
            child = children.setdefault((node, segment), len(parent))
            if child == len(parent):
                parent.append(node)
            node = child
        return node

    nodes = np.fromiter((node_of(site, directory) for site, directory in places), np.intp)
    children.clear()  # before there is a number for each page: names take ten times the memory
    return Grouping(nodes[number], len(parent), Tree(parent))


@dataclass(frozen=True, eq=False)
class ClusterRanks:
    """`Distances` of clusters as ranks: the n-th nearest cluster, by centroid, has distance n."""

    order: npt.NDArray[np.int32]
    """``[C, C]``: row c has all clusters by their distance from cluster c, c itself first."""

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield cluster `group`, then, if d is positive, each of its d nearest clusters."""
        for other in self.order[group, : max(d, 0) + 1].tolist():
            yield np.array([other], np.intp)


@dataclass(frozen=True, eq=False)
class Links:
    """Links between P pages of the same site, as `Distances` of groups of one page each."""

    source: Numbers
    """``[L]``: the linking page."""
    target: Numbers
    """``[L]``: the page that it links to."""
    pages: int

    @cached_property
    def _out(self) -> tuple[Numbers, Numbers]:
        return self._adjacency(self.source, self.target)

    @cached_property
    def _into(self) -> tuple[Numbers, Numbers]:
        return self._adjacency(self.target, self.source)

    def _adjacency(self, page: Numbers, neighbour: Numbers) -> tuple[Numbers, Numbers]:
        """Return neighbours sorted by page, ``[L]``, and where those of each page begin, ``[pages + 1]``."""
        order = np.argsort(page, kind="stable")
        return neighbour[order], np.searchsorted(page[order], np.arange(self.pages + 1))

    def rings(self, group: int, d: int) -> Iterator[Numbers]:
        """Yield a page and its siblings (linked from the same page), then pages 1, ..., abs(d) hops away.

        Equation 1: along the links if d is positive, against them if it is negative. ``group``: the page,
        here a group of its own.
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

    def page_rank(self) -> npt.NDArray[np.float64]:
        """PageRank of each page (equation 9), ``[P]``; the rank of a page without links goes to all alike."""
        count = np.bincount(self.source, minlength=self.pages)
        rank = np.full(self.pages, 1.0 / self.pages)
        for _ in range(RANK_STEPS):
            share = rank / np.maximum(count, 1)
            arriving = np.bincount(self.target, share[self.source], self.pages)
            rank = (1.0 - DAMPING + DAMPING * rank[count == 0].sum()) / self.pages + DAMPING * arriving
        return rank


def _step(lists: tuple[Numbers, Numbers], pages: Numbers) -> Numbers:
    ends, begin = lists
    parts = [ends[begin[page] : begin[page + 1]] for page in pages.tolist()]
    return np.unique(np.concatenate([*parts, ends[:0]]))


def popularity_by_links(finder: Numbers, links: Links) -> npt.NDArray[np.float64]:
    """PageRank of each page, on average 1, from known links and those by which pages were found: ``[P]``.

    ``finder``: page on which each page was found, `NOWHERE`: none. Rounded to multiples of 2**-20, so that
    the order of the pages does not matter.
    """
    with_finder = np.flatnonzero(finder != NOWHERE)
    pairs = np.append(finder[with_finder], links.source) * len(finder) + np.append(with_finder, links.target)
    source, target = np.divmod(np.unique(pairs), max(1, len(finder)))
    rank = Links(source, target, len(finder)).page_rank()
    return np.asarray(np.rint(rank * len(finder) * 2.0**20) * 2.0**-20)


def popularity_of(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Scale `values` such as PageRank to 0..10: round(10 ln(v / min) / ln(max / min)), ``[P]``.

    0 for zeros, or if all are equal.
    """
    out = np.zeros(len(values), np.uint8)
    is_positive = values > 0
    if is_positive.any():
        logs = np.log(values[is_positive])
        span = logs.max() - logs.min()
        if span > 0:
            out[is_positive] = np.rint(10.0 * (logs - logs.min()) / span)
    return out


@dataclass(frozen=True, eq=False)
class PageGroups:
    """Clusters of P pages, and links between the pages; `grouping` makes a `Grouping` of either."""

    cluster: npt.NDArray[np.int32]
    """``[P]``: cluster of each page; `NOWHERE`: none."""
    order: npt.NDArray[np.int32]
    """``[C, C]``: row c has all clusters by the distance of their centroids from c's, c itself first."""
    links: Links
    identity: str
    """Digest of the pages that were clustered."""
    keys: npt.NDArray[np.uint64] | None = None
    """``[P]``: page keys, for pages of a store; None: the pages are those of a history, in its order."""

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "PageGroups":
        """Make groups from the arrays of a file or a store; raises KeyError where one is missing."""
        source, target = (arrays[name].astype(np.intp) for name in ("source", "target"))
        links = Links(source, target, len(arrays["cluster"]))
        return cls(arrays["cluster"], arrays["order"], links, str(arrays["identity"]), arrays.get("keys"))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name from which `of_arrays` makes the same groups."""
        arrays = {"cluster": self.cluster, "order": self.order, "identity": np.array(self.identity)}
        arrays |= {"source": self.links.source.astype("<u4"), "target": self.links.target.astype("<u4")}
        return arrays if self.keys is None else arrays | {"keys": self.keys}

    @property
    def sizes(self) -> npt.NDArray[np.intp]:
        """Number of pages in each cluster, ``[C]``."""
        return np.bincount(self.cluster[self.cluster != NOWHERE], minlength=len(self.order))

    def grouping(self, name: Name) -> Grouping:
        """Group the pages by cluster if `name` is "cluster"; else each page alone, at distances by links."""
        if name == "cluster":
            return Grouping(self.cluster.astype(np.intp), len(self.order), ClusterRanks(self.order))
        return Grouping(np.arange(len(self.cluster)), len(self.cluster), self.links)

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Popularity from 0 to 10, ``[P]``: PageRank by `links`, scaled by `popularity_of`."""
        return popularity_of(self.links.page_rank())

    def of_pages(self, pages: npt.NDArray[np.integer[Any]]) -> "PageGroups":
        """Return clusters and links of `pages` only, renumbered; an entry `NOWHERE` gets none of them."""
        known = pages != NOWHERE
        cluster = np.where(known, self.cluster[pages], np.int32(NOWHERE))
        new_position = np.full(len(self.cluster), NOWHERE)
        new_position[pages[known]] = np.flatnonzero(known)
        source, target = new_position[self.links.source], new_position[self.links.target]
        both = (source != NOWHERE) & (target != NOWHERE)
        links = Links(source[both], target[both], len(pages))
        return PageGroups(cluster, self.order, links, self.identity)
