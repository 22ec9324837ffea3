"""The report of a score file: its function beside the baselines on the test data it never learned from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.scoring import functions
from training.comparing.difference import differ
from training.comparing.paper import BASELINES, best_baseline
from training.comparing.trials import evaluate, smaller_budgets
from training.evolution.choices import PARTS, Choices
from training.evolution.learning import LEARNED
from training.histories import splits
from training.histories.history import ChangeHistory
from training.replaying.metrics import ORACLE, TRIO, budget_pages
from training.replaying.replay import replay
from training.reporting.charts import SHARES
from training.reporting.experiment import choices_of, find_history
from training.reporting.page import Card, Page, Section
from training.reporting.sections import formula_section, page
from training.reporting.study import HEADLINE, Formula, Study


def score_page(path: Path, history: Path | None) -> Page:
    """The report of a score file; of what the file records alone, if its history is gone.

    Raises ScoreError for what is no score file of `training.learn`, HistoryError as
    `report_experiment.find_history`.
    """
    functions.load(str(path))
    content = json.loads(path.read_text(encoding="utf-8"))
    missing = {"history", "test", "parameters", "fitness"} - set(content)
    if missing:
        raise ScoreError(
            f"{path} does not record how it was learned (it lacks {', '.join(sorted(missing))}): there is "
            "nothing to report; a score file of `python -m training.learn` does"
        )
    found, note = find_history(content["history"], history)
    if found is None:
        return _recorded(path, content, note)
    return page(_study(path, content, found))


def _formula(path: Path, content: dict[str, Any]) -> Formula:
    fitness = content["fitness"]
    values = {part: content[part][fitness] for part in PARTS if fitness in content[part]}
    return Formula(f"{path.name}, learned for {fitness.replace('_', ' ')}", content["expression"], values)


def _facts(content: dict[str, Any]) -> list[tuple[str, str]]:
    about, parameters = content["history"], content["parameters"]
    return [
        ("History", f"{about['source']}, SHA-256 {about['sha256'] or 'unknown'}"),
        ("Size", f"{about['pages']:,} pages, {about['cycles']} cycles"),
        ("Learned", content["created"]),
        ("Protocol", f"{parameters['protocol']}, warm-up of {parameters['warmup']} cycles"),
        ("Budget", f"{parameters['budget']} per cycle"),
        (
            "Genetic programming",
            f"{parameters['population']} individuals, {parameters['generations_done']} generations, "
            f"{parameters['seeds']} runs, seed {content['seed']}, selection {content['selection']}, "
            f"{parameters.get('forget', 0.0):.0%} of the training changes taken out",
        ),
        ("Estimators", f"clock of the {content['clock']}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in content["versions"].items())),
    ]


def _study(path: Path, content: dict[str, Any], history: ChangeHistory) -> Study:
    choices = choices_of(content["parameters"] | {"selection": content["selection"]})
    test = _test_set(path, content, history, choices)
    share = _share(choices, history)
    functions = {name: [name] for name in (*BASELINES, ORACLE)} | {LEARNED: [content["expression"]]}
    series = evaluate([test], functions, choices, share)
    tried = {name: functions[name] for name in (LEARNED, "nad", "t*X")}
    results: dict[str, Any] = {
        "series": series,
        "first_cycle": choices.warmup + 1,
        "choices": {"budget": share},
        "smaller_budgets": smaller_budgets([test], tried, choices, share),
    }
    other = best_baseline(results, HEADLINE)
    return Study(
        f"Score function {path.name}",
        results,
        dict.fromkeys(TRIO, LEARNED),
        [_formula(path, content)],
        _facts(content),
        content["created"],
        budget_pages(share, test.pages),
        differ([test], [content["expression"]], [other], choices, share),
        budget_names={name: name for name in tried},
    )


def _share(choices: Choices, history: ChangeHistory) -> float:
    """The budget as `learning.arrange` gives it to every part."""
    budget = choices.budget
    return budget_pages(budget, history.pages) / history.pages if isinstance(budget, int) else budget


def _test_set(path: Path, content: dict[str, Any], history: ChangeHistory, choices: Choices) -> ChangeHistory:
    """The test set that the file's function was chosen without: the one that gives its recorded value."""
    recorded = content["test"]["change_rate"]
    parts = splits.protocol_splits(history, choices.protocol, seed=choices.seed, warmup=choices.warmup)
    for part in parts:
        result = replay(
            part.test,
            content["expression"],
            budget=_share(choices, history),
            warmup=choices.warmup,
            ties=choices.ties,
            clock=choices.clock,
            seed=choices.seed,
            metrics=("change_rate",),
        )
        if abs(float(result.change_rate.mean()) - recorded) < 1e-12:
            return part.test
    raise ScoreError(
        f"{path} records a change rate of {recorded:.6f} on its test set, which no test set of "
        f"{history.source} gives: the file was edited, or written by another version of this package; learn "
        "again"
    )


def _recorded(path: Path, content: dict[str, Any], note: str) -> Page:
    """The report where there is no history to replay."""
    one = _formula(path, content)
    test = content["test"]
    cards = [
        Card(
            metric,
            f"{test[metric]:.1%}" if metric in SHARES else f"{test[metric]:.3f}",
            [f"training {content['training'][metric]:.3f}, validation {content['validation'][metric]:.3f}"],
        )
        for metric in TRIO
    ]
    return Page(
        f"Score function {path.name}",
        "of the learned function's visits to test pages found a change, as the score file records.",
        f"{test[HEADLINE]:.1%}",
        "visited pages that had changed / visited pages",
        cards,
        [
            formula_section([one]),
            Section("Beside the baselines", note),
        ],
        _facts(content),
        content["created"],
    )
