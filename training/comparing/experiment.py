"""The published experiment on any history: every learning run, and all functions on the test folds."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.scoring.terminals import PAPER_SETS
from training.comparing.difference import Difference, differ
from training.comparing.paper import BASELINES, FITNESSES, best_baseline
from training.comparing.results import (
    ExperimentResults,
    LearnedFold,
    LearnedSet,
    RecordedHistory,
    plain,
)
from training.comparing.trials import Functions, held_out, try_out
from training.evolution.checkpoint import Checkpoint, write_atomically
from training.evolution.choices import PARTS, Choices, arrange, identity
from training.evolution.learning import LEARNED, Fold, learn_by_rules
from training.evolution.long_run import Shown
from training.evolution.parts import Parts
from training.evolution.selection import SELECTIONS
from training.evolution.workers import workers
from training.histories.history import ChangeHistory
from training.replaying.metrics import ORACLE


class Experiment:
    """An experiment in a directory, which resumes what the directory has of it."""

    def __init__(
        self, history: ChangeHistory, choices: Choices, directory: Path, console: Console, shown: Shown
    ) -> None:
        """``console`` is told what is learned, ``shown`` the progress."""
        self._history = history
        self._choices = choices
        self._directory = directory
        self._console = console
        self._shown = shown

    def run(self, jobs: int) -> ExperimentResults:
        """Learn all there is to learn on so many processes (-1: all), then try it on the test folds.

        Raises HistoryError or LearningError as `training.evolution.learning.learn` does, Gp4cError for the
        directory of another experiment; KeyboardInterrupt passes on, the same goes on from there.
        """
        started = time.perf_counter()
        history, choices = self._history, self._choices
        folds = arrange(history, choices)  # an unusable history is an error now, not after the first hour
        with workers(jobs) as parallel:
            learned = list(self._learn_all(folds, parallel))
        tests = held_out(history, choices)
        functions: Functions = {name: [name] * len(tests) for name in (*BASELINES, ORACLE)} | {
            one.name: [fold.text for fold in one.folds] for one in learned
        }
        less = [name for name in functions if "best" in name.split() or name in ("nad", "t*X")]
        trials = try_out(tests, functions, less, choices.crawl(float(choices.budget)))
        packages = ("scrapy-gp4c", "deap", "numpy", "scipy")
        return ExperimentResults(
            datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            {"python": platform.python_version()} | {name: version(name) for name in packages},
            RecordedHistory(history.source, history.pages, history.cycles, history.sha256),
            float(history.changed.mean()),
            choices,
            [test.pages for test in tests],
            [test.changed[choices.warmup :].sum(axis=1).tolist() for test in tests],
            learned,
            trials,
            time.perf_counter() - started,
        )

    def _learn_all(self, folds: list[Parts], parallel: Any) -> Iterator[LearnedSet]:
        """Learn every combination of fitness and terminals; yield what each selection rule gave.

        A combination that is done is read from the directory; one that was interrupted goes on from its
        checkpoint.
        """
        for fitness in FITNESSES:
            for name, names in PAPER_SETS.items():
                parameters = dataclasses.replace(self._choices.parameters, terminals=names)
                chosen = dataclasses.replace(self._choices, fitness=fitness, parameters=parameters)
                run = plain(identity(self._history, chosen))
                done = self._directory / f"learned-{fitness}-{name}.json"
                learned = _read_done(done, run)
                if learned is None:
                    self._console.print(
                        f"Learning for {fitness} with {name} terminals: {', '.join(names)}", highlight=False
                    )
                    checkpoint = Checkpoint(self._directory / f"checkpoint-{fitness}-{name}", run)
                    learned = self._learn(chosen, name, folds, checkpoint, parallel)
                    write_atomically(done, {"run": run, "learned": [one.to_json() for one in learned]})
                    checkpoint.remove()
                yield from learned

    def _learn(
        self, choices: Choices, terminals: str, folds: list[Parts], checkpoint: Checkpoint, parallel: Any
    ) -> list[LearnedSet]:
        """Learn with one fitness and set of terminals, by every selection rule."""
        states = checkpoint.open(resume=True)
        started = time.perf_counter()
        with self._shown(choices, len(folds), states[0].generation if states else 0) as watch:
            learned = learn_by_rules(
                self._history,
                [dataclasses.replace(choices, selection=selection) for selection in SELECTIONS],
                parallel,
                folds=folds,
                checkpoint=checkpoint,
                watch=watch,
            )
        first = learned[0]
        if not first.complete:
            raise KeyboardInterrupt
        # All rules chose from what one evolution found.
        costs = first.replays, first.replay_s, time.perf_counter() - started, bool(states), terminals
        return [
            LearnedSet(choices.fitness, selection, [_tested(fold) for fold in one.folds], *costs)
            for selection, one in zip(SELECTIONS, learned, strict=True)
        ]


def _tested(fold: Fold) -> LearnedFold:
    learned = fold.table[LEARNED]
    return LearnedFold(fold.text, fold.run, {part: learned[part] for part in PARTS})


def _read_done(path: Path, run: object) -> list[LearnedSet] | None:
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("run") != run:
        raise Gp4cError(
            f"{path} belongs to another experiment (other history or choices): give another directory with "
            "-o, or remove it"
        )
    return [LearnedSet.from_json(one) for one in content["learned"]]


def difference_of(results: ExperimentResults, history: ChangeHistory, name: str, metric: str) -> Difference:
    """Where a learned function's visits differ from those of the best baseline by a metric, on the test sets.

    ``history``: what the results came from; ``name``: of the function in the results.
    """
    learned = next(one for one in results.learned if one.name == name)
    texts = [fold.text for fold in learned.folds]
    others = [best_baseline(results.trials, metric)] * len(texts)
    return differ(held_out(history, results.choices), texts, others, results.choices.crawl())
