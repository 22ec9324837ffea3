"""The figures of an experiment as data: lines with intervals, for `training.reporting.figures` and `training.reporting.svg`.

Figure numbers are those of Santos et al. 2014, section 5.3. Every function takes the results of
`training.experiment` (or of `training.reporting.score`, which makes the same arrays).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from training.comparing import statistics
from training.comparing.paper import COMPETITIVE, FITNESSES, Results, label, values
from training.evolution.learning import LEARNED
from training.evolution.selection import SELECTIONS
from training.replaying.metrics import ORACLE

METRIC_NAMES: Final = {
    "change_rate": "Change rate",
    "ndcg": "NDCG",
    "freshness": "Freshness",
    "harmonic_staleness": "Harmonic staleness",
}
SHARES: Final = frozenset(("change_rate", "freshness", "new_pages", "idle_pages"))
"""Metrics shown as per cent."""
NEW_PAGES: Final = {
    "new_pages": "never visited since the warm-up",
    "idle_pages": "not visited in the cycle before",
}
"""The two readings of Figure 6."""


class Line(NamedTuple):
    """One line of a chart."""

    name: str
    values: list[float]
    half_widths: list[float]
    """Of the 95% intervals; nan: none to draw."""


class Chart(NamedTuple):
    """A line chart; the first line is the one that matters most."""

    key: str
    """Name of its files."""
    title: str
    x_label: str
    y_label: str
    x: list[float]
    lines: list[Line]
    percent: bool
    """Whether the values are shares."""
    counts: bool = False
    """Whether they are whole numbers."""

    def text(self, value: float, digits: int = 1) -> str:
        """A value as people read it."""
        return f"{value:,.0f}" if self.counts else shown(value, self.percent, digits)


def line(results: Results, name: str, metric: str, shown: str = "", intervals: bool = True) -> Line:
    """A score function's means over the folds, cycle by cycle."""
    means = statistics.per_cycle(values(results, name, metric))
    half_widths = [mean.half_width if intervals else math.nan for mean in means]
    return Line(shown or name, [mean.mean for mean in means], half_widths)


def cycles_of(results: Results) -> list[float]:
    """Numbers of the scored cycles of the test sets."""
    scored = values(results, next(iter(results["series"])), "change_rate").shape[1]
    return [float(results["first_cycle"] + i) for i in range(scored)]


def _per_cycle(results: Results, key: str, title: str, metric: str, lines: list[Line]) -> Chart:
    x_label = "cycle of the test period"
    percent = metric in SHARES
    return Chart(key, title, x_label, METRIC_NAMES[metric], cycles_of(results), lines, percent)


def selection_rules(results: Results, metric: str) -> Chart:
    """Figure 3: the three selection rules, all terminals, learned for the metric."""
    lines = [
        line(results, label(selection, "all", metric), metric, f"GP4C {selection}")
        for selection in SELECTIONS
    ]
    title = f"{METRIC_NAMES[metric]} of the three selection rules"
    return _per_cycle(results, f"figure3-{metric}", title, metric, lines)


def methods(results: Results, metric: str, learned: str, names: Sequence[str] = COMPETITIVE) -> Chart:
    """Figure 4: the learned function, beside other score functions, in every cycle."""
    lines = [line(results, learned, metric, LEARNED)]
    lines += [line(results, name, metric, intervals=position == 0) for position, name in enumerate(names)]
    title = f"{METRIC_NAMES[metric]} in every cycle"
    return _per_cycle(results, f"figure4-{metric}", title, metric, lines)


def budgets(results: Results, metric: str, names: dict[str, str]) -> Chart:
    """Figure 5: functions learned at the full budget, tried with less. ``names``: function -> shown name."""
    full = float(results["choices"]["budget"])
    by_budget: dict[float, Any] = {float(b): series for b, series in results["smaller_budgets"].items()}
    by_budget[full] = results["series"]
    shares = sorted(by_budget)
    lines = []
    for name, shown in names.items():
        means = [
            statistics.mean(values({"series": by_budget[share]}, name, metric).mean(axis=1))
            for share in shares
        ]
        lines.append(Line(shown, [mean.mean for mean in means], [mean.half_width for mean in means]))
    return Chart(
        f"figure5-{metric}",
        f"{METRIC_NAMES[metric]} with less budget than learned for",
        "budget: visits per cycle, % of the pages",
        METRIC_NAMES[metric],
        [100.0 * share for share in shares],
        lines,
        metric in SHARES,
    )


def new_pages(results: Results, learned: str) -> Chart:
    """Figure 6: share of new pages among the visits, under both readings of "new"."""
    lines = [
        line(results, learned, metric, shown)
        for metric, shown in NEW_PAGES.items()
        if metric in results["series"][learned]
    ]
    return Chart(
        "figure6",
        "Share of new pages among the visits",
        "cycle of the test period",
        "share of the visits",
        cycles_of(results),
        lines,
        True,
    )


def paper_charts(results: Results) -> list[Chart]:
    """Figures 3 to 6 of an experiment, for both metrics where the paper has both."""
    charts = [selection_rules(results, metric) for metric in FITNESSES]
    charts += [methods(results, metric, label("best", "all", metric)) for metric in FITNESSES]
    tried = {
        label("best", "all", "ndcg"): "learned for NDCG",
        label("best", "all", "change_rate"): "learned for change rate",
        "nad": "nad",
    }
    charts += [budgets(results, metric, tried) for metric in FITNESSES]
    return [*charts, new_pages(results, label("best", "all", "ndcg"))]


def with_oracle(results: Results, metric: str, names: Sequence[str]) -> list[str]:
    """The names, and the oracle where it would not squeeze all other lines together."""
    best = max(float(values(results, name, metric).mean()) for name in names)
    oracle = float(values(results, ORACLE, metric).mean())
    return [*names, ORACLE] if oracle - best < 0.25 else [*names]


def limits(chart: Chart) -> tuple[float, float]:
    """Lowest and highest value that a chart shows, intervals included; all metrics are at least 0."""
    low, high = np.inf, -np.inf
    for one in chart.lines:
        centre = np.array(one.values)
        half = np.nan_to_num(np.array(one.half_widths))
        low, high = min(low, float(np.nanmin(centre - half))), max(high, float(np.nanmax(centre + half)))
    if max(np.nanmax(one.values) for one in chart.lines) <= 1.0:  # intervals alone go beyond what can be
        low, high = max(low, 0.0), min(high, 1.0)
    if high - low < 1e-9:
        low, high = low - 0.01, high + 0.01
    return low, high


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that span low..high: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights of labels, as near as possible to the wanted ones, in their order, `gap` or more apart."""
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(order))
    result = np.empty(len(order))
    result[order] = isotonic_regression(np.asarray(heights, np.float64)[order] - steps).x + steps
    return [float(height) for height in result]


def shown(value: float, percent: bool, digits: int = 1) -> str:
    """A value as people read it: 71.6% for a share, else three decimals."""
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}%}" if percent else f"{value:.{digits + 2}f}"
