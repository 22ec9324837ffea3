"""Policies of other crawlers and papers, for replays: they remember what their visits found.

Each plans visits per cycle, or an interval, for every page, and the replay's budget goes to the pages that
are most overdue by it: those with the most visits due, visits per cycle x cycles since the last visit. So all
of them spend exactly the budget, whatever their own bookkeeping would have spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import Block, Chosen, Evidence, Policy, Round
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring import rates, terminals
from training.replaying import allocations
from training.replaying.allocations import Floats, Objective, allocate
from training.replaying.arranged import ArrangedHistory

Pages = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Watching(Policy, Protocol):
    """A policy that is told what every cycle found."""

    def observe(self, cycle: int, pages: Pages, found: Bools) -> None:
        """Take a cycle's visits, all judged: page numbers, and whether each had changed, ``[visits]``."""


class _Overdue:
    """Visits the pages that are most overdue."""

    rounds = 1

    def __init__(self, name: str, pages: int, columns: Sequence[str] = ("last_cycle",)) -> None:
        """Know nothing yet of ``pages`` pages; ``columns``: of their state, those to keep."""
        self.name = name
        everything = terminals.new_state(pages)
        self.state = {column: everything[column] for column in columns}

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Rank by visits due since the last one."""
        due = self.visits_per_cycle() * (round.cycle - self.state["last_cycle"])

        def overdue(block: Block) -> Floats:
            return np.asarray(due[block.pages])

        return best_candidates(overdue, round.remaining, evidence)

    def observe(self, cycle: int, pages: Pages, found: Bools) -> None:
        """Add the visits to the state of their pages."""
        seen = {name: values[pages] for name, values in self.state.items()}
        terminals.observe(seen, found, cycle)
        for name, values in seen.items():
            self.state[name][pages] = values

    def visits_per_cycle(self) -> Floats:
        """Visits planned for every page: ``[P]``."""
        raise NotImplementedError


class Allocated(_Overdue):
    """Visits pages as often as an objective allots to the change rates known so far."""

    def __init__(self, name: str, objective: Objective, pages: int, k: int) -> None:
        """Know nothing yet of ``pages`` pages, k of which are visited per cycle."""
        super().__init__(name, pages, ("E", "T", "last_cycle"))
        self._objective, self._k = objective, k

    def visits_per_cycle(self) -> Floats:
        """The optimum of the objective for the change rates that the terminal ``rate`` gives."""
        return allocate(self._objective, rates.rate(self.state["E"], self.state["T"]), self._k)


class Steps(NamedTuple):
    """How an interval follows what a visit found, and within what bounds."""

    unchanged: float
    """Factor after a visit that found no change."""
    changed: float
    """Factor after a visit that found one."""
    shortest: float
    """Bound, in parts of the interval that all pages begin with; at least one cycle."""
    longest: float
    """The other bound, likewise."""
    slowing: bool = False
    """Whether it is the distance from the shortest interval that ``changed`` shrinks."""


NUTCH: Final = Steps(1.4, 0.8, 60 / (30 * 86_400), 365 / 30)
"""``nutch-default.xml`` of Apache Nutch 1.x, AdaptiveFetchSchedule: ``inc_rate`` 0.4, ``dec_rate`` 0.2; 30
days at first, a minute at least, 365 days at most. Without ``sync_delta``, which shifts visits by the time of
modification."""
STORMCRAWLER: Final = Steps(1.5, 0.5, 60 / 1440, 14.0, slowing=True)
"""Apache StormCrawler, AdaptiveScheduler: ``rate.incr`` and ``rate.decr`` 0.5; a day at first, an hour at
least, two weeks at most; shrinking slows down near the shortest interval."""
FIXED: Final = Steps(1.0, 1.0, 1.0, 1.0)


class Adaptive(_Overdue):
    """Lengthens a page's interval by every visit without a change, and shortens it by every one with one.

    All pages begin with the interval at which the budget would visit them all in turn, P / k cycles; this
    stands for the crawler's own first interval, and its bounds are scaled with it.
    """

    def __init__(self, name: str, steps: Steps, pages: int, k: int) -> None:
        """Begin with equal intervals for ``pages`` pages, k of which are visited per cycle."""
        super().__init__(name, pages)
        first = max(1.0, pages / k)
        self._steps = steps
        self._shortest, self._longest = max(1.0, steps.shortest * first), steps.longest * first
        self.intervals = np.full(pages, first)
        """Cycles between two visits: ``[P]``."""

    def observe(self, cycle: int, pages: Pages, found: Bools) -> None:
        """Note the visits, and move the intervals of their pages."""
        super().observe(cycle, pages, found)
        before = self.intervals[pages]
        floor = self._shortest if self._steps.slowing else 0.0
        shorter = floor + self._steps.changed * (before - floor)
        after = np.where(found, shorter, before * self._steps.unchanged)
        self.intervals[pages] = np.clip(after, self._shortest, self._longest)

    def visits_per_cycle(self) -> Floats:
        """One per interval."""
        return np.asarray(1.0 / self.intervals)


class Peer(NamedTuple):
    """A policy of others, ready to be made."""

    text: str
    """What it is called."""
    make: Callable[[ArrangedHistory], Watching]
    """For a replay of this history."""
    source: str
    meaning: str


def _allocated(name: str, objective: Objective, source: str, meaning: str) -> Peer:
    def make(arranged: ArrangedHistory) -> Allocated:
        return Allocated(name, objective, arranged.pages, arranged.k)

    return Peer(name, make, source, meaning)


def _adaptive(name: str, steps: Steps, source: str, meaning: str) -> Peer:
    return Peer(name, lambda arranged: Adaptive(name, steps, arranged.pages, arranged.k), source, meaning)


PEERS: Final[dict[str, Peer]] = {
    peer.text: peer
    for peer in (
        _allocated(
            "azar",
            allocations.POISSON_FRESHNESS,
            "Azar et al. 2018",
            "as often as keeps most copies current if visits come at random",
        ),
        _allocated(
            "lambda-crawl",
            allocations.HARMONIC,
            "Kolobov et al. 2019",
            "as often as makes harmonic staleness least if visits come at random",
        ),
        _allocated(
            "cho-garcia-molina",
            allocations.REGULAR_FRESHNESS,
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
"""Name -> policy of others, which a replay knows besides score functions."""
