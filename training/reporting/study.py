"""The report of replays: a learned score function beside the baselines on test data.

`Study` is what an experiment and a score file have in common (`training.papers.journal_report`,
`training.reporting.score` make one); `training.reporting.sections` makes the report of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from training.comparing import statistics
from training.comparing.difference import Difference
from training.comparing.trials import Trials, best_baseline, values
from training.reporting.page import Section

HEADLINE: Final = "change_rate"
SIGNIFICANT: Final = 1 - statistics.CONFIDENCE


class Formula(NamedTuple):
    """A learned score function."""

    name: str
    text: str
    values: dict[str, float]
    """Part (training, validation, test) -> value of the metric it was learned for."""


@dataclass
class Study:
    """What the report is made of."""

    title: str
    trials: Trials
    learned: dict[str, str]
    """Metric -> the function in ``trials`` that is judged by it."""
    formulas: list[Formula]
    """The one that ships first."""
    facts: list[tuple[str, str]]
    created: str
    visits_per_cycle: float
    """Of one test set."""
    difference: Difference | None = None
    difference_note: str = ""
    """Why there is no difference to show."""
    budget_names: dict[str, str] = field(default_factory=dict)
    """Function tried with smaller budgets -> shown name."""
    more: list[Section] = field(default_factory=list)


class Lead(NamedTuple):
    """The learned function against the best baseline, by one metric."""

    metric: str
    ours: float
    baseline: str
    theirs: float
    difference: statistics.Mean
    p: float
    by_fold: statistics.Floats
    """``[folds]``: difference of the means."""
    by_cycle: statistics.Floats
    """``[cycles]``: the same."""

    @property
    def word(self) -> str:
        """``better``, ``worse`` or ``open``."""
        if math.isnan(self.p) or self.p >= SIGNIFICANT:
            return "open"
        return "better" if self.difference.mean > 0 else "worse"


def lead(study: Study, metric: str) -> Lead:
    """Compare the learned function with the best baseline by a metric."""
    baseline = best_baseline(study.trials, metric)
    ours = values(study.trials, study.learned[metric], metric)
    theirs = values(study.trials, baseline, metric)
    difference, p = statistics.overall(ours, theirs)
    gap = ours - theirs
    return Lead(
        metric,
        float(ours.mean()),
        baseline,
        float(theirs.mean()),
        difference,
        p,
        gap.mean(axis=1),
        gap.mean(axis=0),
    )


def points(value: float, percent: bool) -> str:
    """A difference of values: percentage points for shares."""
    if not percent:
        return f"{value:.3f}"
    return f"{100 * value:.{2 if abs(value) < 0.005 else 1}f} points"


def signed(value: float, percent: bool) -> str:
    """The same with its sign, without the unit."""
    return ("+" if value >= 0 else "−") + points(abs(value), percent).removesuffix(
        " points" if percent else ""
    )
