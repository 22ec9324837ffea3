"""The share of the budget that looks for new pages: hubs, by a score function of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.evidence import UNPLANNED, LiveEvidence, Seen
from scrapy_gp4c.crawling.surroundings import NOTHING, Surroundings
from scrapy_gp4c.crawling.survey import some_columns
from scrapy_gp4c.policies.budget import budget_pages
from scrapy_gp4c.policies.policy import NOBODY, Chosen, Pages, PolicySettings, Round, choose
from scrapy_gp4c.policies.table import TOP_K, columns_read
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore


class Hubs:
    """The hubs of a cycle, of which the best are visited."""

    def __init__(self, store: PageStore, settings: Settings, cycle: int) -> None:
        """Take a store and the settings of its open cycle."""
        self._store, self._settings, self._cycle = store, settings, cycle
        read = columns_read(settings.discovery_function, TOP_K)
        self._surroundings = Surroundings(store, cycle, read)

    def most(self, budget: int) -> int:
        """How many a cycle visits: the share of ``GP4C_DISCOVERY``, at least one; none without it.

        ``budget``: visits of the cycle that the panel leaves.
        """
        share = self._settings.discovery
        return min(budget, budget_pages(share, budget)) if share else 0

    def sums(self) -> tuple[int, ...]:
        """What these pages add to the sums that scores read over all pages, see `Surroundings.sums`."""
        return self._surroundings.sums(NOTHING) if self._settings.discovery else ()

    def awake(self, hubs: npt.NDArray[np.bool_], waiting: Pages) -> npt.NDArray[np.bool_]:
        """The hubs, ``[P]``, but for those of sites that have pages which wait for a later cycle.

        Such a site, as a calendar without end, needs no visits for more of them. ``waiting``: ids ascending.
        """
        rows = np.flatnonzero(hubs).astype(np.uint32)
        if len(waiting) and len(rows):
            hubs = hubs.copy()
            hubs[rows] = ~np.isin(self._sites(rows), self._sites(waiting))
        return hubs

    def _sites(self, pages: Pages) -> npt.NDArray[np.uint64]:
        """Key of each page's site ``[P]``; ids ascending."""
        group = some_columns(self._store, pages, ("group",))["group"]
        keys: npt.NDArray[np.uint64] = self._store.directories()["site"][group]
        return keys

    def choose(self, hubs: npt.NDArray[np.bool_], most: int, sums: Sequence[int] | None = None) -> Chosen:
        """The best of the hubs, best first.

        ``hubs``: of every page, whether it is one (`growth.is_hub`), ``[P]``; ``sums``: over all shards,
        None: there are no others. Raises ScoreError.
        """
        if most < 1 or not hubs.any():
            return NOBODY
        salt = self._settings.seed, self._cycle
        seen = Seen(UNPLANNED, NOTHING, 0.0, sums)
        evidence = LiveEvidence(self._store, hubs, salt, seen, self._surroundings)
        policy = TOP_K.make(PolicySettings(self._settings.discovery_function, self._settings.seed))
        return choose(policy, Round(self._cycle, 0, most), evidence)
