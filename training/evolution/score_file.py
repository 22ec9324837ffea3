"""Write score files (docs/architecture.md, "Files and formats"), for `scrapy_gp4c.scoring.functions.load`."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import FORMAT
from training.evolution.checkpoint import write_atomically
from training.evolution.choices import PARTS, Choices, identity
from training.evolution.learning import LEARNED, Learned
from training.histories.history import ChangeHistory

PACKAGES: Final = ("scrapy-gp4c", "deap", "numpy")


def write_score_file(
    path: Path,
    text: str,
    *,
    clock: str,
    fitness: str,
    values: Mapping[str, Mapping[str, float]],
    selection: str,
    seed: int,
    history: ChangeHistory,
    parameters: Mapping[str, Any],
) -> None:
    """Write the score expression `text` and how it was learned, atomically.

    ``values``: part (``training``, ``validation``, ``test``) -> metric -> mean over its scored cycles.
    Raises LearningError when the file cannot be written.
    """
    expression = parse(text)
    content = {
        "format": FORMAT,
        "expression": expression.text,
        "terminals": list(expression.terminals),
        "clock": clock,
        "fitness": fitness,
        **{part: dict(values[part]) for part in ("training", "validation", "test")},
        "selection": selection,
        "seed": seed,
        "history": {
            "source": history.source,
            "pages": history.pages,
            "cycles": history.cycles,
            "sha256": history.sha256,
        },
        "parameters": dict(parameters),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_atomically(path, content, indent=2)


def write_learned(
    path: Path, learned: Learned, choices: Choices, history: ChangeHistory, more: Mapping[str, Any]
) -> None:
    """Write the best of what was learned from `history`; ``more``: parameters besides the run's `identity`.

    Raises LearningError when the file cannot be written.
    """
    table = learned.best.table[LEARNED]
    write_score_file(
        path,
        learned.best.text,
        clock=choices.clock,
        fitness=choices.fitness,
        values={part: {k: v for k, v in table[part].items() if math.isfinite(v)} for part in PARTS},
        selection=choices.selection,
        seed=choices.seed,
        history=history,
        parameters={**identity(history, choices), **more},
    )
