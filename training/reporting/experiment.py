"""The report of an experiment (`training.experiment` writes both)."""

from __future__ import annotations

from pathlib import Path

from training.comparing.difference import Difference
from training.comparing.paper import FITNESSES, TABLES, cell, learned_for
from training.comparing.results import ExperimentResults, label
from training.comparing.trials import Trials
from training.evolution.choices import PARTS
from training.replaying.metrics import TRIO, budget_pages
from training.reporting import sections
from training.reporting.charts import new_pages, selection_rules
from training.reporting.page import Page, Section, defined, figure, fold_away, table
from training.reporting.study import HEADLINE, Formula, Study

TERMINALS = "all"
"""The set that the headline speaks of, as in the paper."""
SHIPS = learned_for(HEADLINE, TERMINALS)
"""The learned function whose visits are looked at, of those in the results."""


def experiment_page(results: ExperimentResults, difference: Difference | None, note: str = "") -> Page:
    """The report of an experiment's results.

    ``difference``: where the visits of `SHIPS` differ from those of the best baseline by `HEADLINE`;
    ``note``: why it is missing.
    """
    return sections.page(_study(results, difference, note))


def _study(results: ExperimentResults, difference: Difference | None, note: str) -> Study:
    learned = {metric: learned_for(metric, TERMINALS) for metric in TRIO}
    budget_names = {
        label("best", TERMINALS, "ndcg"): "learned for NDCG",
        label("best", TERMINALS, "change_rate"): "learned for change rate",
        "nad": "nad",
        "t*X": "t*X",
    }
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
        [_rules(results.trials), _new(results.trials, learned["ndcg"]), _tables(results)],
    )


def _facts(results: ExperimentResults) -> list[tuple[str, str]]:
    """What was done, for the end of the report."""
    about, choices = results.history, results.choices
    parameters = choices.parameters
    return [
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
            f"{choices.seeds} runs per fold, seed {choices.seed}",
        ),
        ("Estimators", f"clock of the {choices.clock}; ties broken: {choices.ties}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in results.versions.items())),
    ]


def _formulas(results: ExperimentResults) -> list[Formula]:
    found = [
        (
            learned.name != SHIPS,
            Formula(
                f"Learned for {learned.fitness.replace('_', ' ')}, {learned.terminals} terminals, "
                f"fold {number}",
                fold.text,
                {part: fold.values[part][learned.fitness] for part in PARTS},
            ),
        )
        for learned in results.learned
        if learned.selection == "best"
        for number, fold in enumerate(learned.folds, start=1)
    ]
    best = max((one for other, one in found if not other), key=lambda one: one.values["training"])
    return [best, *(one for _, one in found if one is not best)]


def _rules(trials: Trials) -> Section:
    return Section(
        "How the best is chosen",
        "Best takes the individual with the highest training fitness; Sum and Avg also look at the "
        "validation part, and prefer steady individuals.",
        [figure(selection_rules(trials, metric)) for metric in FITNESSES],
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
