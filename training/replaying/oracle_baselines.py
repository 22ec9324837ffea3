"""Baselines that know all updates beforehand: SBR and EBR, as Pandey & Olston 2005 replay them.

SBR (Cho & Garcia-Molina 2000; section 6.1.1) keeps as many copies current as possible, an update counting if
it differs by at least tau. EBR (Wolf et al. 2002; section 6.1.2) weighs a page by its clicks and by the share
of its updates that differ so much. Pages change as Poisson processes: x_p refreshes of page p in T cycles
keep its copy current for the share x / (lambda T) (1 - exp(-lambda T / x)) of the time. `allocate_visits`
maximizes the weighted sum of these shares, exactly; `timetable` turns the numbers into cycles (the
transportation problem of Wolf et al., section 4). The rest of the budget goes to the pages visited longest
ago.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import Evidence, Round, Selection
from scrapy_gp4c.policies.table import share
from training.replaying.baselines import Baseline
from training.replaying.prepared import PreparedHistory


def change_rates(updates: npt.NDArray[Any], cycles: int) -> Floats:
    """Poisson rates of pages with so many updates in ``cycles`` observed cycles: ``[P]``.

    lambda = -ln((T - X + 0.5) / (T + 0.5)), without bias where changes are many or none (Cho & Garcia-Molina
    2003, "Estimating frequency of change", section 4.2).
    """
    return np.asarray(-np.log((cycles - updates + 0.5) / (cycles + 0.5)))


def current_share(visits: Floats, changes: Floats) -> Floats:
    """Share of the time in which copies are current; ``changes``: lambda T, above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = visits / changes * -np.expm1(-changes / visits)
    return np.where(visits > 0.0, share, 0.0)


def allocate_visits(rates: Floats, weights: Floats, budget: int, cycles: int) -> Ints:
    """Visits of every page that maximize the weighted current share, ``budget`` a cycle in all: int64
    ``[P]``.

    Exact by greedy choice: each further visit of a page gains less. No page has more than one a cycle, and
    visits without gain are not made. ``rates``, ``weights``: ``[P]``.
    """
    visits = np.zeros(len(rates), np.int64)
    some = np.flatnonzero((rates > 0.0) & (weights > 0.0))
    if not len(some):
        return visits
    counts = np.arange(cycles + 1.0)
    share = current_share(counts[None, :], (rates[some] * cycles)[:, None])
    gains = np.diff(share, axis=1) * weights[some, None]
    gains = np.minimum.accumulate(gains, axis=1)  # falling but for rounding
    page, _ = np.nonzero(gains > 0.0)
    values = gains[gains > 0.0]
    nth = np.nonzero(gains > 0.0)[1]
    best = np.lexsort((page, nth, -values))[: budget * cycles]
    return visits + np.bincount(some[page[best]], minlength=len(rates))


def timetable(visits: Ints, budget: int, cycles: int, phase: Floats) -> list[Ints]:
    """Pages to visit in every cycle, at most ``budget`` of them, close to even intervals.

    The j-th visit of page p is wanted at (j - u_p) T / x_p with the drawn phase u_p in [0, 1): in cycle
    ceil(that). A linear program finds the least total shift that keeps the budget; visits keep the order of
    their wanted cycles. A page that would stand twice in a cycle changes places with another one in the
    nearest cycle that has neither.
    """
    page = np.repeat(np.arange(len(visits)), visits)
    nth = np.arange(1.0, len(page) + 1) - np.repeat(np.cumsum(visits) - visits, visits)
    wanted = np.clip(np.ceil((nth - phase[page]) * cycles / visits[page]).astype(np.int64), 1, cycles)
    order = np.lexsort((page, wanted))
    ends = np.concatenate(([0], _visits_made(np.bincount(wanted, minlength=cycles + 1)[1:], budget)))
    rows = [page[order[first:end]] for first, end in pairwise(ends.tolist())]
    return [np.sort(row) for row in _without_repeats(rows)]


def _visits_made(wanted: Ints, budget: int) -> Ints:
    """Visits up to the end of every cycle with the least sum of |made - wanted so far|."""
    cycles, total = len(wanted), int(wanted.sum())
    if (wanted <= budget).all():
        return np.asarray(np.cumsum(wanted))
    # Unknowns: the visits made in each cycle, then how far made and wanted are apart after it.
    n = np.arange(cycles)
    below = np.tril_indices(cycles)
    size = len(below[0])
    rows = np.concatenate((below[0], n, below[0] + cycles, n + cycles))
    columns = np.concatenate((below[1], n + cycles, below[1], n + cycles))
    values = np.concatenate((np.ones(size), -np.ones(cycles), -np.ones(size), -np.ones(cycles)))
    target = np.cumsum(wanted)
    optimum = linprog(
        np.concatenate((np.zeros(cycles), np.ones(cycles))),
        A_ub=coo_array((values, (rows, columns)), shape=(2 * cycles, 2 * cycles)).tocsr(),
        b_ub=np.concatenate((target, -target)).astype(float),
        A_eq=np.concatenate((np.ones(cycles), np.zeros(cycles)))[None, :],
        b_eq=[float(total)],
        bounds=[(0, budget)] * cycles + [(0, None)] * cycles,
        method="highs-ds",
    )
    made: Ints = np.rint(np.cumsum(optimum.x[:cycles])).astype(np.int64)
    return made


def _without_repeats(rows: list[Ints]) -> list[Ints]:
    """Timetable without a page twice in a cycle, as many visits in each as before."""
    sets = [set(row.tolist()) for row in rows]
    for cycle, row in enumerate(rows):
        seen: set[int] = set()
        for position, page in enumerate(row.tolist()):
            if page in seen:
                page = _swapped(rows, sets, cycle, page)
                row[position] = page
            seen.add(page)
    return [np.unique(row) for row in rows]


def _swapped(rows: list[Ints], sets: list[set[int]], cycle: int, page: int) -> int:
    """Move a page to the nearest cycle that lacks it, in exchange for a page that this cycle lacks."""
    for other in sorted(range(len(rows)), key=lambda other: (abs(other - cycle), other)):
        free = sets[other] - sets[cycle]
        if page not in sets[other] and free:
            taken = min(free)
            rows[other][np.flatnonzero(rows[other] == taken)[0]] = page
            sets[other] = sets[other] - {taken} | {page}
            sets[cycle].add(taken)
            return taken
    return page


def whole_budget(share: float, pages: int) -> int:
    """Visits per cycle of a share of the pages, at least 1."""
    return max(1, math.floor(share * pages + 0.5))


SOURCE: Final = "Pandey & Olston 2005"
MEANINGS: Final = {
    "sbr": "as often as keeps most copies current, by updates that differ by tau; knows all updates",
    "ebr": "the same where users look, by the clicks of a search; knows all updates",
}
"""Name -> objective in a sentence."""
_PARAMETERS: Final = {"tau": share(0.0)}
_ACCEPTED: Final = "sbr(tau=0.0) or ebr(tau=0.0), with a share from 0 to 1"


class UpdateHistory(NamedTuple):
    """All updates of P pages."""

    page: Ints
    """``[updates]``: page of each update, ascending."""
    difference: Floats
    """``[updates]``: share of the shingles that differ."""
    clicks: Floats
    """``[P]``: clicks on each page."""
    cycles: int
    """Cycles of these updates."""


def mean_by_page(page: Ints, values: Floats, pages: int) -> Floats:
    """Mean of the values of each page, 0 where it has none: ``[P]``."""
    total = np.bincount(page, values, pages)
    return np.asarray(total / np.maximum(np.bincount(page, minlength=pages), 1))


def allocated_visits(known: UpdateHistory, policy: str, tau: float, budget: int, cycles: int) -> Ints:
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


def drawn_timetable(visits: Ints, budget: int, cycles: int, seed: int) -> list[Ints]:
    """Timetable of ``visits``, with phases drawn from the seed."""
    return timetable(visits, budget, cycles, np.random.default_rng(seed).random(len(visits)))


def with_oldest(planned: Ints, last: Ints, budget: int) -> Ints:
    """Planned pages, filled up to the budget with those visited longest ago; ``last``: ``[P]``."""
    remaining = budget - len(planned)
    if remaining <= 0:
        return planned[:budget]
    oldest = np.argsort(last, kind="stable")
    oldest = oldest[~np.isin(oldest, planned)]
    return np.concatenate((planned, oldest[:remaining]))


class Timetable:
    """Policy that follows a timetable; the rest of the budget goes by age."""

    rounds = 1

    def __init__(self, name: str, rows: list[Ints], first: int, pages: int) -> None:
        """``rows``: pages of every cycle from `first` on."""
        self.name = name
        self._rows, self._first = rows, first
        self._last = np.zeros(pages, np.int64)

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        chosen = with_oldest(self._rows[round.cycle - self._first], self._last, round.remaining)
        return Selection(chosen.astype(np.uint32), np.full(len(chosen), np.nan), None)

    def observe(self, cycle: int, pages: Ints, changed: npt.NDArray[np.bool_]) -> None:
        self._last[pages] = cycle


def _timetable(text: str, policy: str, tau: float, prepared: PreparedHistory) -> Timetable:
    impact = prepared.impact
    if impact is None or impact.difference is None or impact.clicks is None:
        raise PolicyError(
            f"the policy {text!r} needs all pages of a file of contents and a log of queries: replay one "
            "with --query-log"
        )
    page, cycle = np.nonzero(prepared.changed.T)
    known = UpdateHistory(
        page, impact.difference[cycle, page].astype(np.float64), impact.clicks(), prepared.cycles
    )
    scored = prepared.cycles - prepared.warmup
    visits = allocated_visits(known, policy, tau, prepared.k, scored)
    rows = drawn_timetable(visits, prepared.k, scored, prepared.seed)
    return Timetable(text, rows, prepared.warmup + 1, prepared.pages)


def is_oracle_baseline(text: str) -> bool:
    """Whether a policy's text names an oracle baseline, which no crawl has."""
    return text.partition("(")[0].strip() in MEANINGS


def load(text: str) -> Baseline | None:
    """Oracle baseline by text, ``sbr(tau=0.3)`` or ``ebr(tau=0.5)``; None for others. Raises PolicyError."""
    if not is_oracle_baseline(text):
        return None
    text = text.strip()
    refused = PolicyError(f"the baseline is {_ACCEPTED}; found {text[:80]!r}")
    name, arguments = table.parse(text, MEANINGS, refused)
    table.check_arguments(text, name, _PARAMETERS, arguments)
    tau = float(arguments.get("tau", 0.0))
    return Baseline(text, partial(_timetable, text, name, tau), SOURCE, MEANINGS[name])
