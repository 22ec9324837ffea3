"""Learning runs that write score files (docs/architecture.md, "Files and formats") and survive kills."""

from __future__ import annotations

import datetime
import math
import platform
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.policies.table import DEFAULT
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.functions import FORMAT
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.checkpoint import Checkpoint, write_atomically
from training.evolution.choices import SPLITS, Choices, arrange, identity
from training.evolution.evolve import Json
from training.evolution.learning import LEARNED, Learned, ProgressListener, learn
from training.evolution.workers import Workers
from training.histories.history import ChangeHistory

PACKAGES: Final = ("scrapy-gp4c", "deap", "numpy")


@dataclass(frozen=True)
class ScoreFile:
    """A learned score function and how it came about."""

    expression: Expression
    clock: Clock
    fitness: str
    values: Mapping[str, Mapping[str, float]]
    """Part (`SPLITS`) -> metric -> mean over its scored cycles."""
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
            **{part: dict(self.values[part]) for part in SPLITS},
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
        {part: {k: v for k, v in values[part].items() if math.isfinite(v)} for part in SPLITS},
        choices.selection,
        choices.seed,
        history,
        {**identity(history, choices), **more},
        choices.policy,
    ).write(path)


ShowProgress = Callable[[Choices, int, int], AbstractContextManager[ProgressListener]]
"""``shown(choices, folds, generations done before)``: the watch of a learning run, as long as it goes on."""
StartWorkers = Callable[[], AbstractContextManager[Workers]]
"""Gives the workers, see `training.evolution.workers.workers`."""


def learn_to_file(
    history: ChangeHistory,
    choices: Choices,
    output: Path,
    checkpoint: Path,
    *,
    resume: bool,
    working: StartWorkers,
    shown: ShowProgress,
) -> Learned:
    """Learn from `history` and write the score file (and front); Ctrl-C ends the run early and leaves both.

    ``checkpoint``: directory for the state of the run, removed when it is complete; ``resume``: go on from
    what is there. Raises HistoryError or LearningError as `training.evolution.learning.learn` and
    `Checkpoint.open` do; KeyboardInterrupt passes on if nothing was learned yet.
    """
    folds = arrange(history, choices)
    state = Checkpoint(checkpoint, identity(history, choices))
    states = state.open(resume)
    done = states[0].generation if states else 0
    with working() as parallel, shown(choices, len(folds), done) as watch:
        learned = learn(history, choices, parallel, folds=folds, checkpoint=state, watch=watch)
    # What was learned must reach the disk even if Ctrl-C is pressed again.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        more: dict[str, object] = {"generations_done": learned.generations}
        if choices.front:
            write_front(front_of(output), learned, choices, history, more)
            more |= {"prefer": choices.prefer}
        write_learned(output, learned, choices, history, more)
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if learned.complete:
        state.remove()
    return learned
