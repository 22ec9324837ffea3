"""Gone pages that are looked at again, and outages that are over.

A gone page waits 1, 2, 4, ... 32 cycles after its last attempt, as failing pages do; when a link, a claim, a
hint or an import names it, it is due in the next cycle. A site without any other page is asked for one page
in every cycle: all its pages went in an outage, or the site did.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.crawling.neighbourhood import KnownPages
from scrapy_gp4c.crawling.new_pages import some_columns
from scrapy_gp4c.page_state.columns import RECOVERING, Columns
from scrapy_gp4c.page_state.outcomes import FAILED, among
from scrapy_gp4c.policies.base import Pages
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.protocols import PageStore

BUDGET_SHARE: Final = 0.25
"""Share of a cycle's budget that gone pages may take, besides those of sites that answer again."""


class GonePages(NamedTuple):
    """All gone pages of a store, ``[G]`` each, ids ascending."""

    pages: Pages
    is_due: Bools
    """Whether the page has waited long enough."""
    is_start: Bools
    """Whether the spider's start found the page."""
    failures: Array
    last_attempt: Array

    @classmethod
    def of(cls, columns: Columns, is_gone: Bools, is_awake: Bools, first: int) -> Self:
        """Gone pages of a block whose first page has the id `first`."""
        rows = np.flatnonzero(is_gone)
        return cls(
            (rows + first).astype(np.uint32),
            is_awake[rows],
            columns["found_by"][rows] == START,
            columns["failures"][rows],
            columns["last_attempt"][rows],
        )

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Pages of all parts, joined."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    @property
    def recovering(self) -> int:
        """Pages due that are named by hints and imports, or whose sites answer again: they count as alive."""
        return int(np.count_nonzero(self.is_due & (self.failures <= RECOVERING)))


NO_GONE_PAGES: Final = GonePages(
    np.empty(0, np.uint32),
    np.empty(0, np.bool_),
    np.empty(0, np.bool_),
    np.empty(0, np.uint8),
    np.empty(0, np.int32),
)


class Rechecks(NamedTuple):
    """Gone pages that a cycle visits."""

    pages: Pages
    inside: int
    """Number of those that the budget pays for."""


def rechecks(known: KnownPages, gone: GonePages, alive: int, budget: int, gone_after: int) -> Rechecks:
    """Gone pages that a cycle visits: start pages and one of each site, and others inside the budget.

    ``alive``: pages that are not gone; ``budget``: visits of the cycle. Those come first that have least
    failures, as a hint, a link or an outage that is over leaves them, then those that wait longest.
    """
    if not len(gone.pages):
        return Rechecks(gone.pages, 0)
    site = known.directories()["site"][some_columns(known, gone.pages, ("group",))["group"]]
    order = np.lexsort((gone.pages, gone.last_attempt, gone.failures, ~gone.is_due))
    one_of_site = np.zeros(len(order), np.bool_)
    one_of_site[order[np.unique(site[order], return_index=True)[1]]] = True
    may_rest = one_of_site & ~gone.is_due
    if may_rest.any():
        may_rest[may_rest] = np.isin(site[may_rest], _sites_alive(known, gone_after))
    chosen = gone.is_start | (one_of_site & ~may_rest)
    others = order[(gone.is_due & ~chosen)[order]]
    recovering = gone.recovering
    share = max(BUDGET_SHARE, recovering / max(1, alive + recovering))
    inside = others[: math.ceil(share * budget)]
    chosen[inside] = True
    return Rechecks(gone.pages[order[chosen[order]]], len(inside))


def _sites_alive(known: KnownPages, gone_after: int) -> Array:
    """Keys of the sites that have a page which is not gone."""
    directories = known.directories()
    is_alive = np.zeros(len(directories), np.bool_)
    for _, columns in known.blocks({"group", "gone"}):
        is_alive[columns["group"][columns["gone"] < gone_after]] = True
    return np.unique(directories["site"][is_alive])


def note_recovery(store: PageStore) -> None:
    """Let the pages of sites that answer again after an outage be due at once; call before the fold.

    A site was out where all of its pages that were ever asked for had failed, at least two of them.
    """
    visits = store.open_visits()
    answered = np.unique(visits["page"][~among(visits["outcome"], FAILED)])
    answered = answered[answered < store.merged_pages]
    columns = some_columns(store, answered, ("failures", "group"))
    back = columns["failures"] > 1
    if not back.any():
        return
    site_of_group = store.directories()["site"]
    sites = np.unique(site_of_group[columns["group"][back]])
    was_up = np.zeros(len(sites), np.bool_)
    waiting: list[Array] = []
    for first, block in store.blocks({"failures", "last_attempt", "group"}):
        row = np.flatnonzero((block["last_attempt"] > 0) & np.isin(site_of_group[block["group"]], sites))
        site_row = np.searchsorted(sites, site_of_group[block["group"][row]])
        failing = block["failures"][row] > 0
        was_up[site_row[~failing]] = True
        waiting.append(np.stack((row[failing] + first, site_row[failing])))
    pages, site_row = np.concatenate(waiting, axis=1)
    due = pages[~was_up[site_row]].astype(np.uint32)
    for start in range(0, len(due), 4_096):
        for page in due[start : start + 4_096].tolist():
            store.note(page, "wait", float(RECOVERING))
