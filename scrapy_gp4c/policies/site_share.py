"""Limit on the budget share of single sites that would take too much, restless ones and swelling ones.

The pages of a restless site change at every visit; a swelling site has ever more new pages.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools, LazyColumns
from scrapy_gp4c.page_state.groupings import Grouping
from scrapy_gp4c.policies.base import Block, Cut, Evidence, Pages, Policy, Round, Selection

ALL: Final = Cut(-sys.float_info.max, 0)
"""Cut that every score reaches."""
NONE: Final = Cut(sys.float_info.max, 0)
"""Cut that no score reaches."""
COLUMNS: Final = ("n", "X", "entered")
"""Columns that decide whether a site is restless or swelling."""
REGULAR: Final = 0.98
"""Least share of pages that change at every visit, among a restless site's pages that ever changed."""
JUDGED_TWICE: Final = 2
SWELLING: Final = 0.5
"""Least number of new pages of a swelling site per cycle, as a share of the budget."""
SWELLING_CYCLES: Final = 3
"""Number of last finished cycles over which a site's new pages are counted."""
SAMPLE: Final = 4_096


SitesOf = Callable[[Pages], Array]
"""Function from pages, ids ascending, to keys of their sites."""


def shared(policy: Policy, share: float, sites_of: SitesOf | None = None) -> Policy:
    """Return `policy` with `SharedBudget` around it, if `share` limits anything.

    The policy itself is returned with `share` 1.0, or if it has no number of rounds (policies that sample).
    """
    return policy if share >= 1.0 or policy.rounds is None else SharedBudget(policy, share, sites_of)


@dataclass(frozen=True)
class SharedBudget:
    """A policy that limits each restless or swelling site to a share of the budget.

    The limit is `share`, or an equal share of all sites if that is larger. To any score function, pages that
    change at every visit are worth most. An honest site of the same worth has pages that were once found
    unchanged, so it is not restless and has no limit. The pages of a swelling site get first visits outside
    the budget, and then compete for it.
    """

    policy: Policy
    share: float
    """Largest share of the budget for one such site, from 0.0 to 1.0."""
    sites_of: SitesOf | None = None
    """Function that spares reading the sites of all pages, as long as no site exceeds its share."""

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def rounds(self) -> int | None:
        return self.policy.rounds

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Choose as `policy` does; while a limited site has too many pages, ask again without the surplus.

        Visits that no other site can use go back to the limited sites.
        """
        chosen = self.policy.plan(round, evidence)
        if not len(chosen.pages):
            return chosen
        before = evidence.planned().pages
        budget = round.remaining + len(before)
        if self.sites_of is not None:
            pages = np.concatenate((before, chosen.pages))
            # A site above the limit has over SAMPLE pages in the sample; by chance it has half of them in one
            # case of 10^100.
            for step, margin in ((max(1, int(self.share * len(pages)) // SAMPLE), 2), (1, 1)):
                keys = self.sites_of(np.sort(pages[::step]))
                estimate = step * int(np.unique(keys, return_counts=True)[1].max())
                if margin * estimate <= math.floor(self.share * budget + 1e-9):
                    return chosen
        sites = evidence.grouping("site")
        visits = _count(sites, before)
        most = max(1, math.floor(max(self.share, 1 / sites.groups_with_pages) * budget + 1e-9))
        limit = np.full(sites.groups, budget + 1)  # none, but for sites that take too much
        selections: list[Selection] = []
        pages_to_choose, selection = len(chosen.pages), chosen
        while True:
            # Without the pages of one such site, another one may come to too much.
            for site in np.flatnonzero((_count(sites, selection.pages) + visits > most) & (limit > budget)):
                of_site = np.flatnonzero(sites.number == site)
                if _takes_too_much(evidence, of_site, most, round.cycle, budget):
                    limit[site] = most
            inside = _first_of_sites(sites.number[selection.pages], limit - visits)
            if not selections:
                if inside.all():
                    return chosen
                surplus = _rows_of_selection(chosen, ~inside)
            selections.append(_rows_of_selection(selection, inside))
            visits = visits + _count(sites, selections[-1].pages)
            taken = np.concatenate([one.pages for one in selections])
            has_room = visits < limit
            if len(taken) == pages_to_choose or not has_room.any():
                break
            others = OtherSites(evidence, sites, has_room, taken)
            selection = self.policy.plan(round._replace(remaining=round.remaining - len(taken)), others)
            if not len(selection.pages):
                break
            selection = _rows_of_selection(selection, slice(pages_to_choose - len(taken)))
        selections.append(_rows_of_selection(surplus, slice(pages_to_choose - len(taken))))
        pages, scores = (
            np.concatenate(column) for column in zip(*(one[:2] for one in selections), strict=True)
        )
        kinds = np.concatenate([one.kinds_of_pages() for one in selections])
        if chosen.cut is None:
            return Selection(pages, scores, None, kinds)
        of_page, ties = sites.number[pages], evidence.rows(pages).ties_of(np.arange(len(pages)))
        cut = ALL if len(selections[-1].pages) else Cut(float(scores[-1]), int(ties[-1]))
        of_sites = dict.fromkeys(np.flatnonzero(~has_room).tolist(), NONE)
        rows = np.flatnonzero(~has_room[of_page])
        of_sites |= {int(of_page[row]): Cut(float(scores[row]), int(ties[row])) for row in rows}
        return Selection(pages, scores, cut, kinds, of_sites)


def _takes_too_much(
    evidence: Evidence, pages: npt.NDArray[np.intp], most: int, cycle: int, budget: int
) -> bool:
    """Whether a site is restless or swelling; ``pages``: of the site, ids ascending.

    Restless: more than ``most`` pages, and nearly all that ever changed, changed at every visit, those of the
    warm-up included: of pages that change in nine of ten cycles, visits every sixth cycle alone would find
    hardly one unchanged. Swelling: the mean number of its new pages in the last cycles is more than half of
    the budget. Pages that became known with the site's first one are not new, however late their visit.
    """
    step = max(1, len(pages) // SAMPLE)
    n, changes, entered = (evidence.rows(pages[::step].astype(np.uint32)).state[name] for name in COLUMNS)
    is_judged = n >= JUDGED_TWICE
    restless = int(np.count_nonzero(is_judged & (changes == n)))
    changing = int(np.count_nonzero(is_judged & (changes > 0)))
    if step * restless > most and restless >= REGULAR * changing:
        return True
    is_new = entered > max(cycle - SWELLING_CYCLES - 1, int(entered.min()))
    return step * int(np.count_nonzero(is_new)) > SWELLING * SWELLING_CYCLES * budget


def _count(sites: Grouping, pages: Pages) -> npt.NDArray[np.intp]:
    return np.bincount(sites.number[pages], minlength=sites.groups)


def _first_of_sites(site: npt.NDArray[np.intp], room: npt.NDArray[np.intp]) -> Bools:
    """Mask ``[rows]`` of the first pages of each site, at most `room[site]`; ``site``: of each page."""
    order = np.argsort(site, kind="stable")
    ordered = site[order]
    inside = np.empty(len(site), np.bool_)
    inside[order] = np.arange(len(site)) - np.searchsorted(ordered, ordered) < room[ordered]
    return inside


def _rows_of_selection(chosen: Selection, rows: Bools | slice) -> Selection:
    kinds = None if chosen.kinds is None else chosen.kinds[rows]
    return Selection(chosen.pages[rows], chosen.scores[rows], None, kinds)


class OtherSites:
    """`Evidence` without the candidates of full sites, and without pages that are chosen already."""

    def __init__(self, evidence: Evidence, sites: Grouping, has_room: Bools, chosen: Pages) -> None:
        """``has_room``: whether the candidates of each of `sites` stay; ``chosen``: pages to leave out."""
        self._evidence = evidence
        self.rows, self.visits, self.planned = evidence.rows, evidence.visits, evidence.planned
        self.grouping, self.popularity = evidence.grouping, evidence.popularity
        self._open = has_room[sites.number]
        self._open[chosen] = False

    def candidates(self) -> Iterator[Block]:
        """Yield the remaining candidates, as `Evidence.candidates`."""
        for block in self._evidence.candidates():
            rows = np.flatnonzero(self._open[block.pages])
            if len(rows) == len(block.pages):
                yield block
            elif len(rows):
                yield self._rows_of(block, rows)

    def _rows_of(self, block: Block, rows: npt.NDArray[np.intp]) -> Block:
        state = LazyColumns(block.state, lambda name: block.state[name][rows])
        return Block(block.pages[rows], state, lambda places: block.ties_of(rows[places]))

    def may_visit(self, pages: Pages) -> Bools:
        """Whether each page is a remaining candidate: ``[rows]``."""
        may = self._evidence.may_visit(pages)
        may[may] = self._open[pages[may]]
        return may
