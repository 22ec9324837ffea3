"""Figures of an experiment as PNG and SVG files (matplotlib), readable in print and by the colour-blind.

Lines differ by colour (Okabe and Ito's palette), dash and marker, and are named at their ends.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from training.reporting import charts
from training.reporting.charts import Chart

STYLES: Final = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#56B4E9", (0, (6, 1, 1, 1, 1, 1)), "v"),
    ("#E69F00", (0, (3, 1)), "P"),
    ("#6B6B6B", (0, (1, 2)), "X"),
)
"""Colour, dash and marker of the first, second, ... line."""
GAP: Final = 0.055
"""Least distance of two labels, in parts of the axis."""
OPTIONS: Final[dict[Any, Any]] = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gp4c",  # the same figure gives the same file
}


def draw(chart: Chart) -> Figure:
    """Draw one chart."""
    with matplotlib.rc_context(OPTIONS):
        figure = Figure(figsize=(8.0, 4.4), dpi=150)
        axes: Axes = figure.subplots()
        x = np.array(chart.x)
        for line, (colour, dash, marker) in zip(chart.lines, STYLES, strict=False):
            values, half = np.array(line.values), np.array(line.half_widths)
            if np.isfinite(half).any():
                axes.fill_between(x, values - half, values + half, color=colour, alpha=0.14, linewidth=0)
            axes.plot(
                x, values, color=colour, linestyle=dash, linewidth=1.8, marker=marker, markersize=3.5,
                label=line.name,
            )  # fmt: skip
        low, high = charts.limits(chart)
        margin = 0.04 * (high - low)
        axes.set_ylim(low - margin, high + margin)
        wrapped = {line.name: textwrap.fill(line.name, 18) for line in chart.lines}
        ends = [line.values[-1] for line in chart.lines]
        gap = GAP * max(name.count("\n") + 1 for name in wrapped.values())
        heights = charts.spread(ends, gap * (high - low))
        for line, height, (colour, _, _) in zip(chart.lines, heights, STYLES, strict=False):
            axes.annotate(
                wrapped[line.name], (x[-1], height), xytext=(9, 0), textcoords="offset points", color=colour,
                va="center", fontweight="bold", annotation_clip=False,
            )  # fmt: skip
        axes.set_xlabel(chart.x_label)
        axes.set_title(chart.title, loc="left", fontsize=11)
        axes.yaxis.set_major_formatter(FuncFormatter(_formatter(chart)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        longest = max(len(row) for name in wrapped.values() for row in name.split("\n"))
        figure.subplots_adjust(left=0.09, right=max(0.6, 0.96 - 0.0115 * longest), top=0.91, bottom=0.12)
    return figure


def _formatter(chart: Chart) -> Any:
    digits = 0 if chart.percent and charts.limits(chart)[1] - charts.limits(chart)[0] > 0.04 else 1
    return lambda value, _: chart.text(value, digits)


def write_figures(drawn: Sequence[Chart], directory: Path) -> list[Path]:
    """Write every chart as PNG and SVG into `directory`; returns the paths."""
    paths = []
    for chart in drawn:
        figure = draw(chart)
        for suffix in (".png", ".svg"):
            path = directory / f"{chart.key}{suffix}"
            save(figure, path)
            paths.append(path)
    return paths


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, as the path ends; the same figure gives the same file."""
    with matplotlib.rc_context(OPTIONS):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
