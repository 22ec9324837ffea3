"""Baselines: policies of other crawlers and papers, which remember the outcomes of their visits.

Each plans visits per cycle, or an interval, for every page. The replay's budget goes to the most overdue
pages: those with the most visits due, visits per cycle x cycles since the last visit. So all of them spend
exactly the budget, whatever their own bookkeeping would have spent.

Three plan the optimum of an objective for known change rates. Visits cost the same. So at the optimum every
page that is visited at all, and not in every cycle already, gains as much by a little more frequent visits as
every other (the Lagrange condition). `allocate` finds that common gain, the price, at which the visits add up
to the budget. No page is visited more than once a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import lambertw

from scrapy_gp4c.arrays import Bools, Floats
from scrapy_gp4c.policies.base import Block, Evidence, Policy, Round, Selection
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring import rates, terminals
from training.replaying.prepared import PreparedHistory


class Objective(NamedTuple):
    """Objective of visits; both functions take and return float64 ``[P]``."""

    gain: Callable[[Floats, Floats], Floats]
    """``gain(change_rates, visits)``: marginal gain of ``visits`` per cycle, above 0."""
    visits: Callable[[Floats, float | Floats], Floats]
    """``visits(change_rates, price)``: visits per cycle of that gain (a number or ``[P]``); 0: none."""


def _poisson_freshness_gain(change_rates: Floats, visits: Floats) -> Floats:
    return np.asarray(change_rates / (visits + change_rates) ** 2)


def _poisson_freshness_visits(change_rates: Floats, price: float | Floats) -> Floats:
    return np.maximum(np.sqrt(change_rates / price) - change_rates, 0.0)


def _harmonic_gain(change_rates: Floats, visits: Floats) -> Floats:
    return np.asarray(change_rates / (visits * (visits + change_rates)))


def _harmonic_visits(change_rates: Floats, price: float | Floats) -> Floats:
    # The root of visits**2 + visits * rate = rate / price, without the difference of two large numbers.
    share = change_rates / price
    return np.asarray(2.0 * share / (change_rates + np.sqrt(change_rates**2 + 4.0 * share)))


def _regular_freshness_gain(change_rates: Floats, visits: Floats) -> Floats:
    x = change_rates / visits
    return np.asarray((1.0 - (1.0 + x) * np.exp(-x)) / change_rates)


def _regular_freshness_visits(change_rates: Floats, price: float | Floats) -> Floats:
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
"""Harmonic staleness ln((visits + rate) / visits), visits coming at random (Kolobov et al. 2019, NeurIPS;
LambdaCrawl where only visits observe changes)."""
REGULAR_FRESHNESS: Final = Objective(_regular_freshness_gain, _regular_freshness_visits)
"""Share of current copies, visits at regular intervals: visits / rate * (1 - exp(-rate / visits))
(Cho & Garcia-Molina 2003, "Effective page refresh policies for web crawlers", ACM TODS 28)."""


STEP: Final = 1e-11
"""Upper bound of the error that the search leaves in the price's logarithm."""


def allocate(
    objective: Objective,
    change_rates: Floats,
    budget: float,
    weight: Floats | None = None,
    *,
    least: float = 0.0,
    most: float = 1.0,
) -> Floats:
    """Visits per cycle of every page, from ``least`` to ``most``, that add up to ``budget``: float64 ``[P]``.

    ``change_rates``: changes per cycle, above 0, ``[P]``; ``budget``: visits per cycle, at least those of
    ``least``; where it allows ``most`` for all pages, all have it. ``weight``: of each page's gain, ``[P]``,
    not all 0; None: all weigh 1.
    """
    if budget >= most * len(change_rates):
        return np.full(len(change_rates), most)
    if weight is None:
        rates, page, pages = np.unique(change_rates, return_inverse=True, return_counts=True)
        weight = np.ones(len(rates))
    else:
        rates, page = change_rates, np.arange(len(change_rates))
        pages = np.ones_like(page)
    weighing = weight > 0

    def visits_at(log_price: float) -> Floats:
        visits = np.zeros(len(rates))
        visits[weighing] = objective.visits(rates[weighing], math.exp(log_price) / weight[weighing])
        return np.clip(visits, least, most)

    def surplus(log_price: float) -> float:
        return float(visits_at(log_price) @ pages) - budget

    def gain(visits: float) -> Floats:
        return weight[weighing] * objective.gain(rates[weighing], np.full(int(weighing.sum()), visits))

    if least * len(change_rates) + (most - least) * float(weighing @ pages) <= budget:
        return np.where(weighing[page], most, (budget - most * weighing.sum()) / max(1, (~weighing).sum()))
    lowest = math.log(gain(min(most, budget)).min()) - 1.0
    highest = math.log(gain(budget / len(change_rates)).max()) + 1.0
    from scipy.optimize import brentq  # most replays do without; it takes half a second to import

    price = brentq(surplus, lowest, highest, xtol=1e-13, rtol=1e-14, maxiter=500)
    # Visits fall steeply where the gain hardly depends on them: what rounding leaves is shared out.
    more, fewer = visits_at(price - STEP), visits_at(price + STEP)
    room = float((more - fewer) @ pages)
    share = (budget - float(fewer @ pages)) / room if room > 0.0 else 0.0
    return np.asarray((fewer + share * (more - fewer))[page])


Pages = npt.NDArray[np.int64]


class ObservingPolicy(Policy, Protocol):
    """Policy that observes the visits of every cycle."""

    def observe(self, cycle: int, pages: Pages, changed: Bools) -> None:
        """Observe a cycle's visits: page numbers, and whether each had changed, ``[visits]``."""


class _Overdue:
    """Policy that visits the most overdue pages."""

    rounds = 1

    def __init__(self, name: str, pages: int, columns: Sequence[str] = ("last_cycle",)) -> None:
        self.name = name
        everything = terminals.new_state(pages)
        self.state = {column: everything[column] for column in columns}

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        due = self.visits_per_cycle() * (round.cycle - self.state["last_cycle"])

        def overdue(block: Block) -> Floats:
            return np.asarray(due[block.pages])

        return best_candidates(overdue, round.remaining, evidence)

    def observe(self, cycle: int, pages: Pages, changed: Bools) -> None:
        seen = {name: values[pages] for name, values in self.state.items()}
        terminals.observe(seen, changed, cycle)
        for name, values in seen.items():
            self.state[name][pages] = values

    def visits_per_cycle(self) -> Floats:
        """Visits planned for every page: ``[P]``."""
        raise NotImplementedError


class Allocated(_Overdue):
    """Policy that visits pages as often as an objective allocates to their observed change rates."""

    def __init__(
        self, name: str, objective: Objective, pages: int, k: int, weight: Floats | None = None
    ) -> None:
        super().__init__(name, pages, ("E", "T", "last_cycle"))
        self._objective, self._k, self._weight = objective, k, weight

    def visits_per_cycle(self) -> Floats:
        """Optimum of the objective for the change rates of the terminal ``rate``, and the pages' weights."""
        return allocate(self._objective, rates.rate(self.state["E"], self.state["T"]), self._k, self._weight)


class IntervalSteps(NamedTuple):
    """Steps of an adaptive interval, and its bounds."""

    unchanged: float
    """Factor after a visit without a change."""
    changed: float
    """Factor after a visit with a change."""
    shortest: float
    """Lower bound as a share of the first interval; at least one cycle."""
    longest: float
    """Upper bound as a multiple of the first interval."""
    slowing: bool = False
    """Whether ``changed`` shrinks the distance to the shortest interval."""


NUTCH: Final = IntervalSteps(1.4, 0.8, 60 / (30 * 86_400), 365 / 30)
"""``nutch-default.xml`` of Apache Nutch 1.x, AdaptiveFetchSchedule: ``inc_rate`` 0.4, ``dec_rate`` 0.2; 30
days at first, a minute at least, 365 days at most. Without ``sync_delta``, which shifts visits by the time of
modification."""
STORMCRAWLER: Final = IntervalSteps(1.5, 0.5, 60 / 1440, 14.0, slowing=True)
"""Apache StormCrawler, AdaptiveScheduler: ``rate.incr`` and ``rate.decr`` 0.5; a day at first, an hour at
least, two weeks at most; shrinking slows down near the shortest interval."""
FIXED: Final = IntervalSteps(1.0, 1.0, 1.0, 1.0)


class Adaptive(_Overdue):
    """Policy that lengthens a page's interval without a change, and shortens it with one.

    All pages begin with the interval at which the budget would visit them all in turn, P / k cycles. It
    stands for the crawler's own first interval, and its bounds are scaled with it.
    """

    def __init__(self, name: str, steps: IntervalSteps, pages: int, k: int) -> None:
        super().__init__(name, pages)
        first = max(1.0, pages / k)
        self._steps = steps
        self._shortest, self._longest = max(1.0, steps.shortest * first), steps.longest * first
        self.intervals = np.full(pages, first)
        """Cycles between two visits: ``[P]``."""

    def observe(self, cycle: int, pages: Pages, changed: Bools) -> None:
        super().observe(cycle, pages, changed)
        before = self.intervals[pages]
        floor = self._shortest if self._steps.slowing else 0.0
        shorter = floor + self._steps.changed * (before - floor)
        after = np.where(changed, shorter, before * self._steps.unchanged)
        self.intervals[pages] = np.clip(after, self._shortest, self._longest)

    def visits_per_cycle(self) -> Floats:
        return np.asarray(1.0 / self.intervals)


class Baseline(NamedTuple):
    """Baseline by name."""

    text: str
    make: Callable[[PreparedHistory], ObservingPolicy]
    """Policy for the replay of a prepared history."""
    source: str
    meaning: str


def _allocated(name: str, objective: Objective, source: str, meaning: str) -> Baseline:
    def make(prepared: PreparedHistory) -> Allocated:
        weight = prepared.weights.values
        return Allocated(name, objective, prepared.pages, prepared.k, weight if len(weight) else None)

    return Baseline(name, make, source, meaning)


def _adaptive(name: str, steps: IntervalSteps, source: str, meaning: str) -> Baseline:
    return Baseline(name, lambda prepared: Adaptive(name, steps, prepared.pages, prepared.k), source, meaning)


BASELINES: Final[dict[str, Baseline]] = {
    peer.text: peer
    for peer in (
        _allocated(
            "azar",
            POISSON_FRESHNESS,
            "Azar et al. 2018",
            "as often as keeps most copies current if visits come at random",
        ),
        _allocated(
            "lambda-crawl",
            HARMONIC,
            "Kolobov et al. 2019",
            "as often as makes harmonic staleness least if visits come at random",
        ),
        _allocated(
            "cho-garcia-molina",
            REGULAR_FRESHNESS,
            "Cho & Garcia-Molina 2003",
            "as often as keeps most copies current if visits are regular",
        ),
        _adaptive("nutch", NUTCH, "Apache Nutch", "interval × 1.4 without a change, × 0.8 with one"),
        _adaptive(
            "stormcrawler",
            STORMCRAWLER,
            "Apache StormCrawler",
            "interval × 1.5 without a change, halved with one",
        ),
        _adaptive("fixed", FIXED, "common practice", "the same interval for every page"),
    )
}
"""Name -> baseline, which replays know besides score functions."""
