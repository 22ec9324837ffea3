"""Baselines: policies of other crawlers and papers.

Most remember the outcomes of their visits, and from these plan a visit rate, or an interval, for every page.
The replay's budget goes to the most overdue pages: those with the most visits due, visits per cycle x cycles
since the last visit.

Three plan the optimum of an objective for known change rates: every page that is visited, but not in every
cycle, gains as much by a little more frequent visits as every other (the Lagrange condition). `allocate`
finds that gain, the price, at which the visits add up to the budget.

SBR and EBR know all updates beforehand, as Pandey & Olston 2005 replay them. SBR (Cho & Garcia-Molina 2000;
section 6.1.1) keeps as many copies current as possible, an update counting if it differs by at least tau. EBR
(Wolf et al. 2002; section 6.1.2) weighs a page by its clicks and by the share of its updates that differ so
much. Pages change as Poisson processes: x_p refreshes of page p in T cycles keep its copy current for the
share x / (lambda T) (1 - exp(-lambda T / x)) of the time. `allocate_visits` maximizes the weighted sum of
these shares, exactly; `timetable` turns the numbers into cycles (the transportation problem of Wolf et al.,
section 4). The rest of the budget goes to the pages visited longest ago.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.special import lambertw

from scrapy_gp4c.arrays import Bools, Floats, Ints
from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import Block, Evidence, Policy, Round, Selection
from scrapy_gp4c.policies.table import Parameter
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring import rates, terminals
from training.replaying.prepared import PreparedHistory


class Objective(NamedTuple):
    """Objective by which visits are allocated to pages; both functions take and return float64 ``[P]``."""

    gain: Callable[[Floats, Floats], Floats]
    """``gain(change_rates, visits)``: marginal gain of ``visits`` per cycle, above 0."""
    visits: Callable[[Floats, float | Floats], Floats]
    """``visits(change_rates, price)``: inverse of `gain`, the visits per cycle at which it is ``price``."""


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


POISSON_FRESHNESS: Final = Objective(
    lambda change_rates, visits: change_rates / (visits + change_rates) ** 2,
    lambda change_rates, price: np.maximum(np.sqrt(change_rates / price) - change_rates, 0.0),
)
"""Share of current copies, visits coming at random: visits / (visits + rate) (Azar et al. 2018, "Tractable
near-optimal policies for crawling", PNAS 115)."""
HARMONIC: Final = Objective(
    lambda change_rates, visits: change_rates / (visits * (visits + change_rates)), _harmonic_visits
)
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
    """Return the visits per cycle of every page that are best by `objective` for a budget: float64 ``[P]``.

    Each page gets ``least`` to ``most`` visits; they add up to ``budget``, unless all pages have ``most``.
    ``change_rates``: changes per cycle, above 0, ``[P]``; ``weight``: of each page's gain, ``[P]``, not all
    0; None: all weigh 1.
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
    """Policy that a replay tells the outcomes of its visits."""

    def observe(self, cycle: int, pages: Pages, changed: Bools) -> None:
        """Note the visits of a cycle: ids of the pages, and whether each had changed, both ``[visits]``."""


class _Overdue:
    """Base of policies that visit the most overdue pages; subclasses plan each page's visits per cycle."""

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
        raise NotImplementedError


class Allocated(_Overdue):
    """Policy that visits pages as often as an objective allocates to their observed change rates."""

    def __init__(
        self, name: str, objective: Objective, pages: int, k: int, weight: Floats | None = None
    ) -> None:
        super().__init__(name, pages, ("E", "T", "last_cycle"))
        self._objective, self._k, self._weight = objective, k, weight

    def visits_per_cycle(self) -> Floats:
        return allocate(self._objective, rates.rate(self.state["E"], self.state["T"]), self._k, self._weight)


class IntervalSteps(NamedTuple):
    """Steps of an adaptive interval, and its bounds."""

    unchanged: float
    """Factor of the interval after a visit without a change."""
    changed: float
    """Factor of the interval after a visit with a change."""
    shortest: float
    """Lower bound as a share of the first interval; at least one cycle."""
    longest: float
    """Upper bound as a multiple of the first interval."""
    slowing: bool = False
    """Whether ``changed`` is a factor of the distance to the shortest interval, not of the interval."""


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

    The first interval is pages / k cycles, a turn of all pages; the bounds of ``steps`` are scaled with it.
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
    """A policy to compare score functions with: its text (such as ``nutch``), factory, source and meaning."""

    text: str
    make: Callable[[PreparedHistory], ObservingPolicy]
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
"""Name -> baseline that replays take in place of a score function."""


def change_rates(updates: npt.NDArray[Any], cycles: int) -> Floats:
    """Estimate the changes per cycle of Poisson processes: ``[P]``, of pages with ``updates`` changes.

    They are -ln((cycles - updates + 0.5) / (cycles + 0.5)), ``cycles`` being those observed; without bias
    where changes are many or none (Cho & Garcia-Molina 2003, "Estimating frequency of change", section 4.2).
    """
    return np.asarray(-np.log((cycles - updates + 0.5) / (cycles + 0.5)))


def current_share(visits: Floats, changes: Floats) -> Floats:
    """Share of the time in which copies are current, by numbers of visits and of expected changes (> 0)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = visits / changes * -np.expm1(-changes / visits)
    return np.where(visits > 0.0, share, 0.0)


def allocate_visits(rates: Floats, weights: Floats, budget: int, cycles: int) -> Ints:
    """Return how often to visit each page in ``cycles`` cycles, to keep most copies current: int64 ``[P]``.

    The sum of `current_share` times ``weights`` is greatest for ``budget`` visits a cycle. Exact by greedy
    choice: each further visit of a page gains less. No page has more than one a cycle, and visits without
    gain are not made. ``rates``: changes per cycle; both ``[P]``.
    """
    visits = np.zeros(len(rates), np.int64)
    eligible = np.flatnonzero((rates > 0.0) & (weights > 0.0))
    if not len(eligible):
        return visits
    counts = np.arange(cycles + 1.0)
    share = current_share(counts[None, :], (rates[eligible] * cycles)[:, None])
    gains = np.diff(share, axis=1) * weights[eligible, None]
    gains = np.minimum.accumulate(gains, axis=1)  # falling but for rounding
    page, _ = np.nonzero(gains > 0.0)
    values = gains[gains > 0.0]
    nth = np.nonzero(gains > 0.0)[1]
    best = np.lexsort((page, nth, -values))[: budget * cycles]
    return visits + np.bincount(eligible[page[best]], minlength=len(rates))


def timetable(visits: Ints, budget: int, cycles: int, seed: int) -> list[Ints]:
    """Distribute visits over cycles at nearly even intervals: returns the pages to visit in each cycle.

    ``visits``: number of each page's visits, ``[P]``; ``budget``: most visits a cycle; ``seed``: of the
    pages' phases, random numbers in [0, 1). The j-th visit of a page is due in cycle
    ceil((j - phase) * cycles / visits). A linear program finds the least total shift that keeps the budget;
    visits keep the order of their due cycles. A page that would stand twice in a cycle changes places with
    another one in the nearest cycle that has neither.
    """
    phase = np.random.default_rng(seed).random(len(visits))
    page = np.repeat(np.arange(len(visits)), visits)
    nth = np.arange(1.0, len(page) + 1) - np.repeat(np.cumsum(visits) - visits, visits)
    due = np.clip(np.ceil((nth - phase[page]) * cycles / visits[page]).astype(np.int64), 1, cycles)
    order = np.lexsort((page, due))
    ends = np.concatenate(([0], _visits_made(np.bincount(due, minlength=cycles + 1)[1:], budget)))
    rows = [page[order[first:end]] for first, end in pairwise(ends.tolist())]
    return [np.sort(row) for row in _without_repeats(rows)]


def _visits_made(due: Ints, budget: int) -> Ints:
    """Return how many visits are made by the end of each cycle, ``budget`` a cycle at most.

    ``due``: visits that come due in each cycle. The sum over cycles of |visits made - due so far| is least.
    """
    cycles, total = len(due), int(due.sum())
    if (due <= budget).all():
        return np.asarray(np.cumsum(due))
    # Unknowns of the linear program: visits made in each cycle, then |made - due| after each.
    n = np.arange(cycles)
    below = np.tril_indices(cycles)
    size = len(below[0])
    rows = np.concatenate((below[0], n, below[0] + cycles, n + cycles))
    columns = np.concatenate((below[1], n + cycles, below[1], n + cycles))
    values = np.concatenate((np.ones(size), -np.ones(cycles), -np.ones(size), -np.ones(cycles)))
    target = np.cumsum(due)
    from scipy.optimize import linprog  # most replays do without; it takes half a second to import

    optimum = linprog(
        np.concatenate((np.zeros(cycles), np.ones(cycles))),
        A_ub=coo_array((values, (rows, columns)), shape=(2 * cycles, 2 * cycles)).tocsr(),
        b_ub=np.concatenate((target, -target)).astype(float),
        A_eq=np.concatenate((np.ones(cycles), np.zeros(cycles)))[None, :],
        b_eq=[float(total)],
        bounds=[(0, budget)] * cycles + [(0, None)] * cycles,
        method="highs-ds",
    )
    return np.rint(np.cumsum(optimum.x[:cycles])).astype(np.int64)


def _without_repeats(rows: list[Ints]) -> list[Ints]:
    """Return a timetable without pages twice in a cycle; ``rows``: pages of each cycle, equally many."""
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
    """Move `page` from `cycle` to the nearest cycle without it; returns the page that takes its place."""
    for other in sorted(range(len(rows)), key=lambda other: (abs(other - cycle), other)):
        free = sets[other] - sets[cycle]
        if page not in sets[other] and free:
            taken = min(free)
            rows[other][np.flatnonzero(rows[other] == taken)[0]] = page
            sets[other] = sets[other] - {taken} | {page}
            sets[cycle].add(taken)
            return taken
    return page


ORACLE_SOURCE: Final = "Pandey & Olston 2005"
ORACLE_MEANINGS: Final = {
    "sbr": "as often as keeps most copies current, by updates that differ by tau; knows all updates",
    "ebr": "the same where users look, by the clicks of a search; knows all updates",
}
"""Name of an oracle baseline -> its objective in a sentence."""
_PARAMETERS: Final = {"tau": Parameter(0.0, (0.0, 1.0))}
_ACCEPTED: Final = "sbr(tau=0.0) or ebr(tau=0.0), with a share from 0 to 1"


class UpdateHistory(NamedTuple):
    """All updates of P pages in ``cycles`` cycles, and the pages' clicks."""

    page: Ints
    """``[updates]``: page of each update."""
    difference: Floats
    """``[updates]``: share of the text's shingles that differ from those before."""
    clicks: Floats
    """``[P]``: clicks on each page."""
    cycles: int


def mean_by_page(page: Ints, values: Floats, pages: int) -> Floats:
    """Mean of each page's `values`, 0 for a page without any: ``[P]``; ``page``: page of each value."""
    total = np.bincount(page, values, pages)
    return np.asarray(total / np.maximum(np.bincount(page, minlength=pages), 1))


def allocated_visits(known: UpdateHistory, policy: str, tau: float, budget: int, cycles: int) -> Ints:
    """Return how often ``policy`` (sbr or ebr) visits each page in ``cycles`` cycles: ``[P]``.

    ``known``: all updates; ``tau``: least difference of one that counts; ``budget``: visits a cycle.
    """
    pages = len(known.clicks)
    counted = known.difference >= tau if tau > 0.0 else np.ones(len(known.page), np.bool_)
    if policy == "sbr":
        rates = change_rates(np.bincount(known.page[counted], minlength=pages), known.cycles)
        weights = np.ones(pages)
    else:
        rates = change_rates(np.bincount(known.page, minlength=pages), known.cycles)
        weights = mean_by_page(known.page, counted.astype(float), pages) * known.clicks
    return allocate_visits(rates, weights, budget, cycles)


def with_oldest(planned: Ints, last: Ints, budget: int) -> Ints:
    """Return `planned` pages, filled up to ``budget`` with those visited longest ago.

    ``last``: cycle of each page's last visit, ``[P]``.
    """
    remaining = budget - len(planned)
    if remaining <= 0:
        return planned[:budget]
    oldest = np.argsort(last, kind="stable")
    oldest = oldest[~np.isin(oldest, planned)]
    return np.concatenate((planned, oldest[:remaining]))


class Timetable:
    """Policy that follows a timetable; the rest of the budget goes to pages visited longest ago."""

    rounds = 1

    def __init__(self, name: str, rows: list[Ints], first: int, pages: int) -> None:
        """Take the timetable: ``rows``, pages to visit in each cycle from cycle `first` on; ``pages``: P."""
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
    rows = timetable(visits, prepared.k, scored, prepared.seed)
    return Timetable(text, rows, prepared.warmup + 1, prepared.pages)


def is_oracle_baseline(text: str) -> bool:
    """Whether a policy's text names an oracle baseline (sbr, ebr), which knows all updates beforehand."""
    return text.partition("(")[0].strip() in ORACLE_MEANINGS


def load_oracle_baseline(text: str) -> Baseline | None:
    """Oracle baseline of a text such as ``sbr(tau=0.3)`` or ``ebr``; None if it names another policy.

    Raises PolicyError for a wrong parameter.
    """
    if not is_oracle_baseline(text):
        return None
    text = text.strip()
    parsed = table.parse(text, ORACLE_MEANINGS)
    if parsed is None:
        raise PolicyError(f"the baseline is {_ACCEPTED}; found {text[:80]!r}")
    name, arguments = parsed
    table.check_arguments(text, name, _PARAMETERS, arguments)
    tau = float(arguments.get("tau", 0.0))
    return Baseline(text, partial(_timetable, text, name, tau), ORACLE_SOURCE, ORACLE_MEANINGS[name])
