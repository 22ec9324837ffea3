"""The experiment of Pandey & Olston 2005, section 6: search quality by budget, for policies of refreshing.

All copies are in sync at first; then ``B`` pages are refreshed in every cycle, and quality is the mean over
the cycles after the refreshes. What a policy knows of pages is estimated from the whole of the cycles, as in
the paper (section 6.2), from the first half and judged on the second, or from its own visits alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from training.histories.history import ChangeHistory
from training.replaying.arranged import prepare
from training.replaying.corpus import Corpus
from training.replaying.foreseen import Known, allotted, in_cycles, mean_by_page, with_oldest
from training.replaying.metrics import CONTENTS
from training.replaying.refreshing import whole_budget
from training.replaying.replay import run
from training.replaying.search import Search, search
from training.replaying.worths import Measuring, refitted, worths

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Estimate = Literal["whole", "half", "observed"]
ESTIMATES: Final[tuple[Estimate, ...]] = get_args(Estimate)

BUDGETS: Final = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.30, 0.40)
TAUS: Final = tuple(step / 10 for step in range(11))
OWN_VISITS: Final = {
    "user-centric": "user-centric",
    "dq_decay": "dq_decay * t + 1e-9 * t",
    "dq_last": "dq_last * t + 1e-9 * t",
    "t*X": "t * X",
    "age": "t",
}
"""Policy -> score function, where pages are known by the policy's own visits alone."""


class Point(NamedTuple):
    """What a policy came to with a budget."""

    policy: str
    share: float
    """Budget, share of the pages per cycle."""
    refreshes: int
    """Per cycle."""
    quality: float
    """Mean over the cycles judged."""
    impact: float
    """1 - what refreshing all copies would gain / the same if never refreshed: of the estimates alone."""
    tau: float | None
    """Threshold of the shingles, where the policy has one: the best of `TAUS`."""


class Judged(NamedTuple):
    """How good the copies of a run were, mean over the cycles judged."""

    quality: float
    impact: float


@dataclass(frozen=True, eq=False)
class Trial:
    """One data set under one scoring function."""

    name: str
    corpus: Corpus
    """Of the workload's terms."""
    how: Measuring
    search: Search
    history: ChangeHistory
    """With what refreshes are worth."""
    first: int
    """The cycle in which copies are in sync; those after it are judged."""
    last: int
    """The last cycle that estimates are made from."""
    seed: int
    refit_cycles: int = 0
    """Cycles after which F_q, idf and mean length are learnt anew for the estimates; 0: those of cycle 0."""

    @property
    def pages(self) -> int:
        """P."""
        return self.history.pages

    @property
    def judged(self) -> int:
        """Cycles judged."""
        return self.history.cycles - self.first

    @cached_property
    def updates(self) -> Updates:
        """All updates that estimates are made from."""
        return updates_of(self, 1, self.last)

    @cached_property
    def clicks(self) -> Floats:
        """``[P]``"""
        return self.search.clicks(self.last)

    def judge(self, chosen: Callable[[int, Ints], Ints]) -> Judged:
        """Judge copies of which ``chosen(cycle, last visits)`` are refreshed in every judged cycle."""
        live = self.search.live
        held = live[self.first].copy()
        last = np.full(self.pages, self.first)
        rows = []
        for cycle in range(self.first + 1, self.history.cycles + 1):
            pages = chosen(cycle, last)
            held[pages] = live[cycle, pages]
            last[pages] = cycle
            rows.append(held.copy())
        return Judged(float(self.search.quality(np.array(rows)).mean()), self._impact(rows))

    def _impact(self, rows: list[npt.NDArray[np.int32]]) -> float:
        impact = self.history.impact
        assert impact is not None
        first = self.corpus.contents.first_version[:-1]
        after = impact.version[self.first + 1 :]
        lost = sum(impact.between(row - first, live).sum() for row, live in zip(rows, after, strict=True))
        return 1.0 - float(lost) / (float(impact.unrefreshed(self.first).sum()) or 1.0)


class Updates(NamedTuple):
    """Updates of pages, arrays ``[updates]``."""

    page: Ints
    gap: Ints
    """Cycles since the update before, or since cycle 0."""
    gained: Floats
    """delta-Q_A of a refresh at once, in ppm."""
    difference: Floats
    """Share of the shingles that differ."""
    version: npt.NDArray[np.int32]


def updates_of(trial: Trial, first: int, last: int) -> Updates:
    """Updates in the cycles first..last."""
    contents, impact = trial.corpus.contents, trial.history.impact
    assert impact is not None
    cycle, page = np.nonzero(contents.history.changed)
    order = np.lexsort((cycle, page))
    cycle, page = cycle[order] + 1, page[order]
    begins = np.concatenate(([True], page[1:] != page[:-1]))
    before = np.where(begins, 0, np.concatenate(([0], cycle[:-1])))
    new = contents.version[cycle, page]
    nth = new - contents.first_version[page]
    kept = (cycle >= first) & (cycle <= last)
    if trial.refit_cycles:
        gained = refitted(trial.corpus, trial.how, page, cycle, nth, trial.refit_cycles)
    else:
        gained = impact.between(nth - 1, nth, page)
    difference = trial.corpus.difference[new]
    return Updates(page[kept], (cycle - before)[kept], gained[kept], difference[kept], new[kept])


def prepared(
    name: str,
    corpus: Corpus,
    how: Measuring,
    estimate: Estimate = "whole",
    seed: int = 1,
    refit_cycles: int = 0,
) -> Trial:
    """Compute what all policies share; ``corpus``: of the workload's terms."""
    found = search(corpus, how.workload, how.scoring, how.importance)
    history = replace(corpus.contents.history, impact=worths(corpus, how, found))
    middle = history.cycles // 2
    first, last = (middle, middle) if estimate == "half" else (0, history.cycles)
    return Trial(name, corpus, how, found, history, first, last, seed, refit_cycles)


def rates_of(trial: Trial) -> dict[str, Floats]:
    """Forecasts of what a refresh gains per cycle: ``[P]`` each.

    ``user-centric`` is the paper's mean over refreshes (section 6.1.3), each update refreshed at once;
    ``per cycle`` all that was gained, by the number of cycles.
    """
    updates = trial.updates
    mean = mean_by_page(updates.page, updates.gained / updates.gap, trial.pages)
    total = np.bincount(updates.page, updates.gained, trial.pages) / trial.last
    return {"user-centric": mean, "user-centric per cycle": total}


def points(
    trial: Trial, shares: Sequence[float] = BUDGETS, taus: Sequence[float] = TAUS, observed: bool = False
) -> Iterator[Point]:
    """Every policy with every budget; those of own visits alone if ``observed``."""
    with ThreadPoolExecutor(2) as pool:  # the compiled answers leave Python's lock alone
        for share in shares:
            budget = whole_budget(share, trial.pages)
            tasks = {name: text for name, text in OWN_VISITS.items() if observed or name in ("t*X", "age")}
            own = {name: pool.submit(_own_visits, trial, text, budget) for name, text in tasks.items()}
            told = {} if observed else rates_of(trial)
            ranked = {
                name: pool.submit(trial.judge, _by_priority(rate, budget)) for name, rate in told.items()
            }
            timed = {
                (name, tau): pool.submit(trial.judge, _in_slots(trial, name, tau, budget))
                for name in ("SBR", "EBR")
                for tau in (() if observed else taus)
            }
            for name, future in (ranked | own).items():
                yield Point(name, share, budget, *future.result(), None)
            for name in dict.fromkeys(name for name, _ in timed):
                best = max((one.result(), -tau) for (policy, tau), one in timed.items() if policy == name)
                yield Point(name, share, budget, *best[0], -best[1])


def _own_visits(trial: Trial, text: str, budget: int) -> Judged:
    history = trial.history.take(cycles=slice(trial.first, None))
    arranged = prepare(history, budget=budget, warmup=0, seed=trial.seed)
    found = run(arranged, text, metrics=tuple(CONTENTS))
    return Judged(*(float(getattr(found, name).mean()) for name in Judged._fields))


def _by_priority(rate: Floats, budget: int) -> Callable[[int, Ints], Ints]:
    """P(p, t) = rate * (t - LR), and age among equals."""

    def chosen(cycle: int, last: Ints) -> Ints:
        waited = cycle - last
        return np.argsort(-(rate * waited + 1e-9 * waited), kind="stable")[:budget]

    return chosen


def _in_slots(trial: Trial, policy: str, tau: float, budget: int) -> Callable[[int, Ints], Ints]:
    """Refreshes of SBR or EBR; what they leave over goes to the pages refreshed longest ago."""
    rows = planned_refreshes(trial, policy, tau, budget)

    return lambda cycle, last: with_oldest(rows[cycle - trial.first - 1], last, budget)


def planned_refreshes(trial: Trial, policy: str, tau: float, budget: int) -> list[Ints]:
    """Pages that SBR or EBR refreshes in each judged cycle, without what it leaves over."""
    return in_cycles(visits_of(trial, policy, tau, budget), budget, trial.judged, trial.seed)


def visits_of(trial: Trial, policy: str, tau: float, budget: int) -> Ints:
    """Refreshes of every page in the judged cycles by SBR or EBR: ``[P]``."""
    updates = trial.updates
    known = Known(updates.page, updates.difference, trial.clicks, trial.last)
    return allotted(known, policy.lower(), tau, budget, trial.judged)


class Needed(NamedTuple):
    """Budget for a quality."""

    policy: str
    quality: float
    share: float | None
    """Share of the pages per cycle; None: no budget tried reaches it."""
    ratio: float | None
    """To the share that the user-centric policy needs."""


def resources(found: Sequence[Point], reference: str = "user-centric") -> list[Needed]:
    """Budgets for equal quality: that of the reference at 5, 10 and 20% of the pages."""
    rows = []
    of = {one.policy: sorted(p for p in found if p.policy == one.policy) for one in found}
    for level in (0.05, 0.10, 0.20):
        target = next((point.quality for point in of[reference] if point.share == level), None)
        for policy, line in of.items():
            if target is not None:
                share = _share_for(line, target)
                rows.append(Needed(policy, target, share, None if share is None else share / level))
    return rows


def _share_for(line: Sequence[Point], target: float) -> float | None:
    """The least share that reaches a quality, between budgets by straight lines."""
    before: Point | None = None
    for point in line:
        if point.quality >= target:
            if before is None or point.quality <= before.quality:
                return point.share
            along = (target - before.quality) / (point.quality - before.quality)
            return before.share + along * (point.share - before.share)
        before = point
    return None
