"""Learning runs that write score files (docs/code/architecture.md, "Files and formats") and survive kills."""

import datetime
import math
import platform
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from scrapy_gp4c.errors import LearningError, UndecidedError
from scrapy_gp4c.policies.table import DEFAULT
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import FORMAT
from scrapy_gp4c.scoring.named import NAMED
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.checkpoint import Checkpoint, write_atomically
from training.evolution.choices import SPLITS, Choices, identity, prepare_splits
from training.evolution.evolve import Json, named_expression
from training.evolution.learning import LEARNED, Learned, ProgressListener, learn
from training.evolution.workers import Workers
from training.histories.history import ChangeHistory


def versions_of(*packages: str) -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


@dataclass(frozen=True)
class ScoreFile:
    """Content of a score file: a learned score function with its metrics, choices and history."""

    expression: Expression
    clock: Clock
    fitness: str
    values: Mapping[str, Mapping[str, float]]
    """Split (one of `SPLITS`) -> metric -> mean over its scored cycles."""
    selection: str
    seed: int
    history: ChangeHistory
    """History that the function was learned from."""
    parameters: Mapping[str, object]
    """Everything that the learning run depended on, as plain JSON types."""
    policy: str = DEFAULT
    """Text of the policy that the function was learned for."""
    name: str = ""
    """Name, where the function is one of `scrapy_gp4c.scoring.named.NAMED`."""

    def to_json(self) -> Json:
        return {
            "format": FORMAT,
            **({"name": self.name} if self.name else {}),
            "expression": self.expression.text,
            "terminals": list(self.expression.terminals),
            "clock": self.clock,
            **({} if self.policy == DEFAULT else {"policy": self.policy}),
            "fitness": self.fitness,
            **{split_name: dict(self.values[split_name]) for split_name in SPLITS},
            "selection": self.selection,
            "seed": self.seed,
            "history": self.history.identity._asdict(),
            "parameters": dict(self.parameters),
            "versions": versions_of("scrapy-gp4c", "deap", "numpy"),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    def write(self, path: Path) -> None:
        """Write the file atomically. Raises LearningError when it cannot be written."""
        write_atomically(path, self.to_json(), indent=2)


def front_of(path: Path) -> Path:
    """Directory of the score files of a Pareto front, beside the score file `path`: its name + ``.front``."""
    return path.with_name(f"{path.name}.front")


def write_front(
    directory: Path,
    learned: Learned,
    choices: Choices,
    history: ChangeHistory,
    extra_parameters: Mapping[str, object],
) -> None:
    """Write a score file for each function of the Pareto front: ``01.json``, ``02.json``, ...

    The first one is best in the fitness, the last in freshness. Score files of an earlier front in
    `directory` are removed. Raises LearningError when a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("[0-9][0-9].json"):
            old.unlink()
    except OSError as error:
        raise LearningError(
            f"cannot write to {str(directory)!r} ({error.strerror}): give an --output elsewhere"
        ) from error
    for number, member in enumerate(learned.best.front, start=1):
        path = directory / f"{number:02}.json"
        write_score(path, member.text, member.values, choices, history, extra_parameters)


def write_score(
    path: Path,
    text: str,
    values: Mapping[str, Mapping[str, float]],
    choices: Choices,
    history: ChangeHistory,
    extra_parameters: Mapping[str, object],
) -> None:
    """Write the score file of the learned function `text`.

    ``values``: split -> metric -> mean, for finite means only; ``extra_parameters``: parameters to write
    besides the `identity` of the learning run. Raises LearningError when the file cannot be written.
    """
    ScoreFile(
        named_expression(text),
        choices.clock,
        choices.fitness,
        {
            split_name: {k: v for k, v in values[split_name].items() if math.isfinite(v)}
            for split_name in SPLITS
        },
        choices.selection,
        choices.seed,
        history,
        {**identity(history, choices), **extra_parameters},
        choices.goal.policy_of(text),
        text if text in NAMED else "",
    ).write(path)


ShowProgress = Callable[[Choices, int, int], AbstractContextManager[ProgressListener]]
"""Function ``(choices, number of folds, generations done before)``: context with a listener to progress."""
StartWorkers = Callable[[], AbstractContextManager[Workers]]
"""Function that starts workers, see `training.evolution.workers.workers`; a context."""


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
    """Learn from `history`; write the score file `output`, and those of a front beside it, after Ctrl-C too.

    ``checkpoint``: directory for the state of the learning run, removed when it is complete; ``resume``:
    whether to continue from it; ``working`` starts workers; ``shown`` shows progress. Raises HistoryError or
    LearningError as `training.evolution.learning.learn` and `Checkpoint.open` do; KeyboardInterrupt if
    nothing was learned yet.
    """
    folds = prepare_splits(history, choices)
    state = Checkpoint(checkpoint, identity(history, choices))
    states = state.open(resume)
    done = states[0].generation if states else 0
    with working() as parallel, shown(choices, len(folds), done) as watch:
        try:
            learned = learn(history, choices, parallel, folds=folds, checkpoint=state, watch=watch)
        except UndecidedError:
            state.remove()
            raise
    # Ctrl-C is ignored from here on, so that the score file is written whole.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        extra_parameters: dict[str, object] = {"generations_done": learned.generations}
        if choices.front:
            write_front(front_of(output), learned, choices, history, extra_parameters)
            extra_parameters |= {"prefer": choices.prefer}
        best = learned.best
        write_score(output, best.text, best.table[LEARNED], choices, history, extra_parameters)
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if learned.complete:
        state.remove()
    return learned
