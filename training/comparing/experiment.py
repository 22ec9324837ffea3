"""The published experiment on any history."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.scoring.terminals import SETS
from training.comparing.paper import BASELINES, FITNESSES, label
from training.comparing.trials import evaluate, smaller_budgets
from training.evolution.checkpoint import Checkpoint, write_atomically
from training.evolution.choices import PARTS, Choices, Parts, arrange, identity
from training.evolution.learning import Fold, Learned, learn
from training.evolution.selection import SELECTIONS
from training.evolution.workers import workers
from training.histories import splits
from training.histories.history import ChangeHistory
from training.replaying.metrics import ORACLE
from training.reporting.terminal import bars

FORMAT: Final = "gp4c-experiment/1"


class _LastStates:
    """A checkpoint that also remembers what it saved last."""

    def __init__(self, checkpoint: Checkpoint, states: list[dict[str, Any]] | None) -> None:
        self._checkpoint = checkpoint
        self.states = states

    def save(self, states: list[dict[str, Any]]) -> None:
        self._checkpoint.save(states)
        self.states = states


def learn_all(
    history: ChangeHistory, choices: Choices, directory: Path, parallel: Any, console: Console
) -> Iterator[dict[str, Any]]:
    """Learn every combination of fitness and terminals; yield one entry per selection rule.

    A combination that is done is read from ``directory``; one that was interrupted goes on from its
    checkpoint. Raises HistoryError or LearningError as `training.evolution.learning.learn` does.
    """
    folds: list[Parts] | None = None
    for fitness in FITNESSES:
        for name, names in SETS.items():
            chosen = dataclasses.replace(
                choices, fitness=fitness, parameters=dataclasses.replace(choices.parameters, terminals=names)
            )
            run = identity(history, chosen)
            done = directory / f"learned-{fitness}-{name}.json"
            entries = _read_done(done, run)
            if entries is None:
                if folds is None:
                    folds = arrange(history, choices)
                console.print(
                    f"Learning for {fitness} with {name} terminals: {', '.join(names)}", highlight=False
                )
                checkpoint = Checkpoint(directory / f"checkpoint-{fitness}-{name}", run)
                entries = _learn_one(history, chosen, folds, checkpoint, parallel, console)
                for entry in entries:
                    entry["terminals"] = name
                write_atomically(done, {"run": _plain(run), "learned": entries})
                checkpoint.remove()
            yield from entries


def _learn_one(
    history: ChangeHistory,
    choices: Choices,
    folds: list[Parts],
    checkpoint: Checkpoint,
    parallel: Any,
    console: Console,
) -> list[dict[str, Any]]:
    states = checkpoint.open(resume=True)
    last = _LastStates(checkpoint, states)
    entries = []
    started = time.perf_counter()
    evolution: Learned | None = None
    for selection in SELECTIONS:
        chosen = dataclasses.replace(choices, selection=selection)
        done = last.states[0]["generation"] if last.states else 0
        with bars(console, chosen, len(folds), done) as watch:
            learned = learn(
                history,
                chosen,
                parallel,
                folds=folds,
                checkpoint=last,  # type: ignore[arg-type]  # has all that is used of a Checkpoint
                states=last.states,
                watch=watch,
            )
        if not learned.complete:
            raise KeyboardInterrupt
        if evolution is None:  # the other rules choose from what it found
            evolution, wall_s = learned, time.perf_counter() - started
        entries.append(
            {
                "fitness": choices.fitness,
                "selection": selection,
                "folds": [_fold(fold, choices.fitness) for fold in learned.folds],
                "replays": evolution.replays,
                "replay_s": evolution.replay_s,
                "wall_s": wall_s,
                "resumed": bool(states),
            }
        )
    return entries


def _fold(fold: Fold, fitness: str) -> dict[str, Any]:
    learned = fold.table["learned"]
    return {"text": fold.text, "run": fold.run, **{part: learned[part] for part in PARTS}}


def _read_done(path: Path, run: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("run") != _plain(run):
        raise Gp4cError(
            f"{path} belongs to another experiment (other history or choices): give another directory with "
            "-o, or remove it"
        )
    entries: list[dict[str, Any]] = content["learned"]
    return entries


def _plain(content: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(content))


def experiment(
    history: ChangeHistory, choices: Choices, directory: Path, jobs: int, console: Console
) -> dict[str, Any]:
    """Run the whole experiment, resuming what ``directory`` has of it; returns what it writes."""
    started = time.perf_counter()
    arrange(history, choices)  # an unusable history is an error now, not after the first hour
    with workers(jobs) as parallel:
        learned = list(learn_all(history, choices, directory, parallel, console))
    parts = splits.protocol_splits(history, choices.protocol, seed=choices.seed, warmup=choices.warmup)
    tests = [split.test for split in parts]
    functions: dict[str, Sequence[str]] = {name: [name] * len(tests) for name in (*BASELINES, ORACLE)}
    for entry in learned:
        name = label(entry["selection"], entry["terminals"], entry["fitness"])
        functions[name] = [fold["text"] for fold in entry["folds"]]
    budget = float(choices.budget)
    series = evaluate(tests, functions, choices, budget)
    tried = {
        name: texts for name, texts in functions.items() if "best" in name.split() or name in ("nad", "t*X")
    }
    first = parts[0].test.cycles - len(series["random"]["ndcg"][0]) + 1
    return {
        "format": FORMAT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("scrapy-gp4c", "deap", "numpy", "scipy")},
        "history": {
            "source": history.source,
            "pages": history.pages,
            "cycles": history.cycles,
            "sha256": history.sha256,
            "changes_per_page_and_cycle": float(history.changed.mean()),
        },
        "choices": _plain(dataclasses.asdict(choices)),
        "first_cycle": first,
        "test_pages": [test.pages for test in tests],
        "changed_pages": [test.changed[choices.warmup :].sum(axis=1).tolist() for test in tests],
        "learned": learned,
        "series": series,
        "smaller_budgets": smaller_budgets(tests, tried, choices, budget),
        "total_s": time.perf_counter() - started,
    }
