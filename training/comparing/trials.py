"""Score functions tried on test sets: their metrics, cycle by cycle and fold by fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.progress import track

from training.evolution.choices import Choices
from training.histories.history import ChangeHistory
from training.replaying.metrics import METRICS, TRIO
from training.replaying.replay import replay

Series = dict[str, list[list[float]]]
"""Metric -> fold -> value per scored cycle of its test set."""

SMALLER: Final = (0.2, 0.4, 0.6, 0.8)
"""Parts of the budget that functions are tried with (journal Figure 5: 1% to 5%)."""


def evaluate(
    tests: Sequence[ChangeHistory], functions: Mapping[str, Sequence[str]], choices: Choices, budget: float
) -> dict[str, Series]:
    """Replay every function on the test set of every fold: name -> metric -> fold -> cycle.

    ``functions``: name -> score function of each fold; ``budget``: share of a fold's pages.
    """
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


def smaller_budgets(
    tests: Sequence[ChangeHistory], functions: Mapping[str, Sequence[str]], choices: Choices, budget: float
) -> dict[str, dict[str, Series]]:
    """The same with parts of the budget: share of the pages (as text) -> name -> metric -> fold -> cycle.

    Budgets of less than a page are left out.
    """
    return {
        f"{budget * part:g}": {
            name: {metric: values[metric] for metric in TRIO}
            for name, values in evaluate(tests, functions, choices, budget * part).items()
        }
        for part in SMALLER
        if budget * part * min(test.pages for test in tests) >= 1.0
    }
