"""What `python -m training.evaluate` shows: the score functions side by side."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from training.comparing.evaluation import Evaluation
from training.replaying.arranged import DEFAULTS
from training.replaying.metrics import METRICS, TRIO

SHOWN: Final = (*TRIO, "harmonic_staleness", "age")
"""Metrics in the table; the files have all of `METRICS`."""


def table(evaluation: Evaluation) -> Table:
    """The results as a table for the terminal."""
    out = Table("score function", *(METRICS[name].name for name in SHOWN))
    longest = max(len(result.score) for result in evaluation.results)
    out.columns[0].width = min(longest, 24)  # fixed: on a narrow terminal the figures break, not the names
    for column in out.columns[1:]:
        column.justify = "right"
    for result in evaluation.results:
        cells = []
        for name in SHOWN:
            mean, half_width, _ = result.metrics[name]
            cells.append(f"{mean:.4f}" + ("" if half_width is None else f" ± {half_width:.4f}"))
        out.add_row(Text(result.score, overflow="fold"), *cells)
    return out


def show(evaluation: Evaluation, console: Console) -> None:
    """Print what was replayed, how, and the table."""
    settings, about = evaluation.settings, evaluation.history
    scored = about.scored_cycles
    console.print(
        f"{about.source}: {about.pages:,} pages, scored cycles {scored[0]} to {scored[-1]}, "
        f"{about.changed_share:.2%} of the pages change per cycle\n"
        f"k = {settings.k:,} visits per cycle, warm-up {settings.warmup}, ties {settings.ties}, "
        f"clock {settings.clock or 'visits, or as the score file says'}, seed {settings.seed}"
        f"{'' if settings.policy == DEFAULTS.policy else f', policy {settings.policy}'}; "
        "mean ± half-width of the 95% interval over cycles",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    console.print(table(evaluation))
