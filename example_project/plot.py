"""The picture of the demo: change rate, share of current copies and visits, day by day, for each crawl."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

# Okabe and Ito's palette: told apart by colour-blind readers; line styles serve black-and-white print.
STYLES = {
    "default": ("#0072B2", ""),
    "age": ("#D55E00", "9 4"),
    "random": ("#6B6B6B", "9 3 2 3"),
    "learned": ("#009E73", ""),
    "control": ("#CC79A7", "2 3"),
    "user-centric": ("#009E73", "9 3 2 3"),
}
"""Colour and dashes of a crawl's line."""
SPARE_STYLES = (("#E69F00", ""), ("#56B4E9", "9 4"), ("#000000", "2 3"))  # in turn, of further crawls
LEARNER = "learned"
PANELS = {
    "change_rate": "change rate: changed / revisited",
    "current": "share of copies that are current",
    "visited": "visits per day",
}
SEARCH_PANELS = {
    "quality": "search quality: what users find in the copies, to what they would find on the web",
    "current": PANELS["current"],
    "change_rate": PANELS["change_rate"],
}
FORMATS = {"visited": "{:,.0f}", "quality": "{:.3f}"}
"""Name of a panel -> format of its values; others are per cent."""
RUNNING_DAYS = 5
Series = Mapping[str, NDArray[np.float64]]
LABEL_GAP = 15  # least distance of two labels, in pixels
WIDTH, LEFT, TOP, GAP = 900, 58, 66, 44
HEIGHTS = (270, 270, 150)
LETTER = 8.2
"""Width of a bold letter, in pixels."""
NOTE = 'text-anchor="middle" fill="#555555"'


def running_mean(values: NDArray[np.float64], days: int = RUNNING_DAYS) -> NDArray[np.float64]:
    """Return the mean of up to ``days`` values that end at each, [D]; days without a value are left out."""
    windows = [values[max(0, end - days) : end] for end in range(1, values.size + 1)]
    return np.array([np.nanmean(w) if np.isfinite(w).any() else np.nan for w in windows])


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return label heights as near as possible to the wanted ones, in their order, ``gap`` or more apart.

    With the gaps taken out this is isotonic regression: pool adjacent violators (Barlow et al. 1972).
    """
    order = np.argsort(heights, kind="stable")
    pools: list[list[float]] = []
    for position, label in enumerate(order):
        pools.append([heights[label] - gap * position])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    result = np.empty(len(order))
    result[order] = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])
    result[order] += gap * np.arange(len(order))
    return [float(height) for height in result]


def style_of(crawl: str, crawls: Sequence[str]) -> tuple[str, str]:
    """Return colour and dashes of one of the crawls, the same in every panel."""
    further = [name for name in crawls if name not in STYLES]
    return STYLES.get(crawl) or SPARE_STYLES[further.index(crawl) % len(SPARE_STYLES)]


class Panel:
    """A panel of the picture: its SVG elements, placed by values of its axes."""

    def __init__(self, top: int, height: int, right: float, days: int, low: float, high: float) -> None:
        """``top``, ``height``, ``right``: in pixels; ``days``, ``low``, ``high``: ends of the axes."""
        self.top, self.bottom, self.right = top, top + height, right
        self.low, self.high = low, high
        self._days = days
        self.parts: list[str] = []

    def x(self, day: float) -> float:
        """Pixel of a day; the axis begins half a day before the first."""
        return LEFT + (day - 0.5) / (self._days - 0.5) * (self.right - LEFT)

    def y(self, value: float) -> float:
        """Pixel of a value."""
        return self.bottom - (value - self.low) / (self.high - self.low) * (self.bottom - self.top)

    def text(self, x: float, y: float, text: str, style: str) -> None:
        """Write a text, around the height ``y`` where it has several lines."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            height = y + 14 * (number - (len(lines) - 1) / 2) + 4
            self.parts.append(f'<text x="{x:.1f}" y="{height:.1f}" {style}>{escape(line)}</text>')

    def rule(self, x: float, y: float, to_x: float, to_y: float, style: str) -> None:
        """Draw a straight line."""
        self.parts.append(f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" {style}/>')

    def curve(self, days: NDArray[np.int64], values: NDArray[np.float64], style: str) -> None:
        """Draw a line through the days that have a value."""
        points = zip(days.tolist(), values.tolist(), strict=True)
        drawn = " ".join(f"{self.x(day):.1f},{self.y(value):.1f}" for day, value in points if value == value)
        self.parts.append(f'<polyline points="{drawn}" fill="none" stroke-linejoin="round" {style}/>')


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers from ``low`` to ``high`` for an axis, at most ``most`` of them."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if (high - low) / (factor * step) < most - 1e-8)
    return [
        step * number for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def draw(
    path: Path,
    values: Mapping[str, Series],
    first_ranked_day: int,
    title: str,
    first_learned_day: int | None = None,
    panels: Mapping[str, str] = PANELS,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the picture as SVG.

    Args:
        path: where to write it.
        values: name of a panel -> crawl -> its values on days 1..D, float64 [D], nan where it has none.
        first_ranked_day: the first day on which the budget applied.
        title: heading of the picture.
        first_learned_day: the first day after the collection; None: there is none.
        panels: name -> label, from the top.
        labels: crawl -> text beside its curve, by default its name.
    """
    days = np.arange(1, len(next(iter(values["current"].values()))) + 1)
    last = int(days[-1])
    right = WIDTH - 20 - LETTER * max(len(labels.get(crawl, crawl)) for crawl in values["current"])
    top, drawn = TOP, list[Panel]()
    for (name, label), height in zip(panels.items(), HEIGHTS, strict=True):
        series = dict(values[name])
        start = first_ranked_day if name == "change_rate" and first_ranked_day <= last else 1
        if name == "change_rate" and LEARNER in series and first_learned_day is not None:
            # While it collects, it visits every page: its change rate is no ranking's.
            series[LEARNER] = np.where(days < first_learned_day, np.nan, series[LEARNER])
        panel = Panel(top, height, right, last, *_limits(name, series, start))
        if first_ranked_day <= last:
            end = panel.x(first_ranked_day - 0.5) - LEFT
            panel.parts.append(
                f'<rect x="{LEFT}" y="{top}" width="{end:.1f}" height="{height}" fill="#f1f1f1"/>'
            )
        for tick in ticks(panel.low, panel.high, 7 if height > 200 else 5):
            panel.rule(LEFT, panel.y(tick), right, panel.y(tick), 'stroke="#dddddd"')
            panel.text(LEFT - 6, panel.y(tick), FORMATS.get(name, "{:.0%}").format(tick), 'text-anchor="end"')
        panel.rule(LEFT, top, LEFT, panel.bottom, 'stroke="#333333"')
        panel.rule(LEFT, panel.bottom, right, panel.bottom, 'stroke="#333333"')
        panel.text(LEFT, top - 14, label, 'font-weight="bold"')
        _curves(
            panel, {crawl: one[start - 1 :] for crawl, one in series.items()}, days[start - 1 :], name, labels
        )
        if name == next(iter(panels)):
            middle = (panel.x(0.5) + panel.x(min(first_ranked_day - 0.5, last))) / 2
            panel.text(middle, (top + panel.bottom) / 2, "every\npage is\nvisited", NOTE)
        if first_learned_day is not None:
            x = panel.x(first_learned_day - 0.5)
            panel.rule(x, top, x, panel.bottom, 'stroke="#333333"')
            if name == "visited":
                text = f"day {first_learned_day}: collected,\nnow the budget of the others"
                panel.text(x - 6, (top + panel.bottom) / 2, text, NOTE.replace("middle", "end"))
        drawn.append(panel)
        top = panel.bottom + GAP
    for tick in ticks(1, last, 16) if last > 1 else [1]:
        panel.text(panel.x(tick), panel.bottom + 14, f"{tick:.0f}", 'text-anchor="middle"')
    below = f"day (bold lines of the change rate: mean of up to {RUNNING_DAYS} days)"
    panel.text((LEFT + right) / 2, panel.bottom + 34, below, 'text-anchor="middle"')
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 6}" width="{WIDTH}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#222222">',
        f'<rect width="{WIDTH}" height="{top + 6}" fill="#ffffff"/>',
        f'<text x="12" y="26" font-size="15" font-weight="bold">{escape(title)}</text>',
        *(part for one in drawn for part in one.parts),
        "</svg>\n",
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _curves(
    panel: Panel, series: Series, days: NDArray[np.int64], name: str, labels: Mapping[str, str]
) -> None:
    ends = {}
    for crawl, values in series.items():
        if not np.isfinite(values).any():
            continue
        colour, dashes = style_of(crawl, list(series))
        if name == "change_rate":
            panel.curve(days, values, f'stroke="{colour}" stroke-opacity="0.35"')
            values = np.where(np.isfinite(values), running_mean(values), np.nan)
        panel.curve(
            days, values, f'stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes or "none"}"'
        )
        ends[crawl] = panel.y(float(values[np.isfinite(values)][-1]))
    if name == "visited" or not ends:  # visits are alike at the end
        return
    for crawl, height in zip(ends, spread(list(ends.values()), LABEL_GAP), strict=True):
        style = f'fill="{style_of(crawl, list(series))[0]}" font-weight="bold"'
        panel.text(panel.right + 8, height, labels.get(crawl, crawl), style)


def _limits(name: str, series: Series, start: int) -> tuple[float, float]:
    """Return the ends of a panel's axis."""
    least = min(float(np.nanmin(v, initial=1.0)) for v in series.values())
    most = max(float(np.nanmax(v[start - 1 :], initial=0.05)) for v in series.values())
    if name == "visited":
        return 0.0, most * 1.08
    if name == "quality":
        return 1.0 - 1.1 * max(1.0 - least, 1e-3), 1.0 + 0.05 * (1.0 - least)
    return (0.0 if name == "change_rate" else max(least - 0.03, 0.0)), min(1.0, most * 1.08)
