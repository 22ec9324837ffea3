"""Tables and figure of `training.evaluate`: score functions, leaderboard, replays of growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrapy_gp4c.scoring.named import NAMED
from training.comparing.evaluation import Evaluation, Result
from training.comparing.leaderboard import FRONT, Leaderboard
from training.comparing.statistics import Mean
from training.replaying.baselines import BASELINES
from training.replaying.growth import GrowthResult
from training.replaying.metrics import CONTENTS, KNOWN, METRICS, ORACLE, TRIO, WEIGHTED
from training.replaying.replay import policy_of
from training.reporting.figures import Point, Scatter

SHOWN: Final = (*TRIO, "harmonic_staleness", "age")
"""Metrics in the table, after those of contents; the files have all of `METRICS`."""
UNWEIGHTED: Final = {"change_rate": "weighted_change_rate", "ndcg": "weighted_ndcg"}
"""Metric -> its weighted counterpart in a table with weights."""
COMPARED: Final = ("ndcg", "freshness")
"""Metrics of a leaderboard's leads over the reference."""
NAME_WIDTH: Final = 24
"""Fixed: on a narrow terminal the figures break, not the names."""


def table(evaluation: Evaluation) -> Table:
    """The results as a table for the terminal."""
    measured = evaluation.results[0].metrics
    shown = [name for name in (*CONTENTS, *SHOWN) if name in measured]
    if not WEIGHTED.keys().isdisjoint(measured):
        shown = [UNWEIGHTED.get(name, name) for name in shown]
    out = Table("score function", *(KNOWN[name].name for name in shown))
    labels = [_label(result, evaluation.settings.policy) for result in evaluation.results]
    out.columns[0].width = min(max(map(len, labels)), NAME_WIDTH)
    for column in out.columns[1:]:
        column.justify = "right"
    for label, result in zip(labels, evaluation.results, strict=True):
        cells = []
        for name in shown:
            mean, half_width, _ = result.metrics[name]
            cells.append(f"{mean:.4f}" + ("" if half_width is None else f" ± {half_width:.4f}"))
        out.add_row(Text(label, overflow="fold"), *cells)
    return out


def _label(result: Result, policy: str) -> str:
    """Score function, and its policy if that is not the crawl's."""
    is_told = result.policy in (None, policy) or result.score.endswith(str(result.policy))
    return result.score if is_told else f"{result.score}, {result.policy}"


def leaderboard_table(board: Leaderboard) -> Table:
    """The rows of a leaderboard as a table for the terminal; those on the front stand out."""
    out = Table("score function or policy", "front", *(METRICS[name].name for name in TRIO))
    for name in COMPARED:
        out.add_column(f"{METRICS[name].name} ahead")
    for column in out.columns[2:]:
        column.justify = "right"
    out.add_column("source")
    policy = board.evaluations[0].settings.policy
    for row in board.rows:
        cells = [_interval(row.metrics[name].mean) for name in TRIO]
        gaps = [row.metrics[name].ahead for name in COMPARED]
        cells += ["" if gap is None else _interval(gap, "+") for gap in gaps]
        style = "bold" if row.on_front else None
        out.add_row(
            Text(_label(row.result, policy), overflow="fold"),
            "●" if row.on_front else "",
            *cells,
            row.source,
            style=style,
        )
    return out


def _interval(mean: Mean, sign: str = "") -> str:
    text = f"{mean.mean:{sign}.4f}"
    return text if math.isnan(mean.half_width) else f"{text} ± {mean.half_width:.4f}"


def show(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation with its settings."""
    seed = f"seed {evaluation.settings.seed}"
    console.print(
        f"{_heading(evaluation, seed)}; mean ± half-width of the 95% interval over cycles",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    console.print(table(evaluation))


def show_leaderboard(board: Leaderboard, console: Console) -> None:
    """Print a leaderboard with its settings."""
    seeds = [one.settings.seed for one in board.evaluations]
    one = len(seeds) == 1
    text = f"seed {seeds[0]}" if one else f"seeds {seeds[0]} to {seeds[-1]}"
    first, other = (METRICS[name].name for name in FRONT)
    console.print(
        f"{_heading(board.evaluations[0], text)}; mean ± half-width of the 95% interval over "
        f"{'cycles' if one else 'seeds'}; ahead: of {board.reference!r}, paired; "
        f"●: on the front of {first} and {other}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    console.print(leaderboard_table(board))
    shown = {row.name for row in board.rows}
    left_out = [name for name in NAMED if name not in shown] if shown.issuperset(BASELINES) else []
    measured = [name for name in left_out if "dq_" in NAMED[name].expression]
    unnamed = [name for name in left_out if name not in measured]
    for why, names in (("the history has no page names", unnamed), ("no log of queries is given", measured)):
        if names:
            text = f"Not replayed, because {why}: {', '.join(names)}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)


def _heading(evaluation: Evaluation, seeds: str) -> str:
    settings, about = evaluation.settings, evaluation.history
    scored = about.scored_cycles
    return (
        f"{about.source}: {about.pages:,} pages, scored cycles {scored[0]} to {scored[-1]}, "
        f"{about.changed_share:.2%} of the pages change per cycle\n"
        f"k = {settings.k:,} visits per cycle, warm-up {settings.warmup}, ties {settings.ties}, "
        f"clock {settings.clock or 'visits, or as the score file says'}, {seeds}"
        f"{'' if settings.policy == policy_of(None) else f', policy {settings.policy}'}"
    )


COLUMNS: Final = ("discovery", "change rate", "delay", "90th pct.", "never found", "coverage")


class GrowthRow(NamedTuple):
    """One replay in figures."""

    score: str
    discovery: float
    change_rate: float
    weighted_change_rate: float
    delay_cycles: float
    """Mean delay between birth and first visit."""
    delay_p90_cycles: float
    missed: int
    coverage: float
    current: float
    hub_visits: float
    """Mean visits per cycle for discovery."""


def row_of(score: str, discovery: float, result: GrowthResult) -> GrowthRow:
    """The figures of a replay: means over the cycles after the warm-up."""
    delay = result.delay if len(result.delay) else np.zeros(1)
    return GrowthRow(
        score,
        discovery,
        result.change_rate,
        result.weighted_change_rate,
        float(delay.mean()),
        float(np.quantile(delay, 0.9)),
        result.missed,
        float(result.coverage.mean()),
        float(result.current.mean()),
        float(result.hubs.mean()),
    )


def show_growth(title: str, rows: Sequence[GrowthRow], console: Console, *, weighted: bool = False) -> None:
    """Print the table; ``weighted``: with the change rate by weights."""
    table = Table(title=title, title_justify="left")
    table.add_column("score function")
    for name in (*COLUMNS, "current copies", "hub visits"):
        is_rate = weighted and name == "change rate"
        table.add_column("weighted change rate" if is_rate else name, justify="right")
    for row in rows:
        shares = (f"{row.coverage:.3f}", f"{row.current:.3f}", f"{row.hub_visits:.1f}")
        delays = (f"{row.delay_cycles:.2f}", f"{row.delay_p90_cycles:.1f}", f"{row.missed:,}")
        rate = row.weighted_change_rate if weighted else row.change_rate
        table.add_row(row.score, f"{row.discovery:.0%}", f"{rate:.3f}", *delays, *shares)
    console.print(table)


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
