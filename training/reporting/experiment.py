"""The report of an experiment's directory (`training.experiment` writes both)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from scrapy_gp4c.errors import HistoryError
from training.comparing.difference import Difference, differ
from training.comparing.paper import FITNESSES, TABLES, best_baseline, cell, label, learned_for
from training.evolution.choices import PARTS, Choices
from training.evolution.evolve import Parameters
from training.evolution.variation import Depths
from training.histories import splits
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.metrics import TRIO, budget_pages
from training.reporting import sections
from training.reporting.charts import new_pages, selection_rules
from training.reporting.page import Page, Section, defined, figure, fold_away, table
from training.reporting.study import HEADLINE, Formula, Study

TERMINALS = "all"
"""The set that the headline speaks of, as in the paper."""


def study(results: dict[str, Any], history: ChangeHistory | None, note: str = "") -> Study:
    """The report's content. ``history``: to see where visits differ; ``note``: why it is missing."""
    learned = {metric: learned_for(metric, TERMINALS) for metric in TRIO}
    about, choices = results["history"], results["choices"]
    difference = None if history is None else _difference(results, history, learned[HEADLINE])
    budget_names = {
        label("best", TERMINALS, "ndcg"): "learned for NDCG",
        label("best", TERMINALS, "change_rate"): "learned for change rate",
        "nad": "nad",
        "t*X": "t*X",
    }
    return Study(
        f"Learned against published score functions on {Path(about['source']).name}",
        results,
        learned,
        _formulas(results),
        facts(results),
        results["created"],
        budget_pages(choices["budget"], results["test_pages"][0]),
        difference,
        note,
        budget_names,
        [_rules(results), _new(results, learned["ndcg"]), _tables(results)],
    )


def facts(results: dict[str, Any]) -> list[tuple[str, str]]:
    """What was done, for the end of the report."""
    about, choices = results["history"], results["choices"]
    parameters = choices["parameters"]
    return [
        ("History", f"{about['source']}, SHA-256 {about['sha256'] or 'unknown'}"),
        ("Size", f"{about['pages']:,} pages, {about['cycles']} cycles"),
        (
            "Protocol",
            f"{choices['protocol']}: {len(results['test_pages'])} test sets of about "
            f"{results['test_pages'][0]:,} pages and {len(results['changed_pages'][0])} scored cycles after "
            f"{choices['warmup']} of warm-up",
        ),
        ("Budget", f"{choices['budget']:.1%} of the pages per cycle"),
        (
            "Genetic programming",
            f"{parameters['population']} individuals, {parameters['generations']} generations, "
            f"{choices['seeds']} runs per fold, seed {choices['seed']}",
        ),
        ("Estimators", f"clock of the {choices['clock']}; ties broken: {choices['ties']}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in results["versions"].items())),
    ]


def _formulas(results: dict[str, Any]) -> list[Formula]:
    found = [
        (
            entry["fitness"] != HEADLINE or entry["terminals"] != TERMINALS,
            Formula(
                f"Learned for {entry['fitness'].replace('_', ' ')}, {entry['terminals']} terminals, "
                f"fold {number}",
                fold["text"],
                {part: fold[part][entry["fitness"]] for part in PARTS},
            ),
        )
        for entry in results["learned"]
        if entry["selection"] == "best"
        for number, fold in enumerate(entry["folds"], start=1)
    ]
    best = max((one for other, one in found if not other), key=lambda one: one.values["training"])
    return [best, *(one for _, one in found if one is not best)]


def _difference(results: dict[str, Any], history: ChangeHistory, name: str) -> Difference:
    chosen = choices_of(results["choices"] | results["choices"]["parameters"])
    parts = splits.protocol_splits(history, chosen.protocol, seed=chosen.seed, warmup=chosen.warmup)
    _, selection, terminals, fitness = name.split()
    entry = next(
        entry
        for entry in results["learned"]
        if (entry["selection"], entry["terminals"], entry["fitness"]) == (selection, terminals, fitness)
    )
    texts = [fold["text"] for fold in entry["folds"]]
    others = [best_baseline(results, HEADLINE)] * len(texts)
    return differ([part.test for part in parts], texts, others, chosen, chosen.budget)


def choices_of(recorded: dict[str, Any]) -> Choices:
    """Choices and parameters as `training.evolution.learning` takes them, from what results or a score file record."""
    depths = recorded["depths"]
    values: dict[str, Any] = {
        **recorded,
        "terminals": tuple(recorded["terminals"]),
        "depths": Depths(**depths) if isinstance(depths, dict) else Depths(*depths),
    }

    def known(kind: type[Any]) -> dict[str, Any]:
        names = {one.name for one in dataclasses.fields(kind)} & set(values)
        return {name: values[name] for name in names if name != "parameters"}

    return Choices(**known(Choices), parameters=Parameters(**known(Parameters)))


def _rules(results: dict[str, Any]) -> Section:
    return Section(
        "How the best is chosen",
        "Best takes the individual with the highest training fitness; Sum and Avg also look at the "
        "validation part, and prefer steady individuals.",
        [figure(selection_rules(results, metric)) for metric in FITNESSES],
    )


def _new(results: dict[str, Any], learned: str) -> Section:
    return Section(
        "New pages",
        "Does the learned function visit the same pages for ever? The share of each cycle's visits that go "
        "to pages never visited since the warm-up, and to pages not visited in the cycle before.",
        [figure(new_pages(results, learned))],
    )


def _tables(results: dict[str, Any]) -> Section:
    blocks = []
    for title, make in TABLES.values():
        rows = make(results)
        terms = [defined(name) if name in ("victories",) else name.replace("_", " ") for name in rows[0]]
        words = sum(isinstance(value, str) for value in rows[0].values())
        body = [[cell(value) for value in row.values()] for row in rows]
        blocks.append(fold_away(title, table(terms, body, words=words)))
    return Section("Tables of the paper, for this data", "", blocks)


def read_results(directory: Path) -> dict[str, Any]:
    """The results of an experiment. Raises HistoryError for a directory without."""
    path = directory / "results.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != "gp4c-experiment/1":
            raise ValueError(f"its format is {content['format']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryError(
            f"{path} has no results of `python -m training.experiment` to report ({error}); give the "
            "directory of an experiment, a score file, or the store of a crawl"
        ) from None
    return content


def find_history(about: dict[str, Any], given: Path | None) -> tuple[ChangeHistory | None, str]:
    """The history that results came from, or why it cannot be used.

    ``about``: source, pages, cycles and sha256 as results record them. Raises HistoryError where a given
    file is another history; one that is only recorded may be gone.
    """
    path = given or Path(about["source"])
    if given is None and not path.exists():
        return None, (
            f"Not shown: this needs the history, and {about['source']} is not there. Make the report again "
            "with --history FILE."
        )
    history = read_history(path)
    expected = (about["pages"], about["cycles"], about["sha256"])
    if (history.pages, history.cycles, history.sha256) == expected:
        return history, ""
    problem = (
        f"{path} is not the history of these results: expected {about['pages']:,} pages, {about['cycles']} "
        f"cycles, SHA-256 {about['sha256'][:12]}; found {history.pages:,} pages, {history.cycles} cycles, "
        f"SHA-256 {history.sha256[:12]}"
    )
    if given is not None:
        raise HistoryError(f"{problem}. Give the file that was learned from with --history.")
    return None, f"Not shown: {problem}."


def experiment_page(results: dict[str, Any], history: ChangeHistory | None, note: str = "") -> Page:
    """The report of an experiment's results."""
    return sections.page(study(results, history, note))
