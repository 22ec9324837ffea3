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

    def to_json(self) -> Json:
        """The content of the file, of this moment."""
        history = self.history
        return {
            "format": FORMAT,
            "expression": self.expression.text,
            "terminals": list(self.expression.terminals),
            "clock": self.clock,
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


def write_learned(
    path: Path, learned: Learned, choices: Choices, history: ChangeHistory, more: Mapping[str, object]
) -> None:
    """Write the best of what was learned from `history`; ``more``: parameters besides the run's `identity`.

    Raises LearningError when the file cannot be written.
    """
    table = learned.best.table[LEARNED]
    ScoreFile(
        parse(learned.best.text),
        choices.clock,
        choices.fitness,
        {part: {k: v for k, v in table[part].items() if math.isfinite(v)} for part in PARTS},
        choices.selection,
        choices.seed,
        history,
        {**identity(history, choices), **more},
    ).write(path)
