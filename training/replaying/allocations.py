"""How often to visit pages whose change rates are known: three objectives, each solved under a budget.

Visits cost the same, so at the optimum every page that is visited at all, and not in every cycle already,
gains as much by a little more frequent visits as every other (the Lagrange condition). `allocate` finds that
common gain, the price, at which the visits add up to the budget. No page is visited more than once a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import lambertw

Floats = npt.NDArray[np.float64]


class Objective(NamedTuple):
    """What visits are to bring; both functions take and return float64 ``[P]``."""

    gain: Callable[[Floats, Floats], Floats]
    """``gain(change_rates, visits)``: what a little more of ``visits`` per cycle, above 0, would bring."""
    visits: Callable[[Floats, float], Floats]
    """``visits(change_rates, price)``: visits per cycle where the gain is the price; 0 where it never is."""


def _poisson_freshness_gain(change_rates: Floats, visits: Floats) -> Floats:
    return np.asarray(change_rates / (visits + change_rates) ** 2)


def _poisson_freshness_visits(change_rates: Floats, price: float) -> Floats:
    return np.maximum(np.sqrt(change_rates / price) - change_rates, 0.0)


def _harmonic_gain(change_rates: Floats, visits: Floats) -> Floats:
    return np.asarray(change_rates / (visits * (visits + change_rates)))


def _harmonic_visits(change_rates: Floats, price: float) -> Floats:
    # The root of visits**2 + visits * rate = rate / price, without the difference of two large numbers.
    share = change_rates / price
    return np.asarray(2.0 * share / (change_rates + np.sqrt(change_rates**2 + 4.0 * share)))


def _regular_freshness_gain(change_rates: Floats, visits: Floats) -> Floats:
    x = change_rates / visits
    return np.asarray((1.0 - (1.0 + x) * np.exp(-x)) / change_rates)


def _regular_freshness_visits(change_rates: Floats, price: float) -> Floats:
    # 1 - (1 + x) exp(-x) = z has the root x = -1 - W(-(1 - z) / e), W the lower branch of Lambert's function.
    z = price * change_rates
    reached = np.flatnonzero(z < 1.0)
    x = -1.0 - lambertw(-(1.0 - z[reached]) / math.e, -1).real
    out = np.zeros(len(change_rates))
    # Near the branch point x is lost in rounding: such pages are worth a visit in every cycle anyway.
    out[reached] = change_rates[reached] / np.maximum(x, np.finfo(np.float64).tiny)
    return out


POISSON_FRESHNESS: Final = Objective(_poisson_freshness_gain, _poisson_freshness_visits)
"""Share of current copies, visits coming at random: visits / (visits + rate) (Azar et al. 2018, "Tractable
near-optimal policies for crawling", PNAS 115)."""
HARMONIC: Final = Objective(_harmonic_gain, _harmonic_visits)
"""Harmonic staleness, visits coming at random: ln((visits + rate) / visits) is to be small (Kolobov, Peres,
Lu & Horvitz, NeurIPS 2019, LambdaCrawl where no change is observed but by visits)."""
REGULAR_FRESHNESS: Final = Objective(_regular_freshness_gain, _regular_freshness_visits)
"""Share of current copies, visits at regular intervals: visits / rate * (1 - exp(-rate / visits))
(Cho & Garcia-Molina 2003, "Effective page refresh policies for web crawlers", ACM TODS 28)."""


STEP: Final = 1e-11
"""Of the price's logarithm: what the search for it leaves open, and more."""


def allocate(objective: Objective, change_rates: Floats, budget: float) -> Floats:
    """Visits per cycle of every page, from 0 to 1, that add up to ``budget``: float64 ``[P]``.

    ``change_rates``: changes per cycle, above 0, ``[P]``; ``budget``: visits per cycle. All pages are visited
    in every cycle where the budget is P or more.
    """
    if budget >= len(change_rates):
        return np.ones(len(change_rates))
    rates, page, pages = np.unique(change_rates, return_inverse=True, return_counts=True)

    def visits_at(log_price: float) -> Floats:
        return np.minimum(objective.visits(rates, math.exp(log_price)), 1.0)

    def surplus(log_price: float) -> float:
        return float(visits_at(log_price) @ pages) - budget

    even = np.full(len(rates), budget / len(change_rates))
    lowest = math.log(objective.gain(rates, np.ones(len(rates))).min()) - 1.0
    highest = math.log(objective.gain(rates, even).max()) + 1.0
    from scipy.optimize import brentq  # most replays do without; it takes half a second to import

    price = brentq(surplus, lowest, highest, xtol=1e-13, rtol=1e-14, maxiter=500)
    # Visits fall steeply where the gain hardly depends on them: what rounding leaves is shared out.
    more, fewer = visits_at(price - STEP), visits_at(price + STEP)
    room = float((more - fewer) @ pages)
    share = (budget - float(fewer @ pages)) / room if room > 0.0 else 0.0
    return np.asarray((fewer + share * (more - fewer))[page])
