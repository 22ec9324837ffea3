"""Choice of the new pages of a cycle: as many as the caps allow, sites and finders by turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.crawling.neighbourhood import Draws, KnownPages, Neighbourhood
from scrapy_gp4c.page_state import claims
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.policies.base import Pages
from scrapy_gp4c.scoring.first_visits import FINDER, SHARE, best_first, columns_of_links, turns_of
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import draw_salt, draws
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store

SLICE: Final = 8_192
"""Pages whose columns are all in memory at a time."""


class WaitingPages(NamedTuple):
    """Pages that wait for their first visit, ``[P]`` each."""

    pages: Pages
    site: Array
    """Key of the site of each."""
    finder: Array
    """Finder of each, as the column ``found_by`` has it."""
    entered: Array
    """Cycle in which each became known."""
    drawn: npt.NDArray[np.uint64]
    """Random number of each in this cycle."""


def first_visits(pages: KnownPages, settings: Settings, cycle: int, due: Pages) -> Pages:
    """Pages that a cycle fetches for the first time, in order: all that are due, if there is no cap.

    ``due``: pages that were never fetched and may be visited, ids ascending, each one below `merged_pages`.
    """
    most, most_of_site = settings.new_pages, settings.new_pages_per_site
    if (most is None and most_of_site is None) or not len(due):
        return due
    columns = some_columns(pages, due, ("group", "entered", "key", "found_by"))
    sites = pages.directories()["site"][columns["group"]]
    drawn = draws(columns["key"], settings.seed, cycle)
    waiting = WaitingPages(due, sites, columns["found_by"], columns["entered"], drawn)
    if settings.new_page_function is None:
        return by_turns(waiting, cycle, most_of_site)[:most]
    scores = scores_of_waiting(pages, settings.new_page_function, (settings.seed, cycle), waiting)
    order = best_first(scores, sites, drawn, most, most_of_site)
    return np.asarray(due[order])


def scores_of_waiting(
    pages: KnownPages, function: ScoreFunction, salt: tuple[int, int], waiting: WaitingPages
) -> Floats:
    """Scores of pages that wait for their first visit, ``[P]``; ``salt``: seed and cycle.

    Raises ScoreError.
    """
    cycle = salt[1]
    parts = [columns["found_by"] for _, columns in pages.blocks({"found_by"})]
    links = columns_of_links(
        waiting.pages,
        np.concatenate(parts),
        waiting.entered,
        cycle,
        lambda ids: some_columns(pages, ids.astype(np.uint32), FINDER),
    )
    neighbourhood = Neighbourhood(pages, cycle, set(function.columns) - links.keys())
    related, out = neighbourhood.seen_by(), []
    for start in range(0, len(waiting.pages), SLICE):
        rows = slice(start, start + SLICE)
        some = waiting.pages[rows]
        known = {**pages.columns_of(some), **{name: column[rows] for name, column in links.items()}}
        draw = Draws(known["key"], draw_salt(*salt))
        state = RoundState(neighbourhood.columns(known, some), slice(None), related, draw)
        out.append(function.scores(state, cycle))
    return np.concatenate(out)


def by_turns(waiting: WaitingPages, cycle: int, most_of_site: int | None) -> Pages:
    """All pages that may have their first visit, in order: the first of each site, then the second of each.

    The pages of a site come by turns of those that found them. Of one turn, and of one finder, those come
    first that became known first, then those with the smallest draw. ``cycle``: the one that is planned;
    ``most_of_site``: cap, None: none.
    """
    site = np.unique(waiting.site, return_inverse=True)[1]
    entered = np.clip(waiting.entered.astype(np.int64), 0, cycle)
    of_finder = turns_of((waiting.drawn, entered), (waiting.finder, site))
    turn = turns_of((waiting.drawn, entered, of_finder), (site,))
    order = np.lexsort((waiting.drawn, entered, turn))
    if most_of_site is not None:
        order = order[turn[order] < most_of_site]
    return np.asarray(waiting.pages[order])


class FirstVisits:
    """Counts the first visits of a cycle, and of each site and finder where there are caps.

    Links come one by one, and a page may have 100,000 of them: with a cap, a site or a finder takes half of
    what is left, and its other pages wait until all else is done. Then they come by turns.
    """

    def __init__(self, store: Store, most: int | None, most_of_site: int | None) -> None:
        """Start to count; ``most``, ``most_of_site``: caps of the cycle and of each site, None: no cap."""
        self._store = store
        self._waiting: list[tuple[int, int, int]] = []  # page, site, finder
        self._of_finder: Counter[int] = Counter()
        self._most, self._most_of_site = most, most_of_site
        self._visits = 0
        self._of_site: Counter[int] = Counter()

    def count(self, pages: Sequence[int]) -> None:
        """Count pages that are planned or were visited."""
        self._visits += len(pages)
        if self._most_of_site is not None:
            urls = (stored["url"] for stored in self._store.requests(pages))
            self._of_site.update(place_of_url(url).site_key for url in urls)

    @property
    def has_waiting(self) -> bool:
        """Whether pages wait for their turn, and the cap has room for one."""
        return bool(self._waiting) and self._most is not None and self._visits < self._most

    def takes(self, page: int, finder: int | None = None) -> bool:
        """Count a further first visit, unless a cap is reached, or the page has to wait for its turn.

        ``finder``: None where it is the page's turn.
        """
        if self._most is None and self._most_of_site is None:
            self._visits += 1
            return True
        if self._most is not None and self._visits >= self._most:
            return False
        site = place_of_url(self._store.request(page)["url"]).site_key
        if self._most_of_site is not None and self._of_site[site] >= self._most_of_site:
            return False
        if self._most is not None and finder is not None:
            share = SHARE * (self._most - self._visits + self._of_finder[finder])
            if self._of_finder[finder] + 1 > share:
                self._waiting.append((page, site, finder))
                return False
            self._of_finder[finder] += 1
        self._of_site[site] += 1
        self._visits += 1
        return True

    def next_turns(self) -> list[int]:
        """Pages that have waited for their turn, as many as the caps allow."""
        page, site, finder = (np.array(column) for column in zip(*self._waiting, strict=True))
        order = np.arange(len(page), dtype=np.uint64)
        waiting = WaitingPages(page, site, finder, np.zeros(len(page)), order)
        self._waiting = []
        return [one for one in by_turns(waiting, 1, None).tolist() if self.takes(one)]


class NewCounts(NamedTuple):
    """Counts of new pages in the record of a cycle."""

    all: int
    by_hubs: int


def found_by_hubs(store: Store) -> NewCounts:
    """Count the pages that became known in the open cycle, and those that visits to hubs found."""
    visits = store.open_visits()
    brought = claims.brought(store.notes(), store.pages)
    hubs = visits["page"][visits["kind"] == KINDS.index("hub")]
    return NewCounts(sum(1 for _ in store.new_pages()), int(brought[hubs].sum()))


def some_columns(known: KnownPages, pages: Pages, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """A few columns ``[P]`` of many pages, ids ascending, read slice by slice."""
    starts = range(0, max(1, len(pages)), SLICE)
    slices = (known.columns_of(pages[start : start + SLICE], names) for start in starts)
    parts = [[columns[name] for name in names] for columns in slices]
    return {
        name: np.concatenate(values) for name, values in zip(names, zip(*parts, strict=True), strict=True)
    }
