"""What `python -m training.budget` shows: a table, the answers people want, and a figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrapy_gp4c.errors import HistoryError
from training.comparing.budgets import FIGURES, Budgets, Value, answers
from training.reporting.figures import OPTIONS, STYLES, save
from training.reporting.scatter import SUFFIXES

SHOWN: Final[dict[str, str]] = {
    "change_rate": "change rate",
    "changes_a_day": "changes found a day",
    "freshness": "freshness",
    "age": "age (cycles)",
    "delay_cycles": "delay (cycles)",
}
"""Figure -> its name for people."""
SHARES: Final = ("change_rate", "freshness")
DRAWN: Final = ("change_rate", "changes_a_day", "freshness", "delay_cycles")


def table(found: Budgets) -> Table:
    """Every score function at every budget."""
    out = Table("score function", "budget", "visits", *(SHOWN[name] for name in FIGURES))
    for column in out.columns[1:]:
        column.justify = "right"
    for curve in found.curves:
        for number, point in enumerate(curve.points):
            cells = [_text(name, point.figures[name]) for name in FIGURES]
            last = number == len(curve.points) - 1
            label = Text("" if number else curve.score, overflow="fold")
            out.add_row(label, f"{point.budget:.1%}", f"{point.visits:,}", *cells, end_section=last)
    return out


def _text(name: str, value: Value) -> str:
    if math.isnan(value.mean):
        return "-"
    digits = "{:.1%}" if name in SHARES else "{:,.1f}"
    width = "" if value.ci95 is None or math.isnan(value.ci95) else " ± " + digits.format(value.ci95)
    return digits.format(value.mean) + width


def show(found: Budgets, console: Console) -> None:
    """Print what was replayed, the table, and the answers."""
    about = found.evaluations[0].history
    spoken = f"{about.source}: {about.pages:,} pages, {about.cycles} cycles"
    if found.is_sample:
        spoken += (
            f"; only its panel was visited in every cycle: a random sample of {found.pages:,} pages, for all "
            "of which changes are told; mean ± half-width of the 95% interval, over samples"
        )
    else:
        spoken += "; mean ± half-width of the 95% interval, over cycles"
    console.print(spoken, highlight=False, markup=False, soft_wrap=True)
    console.print(table(found))
    for line in answers(found):
        console.print(f"{found.curves[0].score}: {line}", highlight=False, markup=False, soft_wrap=True)


def draw(found: Budgets) -> Figure:
    """A panel for each of `DRAWN`, a line for each score function."""
    with matplotlib.rc_context(OPTIONS):
        figure = Figure(figsize=(9.0, 6.4), dpi=150)
        axes: Any = figure.subplots(2, 2, sharex=True)
        for name, panel in zip(DRAWN, axes.flat, strict=True):
            _draw(panel, found, name)
        for panel in axes[1]:
            panel.set_xlabel("budget: visits per cycle, share of the pages")
            panel.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        about = found.evaluations[0].history
        sample = ", told by its panel" if found.is_sample else ""
        figure.suptitle(f"{Path(about.source).name}: {found.pages:,} pages{sample}", x=0.02, ha="left")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
        figure.subplots_adjust(left=0.09, right=0.98, top=0.89, bottom=0.15, hspace=0.22, wspace=0.2)
    return figure


def _draw(axes: Axes, found: Budgets, name: str) -> None:
    for curve, (colour, dash, marker) in zip(found.curves, STYLES, strict=False):
        x = np.array([point.budget for point in curve.points])
        values = [point.figures[name] for point in curve.points]
        mean = np.array([value.mean for value in values])
        half = np.array([math.nan if value.ci95 is None else value.ci95 for value in values])
        if np.isfinite(half).any():
            axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.14, linewidth=0)
        axes.plot(
            x, mean, color=colour, linestyle=dash, linewidth=1.8, marker=marker, markersize=4,
            label=curve.score,
        )  # fmt: skip
    axes.set_title(SHOWN[name], loc="left", fontsize=10)
    if name in SHARES:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if name == "freshness":
        axes.set_ylim(top=1.0)
    else:
        axes.set_ylim(bottom=0.0)
    axes.set_xlim(left=0.0)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)


def write(found: Budgets, path: Path) -> None:
    """Write the figure, of the kind that the path's suffix names. Raises HistoryError where it cannot."""
    if path.suffix not in SUFFIXES:
        raise HistoryError(f"a figure is named *{', *'.join(SUFFIXES)}; found {path}")
    try:
        save(draw(found), path)
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror or error}") from error
