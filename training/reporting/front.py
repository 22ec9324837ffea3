"""The front of two objectives for people: a figure, a table, and lines on the terminal."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.named import NAMED
from training.evolution.choices import PARTS, Choices
from training.evolution.learning import LEARNED, Learned
from training.evolution.preference import GUARD
from training.evolution.simplify import readable
from training.replaying.metrics import METRICS, ORACLE
from training.reporting.charts import spread
from training.reporting.figures import OPTIONS, STYLES

NAME: Final = "front"
"""Of the figure's files and of the table's."""
GAP: Final = 0.042
"""Least distance of two labels, in parts of the axis."""


class Row(NamedTuple):
    """A function in the plane of both objectives."""

    name: str
    """Number of a function of the front, name of another."""
    text: str
    taken: bool
    values: dict[str, dict[str, float]]
    """Part -> metric -> mean over the scored cycles."""


def rows_of(learned: Learned) -> list[Row]:
    """The functions of the front, then the named ones."""
    best = learned.best
    front = [Row(str(place), one.text, one.taken, one.values) for place, one in enumerate(best.front, 1)]
    others = [
        Row(name, NAMED[name].expression, False, values)
        for name, values in best.table.items()
        if name not in (LEARNED, ORACLE)
    ]
    return [*front, *others]


def show_front(learned: Learned, choices: Choices, directory: Path, console: Console) -> None:
    """Write table and figure of a front beside its score files, and show it.

    Raises LearningError when a file cannot be written.
    """
    rows = rows_of(learned)
    table = Table(title=f"the front of {choices.fitness} and {GUARD}; taken: {choices.prefer}")
    table.add_column("", justify="right")
    for part in PARTS:
        for metric in (choices.fitness, GUARD):
            table.add_column(f"{part} {metric}", justify="right")
    table.add_column("score function", overflow="fold")
    front = len(learned.best.front)
    for place, row in enumerate(rows, start=1):
        values = [f"{row.values[part][metric]:.4f}" for part in PARTS for metric in (choices.fitness, GUARD)]
        table.add_row(
            row.name, *values, readable(row.text), style="bold" if row.taken else None,
            end_section=place == front,
        )  # fmt: skip
    console.print(table)
    try:
        _write_table(rows, directory / f"{NAME}.csv", choices.fitness)
        figure = draw_front(rows, choices.fitness)
        with matplotlib.rc_context(OPTIONS):
            figure.savefig(directory / f"{NAME}.png")
            figure.savefig(directory / f"{NAME}.svg", metadata={"Date": None})
    except OSError as error:
        raise LearningError(f"cannot write to {str(directory)!r}: {error.strerror}") from error
    console.print(f"Score files, {NAME}.csv, {NAME}.png and {NAME}.svg are in {directory}", highlight=False)
    console.print()


def _write_table(rows: list[Row], path: Path, fitness: str) -> None:
    pairs = [(part, metric) for part in PARTS for metric in (fitness, GUARD)]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["function", "taken", *(f"{part} {metric}" for part, metric in pairs), "expression"])
        for row in rows:
            values = (row.values[part][metric] for part, metric in pairs)
            writer.writerow([row.name, int(row.taken), *values, row.text])


def draw_front(rows: list[Row], fitness: str) -> Figure:
    """Draw the test values: the front as a line, its functions by number, the named ones by name."""
    learned, named, taken = STYLES[0][0], STYLES[6][0], STYLES[1][0]
    front = [row for row in rows if row.name.isdigit()]
    places = {row.name: (row.values["test"][fitness], row.values["test"][GUARD]) for row in rows}
    with matplotlib.rc_context(OPTIONS):
        figure = Figure(figsize=(8.0, 5.0), dpi=150)
        axes: Axes = figure.subplots()
        line = sorted(places[row.name] for row in front)
        axes.plot(*zip(*line, strict=True), color=learned, linewidth=1.2, marker="o", markersize=5)
        for row in rows:
            x, y = places[row.name]
            if row.taken:
                axes.plot([x], [y], color=taken, marker="o", markersize=9)
            elif row not in front:
                axes.plot([x], [y], color=named, marker="s", markersize=4.5)
        low, high = axes.get_ylim()
        right = axes.get_xlim()[1]
        heights = spread([places[row.name][1] for row in rows], GAP * (high - low))
        for row, height in zip(rows, heights, strict=True):
            colour = taken if row.taken else learned if row in front else named
            axes.annotate(
                f"{row.name} (taken)" if row.taken else row.name, places[row.name], xytext=(right, height),
                color=colour, va="center", fontsize=8, fontweight="bold", annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4, "alpha": 0.5},
            )  # fmt: skip
        heading = METRICS[fitness].heading if fitness in METRICS else fitness
        axes.set_xlabel(f"{heading}, test pages and cycles")
        axes.set_title(f"{METRICS[GUARD].heading}, test pages and cycles", loc="left", fontsize=11)
        axes.grid(color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        figure.subplots_adjust(left=0.09, right=0.8, top=0.92, bottom=0.11)
    return figure
