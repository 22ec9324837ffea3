"""Tables that the demo prints: the days so far, and the results."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scrapy_gp4c.commands.action import table_lines

from .crawls import Row, Series, by_day

STEPS = "▁▂▃▄▅▆▇█"


def percent(share: float) -> str:
    """Return a share for people; a dash for nan."""
    return "-" if np.isnan(share) else f"{share:.1%}"


def number(value: float) -> str:
    """Return an NDCG for people; a dash for nan."""
    return "-" if np.isnan(value) else f"{value:.3f}"


def curve(values: NDArray[np.float64], low: float, high: float) -> str:
    """Return a curve as letters, one for each value, from ``low`` to ``high``; a blank for nan."""
    steps = np.clip((values - low) / max(high - low, 1e-9) * len(STEPS), 0, len(STEPS) - 1)
    return "".join(" " if np.isnan(step) else STEPS[int(step)] for step in steps)


def titled(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table below its title; the first row is its header, the first column to the left."""
    return "\n".join(["", title, *table_lines(rows, 1), ""])


def curves_table(series: Sequence[Series], days: int) -> str:
    """Return a table of curves in letters from day 2 on: each crawl's change rate, and current copies."""
    columns = [("score", *(one.score for one in series))]
    for name in ("change_rate", "current"):
        values = {score: by_series[1:] for score, by_series in by_day(series, name, days).items()}
        every = np.concatenate([*values.values()])
        low, high = (0.0 if name == "change_rate" else np.nanmin(every)), np.nanmax(every)
        head = f"{name.replace('_', ' ')}, {percent(low)} to {percent(high)}"
        curves = [curve(values[one.score], low, high) for one in series]
        columns.append((head, *(one.ljust(len(head)) for one in curves)))
    return titled(f"Days 2 to {days}", list(zip(*columns, strict=True)))


def mean(rows: Sequence[Row], name: str) -> float:
    """Return the mean of a number over rows that have it; nan without any."""
    values = [value for row in rows if not np.isnan(value := getattr(row, name))]
    return float(np.mean(values)) if values else float("nan")


def summary_table(series: Sequence[Series], days: range) -> str:
    """Return a table of each crawl's means over ``days``, and its visits and changes on all days."""
    table = [
        ("score", "visited per day", "change rate", "NDCG", "current copies", "visits of all days", "changes")
    ]
    for one in series:
        rows = [row for row in one.rows if row.day in days]
        judged = sum(row.judged for row in rows)
        cells = (
            f"{mean(rows, 'visited'):,.0f}",
            percent(sum(row.changed for row in rows) / judged if judged else float("nan")),
            number(mean(rows, "ndcg")),
            percent(mean(rows, "current")),
            f"{sum(row.visited for row in one.rows):,}",
            f"{sum(row.changed for row in one.rows):,}",
        )
        table.append((one.score, *cells))
    return titled(f"Means over days {days[0]} to {days[-1]}", table)


def detection(rows: Sequence[Row]) -> str:
    """Return a sentence on the true changes that fingerprints found and missed, and on false ones."""
    judged, changed = sum(row.judged for row in rows), sum(row.changed for row in rows)
    missed, false_alarms = sum(row.missed for row in rows), sum(row.false_alarms for row in rows)
    real = changed - false_alarms + missed
    return (
        f"Change detection against the truth: {real - missed:,} of {real:,} changes found, "
        f"{false_alarms:,} false alarms in {judged - real:,} visits of unchanged pages."
    )
