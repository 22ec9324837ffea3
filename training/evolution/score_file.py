"""Write score files (docs/architecture.md, "Files and formats"), for `scrapy_gp4c.scoring.functions.load`."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.policies.table import DEFAULT
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.functions import FORMAT
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.checkpoint import write_atomically
from training.evolution.choices import PARTS, Choices, identity
from training.evolution.evolve import Json
from training.evolution.learning import LEARNED, Learned
from training.histories.history import ChangeHistory

PACKAGES: Final = ("scrapy-gp4c", "deap", "numpy")


@dataclass(frozen=True)
class ScoreFile:
    """A learned score function and how it came about."""

    expression: Expression
    clock: Clock
    fitness: str
    values: Mapping[str, Mapping[str, float]]
    """Part (`PARTS`) -> metric -> mean over its scored cycles."""
    selection: str
    seed: int
    history: ChangeHistory
    """What was learned from."""
    parameters: Mapping[str, object]
    """As plain JSON types."""
    policy: str = DEFAULT
    """Text of what chose by it."""

    def to_json(self) -> Json:
        """The content of the file, of this moment."""
        history = self.history
        return {
            "format": FORMAT,
            "expression": self.expression.text,
            "terminals": list(self.expression.terminals),
            "clock": self.clock,
            **({} if self.policy == DEFAULT else {"policy": self.policy}),
            "fitness": self.fitness,
            **{part: dict(self.values[part]) for part in PARTS},
            "selection": self.selection,
            "seed": self.seed,
            "history": {
                "source": history.source,
                "pages": history.pages,
                "cycles": history.cycles,
                "sha256": history.sha256,
            },
            "parameters": dict(self.parameters),
            "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    def write(self, path: Path) -> None:
        """Write it atomically. Raises LearningError when the file cannot be written."""
        write_atomically(path, self.to_json(), indent=2)


def front_of(path: Path) -> Path:
    """Directory of the front that goes with the score file at `path`."""
    return path.with_name(f"{path.name}.front")


def write_front(
    directory: Path, learned: Learned, choices: Choices, history: ChangeHistory, more: Mapping[str, object]
) -> None:
    """Write the front of what was learned, a score file for each function: ``01.json``, ``02.json``, ...

    The first finds the most changes. Score files of an earlier front there are removed. Raises LearningError
    when a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("[0-9][0-9].json"):
            old.unlink()
    except OSError as error:
        raise LearningError(f"cannot write to {str(directory)!r}: {error.strerror}") from error
    for place, member in enumerate(learned.best.front, start=1):
        _write(directory / f"{place:02}.json", member.text, member.values, choices, history, more)


def write_learned(
    path: Path, learned: Learned, choices: Choices, history: ChangeHistory, more: Mapping[str, object]
) -> None:
    """Write the best of what was learned from `history`; ``more``: parameters besides the run's `identity`.

    Raises LearningError when the file cannot be written.
    """
    _write(path, learned.best.text, learned.best.table[LEARNED], choices, history, more)


def _write(
    path: Path,
    text: str,
    values: Mapping[str, Mapping[str, float]],
    choices: Choices,
    history: ChangeHistory,
    more: Mapping[str, object],
) -> None:
    ScoreFile(
        parse(text),
        choices.clock,
        choices.fitness,
        {part: {k: v for k, v in values[part].items() if math.isfinite(v)} for part in PARTS},
        choices.selection,
        choices.seed,
        history,
        {**identity(history, choices), **more},
        choices.policy,
    ).write(path)
