"""Claims of sites that pages changed (in sitemaps, headers) in replays, and how often they were right.

`scrapy_gp4c.page_state.claims` has their format, `scrapy_gp4c.scoring.hints` the trust that they earn.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state.claims import (
    CLAIM,
    SiteClaims,
    after_visits,
    apply_claims,
    before_visits,
    evidence_of_ages,
    pages_with_claims,
)
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import Directories
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, UNCHANGED
from scrapy_gp4c.scoring import hints, rates
from training.replaying.prepared import PreparedHistory


class ReplayedPageClaims:
    """Columns of claims in a replay whose pages are all known; a cycle's claims count from the next on."""

    def __init__(self, prepared: PreparedHistory) -> None:
        """Apply the claims before the first scored cycle."""
        assert prepared.claims is not None
        group, directories = prepared.neighbours.groups
        self._claims = ReplayedClaims(prepared.claims, directories)
        self._all = np.ones(prepared.pages, np.bool_)
        self.columns: Columns = {name: np.zeros(prepared.pages, one) for name, one in hints.COLUMNS.items()}
        """Columns `hints.COLUMNS`, each ``[P]``."""
        self._state: Columns = {"group": group, "last_cycle": np.zeros(prepared.pages, np.int32)}
        self._state |= self.columns | {"first_cycle": np.zeros(prepared.pages, np.int32)}
        self._claims.begin(self._state, self._all)
        everything = np.arange(prepared.pages)
        for cycle in range(1, prepared.warmup + 1):
            self.observe(everything, prepared.changed[cycle - 1], cycle)

    def observe(self, visited: Array, changed: Array, cycle: int) -> None:
        """Apply a cycle's claims and visits to the columns; ``changed``: whether each page had changed."""
        no_new = np.empty(0, np.intp)
        claims_after_visits = self._claims.before(self._state, visited, changed, self._all, no_new, cycle)
        self._state["last_cycle"][visited] = cycle
        claims_after_visits()

    def site_claims(self, cycle: int, states: Mapping[str, Array]) -> SiteClaims:
        """Return an object that computes the claim columns for the plan of a cycle.

        ``states``: page columns E and T (changes, cycles), which the column ``age_trust`` needs.
        """
        columns = ChainMap(self._state, states)  # type: ignore[arg-type]  # nobody writes to it
        return self._claims.site_claims(columns, cycle)


class ReplayedClaims:
    """All claims of a history, and for each site how often they were right so far (`trust`).

    Claims in a response's headers count from the next visit on: a replay reads no response unasked.
    """

    def __init__(self, claims: Array, directories: Directories) -> None:
        """``claims``: dtype `scrapy_gp4c.page_state.claims.DATED_CLAIM`."""
        claims = claims[np.argsort(claims["cycle"], kind="stable")]
        is_answer = (claims["cycle"] >= 1) & np.isin(claims["kind"], (hints.MODIFIED, hints.EXPIRES))
        self._answers, self._others = claims[is_answer], claims[~is_answer]
        self._site = directories.site
        self.trust = np.zeros((directories.sites, len(hints.KINDS), 2, 2))
        """Counts of right and wrong claims by site and kind, older ones decayed: see `hints.lifts`."""

    def begin(self, state: Columns, known: Array) -> None:
        """Apply the claims from before cycle 1 to the columns `state`; ``known``: ``[P]``, pages known."""
        apply_claims(state, self._others_of(np.iinfo(np.int32).min, 0, known))

    def _others_of(self, first: int, last: int, known: Array) -> Array:
        """Claims of cycles first..last about known pages, except in response headers: dtype `CLAIM`."""
        begin, end = np.searchsorted(self._others["cycle"], (first, last + 1))
        dated = self._others[begin:end]
        return _undated(dated[known[dated["page"]]])

    def _answers_to(self, visited: Array, last_cycle: Array, cycle: int) -> Array:
        """Claims in response headers of ``visited`` pages since each one's ``last_cycle``: dtype `CLAIM`."""
        dated = self._answers[: np.searchsorted(self._answers["cycle"], cycle, side="right")]
        is_visited = np.zeros(len(last_cycle), np.bool_)
        is_visited[visited] = True
        page = dated["page"]
        return _undated(dated[is_visited[page] & (dated["cycle"] > last_cycle[page])])

    def before(
        self, state: Columns, judged: Array, changed: Array, known: Array, new: Array, cycle: int
    ) -> Callable[[], None]:
        """Update the columns `state` and `trust` by a cycle's claims, before its visits are applied.

        Returns a function that updates `state` after these; the caller has set ``last_cycle`` by then.

        ``state``: all columns, ``[P]``; ``judged``: pages visited not for the first time; ``changed``:
        whether they have changed; ``known``: of all pages, whether the crawl knows them; ``new``: pages
        discovered in this cycle.
        """
        outcome = np.concatenate((np.where(changed, CHANGED, UNCHANGED), np.full(len(new), FIRST)))
        rows = np.concatenate((judged, new)).astype(np.intp)
        last_cycle = state["last_cycle"].copy()
        last_cycle[new] = 0  # the column has their first visits already, whose answers are read now
        answers = self._answers_to(rows, last_cycle, cycle)
        claimed = np.concatenate((answers, self._others_of(cycle, cycle, known)))
        # A crawl dates a new page after the claims of its first visit: these say nothing of its age.
        first_cycle = state["first_cycle"][new]
        state["first_cycle"][new] = np.iinfo(np.int32).min
        outcome = outcome.astype(np.uint8)
        fold_result = before_visits(state, rows, outcome, claimed, cycle)
        state["first_cycle"][new] = first_cycle
        added = hints.counted(fold_result.outcomes, self._site[fold_result.group], len(self.trust))
        self.trust = hints.decayed(self.trust, added)
        return lambda: after_visits(state, rows, outcome, claimed, cycle, np.zeros(len(rows)))

    def site_claims(self, state: Mapping[str, Array], cycle: int) -> SiteClaims:
        """Return what computes the claim columns for a cycle's plan; ``state``: columns of all pages."""
        pages = pages_with_claims([(self._site[state["group"]], state)], len(self.trust), cycle)

        def ages() -> npt.NDArray[np.int64]:
            site = self._site[state["group"]]
            changes, cycles = state["E"], state["T"]
            rate = float(rates.rate_of_group(changes.sum(), cycles.sum()))
            return evidence_of_ages([(site, state)], len(self.trust), rate)

        return SiteClaims(self.trust, pages, cycle, ages)


def _undated(claims: Array) -> Array:
    return claims[list(CLAIM.names or ())].astype(CLAIM)
