"""Related pages of a history: those of one site, directory or cluster."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groupings import Grouping, Name, PageGroups, by_place
from scrapy_gp4c.page_state.groups import Directories, place_of_url


class PageDirectories(NamedTuple):
    """Directory of each of P pages."""

    group: npt.NDArray[np.intp]
    """``[P]``: number of the page's directory."""
    directories: Directories


class Regrouping(NamedTuple):
    """How a replay makes new clusters and links from the copies that it has fetched, every so many cycles."""

    every_cycles: int
    """Cycles, at least 1, after which groups are made anew, counted from cycle 0."""
    group: Callable[[npt.NDArray[np.int64]], PageGroups]
    """Function that groups pages by their copies; takes the cycle of each page's copy, ``[P]``."""


class Neighbours:
    """Groups of a history's related pages; those by names are made when they are first asked for."""

    def __init__(
        self,
        site: npt.NDArray[np.int32],
        page_names: Sequence[str] | None,
        weight: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """Pages are grouped by the directories in ``page_names`` (paths, URLs), or else by ``site`` alone.

        ``weight``: importance of pages, from which `popularity` follows.
        """
        self._weight = weight
        self._site = site
        self._page_names = page_names
        self._groupings: dict[Name, Grouping] = {}
        self.groups_by_content: PageGroups | None = None
        """Clusters and links of a file (`training.clustering.clusters`)."""
        self.regrouping: Regrouping | None = None
        """Maker of clusters and links in replays; None: those of the beginning stay."""
        self.popular: npt.NDArray[np.uint8] | None = None
        """Popularity of pages, ``[P]``; None: it follows from weights and links."""

    def regrouped(self, groups: PageGroups) -> Self:
        """Copy of these neighbours with other clusters and links."""
        other = copy(self)
        other.groups_by_content = groups
        known = self._groupings.items()
        other._groupings = {name: one for name, one in known if name not in ("cluster", "links")}
        return other

    @property
    def are_named(self) -> bool:
        return self._page_names is not None

    @cached_property
    def groups(self) -> PageDirectories:
        return self._placed[0]

    @property
    def directory_names(self) -> list[tuple[int, str]]:
        """Site and path of every directory; empty without names."""
        return self._placed[1]

    @cached_property
    def _placed(self) -> tuple[PageDirectories, list[tuple[int, str]]]:
        """Directory of every page; site and path of every directory.

        Without names each site is a directory.
        """
        site = self._site
        sites = int(site.max()) + 1
        if self._page_names is None:
            of_sites = Directories(np.arange(sites), sites, unnamed=True)
            return PageDirectories(site.astype(np.intp), of_sites), []
        numbers: dict[tuple[int, str], int] = {}
        group = np.fromiter(
            (
                numbers.setdefault((of_site, place_of_url(page).directory), len(numbers))
                for of_site, page in zip(site.tolist(), self._page_names, strict=True)
            ),
            np.intp,
            len(site),
        )
        of_directory = np.fromiter((of_site for of_site, _ in numbers), np.intp, len(numbers))
        return PageDirectories(group, Directories(of_directory, sites)), list(numbers)

    def knows(self, name: Name) -> bool:
        if name in ("cluster", "links"):
            return self.groups_by_content is not None
        return name == "site" or self.are_named

    def grouping(self, name: Name) -> Grouping:
        """Groups of all pages by `name` (``site``, ``directory``, ``cluster``, ...).

        Raises PolicyError where the history lacks the data.
        """
        if name in ("cluster", "links"):
            if self.groups_by_content is None:
                raise PolicyError(
                    f"the history does not tell its pages by {name}: make a file of groups with `python -m "
                    "training.cluster CONTENTS -o groups.npz`, and give `--groups groups.npz`"
                )
            return self._groupings.setdefault(name, self.groups_by_content.grouping(name))
        if not self.knows(name):
            raise PolicyError(
                "directories are told by the names of pages, and the history has none: use a history with "
                "names, or the level 'site'"
            )
        grouping = self._groupings.get(name)
        if grouping is None:
            group, directories = self.groups
            if name == "tree":
                places = ((str(site), directory) for site, directory in self._placed[1])
                grouping = groupings.tree_of_directories(group, places)
            else:
                grouping = by_place(group, directories, name)
            self._groupings[name] = grouping
        return grouping

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Popularity of each page, from 0 to 10, ``[P]``. Raises PolicyError where it is unknown."""
        if self.popular is not None:
            return self.popular
        if self._weight is not None:
            return groupings.popularity_of(self._weight)
        if self.groups_by_content is None:
            raise PolicyError(
                "phi='pra' wants popular pages, and the history has neither weights nor links: use another "
                "phi, or give `--groups` of `python -m training.cluster`"
            )
        return self.groups_by_content.popularity()
