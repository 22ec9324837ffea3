"""Staleness- and embarrassment-based refreshing: how often to refresh each page, and in which cycles.

SBR (Cho & Garcia-Molina 2000) and EBR (Wolf et al. 2002) as Pandey & Olston 2005, section 6.1, compare them:
pages change as Poisson processes; x_p refreshes of page p in T cycles leave its copy current for the share
x / (lambda T) (1 - exp(-lambda T / x)) of the time. `allocate_visits` makes the weighted sum of these most,
exactly; `slots` turns the numbers into cycles (the transportation problem of Wolf et al., section 4).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def change_rates(updates: npt.NDArray[Any], cycles: int) -> Floats:
    """Poisson rates of pages with so many updates in ``cycles`` cycles, each looked at: ``[P]``.

    lambda = -ln((T - X + 0.5) / (T + 0.5)), without bias where changes are many or none (Cho & Garcia-Molina
    2003, "Estimating frequency of change", section 4.2).
    """
    return np.asarray(-np.log((cycles - updates + 0.5) / (cycles + 0.5)))


def current_share(visits: Floats, changes: Floats) -> Floats:
    """Share of the time in which copies are current; ``changes``: lambda T, above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = visits / changes * -np.expm1(-changes / visits)
    return np.where(visits > 0.0, found, 0.0)


def allocate_visits(rates: Floats, weights: Floats, budget: int, cycles: int) -> Ints:
    """Visits of every page, ``budget`` a cycle in all, that make the weighted current share most.

    Exact by greedy choice: each further visit of a page gains less. No page has more than one a cycle; what
    gains nothing is left over. ``rates``, ``weights``: ``[P]``; the result ``[P]``.
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


def slots(visits: Ints, budget: int, cycles: int, phase: Floats) -> list[Ints]:
    """Pages to visit in every cycle, at most ``budget`` of them, as near as can be to even intervals.

    The j-th visit of page p is wanted at (j - u_p) T / x_p with the drawn phase u_p in [0, 1): in cycle
    ceil(that). The least total shift that keeps the budget is found by a linear program of the visits made up
    to each cycle; visits keep the order of their wanted cycles. A page that came to stand twice in a cycle
    changes places with another one in the nearest cycle that has neither.
    """
    page = np.repeat(np.arange(len(visits)), visits)
    nth = np.arange(1.0, len(page) + 1) - np.repeat(np.cumsum(visits) - visits, visits)
    wanted = np.clip(np.ceil((nth - phase[page]) * cycles / visits[page]).astype(np.int64), 1, cycles)
    order = np.lexsort((page, wanted))
    ends = np.concatenate(([0], _made(np.bincount(wanted, minlength=cycles + 1)[1:], budget)))
    rows = [page[order[first:end]] for first, end in pairwise(ends.tolist())]
    return [np.sort(row) for row in _told_apart(rows)]


def _made(wanted: Ints, budget: int) -> Ints:
    """Visits made up to the end of every cycle: the total shift is the sum of |made - wanted so far|."""
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
    found = linprog(
        np.concatenate((np.zeros(cycles), np.ones(cycles))),
        A_ub=coo_array((values, (rows, columns)), shape=(2 * cycles, 2 * cycles)).tocsr(),
        b_ub=np.concatenate((target, -target)).astype(float),
        A_eq=np.concatenate((np.ones(cycles), np.zeros(cycles)))[None, :],
        b_eq=[float(total)],
        bounds=[(0, budget)] * cycles + [(0, None)] * cycles,
        method="highs-ds",
    )
    made: Ints = np.rint(np.cumsum(found.x[:cycles])).astype(np.int64)
    return made


def _told_apart(rows: list[Ints]) -> list[Ints]:
    """No page twice in a cycle, as many visits in each as before."""
    sets = [set(row.tolist()) for row in rows]
    for cycle, row in enumerate(rows):
        seen: set[int] = set()
        for place, page in enumerate(row.tolist()):
            if page in seen:
                page = _swapped(rows, sets, cycle, page)
                row[place] = page
            seen.add(page)
    return [np.unique(row) for row in rows]


def _swapped(rows: list[Ints], sets: list[set[int]], cycle: int, page: int) -> int:
    """Put a page into the nearest cycle that lacks it, for one of its pages that is not here."""
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
