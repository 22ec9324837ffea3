"""The tree of a site's directories, and the way from one directory to another (Tan et al. 2007, section 4.2).

With the depths m and n of two pages, that of a site's front page being 2, and c of the deepest directory
that holds both, equation 2 is (m - c) + (n - c) - 2: the steps up and down the tree from one page's directory
to the other's. It is positive where the other page is on the same level or above, else negative: the printed
sign is the opposite of what sections 4.2 and 6.2 say.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import Grouping, Numbers


class Tree:
    """Directories of all sites; every site is a tree of its own. Memory: 12 bytes each."""

    def __init__(self, parent: Sequence[int]) -> None:
        """Take the directory above each one, before it in the row; -1: there is none."""
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
        """Yield the directories 0, 1, ..., abs(d) steps away: no lower ones if d >= 0, else lower ones."""
        found: list[list[int]] = [[] for _ in range(abs(d) + 1)]
        found[0].append(group)
        came, ancestor = -1, group
        for up in range(abs(d) + 1):
            nodes = [ancestor]
            for down in range(abs(d) - up + 1):
                if (down > up) == (d < 0) and up + down:
                    found[up + down] += nodes
                if d >= 0 and down == up:
                    break
                nodes = [child for node in nodes for child in self._below(node) if child != came]
                if not nodes:
                    break
            came, ancestor = ancestor, self._parent[ancestor]
            if ancestor < 0:
                break
        for ring in found:
            yield np.array(ring, np.intp)

    def _below(self, node: int) -> Sequence[int]:
        return self._children[self._begin[node] : self._begin[node + 1]]


class Numbering:
    """The numbers of directories while a tree of them is made, and of all directories above them."""

    def __init__(self) -> None:
        """Begin with no site."""
        self._parent = array("i")
        self._children: dict[int, dict[str, int]] = {}
        """Of each directory that has any, by the segment that they add."""
        self._roots: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._parent)

    def number_of(self, site: str, directory: str) -> int:
        """Number of a directory, given as `places.Place` has it; a script's pages are where the script is."""
        node = self._roots.get(site)
        if node is None:
            node = self._roots[site] = self._add(-1)
        *segments, last = directory.split("/")
        assert not last or last.endswith("?")
        for segment in segments:
            children = self._children.setdefault(node, {})
            known = children.get(segment)
            if known is None:
                known = children[segment] = self._add(node)
            node = known
        return node

    def _add(self, parent: int) -> int:
        self._parent.append(parent)
        return len(self._parent) - 1

    def tree(self) -> Tree:
        """The tree of all so far: it knows no names, which take ten times the memory."""
        return Tree(self._parent)


def of_directories(number: npt.NDArray[np.integer], places: Iterable[tuple[str, str]]) -> Grouping:
    """The tree of P pages by the numbers of their directories, and the site and path of each of these."""
    numbers = Numbering()
    nodes = np.fromiter((numbers.number_of(site, directory) for site, directory in places), np.intp)
    tree = numbers.tree()
    del numbers  # before there is a number for each page
    return Grouping(nodes[number], len(tree), tree)
