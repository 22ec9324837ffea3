"""What the demo prints: the days as they go by, and what came of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from training.comparing.statistics import mean as mean_of

from .crawls import BUDGET, Row, Series, by_day

STEPS = "▁▂▃▄▅▆▇█"
FIRST_CURVE_DAY = 3  # nothing can have changed on day 1, and a curve has two points


def percent(share: float) -> str:
    """Return a share for people; a dash for nan."""
    return "-" if np.isnan(share) else f"{share:.1%}"


def number(value: float) -> str:
    """Return an NDCG for people; a dash for nan."""
    return "-" if np.isnan(value) else f"{value:.3f}"


def days_table(rows: Sequence[Row], limit: int) -> Table:
    """Return the table of the last ``limit`` rows; a line ends each day."""
    table = Table(title=f"{BUDGET:.0%} of the known pages may be revisited per day")
    for name in ("day", "score", "known", "visited", "changed", "change rate", "NDCG", "current copies"):
        table.add_column(name, justify="left" if name == "score" else "right")
    shown = rows[-limit:]
    for row, after in zip(shown, [*shown[1:], None], strict=True):
        table.add_row(
            str(row.day),
            row.score,
            f"{row.known:,}",
            f"{row.visited:,}",
            f"{row.changed:,}",
            percent(row.change_rate),
            number(row.ndcg),
            percent(row.current),
            end_section=after is None or after.day != row.day,
        )
    return table


def curve(values: NDArray[np.float64], low: float, high: float) -> str:
    """Return a curve as letters, one for each value, from ``low`` to ``high``; a blank for nan."""
    steps = np.clip((values - low) / max(high - low, 1e-9) * len(STEPS), 0, len(STEPS) - 1)
    return "".join(" " if np.isnan(step) else STEPS[int(step)] for step in steps)


def curves_table(series: Sequence[Series], days: int) -> Table:
    """Return the curves of the days from the second on: change rates, and current copies."""
    table = Table(title=f"Days 2 to {days}", show_lines=False)
    table.add_column("score")
    shown = []
    for name in ("change_rate", "current"):
        values = {score: by_series[1:] for score, by_series in by_day(series, name, days).items()}
        every = np.concatenate([*values.values()])
        low, high = (0.0 if name == "change_rate" else np.nanmin(every)), np.nanmax(every)
        table.add_column(f"{name.replace('_', ' ')}, {percent(low)} to {percent(high)}", no_wrap=True)
        shown.append({score: curve(by_series, low, high) for score, by_series in values.items()})
    for one in series:
        table.add_row(one.score, *(curves[one.score] for curves in shown))
    return table


def mean(rows: Sequence[Row], name: str) -> float:
    """Return the mean of a number over rows that have it; nan without any."""
    values = [value for row in rows if not np.isnan(value := getattr(row, name))]
    return float(np.mean(values)) if values else float("nan")


def summary_table(series: Sequence[Series], days: range) -> Table:
    """Return the means over some days, the visits that all days took, and the changes that all found."""
    table = Table(title=f"Means over days {days[0]} to {days[-1]}")
    columns = ("visited per day", "change rate", "NDCG", "current copies", "visits of all days", "changes")
    for name in ("score", *columns):
        table.add_column(name, justify="left" if name == "score" else "right")
    for one in series:
        rows = [row for row in one.rows if row.day in days]
        judged = sum(row.judged for row in rows)
        table.add_row(
            one.score,
            f"{mean(rows, 'visited'):,.0f}",
            percent(sum(row.changed for row in rows) / judged if judged else float("nan")),
            number(mean(rows, "ndcg")),
            percent(mean(rows, "current")),
            f"{sum(row.visited for row in one.rows):,}",
            f"{sum(row.changed for row in one.rows):,}",
        )
    return table


def leads(series: Sequence[Series], ours: str, days: range) -> str:
    """Return how far one crawl is ahead of each other one, paired by day, with 95% intervals."""

    def values(one: Series, name: str) -> NDArray[np.float64]:
        return np.array([getattr(row, name) for row in one.rows if row.day in days])

    our_series = next(one for one in series if one.score == ours)
    lines = []
    for name, shown in (("ndcg", "NDCG"), ("current", "the share of current copies")):
        results = []
        for one in series:
            if one is not our_series:
                leads_of_days = values(our_series, name) - values(one, name)
                lead = mean_of(leads_of_days[np.isfinite(leads_of_days)])
                results.append(f"{one.score} {lead.mean:+.3f} ± {lead.half_width:.3f}")
        lines.append(f"{ours} ahead in {shown}: of {', '.join(results)} (means over the days, paired; 95%)")
    return "\n".join(lines)


def detection(rows: Sequence[Row]) -> str:
    """Return what the fingerprints found, against the truth."""
    judged, changed = sum(row.judged for row in rows), sum(row.changed for row in rows)
    missed, false_alarms = sum(row.missed for row in rows), sum(row.false_alarms for row in rows)
    real = changed - false_alarms + missed
    return (
        f"Change detection against the truth: {real - missed:,} of {real:,} changes found, "
        f"{false_alarms:,} false alarms in {judged - real:,} visits of unchanged pages."
    )
