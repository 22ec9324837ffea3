"""A score file's function tried again, on the test data that it never learned from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.scoring import functions
from training.comparing.difference import Difference, differ
from training.comparing.paper import BASELINES, best_baseline
from training.comparing.results import RecordedHistory, recorded_choices
from training.comparing.trials import Trials, held_out, try_out
from training.evolution.choices import PARTS, Choices
from training.evolution.evolve import Json
from training.evolution.learning import LEARNED
from training.histories.history import ChangeHistory
from training.replaying.arranged import CrawlChoices, prepare_for
from training.replaying.metrics import ORACLE, budget_pages
from training.replaying.replay import run


class Process(NamedTuple):
    """How much was searched for a function, and how."""

    protocol: str
    warmup: int
    budget: float
    """Visits per cycle: share (float) or count (int)."""
    population: int
    generations_done: int
    seeds: int
    forget: float = 0.0


class LearnedScore(NamedTuple):
    """What a score file of `training.learn` records."""

    name: str
    """Of the file."""
    text: str
    fitness: str
    clock: str
    selection: str
    seed: int
    created: str
    versions: dict[str, str]
    history: RecordedHistory
    values: dict[str, dict[str, float]]
    """Part (training, validation, test) -> metric -> mean over its scored cycles."""
    process: Process
    parameters: Json
    """All of them, as recorded."""

    def choices(self) -> Choices:
        """What it was learned with. Raises LearningError for what cannot be used here."""
        return recorded_choices(self.parameters | {"selection": self.selection})


class ScoreTrials(NamedTuple):
    """A score file's function (`LEARNED`), the baselines and the oracle on its test set."""

    trials: Trials
    tried: list[str]
    """The functions that were tried with smaller budgets too."""
    visits_per_cycle: int
    difference: Difference
    """From the best baseline."""


def read_learned(path: Path) -> LearnedScore:
    """Read a score file. Raises ScoreError for one that cannot be used or was not learned."""
    functions.load(str(path))
    content: Json = json.loads(path.read_text(encoding="utf-8"))
    missing = {"history", "test", "parameters", "fitness"} - set(content)
    if missing:
        raise ScoreError(
            f"{path} does not record how it was learned (it lacks {', '.join(sorted(missing))}): there is "
            "nothing to report; a score file of `python -m training.learn` does"
        )
    parameters = content["parameters"]
    if parameters.get("growth"):
        raise ScoreError(
            f"{path} is a discovery function, which ranks hubs and not pages: `python -m training.evaluate "
            f"HISTORY --growth --discovery-function {path}` tells what it is worth"
        )
    return LearnedScore(
        path.name,
        content["expression"],
        content["fitness"],
        content["clock"],
        content["selection"],
        content["seed"],
        content["created"],
        content["versions"],
        RecordedHistory.from_json(content["history"]),
        {part: content[part] for part in PARTS},
        Process(**{name: parameters[name] for name in Process._fields if name in parameters}),
        parameters,
    )


def try_again(path: Path, learned: LearnedScore, history: ChangeHistory, metric: str) -> ScoreTrials:
    """Replay the file's function beside the others; the best baseline is the best by `metric`.

    Raises ScoreError where no test set of `history` gives the value that the file at `path` records.
    """
    choices = learned.choices()
    budget = choices.budget
    # As `training.evolution.choices.arrange` gives it to every part.
    share = budget_pages(budget, history.pages) / history.pages if isinstance(budget, int) else budget
    crawl = choices.crawl(share)
    test = _test_set(path, learned, held_out(history, choices), crawl)
    tried = {name: [name] for name in (*BASELINES, ORACLE)} | {LEARNED: [learned.text]}
    less = [LEARNED, "nad", "t*X"]
    trials = try_out([test], tried, less, crawl)
    other = best_baseline(trials, metric)
    difference = differ([test], [learned.text], [other], crawl)
    return ScoreTrials(trials, less, budget_pages(share, test.pages), difference)


def _test_set(
    path: Path, learned: LearnedScore, tests: Sequence[ChangeHistory], crawl: CrawlChoices
) -> ChangeHistory:
    """The test set that the file's function was chosen without: the one that gives its recorded value."""
    recorded = learned.values["test"]["change_rate"]
    for test in tests:
        arranged = prepare_for(test, crawl)
        result = run(arranged, learned.text, clock=crawl.clock, metrics=("change_rate",), policy=crawl.policy)
        if abs(float(result.change_rate.mean()) - recorded) < 1e-12:
            return test
    raise ScoreError(
        f"{path} records a change rate of {recorded:.6f} on its test set, which no test set of "
        f"{tests[0].source} gives: the file was edited, or written by another version of this package; learn "
        "again"
    )
