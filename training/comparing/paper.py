"""The tables of Santos et al. 2014, section 5.3, from the results of `training.experiment`.

Each function takes the results and returns rows: one key per column, ready for CSV, Markdown and the report.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from scrapy_gp4c.scoring import named, terminals
from scrapy_gp4c.store.whole_files import replacing
from training.comparing import statistics
from training.comparing.results import ExperimentResults, label
from training.comparing.statistics import Floats
from training.comparing.trials import Trials
from training.evolution.choices import PARTS
from training.evolution.simplify import readable
from training.replaying.metrics import ORACLE, TRIO

Row = dict[str, str | int | float]

FITNESSES: Final = ("ndcg", "change_rate")
BASELINES: Final = tuple(named.BASELINES)
COMPETITIVE: Final = ("nad", "sad", "aad", "gad", "cg", "t*X")
"""The baselines of Table 3: the papers leave out random and age, which lose every cycle."""
SHOWN: Final = (*TRIO, "harmonic_staleness")


def values(trials: Trials, name: str, metric: str) -> Floats:
    """Values of a score function on the test sets: ``[folds, scored cycles]``."""
    return np.array(trials.series[name][metric], dtype=np.float64)


def learned_for(metric: str, terminal_set: str, selection: str = "best") -> str:
    """Name of the function learned for this metric; for ndcg where none was learned for it."""
    return label(selection, terminal_set, metric if metric in FITNESSES else "ndcg")


def best_baseline(trials: Trials, metric: str) -> str:
    """Name of the baseline with the highest mean on the test sets."""
    return max(BASELINES, key=lambda name: float(values(trials, name, metric).mean()))


def table_2(results: ExperimentResults) -> list[Row]:
    """Overall performance: mean over all folds and cycles with its 95% interval.

    As in the paper, the learned functions of a column are those learned for its metric (for ndcg in the
    columns that no function was learned for).
    """
    rows = []
    for name in (*BASELINES, *(f"GP4C {terminal_set}" for terminal_set in terminals.PAPER_SETS), ORACLE):
        row: Row = {"method": name}
        for metric in SHOWN:
            source = learned_for(metric, name.split()[1]) if name.startswith("GP4C") else name
            mean = statistics.mean(values(results.trials, source, metric))
            row |= {metric: mean.mean, f"{metric} ±": mean.half_width}
        rows.append(row)
    return rows


def table_3(results: ExperimentResults) -> list[Row]:
    """Victories, losses and ties per cycle against each baseline (paired t test over the folds, 95%)."""
    rows = []
    for metric in FITNESSES:
        for terminal_set in terminals.PAPER_SETS:
            ours = values(results.trials, learned_for(metric, terminal_set), metric)
            for name in COMPETITIVE:
                duel = statistics.duel(ours, values(results.trials, name, metric))
                rows.append({"metric": metric, "GP4C": terminal_set, "baseline": name, **duel._asdict()})
    return rows


def table_4(results: ExperimentResults) -> list[Row]:
    """Best function of every fold, by fitness and terminals, with its test value."""
    return [
        {
            "fitness": learned.fitness,
            "terminals": learned.terminals,
            "fold": number,
            "score function": readable(fold.text),
            **{part: fold.values[part][learned.fitness] for part in PARTS},
        }
        for learned in results.learned
        if learned.selection == "best"
        for number, fold in enumerate(learned.folds, start=1)
    ]


def selections(results: ExperimentResults) -> list[Row]:
    """Best, Sum and Avg side by side (Figure 3 in numbers): mean and interval on the test sets."""
    rows: list[Row] = []
    for learned in results.learned:
        mean = statistics.mean(values(results.trials, learned.name, learned.fitness))
        rows.append(
            {
                "fitness": learned.fitness,
                "terminals": learned.terminals,
                "selection": learned.selection,
                "mean": mean.mean,
                "±": mean.half_width,
            }
        )
    return rows


def significance(results: ExperimentResults, metric: str, terminal_set: str = "all") -> Row:
    """Learned function against the best baseline: difference, its interval and p value."""
    baseline = best_baseline(results.trials, metric)
    ours, theirs = (
        values(results.trials, learned_for(metric, terminal_set), metric),
        values(results.trials, baseline, metric),
    )
    difference, p = statistics.overall(ours, theirs)
    return {
        "metric": metric,
        "GP4C": float(ours.mean()),
        "baseline": baseline,
        "baseline value": float(theirs.mean()),
        "difference": difference.mean,
        "±": difference.half_width,
        "p": p,
    }


def correlations(results: ExperimentResults) -> list[Row]:
    """Pearson correlation over the cycles of the pages that changed and the value reached."""
    changed = np.array(results.changed_pages, dtype=np.float64).mean(axis=0)
    names = (*COMPETITIVE, *(learned_for(metric, "all") for metric in FITNESSES))
    return [
        {
            "method": name,
            **{
                metric: statistics.correlation(changed, values(results.trials, name, metric).mean(axis=0))
                for metric in FITNESSES
            },
        }
        for name in names
    ]


def timing(results: ExperimentResults) -> list[Row]:
    """Time of learning (thesis 4.4 and 4.7): replays, processor time in them, wall time, in seconds."""
    return [
        {
            "fitness": learned.fitness,
            "terminals": learned.terminals,
            "replays": learned.replays,
            "replay_s": learned.replay_s,
            "wall_s": learned.wall_s,
            "resumed": learned.resumed,
        }
        for learned in results.learned
        if learned.selection == "best"
    ]


TABLES: Final[dict[str, tuple[str, Callable[[ExperimentResults], list[Row]]]]] = {
    "table2": ("Overall performance (journal Table 2)", table_2),
    "table3": ("Victories, losses and ties per cycle (journal Table 3)", table_3),
    "table4": ("Best functions of every fold (journal Table 4)", table_4),
    "selections": ("Selection rules (journal Figure 3)", selections),
    "correlations": ("Correlation of changed pages and effectiveness (journal 5.3)", correlations),
    "timing": ("Time of learning (thesis 4.7)", timing),
}


def cell(value: Any) -> str:
    """A value as text: 4 decimals for numbers between, nothing for nan."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4f}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def markdown(rows: Sequence[Row]) -> str:
    """A Markdown table."""
    head = list(rows[0])
    lines = [
        head,
        ["---"] * len(head),
        *([cell(row[key]).replace("|", "\\|") for key in head] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_tables(results: ExperimentResults, directory: Path) -> list[Path]:
    """Write every table as CSV, and all as ``tables.md``, each whole or not at all; returns the paths."""
    paths = []
    text = []
    for name, (title, make) in TABLES.items():
        rows = make(results)
        path = directory / f"{name}.csv"
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, rows[0])
        writer.writeheader()
        writer.writerows(rows)
        with replacing(path) as file:
            file.write(table.getvalue().encode())
        paths.append(path)
        text.append(f"## {title}\n\n{markdown(rows)}")
    path = directory / "tables.md"
    with replacing(path) as file:
        file.write("\n".join(text).encode())
    return [*paths, path]
