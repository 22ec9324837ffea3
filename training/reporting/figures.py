"""Charts: lines with intervals and points with names, drawn by Matplotlib for files and for pages.

Lines differ by colour (Okabe and Ito's palette), dash and marker, and are named at their ends. In a page the
colours are those of its style sheet, so that a chart follows a dark scheme.
"""

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from scipy.optimize import isotonic_regression

from scrapy_gp4c.errors import HistoryError

STYLES: Final = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#56B4E9", (0, (6, 1, 1, 1, 1, 1)), "v"),
    ("#E69F00", (0, (3, 1)), "P"),
    ("#6B6B6B", (0, (1, 2)), "X"),
    ("#444B54", (0, (9, 2, 2, 2)), "*"),
)
"""Colour, dash and marker of the first, second, ... line."""
OPTIONS: Final[dict[Any, Any]] = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gp4c",  # the same figure gives the same file
}
GRID: Final = "#DDDDDD"
SUFFIXES: Final = (".png", ".svg")
CSS_COLOURS: Final = {
    **{colour.lower(): f"var(--c{number})" for number, (colour, _, _) in enumerate(STYLES)},
    GRID.lower(): "var(--rule)",
    "#000000": "var(--soft)",
}
"""Colour of a figure -> that of the report's style sheet."""


class Line(NamedTuple):
    name: str
    values: list[float]
    half_widths: list[float]
    """Half widths of the 95% intervals; nan: none to draw."""


class Chart(NamedTuple):
    """Line chart; the first line is the one that matters most."""

    key: str
    """Stem of the chart's file names."""
    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    lines: list[Line]
    percent: bool
    """Whether the values are shares, shown as per cent."""
    counts: bool = False
    """Whether the values are whole numbers."""

    def text(self, value: float, digits: int = 1) -> str:
        """Text of a value of this chart for people."""
        return f"{value:,.0f}" if self.counts else shown(value, percent=self.percent, digits=digits)


def plain_line(name: str, values: Sequence[float] | npt.NDArray[np.float64]) -> Line:
    """Line without intervals."""
    return Line(name, [float(value) for value in values], [math.nan] * len(values))


def shown(value: float, *, percent: bool, digits: int = 1) -> str:
    """Text of a value for people: 71.6% if ``percent``, else by default three decimals."""
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}%}" if percent else f"{value:.{digits + 2}f}"


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """New figure, ``width`` x ``height`` inches, with axes; other options are for `Figure.subplots`."""
    layout = options.pop("layout", None)
    with matplotlib.rc_context(OPTIONS):
        figure = Figure(figsize=(width, height), dpi=150, layout=layout)
        axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def plot_lines(axes: Axes, x: Sequence[float], lines: Sequence[Line], marker_points: float = 4.0) -> None:
    """Draw lines with the bands of their intervals."""
    for number, (line, (colour, dash, marker)) in enumerate(zip(lines, STYLES, strict=False)):
        values, half = np.array(line.values), np.array(line.half_widths)
        if np.isfinite(half).any():
            low, high = values - half, values + half
            axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(
            x, values, color=colour, linestyle=dash, linewidth=1.8, marker=marker, markersize=marker_points,
            label=line.name, gid=f"line-{number}",
        )  # fmt: skip


def finish(axes: Axes, title: str = "", x_label: str = "", y_label: str = "", grid: str = "both") -> None:
    """Give the axes title, labels and grid, as all figures have them."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis=grid, color=GRID, linewidth=0.8)  # type: ignore[arg-type]  # matplotlib wants a literal
    axes.set_axisbelow(True)


class Size(NamedTuple):
    """Size of a chart and its margins, in inches."""

    name: str
    width: float
    height: float
    left: float
    right: float | None
    """Room for the names of the lines; None: as much as they need."""
    top: float
    bottom: float
    letters: int
    """Number of letters after which a line's name is wrapped."""
    text_points: float
    titled: bool


FILE: Final = Size("file", 8.0, 4.4, 0.72, None, 0.4, 0.53, 18, 10.0, True)
# In a page a point is a pixel: Matplotlib writes SVG at 72 points per inch.
WIDE: Final = Size("wide", 700 / 72, 320 / 72, 52 / 72, 170 / 72, 12 / 72, 42 / 72, 22, 12.0, False)
NARROW: Final = Size("narrow", 360 / 72, 300 / 72, 46 / 72, 96 / 72, 12 / 72, 42 / 72, 12, 12.0, False)
"""Chart of a report's page on a phone."""


def draw(chart: Chart, size: Size = FILE) -> Figure:
    figure, (axes,) = new_figure(size.width, size.height)
    low, high = limits(chart)
    lines = [
        line._replace(half_widths=_within(line, low, high)) if not chart.counts else line
        for line in chart.lines
    ]
    plot_lines(axes, chart.x, lines, 3.5)
    margin = 0.04 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    names = [textwrap.fill(line.name, size.letters) for line in chart.lines]
    inner = size.height - size.top - size.bottom
    row = 1.25 * size.text_points / 72 / inner * (high - low)
    gap = row * max(name.count("\n") + 1 for name in names)
    heights = spread([_last(line.values) for line in chart.lines], gap)
    for name, height, (colour, _, _) in zip(names, heights, STYLES, strict=False):
        axes.annotate(
            name, (chart.x[-1], height), xytext=(9, 0), textcoords="offset points", color=colour,
            va="center", fontweight="bold", fontsize=size.text_points, annotation_clip=False,
        )  # fmt: skip
    finish(axes, chart.title if size.titled else "", chart.x_label, grid="y")
    axes.xaxis.label.set_fontsize(size.text_points)
    axes.tick_params(labelsize=size.text_points)
    digits = 0 if chart.percent and high - low > 0.04 else 1
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: chart.text(value, digits)))
    if chart.counts:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.xaxis.set_major_locator(MaxNLocator(8 if size.width > 6 else 5, integer=True, min_n_ticks=1))
    right = size.right
    if right is None:
        longest = max(len(text) for name in names for text in name.split("\n"))
        right = min(0.4 * size.width, 0.32 + 0.092 * longest)
    figure.subplots_adjust(
        left=size.left / size.width,
        right=1 - right / size.width,
        top=1 - size.top / size.height,
        bottom=size.bottom / size.height,
    )
    return figure


def _within(line: Line, low: float, high: float) -> list[float]:
    """Half widths of a line's intervals, cut at the axis limits: SVG in a page has no clip paths."""
    pairs = zip(line.values, line.half_widths, strict=True)
    return [min(half, max(value - low, high - value)) if half >= 0 else half for value, half in pairs]


def _last(values: Sequence[float]) -> float:
    return next(value for value in reversed(values) if not math.isnan(value))


def limits(chart: Chart) -> tuple[float, float]:
    """Lowest and highest value of a chart, intervals included; all metrics are at least 0."""
    low, high = np.inf, -np.inf
    for one in chart.lines:
        centre = np.array(one.values)
        half = np.nan_to_num(np.array(one.half_widths))
        low, high = min(low, float(np.nanmin(centre - half))), max(high, float(np.nanmax(centre + half)))
    if max(np.nanmax(one.values) for one in chart.lines) <= 1.0:  # a share, which its interval may exceed
        low, high = max(low, 0.0), min(high, 1.0)
    if high - low < 1e-9:
        low, high = max(low - 0.01, 0.0), high + 0.01
    return low, high


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights of labels, as near as possible to the wanted ones, in their order, `gap` or more apart."""
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(order))
    result = np.empty(len(order))
    result[order] = isotonic_regression(np.asarray(heights, np.float64)[order] - steps).x + steps
    return [float(height) for height in result]


def inline(chart: Chart) -> Markup:
    """HTML of a chart: two SVGs, for wide and for narrow pages, of which the style sheet shows one."""
    return Markup("").join(_inline(chart, size) for size in (WIDE, NARROW))


def _inline(chart: Chart, size: Size) -> Markup:
    raw = io.StringIO()
    without = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context(OPTIONS):
        draw(chart, size).savefig(raw, format="svg", transparent=True, metadata=without)
    text = raw.getvalue()
    body = text[text.index(">", text.index("<svg")) + 1 :]
    # The rule of this style sheet is for all elements of a page.
    body = re.sub(r"<defs>\s*<style.*?</defs>", "", body, count=1, flags=re.S)
    body = re.sub(
        r' clip-path="[^"]*"|font-family: [^;]*; |<defs>\s*<clipPath.*?</defs>', "", body, flags=re.S
    )
    for number, line in enumerate(chart.lines[:2]):
        body = _with_titles(body, number, chart, line)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    name = f"{chart.key}-{size.name}-"
    body = re.sub(r'\b(id="|xlink:href="#)', lambda match: match[1].replace("xlink:", "") + name, body)
    body = re.sub(
        r"#[0-9a-f]{6}\b(?=[;\"])", lambda match: CSS_COLOURS.get(match[0], match[0]), body, flags=re.I
    )
    alternative = escape(f"{chart.title}. {summary(chart)}")
    return Markup(
        f'<svg class="chart {size.name}" viewBox="0 0 {72 * size.width:g} {72 * size.height:g}" role="img" '
        f'aria-label="{alternative}">{body}'
    )


def _with_titles(body: str, number: int, chart: Chart, line: Line) -> str:
    """The SVG `body` with tooltips at the markers of a line, which show their values."""
    start = body.index(f'<g id="line-{number}"')
    titles = []
    for x, value, half in zip(chart.x, line.values, line.half_widths, strict=True):
        if not math.isnan(value):
            interval = "" if math.isnan(half) else f" ± {chart.text(half)}"
            titles.append(escape(f"{line.name}, {x:g}: {chart.text(value)}{interval}"))
    after = iter(titles)
    return body[:start] + re.sub(
        r"<use ([^>]*)/>",
        lambda match: f"<use {match[1]}><title>{next(after)}</title></use>",
        body[start:],
        count=len(titles),
    )


def summary(chart: Chart) -> str:
    """Text alternative of a chart: every line's mean and range."""
    texts = []
    for line in chart.lines:
        finite = [value for value in line.values if not math.isnan(value)]
        mean, least, most = sum(finite) / len(finite), min(finite), max(finite)
        numbers = [chart.text(value) for value in (mean, least, most)]
        texts.append(f"{line.name}: mean {numbers[0]}, from {numbers[1]} to {numbers[2]}")
    return "; ".join(texts) + "."


def write_figures(figures: Mapping[str, Figure], directory: Path) -> list[Path]:
    """Write every figure as PNG and SVG into a directory; returns the paths."""
    paths = [directory / f"{name}{suffix}" for name in figures for suffix in SUFFIXES]
    for path in paths:
        save(figures[path.stem], path)
    return paths


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, as the path ends; the same figure gives the same file.

    Raises HistoryError for another ending, or where the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise HistoryError(f"a figure is named *{', *'.join(SUFFIXES)}; found {path}")
    try:
        with matplotlib.rc_context(OPTIONS):
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror or error}") from error


NEAR: Final = 0.004
"""Points closer than this, in parts of both axes, share a label."""
TEXT_POINTS: Final = 8.0
LETTER_WIDTH: Final = 0.6
"""Width of a letter, in parts of the text's size, on average and in bold type."""
DISTANCES_POINTS: Final = (5.0, 14.0, 24.0, 36.0)
"""Distances of a name from its point: the nearest that is free is taken."""
Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in points."""


class Point(NamedTuple):
    """Named point of a scatter chart."""

    name: str
    x: float
    y: float
    kind: str
    on_front: bool


class Scatter(NamedTuple):
    """Scatter chart in which up and right are better, with a line through the points of the Pareto front."""

    title: str
    x_label: str
    y_label: str
    points: list[Point]
    percent: bool = True
    """Whether both axes are shares."""


def draw_scatter(scatter: Scatter) -> Figure:
    """Figure of named points and the line through their front."""
    figure, (axes,) = new_figure(8.0, 5.6)
    figure.subplots_adjust(left=0.09, right=0.97, top=0.92, bottom=0.1)
    front = sorted((point for point in scatter.points if point.on_front), key=lambda point: point.x)
    axes.plot([p.x for p in front], [p.y for p in front], color="#6B6B6B", linewidth=1.2, label="front")
    kinds = list(dict.fromkeys(point.kind for point in scatter.points))
    for kind, (colour, _, marker) in zip(kinds, STYLES, strict=False):
        alike = [point for point in scatter.points if point.kind == kind]
        axes.scatter(
            [p.x for p in alike], [p.y for p in alike], color=colour, marker=marker, s=26, label=kind,
            zorder=3,
        )  # fmt: skip
    axes.margins(0.12, 0.08)
    finish(axes, scatter.title, y_label=scatter.y_label)
    axes.set_xlabel(scatter.x_label, loc="left")
    for axis in (axes.xaxis, axes.yaxis) if scatter.percent else ():
        axis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, -0.05), ncols=4, fontsize=TEXT_POINTS)
    _label(axes, scatter.points)
    return figure


def _label(axes: Axes, points: Sequence[Point]) -> None:
    """Write every point's name beside it, if possible where it covers no other point or name."""
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
        """``taken``: what must not be covered; ``within``: where names should stay; in points."""
        self.taken = list(taken)
        self._within = within

    def place(self, x: float, y: float, text: str) -> tuple[tuple[float, float], bool]:
        """Offset at which a name covers least, and whether the name needs a line to its point."""
        width, height = LETTER_WIDTH * TEXT_POINTS * len(text), TEXT_POINTS
        offsets = [
            offset
            for far in DISTANCES_POINTS
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
        return offsets[best], best >= len(offsets) // len(DISTANCES_POINTS)


def _shared(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
