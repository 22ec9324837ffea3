"""Charts as inline SVG that follows the colour scheme of its page (CSS classes, no scripts, no files).

The style sheet of the report gives the classes their colours: ``c0``, ``c1``, ... are the lines in order,
``grid``, ``axis`` and ``band`` what their names say. Each chart has a text alternative, and its points
tell their values when pointed at.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from markupsafe import Markup

from training.reporting import charts
from training.reporting.charts import Chart

DASHES: Final = ("", "7 4", "8 3 2 3", "2 3", "12 3", "4 2", "1 3", "9 2 2 2 2 2")
LINE_PX: Final = 15.0
"""Least distance of two labels."""
ROW_PX: Final = 13.0


class Size(NamedTuple):
    """Pixels of a chart: the same text size suits a wide page and a phone."""

    width: float
    height: float
    left: float
    right: float
    """Room for the labels."""
    letters: int
    """That a row of a label holds."""
    name: str


WIDE: Final = Size(700.0, 320.0, 52.0, 170.0, 22, "wide")
NARROW: Final = Size(360.0, 300.0, 42.0, 96.0, 12, "narrow")
TOP: Final = 12.0
BOTTOM: Final = 40.0


def chart(drawn: Chart) -> Markup:
    """Draw a line chart for wide and for narrow pages; the style sheet shows one of them."""
    return Markup("").join(_lines(drawn, size) for size in (WIDE, NARROW))


def _lines(drawn: Chart, size: Size) -> Markup:
    low, high = charts.limits(drawn)
    marks = charts.ticks(low, high, 5)
    low, high = min(low, marks[0]), max(high, marks[-1])
    bottom, right = size.height - BOTTOM, size.width - size.right
    first, last = drawn.x[0], drawn.x[-1]

    def x_of(value: float) -> float:
        return size.left + (value - first) / max(last - first, 1e-9) * (right - size.left)

    def y_of(value: float) -> float:
        return bottom - (min(max(value, low), high) - low) / (high - low) * (bottom - TOP)

    digits = max(0, -math.floor(math.log10(marks[1] - marks[0]) + 1e-9) - 2)
    parts = []
    for mark in marks:
        text = drawn.text(mark, digits)
        parts.append(f'<path class="grid" d="M{size.left:.1f} {y_of(mark):.1f}H{right:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{size.left - 7:.1f}" y="{y_of(mark) + 4:.1f}" text-anchor="end">'
            f"{text}</text>"
        )
    for value in _x_marks(drawn.x, 8 if size is WIDE else 5):
        parts.append(
            f'<text class="tick" x="{x_of(value):.1f}" y="{bottom + 17:.1f}" text-anchor="middle">'
            f"{value:g}</text>"
        )
    middle = (size.left + right) / 2
    parts.append(
        f'<text class="label" x="{middle:.1f}" y="{size.height - 5:.1f}" text-anchor="middle">'
        f"{escape(drawn.x_label)}</text>"
    )
    for index, line in reversed(list(enumerate(drawn.lines))):
        points = [(x_of(x), y_of(y)) for x, y in zip(drawn.x, line.values, strict=True) if not math.isnan(y)]
        if any(half > 0 for half in line.half_widths):
            band = [
                (x, y, h) for x, y, h in zip(drawn.x, line.values, line.half_widths, strict=True) if h >= 0
            ]
            edge = [(x_of(x), y_of(y + h)) for x, y, h in band]
            edge += [(x_of(x), y_of(y - h)) for x, y, h in reversed(band)]
            parts.append(f'<path class="band c{index}" d="{_path(edge)}Z"/>')
        dash = f' stroke-dasharray="{DASHES[index % len(DASHES)]}"' if index else ""
        strong = " strong" if index < 2 else ""
        parts.append(f'<path class="line{strong} c{index}"{dash} d="{_path(points)}"/>')
        if index < 2:
            parts.extend(_points(drawn, index, x_of, y_of))
    parts.append(f'<path class="axis" d="M{size.left:.1f} {bottom:.1f}H{right:.1f}"/>')
    names = [textwrap.wrap(line.name, size.letters) for line in drawn.lines]
    gap = LINE_PX if max(map(len, names)) == 1 else LINE_PX * 1.9
    heights = charts.spread([y_of(_last(line.values)) for line in drawn.lines], gap)
    over = max(0.0, max(heights) - (bottom + 8))
    for index, (rows, height) in enumerate(zip(names, heights, strict=True)):
        strong = " strong" if index < 2 else ""
        y = height - over + 4 - ROW_PX / 2 * (len(rows) - 1)
        for row, text in enumerate(rows):
            parts.append(
                f'<text class="name{strong} c{index}" x="{right + 9:.1f}" y="{y + ROW_PX * row:.1f}">'
                f"{escape(text)}</text>"
            )
    return _svg(size, f"{drawn.title}. {summary(drawn)}", parts)


def _last(values: Sequence[float]) -> float:
    """The last value that there is."""
    return next(value for value in reversed(values) if not math.isnan(value))


def _points(drawn: Chart, index: int, x_of: object, y_of: object) -> list[str]:
    assert callable(x_of)
    assert callable(y_of)
    line = drawn.lines[index]
    out = []
    for x, y, half in zip(drawn.x, line.values, line.half_widths, strict=True):
        if math.isnan(y):
            continue
        interval = "" if math.isnan(half) else f" ± {drawn.text(half)}"
        title = f"{line.name}, {x:g}: {drawn.text(y)}{interval}"
        out.append(
            f'<circle class="point c{index}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="2.6">'
            f"<title>{escape(title)}</title></circle>"
        )
    return out


def _svg(size: Size, alternative: str, parts: Sequence[str]) -> Markup:
    return Markup(
        f'<svg class="chart {size.name}" viewBox="0 0 {size.width:g} {size.height:g}" role="img" '
        f'aria-label="{escape(alternative)}">{"".join(parts)}</svg>'
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _x_marks(x: Sequence[float], most: int) -> list[float]:
    """Values of x that get a mark: every first, second, fifth ... one."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, len(x)) if len(x) / step <= most)
    return list(x)[::step]


def summary(drawn: Chart) -> str:
    """Say in words what the chart shows: every line's mean and range."""
    texts = []
    for line in drawn.lines:
        finite = [value for value in line.values if not math.isnan(value)]
        mean, least, most = sum(finite) / len(finite), min(finite), max(finite)
        numbers = [drawn.text(value) for value in (mean, least, most)]
        texts.append(f"{line.name}: mean {numbers[0]}, from {numbers[1]} to {numbers[2]}")
    return "; ".join(texts) + "."


def bar(value: float, half_width: float, low: float, high: float, strong: bool) -> Markup:
    """A dot with its interval on the scale low..high, for a table cell; the number stands beside it."""

    def x_of(number: float) -> float:
        return 4 + 92 * (min(max(number, low), high) - low) / max(high - low, 1e-9)

    whisker = ""
    if half_width > 0:
        whisker = (
            f'<path class="whisker" d="M{x_of(value - half_width):.1f} 8H{x_of(value + half_width):.1f}"/>'
        )
    role = "c0" if strong else "c7"
    return Markup(
        f'<svg class="dot {role}" viewBox="0 0 100 16" aria-hidden="true"><path class="grid" d="M0 8H100"/>'
        f'{whisker}<circle cx="{x_of(value):.1f}" cy="8" r="4"/></svg>'
    )
