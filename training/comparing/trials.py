"""Score functions tried on test sets: their metrics, cycle by cycle and fold by fold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import track

from training.evolution.choices import Choices
from training.histories.history import ChangeHistory
from training.replaying.metrics import METRICS, TRIO
from training.replaying.replay import replay

Series = dict[str, list[list[float]]]
"""Metric -> fold -> value per scored cycle of its test set."""
Functions = Mapping[str, Sequence[str]]
"""Name -> score function of each fold."""

SMALLER: Final = (0.2, 0.4, 0.6, 0.8)
"""Parts of the budget that functions are tried with (journal Figure 5: 1% to 5%)."""


class Trials(NamedTuple):
    """What score functions reach on the same test sets."""

    series: dict[str, Series]
    """By the functions' names."""
    first_cycle: int
    """Number of the first scored cycle."""
    budget: float
    """Share of a test set's pages."""
    smaller_budgets: dict[str, dict[str, Series]]
    """Share of the pages, as text -> the series of some of the functions."""


def try_out(
    tests: Sequence[ChangeHistory],
    functions: Functions,
    less: Collection[str],
    choices: Choices,
    budget: float,
) -> Trials:
    """Replay every function on the test set of every fold, those in `less` with parts of the budget too.

    ``budget``: share of a fold's pages; parts of it that are less than a page are left out. Raises
    HistoryError, ScoreError or ExpressionError as `training.replaying.replay.replay`.
    """
    series = _series(tests, functions, choices, budget)
    tried = {name: texts for name, texts in functions.items() if name in less}
    smaller = {
        f"{budget * part:g}": {
            name: {metric: values[metric] for metric in TRIO}
            for name, values in _series(tests, tried, choices, budget * part).items()
        }
        for part in SMALLER
        if budget * part * min(test.pages for test in tests) >= 1.0
    }
    return Trials(series, choices.warmup + 1, budget, smaller)


def _series(
    tests: Sequence[ChangeHistory], functions: Functions, choices: Choices, budget: float
) -> dict[str, Series]:
    series: dict[str, Series] = {}
    for name, texts in track(functions.items(), f"Replaying at {budget:.1%}", console=Console(stderr=True)):
        results = [
            replay(
                test,
                text,
                budget=budget,
                warmup=choices.warmup,
                ties=choices.ties,
                clock=choices.clock,
                seed=choices.seed,
            )
            for test, text in zip(tests, texts, strict=True)
        ]
        series[name] = {metric: [getattr(r, metric).tolist() for r in results] for metric in METRICS}
    return series
