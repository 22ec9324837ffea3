"""The experiment of the journal (Santos et al. 2014) and the thesis (2013) on any history."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.scoring.terminals import PAPER_SETS, Clock
from training.comparing.difference import Difference, differ
from training.comparing.learned_score import RecordedHistory, plain, recorded_choices
from training.comparing.trials import BASELINES, Functions, Trials, best_baseline, held_out, try_out
from training.evolution.checkpoint import Checkpoint, write_atomically
from training.evolution.choices import SPLITS, Choices, identity, prepare_splits
from training.evolution.evolve import Json
from training.evolution.fitness import PreparedSplit
from training.evolution.learning import LEARNED, Fold, learn_by_rules
from training.evolution.score_file import ShowProgress
from training.evolution.selection import SELECTIONS
from training.evolution.variation import Depths, ProtectedDivision
from training.evolution.workers import Workers, workers
from training.histories import splits
from training.histories.history import ChangeHistory
from training.replaying.metrics import ORACLE

FORMAT: Final = "gp4c-experiment/1"
NAME: Final = "results.json"
FITNESSES: Final = ("ndcg", "change_rate")


def label(selection: str, terminal_set: str, fitness: str) -> str:
    """Name of a learned function in the results, such as ``GP4C best all ndcg``."""
    return f"GP4C {selection} {terminal_set} {fitness}"


class Preset(NamedTuple):
    """Everything in which the experiment of one paper differs from that of another."""

    protocol: splits.Protocol
    operators: str
    protected_division: ProtectedDivision
    depths: Depths
    clock: Clock
    warmup: int
    budget: float
    searches: tuple[tuple[str, str], ...]
    """Fitness and set of terminals of every learning run."""


PRESETS: Final = {
    "journal": Preset(
        "journal", "journal", "zero", Depths(), "cycles", 2, 0.05,
        tuple((fitness, name) for fitness in FITNESSES for name in PAPER_SETS),
    ),
    "thesis": Preset(
        "thesis", "thesis", "large", Depths(), "cycles", 2, 0.05, (("change_rate", "basic"),),
    ),
}  # fmt: skip
"""Paper -> its experiment (journal sections 4.2 and 5.2; thesis 3.2, 3.3, 4.3 and 4.4).

Both on the clock of cycles: the papers print sums over visits, but their figures come out on it alone.
"""
SEARCHES: Final = PRESETS["journal"].searches


class LearnedFold(NamedTuple):
    """The function learned on one fold."""

    text: str
    run: int
    """The run that found it."""
    values: dict[str, dict[str, float]]
    """Part (training, validation, test) -> metric -> mean over its scored cycles."""

    def to_json(self) -> Json:
        return {"text": self.text, "run": self.run, **self.values}

    @classmethod
    def from_json(cls, content: Json) -> LearnedFold:
        return cls(content["text"], content["run"], {split: content[split] for split in SPLITS})


@dataclass(frozen=True)
class LearnedSet:
    """Functions of all folds that one selection rule chose in one learning run."""

    fitness: str
    selection: str
    folds: list[LearnedFold]
    replays: int
    replay_s: float
    """Processor time in the replays of the evolution."""
    wall_s: float
    resumed: bool
    """Whether the run was interrupted: its times are then those of a part."""
    terminals: str
    """Name of the set."""

    @property
    def name(self) -> str:
        return label(self.selection, self.terminals, self.fitness)

    def to_json(self) -> Json:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"folds": [fold.to_json() for fold in self.folds]}

    @classmethod
    def from_json(cls, content: Json) -> LearnedSet:
        fields = {field.name: content[field.name] for field in dataclasses.fields(cls)}
        return cls(**fields | {"folds": [LearnedFold.from_json(fold) for fold in content["folds"]]})


@dataclass(frozen=True)
class ExperimentResults:
    """Results of an experiment, format ``gp4c-experiment/1``."""

    created: str
    versions: dict[str, str]
    history: RecordedHistory
    changes_per_page_and_cycle: float
    choices: Choices
    test_pages: list[int]
    """Pages of every test set."""
    changed_pages: list[list[int]]
    """Fold -> pages that changed in each scored cycle."""
    learned: list[LearnedSet]
    trials: Trials
    """The baselines, the oracle, and every `LearnedSet` by its name."""
    total_s: float
    preset: str | None = None
    """Key of `PRESETS`; None: choices of one's own."""

    @property
    def fitnesses(self) -> list[str]:
        """Fitnesses that functions were learned for."""
        return list(dict.fromkeys(one.fitness for one in self.learned))

    @property
    def terminal_sets(self) -> list[str]:
        """Names of the sets of terminals that functions were learned with; the largest last."""
        return list(dict.fromkeys(one.terminals for one in self.learned))

    def learned_for(self, metric: str, terminal_set: str = "", selection: str = "best") -> str:
        """Name of the function learned for a metric, or for the first fitness if none was.

        ``terminal_set``: by default the largest.
        """
        fitness = metric if metric in self.fitnesses else self.fitnesses[0]
        return label(selection, terminal_set or self.terminal_sets[-1], fitness)

    def to_json(self) -> Json:
        """The content of ``results.json``."""
        return {
            "format": FORMAT,
            "created": self.created,
            "preset": self.preset,
            "versions": self.versions,
            "history": self.history._asdict()
            | {"changes_per_page_and_cycle": self.changes_per_page_and_cycle},
            "choices": plain(self.choices.recorded()),
            "first_cycle": self.trials.first_cycle,
            "test_pages": self.test_pages,
            "changed_pages": self.changed_pages,
            "learned": [one.to_json() for one in self.learned],
            "series": self.trials.series,
            "smaller_budgets": self.trials.smaller_budgets,
            "total_s": self.total_s,
        }

    @classmethod
    def from_json(cls, content: Json) -> ExperimentResults:
        """Take the content of ``results.json``.

        Raises ValueError for another format, KeyError or TypeError for what is missing or of another kind,
        LearningError for choices that cannot be used.
        """
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        choices = recorded_choices(content["choices"] | content["choices"]["parameters"])
        return cls(
            content["created"],
            content["versions"],
            RecordedHistory.from_json(content["history"]),
            content["history"]["changes_per_page_and_cycle"],
            choices,
            content["test_pages"],
            content["changed_pages"],
            [LearnedSet.from_json(one) for one in content["learned"]],
            Trials(
                content["series"],
                content["first_cycle"],
                float(choices.budget),
                content["smaller_budgets"],
            ),
            content["total_s"],
            content["preset"],
        )


def read_results(directory: Path) -> ExperimentResults:
    """Results in the directory of an experiment. Raises HistoryError."""
    path = directory / NAME
    try:
        return ExperimentResults.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryError(
            f"{path} has no results of `python -m training.experiment` to report ({error}); give the "
            "directory of an experiment, a score file, or the store of a crawl"
        ) from None


class Experiment:
    """An experiment that writes to a directory and resumes from it."""

    def __init__(
        self,
        history: ChangeHistory,
        choices: Choices,
        directory: Path,
        console: Console,
        shown: ShowProgress,
        preset: str | None = None,
    ) -> None:
        """``console`` prints what is learned, ``shown`` the progress; ``preset``: key of `PRESETS`."""
        self._preset = preset
        self._history = history
        self._choices = choices
        self._directory = directory
        self._console = console
        self._shown = shown

    def run(self, jobs: int) -> ExperimentResults:
        """Learn all functions on so many processes (-1: all), and replay them on the test sets.

        Raises HistoryError or LearningError as `training.evolution.learning.learn` does, Gp4cError for the
        directory of another experiment; KeyboardInterrupt passes on, the same goes on from there.
        """
        started = time.perf_counter()
        history, choices = self._history, self._choices
        folds = prepare_splits(
            history, choices
        )  # an unusable history is an error now, not after the first hour
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
            self._preset,
        )

    def _learn_all(self, folds: list[PreparedSplit], parallel: Workers) -> Iterator[LearnedSet]:
        """Learn every combination of fitness and terminals; yield what each selection rule gave.

        A combination that is done is read from the directory; one that was interrupted goes on from its
        checkpoint.
        """
        searches = SEARCHES if self._preset is None else PRESETS[self._preset].searches
        for fitness, name in searches:
            names = PAPER_SETS[name]
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
        self,
        choices: Choices,
        terminals: str,
        folds: list[PreparedSplit],
        checkpoint: Checkpoint,
        parallel: Workers,
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
    return LearnedFold(fold.text, fold.run, {split: learned[split] for split in SPLITS})


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
    """Visits of a learned function beside those of the best baseline by a metric, on the test sets.

    ``history``: what the results came from; ``name``: of the function in the results.
    """
    learned = next(one for one in results.learned if one.name == name)
    texts = [fold.text for fold in learned.folds]
    others = [best_baseline(results.trials, metric)] * len(texts)
    return differ(held_out(history, results.choices), texts, others, results.choices.crawl())
