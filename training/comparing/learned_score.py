"""Replay of a score file's function on the test set of the history that it was learned on."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scrapy_gp4c.errors import HistoryError, ScoreError
from scrapy_gp4c.scoring import functions
from training.comparing.difference import Difference, differ
from training.comparing.trials import BASELINES, Trials, best_baseline, held_out, try_out
from training.evolution.choices import SPLITS, Choices
from training.evolution.evolve import Depths, Json, Parameters
from training.evolution.learning import LEARNED
from training.histories.history import ChangeHistory, RecordedHistory
from training.histories.reading import read_history
from training.replaying.metrics import ORACLE, budget_pages
from training.replaying.prepared import CrawlChoices, prepare_for
from training.replaying.replay import run


class LearnedScore(NamedTuple):
    """What a score file of `training.learn` records: function, choices, metrics and history."""

    name: str
    text: str
    fitness: str
    clock: str
    selection: str
    seed: int
    created: str
    versions: dict[str, str]
    history: RecordedHistory
    values: dict[str, dict[str, float]]
    """Split (training, validation, test) -> metric -> mean over its scored cycles."""
    parameters: Json

    def choices(self) -> Choices:
        """Choices of the learning run. Raises LearningError for unknown ones."""
        return recorded_choices(self.parameters | {"selection": self.selection})


class ScoreTrials(NamedTuple):
    """A score file's function (under the name `LEARNED`), the baselines and the oracle on its test set."""

    trials: Trials
    tried: list[str]
    """Names of the functions that were replayed with smaller budgets too."""
    visits_per_cycle: int
    difference: Difference


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
        {split: content[split] for split in SPLITS},
        parameters,
    )


def try_learned(path: Path, learned: LearnedScore, history: ChangeHistory, metric: str) -> ScoreTrials:
    """Replay a score file's function, the baselines and the oracle on the file's test set.

    The function's visits are compared with those of the baseline that is best by `metric`. Raises ScoreError
    where no test set of `history` gives the value that the file at `path` records.
    """
    choices = learned.choices()
    budget = choices.budget
    # `training.evolution.choices.prepare_splits` sets the same budget for every split.
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
    """The test set in `tests` on which the function has the change rate that the file at ``path`` records."""
    recorded = learned.values["test"]["change_rate"]
    for test in tests:
        prepared = prepare_for(test, crawl)
        result = run(prepared, learned.text, clock=crawl.clock, metrics=("change_rate",), policy=crawl.policy)
        if abs(float(result.change_rate.mean()) - recorded) < 1e-12:
            return test
    raise ScoreError(
        f"{path} records a change rate of {recorded:.6f} on its test set, which no test set of "
        f"{tests[0].source} gives: the file was edited, or written by another version of this package; learn "
        "again"
    )


def plain(content: Any) -> Any:
    """`content` as it would be read from a JSON file, with lists in place of tuples."""
    return json.loads(json.dumps(content))


def recorded_choices(recorded: Json) -> Choices:
    """Choices from the flat mapping of `Choices` and `Parameters` that results or a score file record.

    Raises LearningError or ExpressionError for what cannot be used.
    """
    depths = recorded["depths"]
    values = {
        **recorded,
        "terminals": tuple(recorded["terminals"]),
        "depths": Depths(**depths) if isinstance(depths, dict) else Depths(*depths),
    }

    def known(kind: type[Any]) -> Json:
        names = {one.name for one in dataclasses.fields(kind)} & set(values)
        return {name: values[name] for name in names if name != "parameters"}

    return Choices(**known(Choices), parameters=Parameters(**known(Parameters)))


def find_history(recorded: RecordedHistory, given_path: Path | None) -> tuple[ChangeHistory | None, str]:
    """Read the recorded history; else return None and the reason why it cannot be used.

    Raises HistoryError if `given_path` has another history; a file that is only recorded may be gone.
    """
    path = given_path or Path(recorded.source)
    if given_path is None and not path.exists():
        return None, (
            f"Not shown: this needs the history, and {recorded.source} is not there. Make the report again "
            "with --history FILE."
        )
    history = read_history(path)
    if history.identity[1:] == recorded[1:]:
        return history, ""
    problem = (
        f"{path} is not the history of these results: expected {recorded.pages:,} pages, {recorded.cycles} "
        f"cycles, SHA-256 {recorded.sha256[:12]}; found {history.pages:,} pages, {history.cycles} cycles, "
        f"SHA-256 {history.sha256[:12]}"
    )
    if given_path is not None:
        raise HistoryError(f"{problem}. Give the file that was learned from with --history.")
    return None, f"Not shown: {problem}."
