"""Tables, figures and report of the experiment of the journal (section 5.3) and the thesis.

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

from scrapy_gp4c.store.atomic_files import replacing
from training.comparing import statistics
from training.comparing.difference import Difference
from training.comparing.trials import BASELINES, COMPETITIVE, SHOWN, Trials, values
from training.evolution.choices import SPLITS
from training.evolution.selection import SELECTIONS
from training.evolution.simplification import readable
from training.papers.journal import FITNESSES, ExperimentResults
from training.replaying.metrics import METRICS, ORACLE, TRIO, budget_pages
from training.reporting import score as sections
from training.reporting.figures import Chart
from training.reporting.page import ReportPage, Section, defined, figure, fold_away, table
from training.reporting.score import (
    HEADLINE,
    Formula,
    Study,
    budgets,
    cycles_of,
    line,
    methods,
    per_cycle_chart,
)

Row = dict[str, str | int | float]


def table_2(results: ExperimentResults) -> list[Row]:
    """Overall performance: mean over all folds and cycles with its 95% interval.

    As in the paper, the learned functions of a column are those learned for its metric (for ndcg in the
    columns that no function was learned for).
    """
    rows = []
    for name in (*BASELINES, *(f"GP4C {terminal_set}" for terminal_set in results.terminal_sets), ORACLE):
        row: Row = {"method": name}
        for metric in SHOWN:
            source = results.learned_for(metric, name.split()[1]) if name.startswith("GP4C") else name
            mean = statistics.mean(values(results.trials, source, metric))
            row |= {metric: mean.mean, f"{metric} ±": mean.half_width}
        rows.append(row)
    return rows


def table_3(results: ExperimentResults) -> list[Row]:
    """Victories, losses and ties per cycle against each baseline (paired t test over the folds, 95%)."""
    rows = []
    for metric in results.fitnesses:
        for terminal_set in results.terminal_sets:
            learned_values = values(results.trials, results.learned_for(metric, terminal_set), metric)
            for name in COMPETITIVE:
                duel = statistics.duel(learned_values, values(results.trials, name, metric))
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
            **{split: fold.values[split][learned.fitness] for split in SPLITS},
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


def correlations(results: ExperimentResults) -> list[Row]:
    """Pearson correlation over the cycles of the pages that changed and the value reached."""
    changed = np.array(results.changed_pages, dtype=np.float64).mean(axis=0)
    names = (*COMPETITIVE, *(results.learned_for(metric) for metric in results.fitnesses))
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


NEW_PAGES: Final = {
    "new_pages": "never visited since the warm-up",
    "idle_pages": "not visited in the cycle before",
}
"""The two readings of Figure 6."""


def selection_rules(results: ExperimentResults, metric: str) -> Chart:
    """Figure 3: the three selection rules, with the largest set of terminals, learned for the metric."""
    lines = [
        line(results.trials, results.learned_for(metric, selection=selection), metric, f"GP4C {selection}")
        for selection in SELECTIONS
    ]
    title = f"{METRICS[metric].heading} of the three selection rules"
    return per_cycle_chart(results.trials, f"figure3-{metric}", title, metric, lines)


def new_pages(trials: Trials, learned: str) -> Chart:
    """Figure 6: share of new pages among the visits, under both readings of "new"."""
    lines = [
        line(trials, learned, metric, shown)
        for metric, shown in NEW_PAGES.items()
        if metric in trials.series[learned]
    ]
    return Chart(
        "figure6",
        "Share of new pages among the visits",
        "cycle of the test period",
        "share of the visits",
        cycles_of(trials),
        lines,
        True,
    )


def paper_charts(results: ExperimentResults) -> list[Chart]:
    """Figures 3 to 6, for both metrics where the paper has both."""
    trials, best = results.trials, results.learned_for
    charts = [selection_rules(results, metric) for metric in results.fitnesses]
    charts += [methods(trials, metric, best(metric)) for metric in results.fitnesses]
    tried = {best(metric): f"learned for {METRICS[metric].name}" for metric in results.fitnesses}
    charts += [budgets(trials, metric, tried | {"nad": "nad"}) for metric in results.fitnesses]
    return [*charts, new_pages(trials, best("ndcg"))]


def compared_function(results: ExperimentResults) -> str:
    """Learned function whose visits the report compares with the best baseline's."""
    return results.learned_for(HEADLINE)


def experiment_page(results: ExperimentResults, difference: Difference | None, note: str = "") -> ReportPage:
    """The report of an experiment's results.

    ``difference``: visits of `compared_function` beside those of the best baseline by `HEADLINE`.
    ``note``: the reason why it is missing.
    """
    return sections.page(_study(results, difference, note))


def _study(results: ExperimentResults, difference: Difference | None, note: str) -> Study:
    learned = {metric: results.learned_for(metric) for metric in TRIO}
    budget_names = {
        results.learned_for(metric): f"learned for {METRICS[metric].name}" for metric in results.fitnesses
    } | {"nad": "nad", "t*X": "t*X"}
    return Study(
        f"Learned against published score functions on {Path(results.history.source).name}",
        results.trials,
        learned,
        _formulas(results),
        _facts(results),
        results.created,
        budget_pages(results.trials.budget, results.test_pages[0]),
        difference,
        note,
        budget_names,
        [_rules(results), _new(results.trials, learned["ndcg"]), _tables(results)],
    )


def _facts(results: ExperimentResults) -> list[tuple[str, str]]:
    about, choices = results.history, results.choices
    parameters = choices.parameters
    return [
        *([] if results.preset is None else [("Preset", results.preset)]),
        ("History", f"{about.source}, SHA-256 {about.sha256 or 'unknown'}"),
        ("Size", f"{about.pages:,} pages, {about.cycles} cycles"),
        (
            "Protocol",
            f"{choices.protocol}: {len(results.test_pages)} test sets of about "
            f"{results.test_pages[0]:,} pages and {len(results.changed_pages[0])} scored cycles after "
            f"{choices.warmup} of warm-up",
        ),
        ("Budget", f"{choices.budget:.1%} of the pages per cycle"),
        (
            "Genetic programming",
            f"{parameters.population} individuals, {parameters.generations} generations, "
            f"{choices.seeds} runs per fold, seed {choices.seed}; mutations of the {parameters.operators}, a "
            f"division by zero is {parameters.protected_division}",
        ),
        ("Estimators", f"clock of the {choices.clock}; ties broken: {choices.ties}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in results.versions.items())),
    ]


def _formulas(results: ExperimentResults) -> list[Formula]:
    formulas = [
        (
            learned.name != compared_function(results),
            Formula(
                f"Learned for {learned.fitness.replace('_', ' ')}, {learned.terminals} terminals, "
                f"fold {number}",
                fold.text,
                {split: fold.values[split][learned.fitness] for split in SPLITS},
            ),
        )
        for learned in results.learned
        if learned.selection == "best"
        for number, fold in enumerate(learned.folds, start=1)
    ]
    best = max((one for other, one in formulas if not other), key=lambda one: one.values["training"])
    return [best, *(one for _, one in formulas if one is not best)]


def _rules(results: ExperimentResults) -> Section:
    return Section(
        "How the best is chosen",
        "Best takes the individual with the highest training fitness; Sum and Avg also look at the "
        "validation part, and prefer steady individuals.",
        [figure(selection_rules(results, metric)) for metric in results.fitnesses],
    )


def _new(trials: Trials, learned: str) -> Section:
    return Section(
        "New pages",
        "Does the learned function visit the same pages for ever? The share of each cycle's visits that go "
        "to pages never visited since the warm-up, and to pages not visited in the cycle before.",
        [figure(new_pages(trials, learned))],
    )


def _tables(results: ExperimentResults) -> Section:
    blocks = []
    for title, make in TABLES.values():
        rows = make(results)
        terms = [defined(name) if name in ("victories",) else name.replace("_", " ") for name in rows[0]]
        words = sum(isinstance(value, str) for value in rows[0].values())
        body = [[cell(value) for value in row.values()] for row in rows]
        blocks.append(fold_away(title, table(terms, body, words=words)))
    return Section("Tables of the paper, for this data", "", blocks)
