"""What sites claimed of pages, in a replay: told cycle by cycle as the crawl was, and trusted as far as it
held."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import (
    CLAIM,
    SiteClaims,
    after_visits,
    apply_claims,
    before_visits,
    pages_with_claims,
)
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import Directories
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, UNCHANGED
from scrapy_gp4c.scoring import hints

Array = npt.NDArray[Any]


class Claimed:
    """The claims of a history, and what visits have told of them so far."""

    def __init__(self, claims: Array, directories: Directories) -> None:
        """Take claims, dtype `training.histories.growth.TOLD`, and how the directories make up sites."""
        self._claims = claims
        self._site = directories.site
        self.trust = np.zeros((directories.sites, len(hints.KINDS), 2, 2))
        """How often each site was right: see `hints.lifts`."""

    def begin(self, state: Columns, known: Array) -> None:
        """Do to the columns what was claimed before cycle 1, of the pages that are known."""
        apply_claims(state, self._of_cycles(self._claims["cycle"] < 1, known))

    def _of_cycles(self, chosen: Array, known: Array) -> Array:
        """Claims about known pages, dtype `CLAIM`."""
        own = self._claims[chosen & known[self._claims["page"]]]
        claimed = np.zeros(len(own), CLAIM)
        for name in ("page", "kind", "value"):
            claimed[name] = own[name]
        return claimed

    def before(
        self, state: Columns, judged: Array, changed: Array, known: Array, new: Array, cycle: int
    ) -> Visited:
        """Do to the columns what comes before the visits of a cycle.

        ``state``: all columns, ``[P]``; ``judged``: pages visited again; ``changed``: whether they have
        changed; ``known``: of all pages; ``new``: those that the cycle has found.
        """
        claimed = self._of_cycles(self._claims["cycle"] == cycle, known)
        outcome = np.concatenate((np.where(changed, CHANGED, UNCHANGED), np.full(len(new), FIRST)))
        visited = Visited(np.concatenate((judged, new)).astype(np.intp), outcome.astype(np.uint8), claimed)
        told = before_visits(state, visited.rows, visited.outcome, claimed, cycle)
        added = hints.counted(told.told, self._site[told.group], len(self.trust))
        self.trust = hints.decayed(self.trust, added)
        return visited

    def site_claims(self, state: Columns, cycle: int) -> SiteClaims:
        """What claims are worth in a cycle, by what the cycles before it have told."""
        pages = pages_with_claims([(self._site[state["group"]], state)], len(self.trust), cycle)
        return SiteClaims(self.trust, pages, cycle)


class Visited:
    """Visits of a cycle, and its claims."""

    def __init__(self, rows: npt.NDArray[np.intp], outcome: Array, claimed: Array) -> None:
        """Take what `before_visits` takes."""
        self.rows, self.outcome, self._claimed = rows, outcome, claimed

    def after(self, state: Columns, cycle: int) -> None:
        """Do to the columns what comes after the visits, which have dated ``last_cycle``."""
        after_visits(state, self.rows, self.outcome, self._claimed, cycle, np.zeros(len(self.rows)))
