"""Score functions tried on test sets: their metrics, cycle by cycle and fold by fold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import track

from training.evolution.choices import Choices
from training.histories.history import ChangeHistory
from training.replaying.arranged import CrawlChoices, prepare_for
from training.replaying.metrics import METRICS, TRIO
from training.replaying.replay import run

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


def held_out(history: ChangeHistory, choices: Choices) -> list[ChangeHistory]:
    """The part of every fold that nothing is learned from. Raises HistoryError as `Choices.split`."""
    return [split.test for split in choices.split(history)]


def try_out(
    tests: Sequence[ChangeHistory],
    functions: Functions,
    less: Collection[str],
    crawl: CrawlChoices,
) -> Trials:
    """Replay every function on the test set of every fold, those in `less` with parts of the budget too.

    The budget is a share of a test set's pages; parts of it that are less than a page are left out. Raises
    HistoryError, ScoreError or ExpressionError as `training.replaying.replay.replay`.
    """
    series, budget = _series(tests, functions, crawl), crawl.budget
    tried = {name: texts for name, texts in functions.items() if name in less}
    smaller = {
        f"{budget * part:g}": {
            name: {metric: values[metric] for metric in TRIO}
            for name, values in _series(tests, tried, crawl._replace(budget=budget * part)).items()
        }
        for part in SMALLER
        if budget * part * min(test.pages for test in tests) >= 1.0
    }
    return Trials(series, crawl.warmup + 1, budget, smaller)


def _series(tests: Sequence[ChangeHistory], functions: Functions, crawl: CrawlChoices) -> dict[str, Series]:
    series: dict[str, Series] = {}
    title, console = f"Replaying at {crawl.budget:.1%}", Console(stderr=True)
    for name, texts in track(functions.items(), title, console=console):
        results = [
            run(prepare_for(test, crawl), text, clock=crawl.clock, policy=crawl.policy)
            for test, text in zip(tests, texts, strict=True)
        ]
        series[name] = {metric: [getattr(r, metric).tolist() for r in results] for metric in METRICS}
    return series
