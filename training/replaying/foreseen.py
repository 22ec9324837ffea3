"""SBR and EBR as policies of a replay: they know all updates beforehand, as Pandey & Olston 2005 let them.

Section 6.1.1, staleness-based: pages are current as often as can be, an update counting if it differs by at
least tau. Section 6.1.2, embarrassment-based: a page weighs by its clicks and by how many of its updates
differ so much. Both plan all refreshes at once (`refreshing`); what they leave over goes by age.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.parameters import share
from scrapy_gp4c.policies.policy import Chosen, Evidence, Round
from training.replaying.arranged import ArrangedHistory
from training.replaying.peers import Peer
from training.replaying.refreshing import allocate_visits, change_rates, slots

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SOURCE: Final = "Pandey & Olston 2005"
MEANINGS: Final = {
    "sbr": "as often as keeps most copies current, by updates that differ by tau; knows all updates",
    "ebr": "the same where users look, by the clicks of a search; knows all updates",
}
"""Name -> what a policy puts first."""
_PARAMETERS: Final = {"tau": share(0.0)}
_ACCEPTED: Final = "sbr(tau=0.0) or ebr(tau=0.0), with a share from 0 to 1"


class Known(NamedTuple):
    """What is known of P pages."""

    page: Ints
    """``[updates]``: page of each update, ascending."""
    difference: Floats
    """``[updates]``: share of the shingles in which it differs."""
    clicks: Floats
    """``[P]``: how often users look at each page."""
    cycles: int
    """In which these are all updates."""


def mean_by_page(page: Ints, values: Floats, pages: int) -> Floats:
    """Mean of the values of each page, 0 where it has none: ``[P]``."""
    total = np.bincount(page, values, pages)
    return np.asarray(total / np.maximum(np.bincount(page, minlength=pages), 1))


def allotted(known: Known, policy: str, tau: float, budget: int, cycles: int) -> Ints:
    """Refreshes of every page in so many cycles, ``budget`` a cycle in all: ``[P]``."""
    pages = len(known.clicks)
    counted = known.difference >= tau if tau > 0.0 else np.ones(len(known.page), np.bool_)
    if policy == "sbr":
        rates = change_rates(np.bincount(known.page[counted], minlength=pages), known.cycles)
        weights = np.ones(pages)
    else:
        rates = change_rates(np.bincount(known.page, minlength=pages), known.cycles)
        weights = mean_by_page(known.page, counted.astype(float), pages) * known.clicks
    return allocate_visits(rates, weights, budget, cycles)


def in_cycles(visits: Ints, budget: int, cycles: int, seed: int) -> list[Ints]:
    """The pages to refresh in each cycle, ``visits`` times each; the phases are drawn once."""
    return slots(visits, budget, cycles, np.random.default_rng(seed).random(len(visits)))


def with_oldest(planned: Ints, last: Ints, budget: int) -> Ints:
    """Planned pages, and those visited longest ago up to the budget; ``last``: last visits, ``[P]``."""
    left = budget - len(planned)
    if left <= 0:
        return planned[:budget]
    oldest = np.argsort(last, kind="stable")
    oldest = oldest[~np.isin(oldest, planned)]
    return np.concatenate((planned, oldest[:left]))


class Timetable:
    """Visits the pages of a timetable; the rest of the budget goes by age."""

    rounds = 1

    def __init__(self, name: str, rows: list[Ints], first: int, pages: int) -> None:
        """Take the pages of every cycle from `first` on."""
        self.name = name
        self._rows, self._first = rows, first
        self._last = np.zeros(pages, np.int64)

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """The cycle's row."""
        chosen = with_oldest(self._rows[round.cycle - self._first], self._last, round.remaining)
        return Chosen(chosen.astype(np.uint32), np.full(len(chosen), np.nan), None)

    def observe(self, cycle: int, pages: Ints, found: npt.NDArray[np.bool_]) -> None:
        """Note the visits."""
        self._last[pages] = cycle


def _made(text: str, policy: str, tau: float, arranged: ArrangedHistory) -> Timetable:
    impact = arranged.impact
    if impact is None or impact.difference is None or impact.clicks is None:
        raise PolicyError(
            f"the policy {text!r} needs all pages of a file of contents and a log of queries: replay one "
            "with --query-log"
        )
    page, cycle = np.nonzero(arranged.changed.T)
    known = Known(page, impact.difference[cycle, page].astype(np.float64), impact.clicks(), arranged.cycles)
    scored = arranged.cycles - arranged.warmup
    visits = allotted(known, policy, tau, arranged.k, scored)
    rows = in_cycles(visits, arranged.k, scored, arranged.seed)
    return Timetable(text, rows, arranged.warmup + 1, arranged.pages)


def is_replays(given: str) -> bool:
    """Tell whether a policy's text is one of these, which no crawl has."""
    return given.partition("(")[0].strip() in MEANINGS


def load(given: str) -> Peer | None:
    """Read ``sbr(tau=0.3)`` or ``ebr(tau=0.5)``; None for other texts. Raises PolicyError."""
    if not is_replays(given):
        return None
    text = given.strip()
    refused = PolicyError(f"the policy of others is {_ACCEPTED}; found {text[:80]!r}")
    name, arguments = table.parse(text, MEANINGS, refused)
    table.check_arguments(text, name, _PARAMETERS, arguments)
    tau = float(arguments.get("tau", 0.0))
    return Peer(text, partial(_made, text, name, tau), SOURCE, MEANINGS[name])
