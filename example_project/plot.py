"""The picture of the demo: change rate, share of current copies and visits, day by day, for each crawl."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

# Okabe and Ito's palette: told apart by colour-blind readers; line styles serve black-and-white print.
STYLES = {
    "default": ("#0072B2", "-"),
    "age": ("#D55E00", "--"),
    "random": ("#6B6B6B", "-."),
    "learned": ("#009E73", "-"),
    "control": ("#CC79A7", ":"),
    "user-centric": ("#009E73", "-."),
}
SPARE_STYLES = (("#E69F00", "-"), ("#56B4E9", "--"), ("#000000", ":"))  # in turn, of further crawls
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
RUNNING_DAYS = 5
Series = Mapping[str, NDArray[np.float64]]
LABEL_GAP = 0.055  # least distance of two labels, in parts of the axis


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
    """Return colour and line style of one of the crawls, the same in every panel."""
    further = [name for name in crawls if name not in STYLES]
    return STYLES.get(crawl) or SPARE_STYLES[further.index(crawl) % len(SPARE_STYLES)]


def _curves(
    axes: Axes, series: Series, days: NDArray[np.int64], name: str, labels: Mapping[str, str]
) -> None:
    ends = {}
    for crawl, values in series.items():
        if not np.isfinite(values).any():
            continue
        colour, style = style_of(crawl, list(series))
        if name == "change_rate":
            axes.plot(days, values, color=colour, linewidth=1, alpha=0.35)
            values = np.where(np.isfinite(values), running_mean(values), np.nan)
        axes.plot(days, values, color=colour, linestyle=style, linewidth=2.4)
        ends[crawl] = float(values[np.isfinite(values)][-1])
    if name == "visited" or not ends:  # visits are alike at the end
        return
    low, high = axes.get_ylim()
    heights = spread(list(ends.values()), LABEL_GAP * (high - low))
    for crawl, height in zip(ends, heights, strict=True):
        axes.annotate(
            labels.get(crawl, crawl),
            (days[-1], height),
            xytext=(8, 0),
            textcoords="offset points",
            color=style_of(crawl, list(series))[0],
            va="center",
            fontweight="bold",
            annotation_clip=False,
        )


def draw(
    path: Path,
    values: Mapping[str, Series],
    first_ranked_day: int,
    title: str,
    first_learned_day: int | None = None,
    panels: Mapping[str, str] = PANELS,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the picture as PNG.

    Args:
        path: where to write it.
        values: per name of ``panels``, per crawl, the numbers of the days 1..D, float64 [D], nan on days
            without one.
        first_ranked_day: the first day on which the budget applied.
        title: the message of the picture.
        first_learned_day: the first day after the collection; None: there is none.
        panels: name to label, from the top.
        labels: what a crawl is called beside its curve, if not by its name.
    """
    days = np.arange(1, len(next(iter(values["current"].values()))) + 1)
    plt.rcParams.update({"font.size": 10.5, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 9), sharex=True, dpi=120, height_ratios=[5, 5, 3])
    for one, (name, label) in zip(axes, panels.items(), strict=True):
        series = dict(values[name])
        start = first_ranked_day if name == "change_rate" and first_ranked_day <= days[-1] else 1
        if name == "change_rate" and LEARNER in series and first_learned_day is not None:
            # While it collects, it visits every page: its change rate is no ranking's.
            series[LEARNER] = np.where(days < first_learned_day, np.nan, series[LEARNER])
        _limits(one, name, series, start)
        shown = {crawl: numbers[start - 1 :] for crawl, numbers in series.items()}
        _curves(one, shown, days[start - 1 :], name, labels)
        one.set_title(label, loc="left", fontsize=10.5)
        one.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        one.set_axisbelow(True)
        if first_ranked_day <= days[-1]:
            one.axvspan(0.5, first_ranked_day - 0.5, color="#F1F1F1", zorder=0, linewidth=0)
        if first_learned_day is not None:
            one.axvline(first_learned_day - 0.5, color="#333333", linewidth=1)
    above, below = axes[0], axes[-1]
    note = {"ha": "center", "va": "center", "color": "#555555", "fontsize": 9}
    middle = sum(above.get_ylim()) * 0.5
    above.text(first_ranked_day / 2, middle, "warm-up:\nevery\npage is\nvisited", **note)
    if first_learned_day is not None:
        note["ha"] = "right"
        text = f"day {first_learned_day}: collected,\nnow 5% like the others "
        axes[2].text(first_learned_day - 0.6, sum(axes[2].get_ylim()) * 0.5, text, **note)
    below.set_xlabel(f"day (bold lines at the top: mean of up to {RUNNING_DAYS} days)")
    below.set_xlim(0.5, days[-1])
    below.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    longest = max(len(line) for crawl in values["current"] for line in labels.get(crawl, crawl).splitlines())
    right = 0.89 - 0.012 * max(0, longest - 7)
    figure.subplots_adjust(left=0.08, right=right, top=0.92, bottom=0.06, hspace=0.16)
    figure.savefig(path)
    plt.close(figure)


def _limits(axes: Axes, name: str, series: Series, start: int) -> None:
    least = min(float(np.nanmin(v, initial=1.0)) for v in series.values())
    most = max(float(np.nanmax(v[start - 1 :], initial=0.05)) for v in series.values())
    if name == "visited":
        axes.set_ylim(0, most * 1.08)
        axes.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
        return
    if name == "quality":
        axes.set_ylim(1.0 - 1.1 * (1.0 - least), 1.0 + 0.05 * (1.0 - least))
        axes.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:.3f}"))
        return
    axes.set_ylim(0.0 if name == "change_rate" else least - 0.03, min(1.0, most * 1.08))
    axes.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0, decimals=0))
