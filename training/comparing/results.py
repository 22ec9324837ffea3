"""The results of an experiment, as ``results.json`` holds them, and the history that they came from."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from scrapy_gp4c.errors import HistoryError
from training.comparing.trials import Trials
from training.evolution.choices import PARTS, Choices
from training.evolution.evolve import Json, Parameters
from training.evolution.variation import Depths
from training.histories.history import ChangeHistory
from training.histories.reading import read_history

FORMAT: Final = "gp4c-experiment/1"
NAME: Final = "results.json"


def label(selection: str, terminal_set: str, fitness: str) -> str:
    """Name of a learned function in the results, such as ``GP4C best all ndcg``."""
    return f"GP4C {selection} {terminal_set} {fitness}"


class LearnedFold(NamedTuple):
    """The function learned on one fold."""

    text: str
    run: int
    """The run that found it."""
    values: dict[str, dict[str, float]]
    """Part (training, validation, test) -> metric -> mean over its scored cycles."""

    def to_json(self) -> Json:
        """As the file has it."""
        return {"text": self.text, "run": self.run, **self.values}

    @classmethod
    def from_json(cls, content: Json) -> LearnedFold:
        """Take it from the file."""
        return cls(content["text"], content["run"], {part: content[part] for part in PARTS})


@dataclass(frozen=True)
class LearnedSet:
    """What one learning run gave by one selection rule: a function of every fold."""

    fitness: str
    selection: str
    folds: list[LearnedFold]
    replays: int
    replay_s: float
    """Processor time in the replays of the evolution."""
    wall_s: float
    resumed: bool
    """Whether the run was interrupted, so that its times are not those of all of it."""
    terminals: str
    """Name of the set."""

    @property
    def name(self) -> str:
        """Its name among the functions that were tried."""
        return label(self.selection, self.terminals, self.fitness)

    def to_json(self) -> Json:
        """As the file has it."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"folds": [fold.to_json() for fold in self.folds]}

    @classmethod
    def from_json(cls, content: Json) -> LearnedSet:
        """Take it from the file."""
        fields = {field.name: content[field.name] for field in dataclasses.fields(cls)}
        return cls(**fields | {"folds": [LearnedFold.from_json(fold) for fold in content["folds"]]})


class RecordedHistory(NamedTuple):
    """Which history results or a score file came from."""

    source: str
    pages: int
    cycles: int
    sha256: str

    @classmethod
    def from_json(cls, content: Json) -> RecordedHistory:
        """Take it from results or a score file."""
        return cls(*(content[name] for name in cls._fields))


@dataclass(frozen=True)
class ExperimentResults:
    """All that an experiment found, format ``gp4c-experiment/1``."""

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

    def to_json(self) -> Json:
        """The content of ``results.json``."""
        return {
            "format": FORMAT,
            "created": self.created,
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
        )


def plain(content: Any) -> Any:
    """The content as it is read again from a JSON file."""
    return json.loads(json.dumps(content))


def recorded_choices(recorded: Json) -> Choices:
    """Choices and their parameters from what results or a score file record, all in one mapping.

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


def read_results(directory: Path) -> ExperimentResults:
    """The results in the directory of an experiment. Raises HistoryError for a directory without."""
    path = directory / NAME
    try:
        return ExperimentResults.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryError(
            f"{path} has no results of `python -m training.experiment` to report ({error}); give the "
            "directory of an experiment, a score file, or the store of a crawl"
        ) from None


def find_history(about: RecordedHistory, given: Path | None) -> tuple[ChangeHistory | None, str]:
    """The history that results came from, or why it cannot be used.

    Raises HistoryError where a given file is another history; one that is only recorded may be gone.
    """
    path = given or Path(about.source)
    if given is None and not path.exists():
        return None, (
            f"Not shown: this needs the history, and {about.source} is not there. Make the report again "
            "with --history FILE."
        )
    history = read_history(path)
    if (history.pages, history.cycles, history.sha256) == (about.pages, about.cycles, about.sha256):
        return history, ""
    problem = (
        f"{path} is not the history of these results: expected {about.pages:,} pages, {about.cycles} "
        f"cycles, SHA-256 {about.sha256[:12]}; found {history.pages:,} pages, {history.cycles} cycles, "
        f"SHA-256 {history.sha256[:12]}"
    )
    if given is not None:
        raise HistoryError(f"{problem}. Give the file that was learned from with --history.")
    return None, f"Not shown: {problem}."
