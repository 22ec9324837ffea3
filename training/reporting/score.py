"""The report of a score file: its function beside the baselines on the test data it never learned from."""

from __future__ import annotations

from training.comparing.learned_score import LearnedScore, ScoreTrials
from training.evolution.learning import LEARNED
from training.replaying.metrics import TRIO
from training.reporting.charts import SHARES
from training.reporting.page import Card, Page, Section
from training.reporting.sections import formula_section, page
from training.reporting.study import HEADLINE, Formula, Study


def score_page(learned: LearnedScore, again: ScoreTrials | None, note: str = "") -> Page:
    """The report of a score file; of what the file records alone where it could not be tried again.

    ``note``: why it could not.
    """
    if again is None:
        return _recorded(learned, note)
    return page(
        Study(
            f"Score function {learned.name}",
            again.trials,
            dict.fromkeys(TRIO, LEARNED),
            [_formula(learned)],
            _facts(learned),
            learned.created,
            again.visits_per_cycle,
            again.difference,
            budget_names={name: name for name in again.tried},
        )
    )


def _formula(learned: LearnedScore) -> Formula:
    fitness = learned.fitness
    values = {part: values[fitness] for part, values in learned.values.items() if fitness in values}
    return Formula(f"{learned.name}, learned for {fitness.replace('_', ' ')}", learned.text, values)


def _facts(learned: LearnedScore) -> list[tuple[str, str]]:
    about, process = learned.history, learned.process
    return [
        ("History", f"{about.source}, SHA-256 {about.sha256 or 'unknown'}"),
        ("Size", f"{about.pages:,} pages, {about.cycles} cycles"),
        ("Learned", learned.created),
        ("Protocol", f"{process.protocol}, warm-up of {process.warmup} cycles"),
        ("Budget", f"{process.budget} per cycle"),
        (
            "Genetic programming",
            f"{process.population} individuals, {process.generations_done} generations, "
            f"{process.seeds} runs, seed {learned.seed}, selection {learned.selection}, "
            f"{process.forget:.0%} of the training changes taken out",
        ),
        ("Estimators", f"clock of the {learned.clock}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in learned.versions.items())),
    ]


def _recorded(learned: LearnedScore, note: str) -> Page:
    """The report where there is no history to replay."""
    training, validation, test = learned.values.values()
    cards = [
        Card(
            metric,
            f"{test[metric]:.1%}" if metric in SHARES else f"{test[metric]:.3f}",
            [f"training {training[metric]:.3f}, validation {validation[metric]:.3f}"],
        )
        for metric in TRIO
    ]
    return Page(
        f"Score function {learned.name}",
        "of the learned function's visits to test pages found a change, as the score file records.",
        f"{test[HEADLINE]:.1%}",
        "visited pages that had changed / visited pages",
        cards,
        [
            formula_section([_formula(learned)]),
            Section("Beside the baselines", note),
        ],
        _facts(learned),
        learned.created,
    )
