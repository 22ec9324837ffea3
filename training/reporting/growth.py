"""Replays of growth as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from training.evolution.discovery import REPLAYS, LearnedDiscovery
from training.replaying.growth import GrowthResult

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


def show_discovery(learned: LearnedDiscovery, source: str, console: Console) -> None:
    """Print what was learned beside what a crawl does otherwise: current copies part by part, and delays."""
    first, second = learned.ends
    table = Table(
        title=f"{source}: {learned.replays:,} discovery functions, {REPLAYS} replays each; current copies by "
        "cycles, the rest over all of them",
        title_justify="left",
    )
    table.add_column("discovery function", overflow="fold")
    for name in (f"learned from, to {first}", f"chosen by, to {second}", "after", *COLUMNS[2:4], COLUMNS[-1]):
        table.add_column(name, justify="right")
    for one in dict.fromkeys((learned.best.text, learned.default.text)):
        candidate = learned.best if one == learned.best.text else learned.default
        delay = candidate.replayed.delay
        parts = (f"{share:.4f}" for share in (candidate.training, candidate.validation, candidate.test))
        delays = (f"{delay.mean():.2f}", f"{np.quantile(delay, 0.9):.1f}")
        table.add_row(one, *parts, *delays, f"{candidate.replayed.coverage:.3f}")
    console.print(table)
