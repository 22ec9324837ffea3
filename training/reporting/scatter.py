"""Points with names, and the front of the best of them as a line: PNG or SVG files (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from scrapy_gp4c.errors import HistoryError
from training.comparing.leaderboard import FRONT, Leaderboard
from training.replaying.baselines import BASELINES
from training.replaying.metrics import METRICS, ORACLE
from training.reporting.figures import OPTIONS, STYLES, save

SUFFIXES: Final = (".png", ".svg")
NEAR: Final = 0.004
"""Points closer than this, in parts of both axes, share a label."""
TEXT_POINTS: Final = 8.0
"""Size of the labels."""
LETTER_WIDTH: Final = 0.6
"""Of a letter, in parts of that, on average and in bold type."""
DISTANCES: Final = (5.0, 14.0, 24.0, 36.0)
"""Of a name from its point, in points: the nearest that is free is taken."""
Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in points."""


class Point(NamedTuple):
    """One thing in the plane."""

    name: str
    x: float
    y: float
    kind: str
    """Points of one kind look alike."""
    on_front: bool


class Scatter(NamedTuple):
    """Points in a plane in which up and right are better; both axes are shares."""

    title: str
    x_label: str
    y_label: str
    points: list[Point]


def of_leaderboard(board: Leaderboard) -> Scatter:
    """Change rate over freshness, all rows but the oracle."""
    y, x = FRONT
    about, settings = board.evaluations[0].history, board.evaluations[0].settings
    points = [
        Point(
            row.name,
            row.metrics[x].mean.mean,
            row.metrics[y].mean.mean,
            "policies of others" if row.name in BASELINES else "named functions",
            row.on_front,
        )
        for row in board.rows
        if row.name != ORACLE
    ]
    title = f"{Path(about.source).name}: {settings.k:,} of {about.pages:,} pages per cycle"
    return Scatter(title, METRICS[x].heading, METRICS[y].heading, points)


def draw(scatter: Scatter) -> Figure:
    """Draw it; up and right is better."""
    with matplotlib.rc_context(OPTIONS):
        figure = Figure(figsize=(8.0, 5.6), dpi=150)
        axes: Axes = figure.subplots()
        figure.subplots_adjust(left=0.09, right=0.97, top=0.92, bottom=0.1)
        front = sorted((point for point in scatter.points if point.on_front), key=lambda point: point.x)
        axes.plot([p.x for p in front], [p.y for p in front], color="#6B6B6B", linewidth=1.2, label="front")
        kinds = list(dict.fromkeys(point.kind for point in scatter.points))
        for kind, (colour, _, marker) in zip(kinds, STYLES, strict=False):
            ours = [point for point in scatter.points if point.kind == kind]
            axes.scatter(
                [p.x for p in ours], [p.y for p in ours], color=colour, marker=marker, s=26, label=kind,
                zorder=3,
            )  # fmt: skip
        axes.margins(0.12, 0.08)
        axes.set_xlabel(scatter.x_label, loc="left")
        axes.set_ylabel(scatter.y_label)
        axes.set_title(scatter.title, loc="left", fontsize=11)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.legend(
            frameon=False, loc="upper right", bbox_to_anchor=(1.0, -0.05), ncols=3, fontsize=TEXT_POINTS
        )
        _label(axes, scatter.points)
    return figure


def write(scatter: Scatter, path: Path) -> None:
    """Write a figure, of the kind that the path's suffix names. Raises HistoryError where it cannot."""
    if path.suffix not in SUFFIXES:
        raise HistoryError(f"a figure is named *{', *'.join(SUFFIXES)}; found {path}")
    try:
        save(draw(scatter), path)
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror or error}") from error


def _label(axes: Axes, points: Sequence[Point]) -> None:
    """Name every point where its name covers no other point or name, as far as there is such a place."""
    per_point = axes.figure.dpi / 72.0
    at: Any = axes.transData.transform([(point.x, point.y) for point in points]) / per_point
    left, bottom, right, top = (edge / per_point for edge in axes.get_window_extent().extents)
    near = NEAR * np.array([right - left, top - bottom])
    names = Names([(x - 3.0, y - 3.0, x + 3.0, y + 3.0) for x, y in at], (left, bottom, right, top))
    named: set[int] = set()
    for number, point in enumerate(points):
        if number in named:
            continue
        same = [other for other in range(len(points)) if (np.abs(at[other] - at[number]) <= near).all()]
        named.update(same)
        text = ", ".join(points[other].name for other in same)
        offset, far = names.place(float(at[number][0]), float(at[number][1]), text)
        axes.annotate(
            text, (point.x, point.y), xytext=offset, textcoords="offset points", fontsize=TEXT_POINTS,
            fontweight="bold" if any(points[other].on_front for other in same) else "normal",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6} if far else None,
        )  # fmt: skip


class Names:
    """Places for names beside their points."""

    def __init__(self, taken: Sequence[Box], within: Box) -> None:
        """Know what must not be covered, and where names should stay; in points."""
        self.taken = list(taken)
        self._within = within

    def place(self, x: float, y: float, text: str) -> tuple[tuple[float, float], bool]:
        """Where a text covers least: its offset from a point, and whether it is so far that a line must lead
        to it; the place is taken from then on."""
        width, height = LETTER_WIDTH * TEXT_POINTS * len(text), TEXT_POINTS
        offsets = [
            offset
            for far in DISTANCES
            for offset in (
                (far, -height / 2), (-far - width, -height / 2), (-width / 2, far),
                (-width / 2, -far - height), (far, far), (far, -far - height), (-far - width, far),
                (-far - width, -far - height),
            )
        ]  # fmt: skip
        boxes = [(x + dx, y + dy, x + dx + width, y + dy + height) for dx, dy in offsets]
        outside = [width * height - _shared(box, self._within) for box in boxes]
        costs = [
            sum(_shared(box, other) for other in self.taken) + beyond
            for box, beyond in zip(boxes, outside, strict=True)
        ]
        best = int(np.argmin(np.round(costs, 6)))
        self.taken.append(boxes[best])
        return offsets[best], best >= len(offsets) // len(DISTANCES)


def _shared(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
