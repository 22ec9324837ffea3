"""The share of the budget that looks for new pages: hubs, by a score function of their own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.evidence import NOTHING, UNPLANNED, LiveEvidence, Surroundings
from scrapy_gp4c.policies.budget import budget_pages
from scrapy_gp4c.policies.policy import NOBODY, Chosen, PolicySettings, Round, choose
from scrapy_gp4c.policies.table import TOP_K, columns_read
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore


def choose_hubs(
    store: PageStore, settings: Settings, cycle: int, hubs: npt.NDArray[np.bool_], budget: int
) -> Chosen:
    """The hubs that a cycle visits, best first: as many as ``GP4C_DISCOVERY`` says, at least one.

    ``hubs``: of every page, whether it is one (`growth.is_hub`), ``[P]``; ``budget``: visits of the
    cycle that the panel leaves. Raises ScoreError.
    """
    most = min(budget, budget_pages(settings.discovery, budget))
    if not settings.discovery or most < 1 or not hubs.any():
        return NOBODY
    function = settings.discovery_function
    surroundings = Surroundings(store, cycle, columns_read(function, TOP_K))
    evidence = LiveEvidence(store, hubs, (settings.seed, cycle), UNPLANNED, NOTHING, surroundings, spent=0.0)
    return choose(TOP_K.make(PolicySettings(function, settings.seed)), Round(cycle, 0, most), evidence)
