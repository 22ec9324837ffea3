"""Change rate, changes found, freshness, age and delay of score functions at several budgets.

Every point is `training.comparing.evaluation.evaluate` at that budget. Two figures follow from its counts:

* changes found a day: those of a cycle, times the cycles of a day, for all pages that the history speaks for;
* delay: cycles between a change and the visit that sees it, as Little's law has it: pages that are out of
  date after a cycle, by changes found in a cycle. Copies that are never renewed count in it (J. D. C. Little
  1961, "A proof for the queuing formula L = λW", Operations Research 9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.errors import HistoryError
from training.comparing import statistics
from training.comparing.evaluation import Evaluation, evaluate
from training.evolution.evolve import Json
from training.histories.history import ChangeHistory
from training.replaying.metrics import budget_pages, parse_budget
from training.replaying.prepared import DEFAULTS, CrawlChoices

BUDGETS: Final = ("1%", "2%", "5%", "10%", "20%")
FIGURES: Final = ("change_rate", "changes_a_day", "freshness", "age", "delay_cycles")
FRESHNESS: Final = (0.8, 0.9, 0.95, 0.99)
"""Levels of freshness whose budget is estimated."""
PARTS: Final = 10
"""Parts of a panel, each left out once, for the intervals of its figures."""


class Value(NamedTuple):
    """One figure with the half width of its 95% interval."""

    mean: float
    ci95: float | None


class BudgetPoint(NamedTuple):
    """A score function at one budget."""

    budget: float
    """As a share of the pages."""
    visits: int
    """Per cycle, on all pages that the history speaks for."""
    figures: dict[str, Value]


class Curve(NamedTuple):
    """A score function over the budgets."""

    score: str
    points: list[BudgetPoint]


@dataclass(frozen=True)
class Budgets:
    """Score functions at several budgets on one history."""

    evaluations: list[Evaluation]
    """Evaluation at each budget, by ascending budget."""
    curves: list[Curve]
    pages: int
    """Pages that the figures are for."""
    is_sample: bool
    """Whether the history is of a panel, a random sample of these pages."""
    cycles_a_day: float

    def to_json(self) -> Json:
        """The JSON document of docs/lab/replay.md."""
        return {
            "pages": self.pages,
            "panel": self.is_sample,
            "cycles_a_day": self.cycles_a_day,
            "curves": [
                {
                    "score": curve.score,
                    "points": [
                        {
                            "budget": point.budget,
                            "visits": point.visits,
                            **{name: _json(value) for name, value in point.figures.items()},
                        }
                        for point in curve.points
                    ],
                }
                for curve in self.curves
            ],
            "answers": answers(self),
            "evaluations": [one.to_json() for one in self.evaluations],
        }


def _json(value: Value) -> Json:
    """A figure as JSON: null for nan."""
    return {name: None if one is None or math.isnan(one) else one for name, one in value._asdict().items()}


def read_budgets(text: str) -> list[float]:
    """Budgets of a text such as ``1%,0.02,500``: shares and counts. Raises HistoryError."""
    amounts: list[float] = []
    for fold in text.split(","):
        number = fold.strip()
        try:
            amounts.append(float(number[:-1]) / 100 if number.endswith("%") else parse_budget(number))
        except (ValueError, HistoryError):
            raise HistoryError(
                f"--budgets: expected shares or counts such as 1%,0.02,500; found {fold!r}"
            ) from None
    return amounts


def study(
    history: ChangeHistory,
    scores: Sequence[str],
    budgets: Sequence[float],
    crawl: CrawlChoices = DEFAULTS,
    *,
    known_pages: int | None = None,
    cycles_a_day: float = 1.0,
    advance: Callable[[], object] = lambda: None,
) -> Budgets:
    """Evaluate score functions at every budget.

    ``known_pages``: pages that the history is a panel of, None: it is of them all; a count as a budget is of
    these pages. ``advance`` is called after every replay. Raises HistoryError, ScoreError, ExpressionError or
    PolicyError.
    """
    pages = known_pages or history.pages
    shares = [
        budget / pages if known_pages is not None and isinstance(budget, int) else budget
        for budget in budgets
    ]
    by_visits = {budget_pages(budget, pages): budget for budget in reversed(shares)}
    shares = [by_visits[visits] for visits in sorted(by_visits)]
    evaluations = [
        evaluate(history, scores, crawl._replace(budget=budget), advance=advance) for budget in shares
    ]
    parts = _without_each_part(history) if known_pages is not None else []
    again = [
        [evaluate(fold, scores, crawl._replace(budget=budget), advance=advance) for fold in parts]
        for budget in shares
    ]
    curves = []
    for number, score in enumerate(scores):
        points = []
        for budget, complete, others in zip(shares, evaluations, again, strict=True):
            figures = _figures(complete, number, pages, cycles_a_day)
            without_folds = [_figures(one, number, pages, cycles_a_day) for one in others]
            if without_folds:
                figures = {
                    name: Value(value.mean, _jackknife([one[name].mean for one in without_folds]))
                    for name, value in figures.items()
                }
            visits = budget_pages(budget, pages)
            points.append(BudgetPoint(visits / pages, visits, figures))
        curves.append(Curve(score, points))
    return Budgets(evaluations, curves, pages, known_pages is not None, cycles_a_day)


def _figures(one: Evaluation, number: int, pages: int, cycles_a_day: float) -> dict[str, Value]:
    """The figures of one replay, scaled to so many pages."""
    result, replayed = one.results[number], one.history.pages
    changed = np.array(result.counts["changed"], np.float64)
    stale = (1.0 - np.array(result.metrics["freshness"].per_cycle)) * replayed
    delay = float(stale.sum() / changed.sum()) if changed.any() else math.nan
    a_day = changed * (pages / replayed * cycles_a_day)
    width = statistics.half_width(a_day) if len(a_day) > 1 else None
    of_cycles = {name: Value(*result.metrics[name][:2]) for name in ("change_rate", "freshness", "age")}
    figures = {
        **of_cycles,
        "changes_a_day": Value(float(a_day.mean()), width),
        "delay_cycles": Value(delay, None),
    }
    return {name: figures[name] for name in FIGURES}


def _without_each_part(history: ChangeHistory) -> list[ChangeHistory]:
    """The history without each tenth of its pages, which come in the order of their keys: at random."""
    if history.pages < 2 * PARTS:
        return []
    fold = np.arange(history.pages) % PARTS
    return [history.take(np.flatnonzero(fold != number)) for number in range(PARTS)]


def _jackknife(values: Sequence[float]) -> float:
    """Half width of a 95% interval by leaving out each part once (J. W. Tukey 1958)."""
    array = np.array(values)
    deviation = float(np.sqrt((len(array) - 1) * array.var()))
    return statistics.t_quantile(len(array) - 1) * deviation


def answers(amounts: Budgets) -> list[str]:
    """Sentences on the first score function: budgets for levels of freshness, changes for more budget."""
    curve = amounts.curves[0]
    return [*_freshness(curve), *_more(curve, amounts.cycles_a_day)]


def _freshness(curve: Curve) -> Iterator[str]:
    points = [(point.budget, point.figures["freshness"].mean) for point in curve.points]
    if points[0][1] >= FRESHNESS[0]:
        yield f"a budget of {points[0][0]:.3g} keeps {points[0][1]:.1%} of the copies current already"
    for level in FRESHNESS:
        for (low, fresh), (high, fresher) in pairwise(points):
            if fresh < level <= fresher:
                needed = low + (high - low) * (level - fresh) / (fresher - fresh)
                yield f"{level:.0%} freshness needs a budget of {needed:.1%}"
                break
        else:
            if points[-1][1] < level:
                best = f"{points[-1][0]:.1%} keep {points[-1][1]:.1%} of the copies current"
                yield f"{level:.0%} freshness needs more than the largest budget: {best}"
                return


def _more(curve: Curve, cycles_a_day: float) -> Iterator[str]:
    for one, other in pairwise(curve.points):
        points = (other.budget - one.budget) * 100
        changes = other.figures["changes_a_day"].mean - one.figures["changes_a_day"].mean
        yield (
            f"from {one.budget:.1%} to {other.budget:.1%}: +1% budget finds {changes / points:,.1f} more "
            "changes a day"
        )
