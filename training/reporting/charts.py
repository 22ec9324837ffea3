"""Figures as data: lines with intervals, for `training.reporting.figures` and `training.reporting.svg`.

Figure numbers are those of Santos et al. 2014, section 5.3. The figures show trials: those of an experiment,
or of a score file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from training.comparing import statistics
from training.comparing.trials import COMPETITIVE, Trials, values
from training.evolution.learning import LEARNED
from training.replaying.metrics import METRICS, ORACLE

SHARES: Final = frozenset(("change_rate", "freshness", "new_pages", "idle_pages"))
"""Metrics shown as per cent."""


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


def line(trials: Trials, name: str, metric: str, shown: str = "", intervals: bool = True) -> Line:
    """A score function's means over the folds, cycle by cycle."""
    means = statistics.per_cycle(values(trials, name, metric))
    half_widths = [mean.half_width if intervals else math.nan for mean in means]
    return Line(shown or name, [mean.mean for mean in means], half_widths)


def cycles_of(trials: Trials) -> list[float]:
    """Numbers of the scored cycles of the test sets."""
    scored = values(trials, next(iter(trials.series)), "change_rate").shape[1]
    return [float(trials.first_cycle + i) for i in range(scored)]


def per_cycle_chart(trials: Trials, key: str, title: str, metric: str, lines: list[Line]) -> Chart:
    """A chart of a metric over the scored cycles."""
    x_label = "cycle of the test period"
    percent = metric in SHARES
    return Chart(key, title, x_label, METRICS[metric].heading, cycles_of(trials), lines, percent)


def methods(trials: Trials, metric: str, learned: str, names: Sequence[str] = COMPETITIVE) -> Chart:
    """Figure 4: the learned function, beside other score functions, in every cycle."""
    lines = [line(trials, learned, metric, LEARNED)]
    lines += [line(trials, name, metric, intervals=position == 0) for position, name in enumerate(names)]
    title = f"{METRICS[metric].heading} in every cycle"
    return per_cycle_chart(trials, f"figure4-{metric}", title, metric, lines)


def budgets(trials: Trials, metric: str, names: dict[str, str]) -> Chart:
    """Figure 5: functions learned at the full budget, tried with less. ``names``: function -> shown name."""
    by_budget = {float(share): series for share, series in trials.smaller_budgets.items()}
    by_budget[trials.budget] = trials.series
    shares = sorted(by_budget)
    lines = []
    for name, shown in names.items():
        means = [
            statistics.mean(np.array(by_budget[share][name][metric], dtype=np.float64).mean(axis=1))
            for share in shares
        ]
        lines.append(Line(shown, [mean.mean for mean in means], [mean.half_width for mean in means]))
    return Chart(
        f"figure5-{metric}",
        f"{METRICS[metric].heading} with less budget than learned for",
        "budget: visits per cycle, % of the pages",
        METRICS[metric].heading,
        [100.0 * share for share in shares],
        lines,
        metric in SHARES,
    )


def with_oracle(trials: Trials, metric: str, names: Sequence[str]) -> list[str]:
    """The names, and the oracle where it would not squeeze all other lines together."""
    best = max(float(values(trials, name, metric).mean()) for name in names)
    oracle = float(values(trials, ORACLE, metric).mean())
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
