"""What `python -m training.learn` shows: progress while it learns, the result, and how to go on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from training.comparing import statistics
from training.evolution.choices import PARTS, Choices
from training.evolution.fitness import load_fitness
from training.evolution.learning import LEARNED, Fold, Learned
from training.evolution.simplify import readable
from training.replaying.metrics import TRIO

WIDTH: Final = 160
"""Columns of a result where it is not shown on a terminal."""


def wide_console() -> Console:
    """Standard output, wide enough for tables where it is no terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


class Bars:
    """Progress bars on a terminal, elsewhere a line now and then: a `training.evolution.learning.Watch`."""

    def __init__(self, console: Console, progress: Progress, choices: Choices, folds: int, done: int) -> None:
        """Add the two bars to `progress`; ``done``: generations done before."""
        self._console = console
        self._progress = progress
        self._choices = choices
        self._total = choices.parameters.generations
        self._runs = f"{folds * choices.seeds} runs" if folds > 1 else f"{choices.seeds} seeds"
        self._all: TaskID = progress.add_task("generations", total=self._total, completed=done, best="")
        self._one: TaskID = progress.add_task("", total=1, best="")
        self._number = done

    def generation(self, number: int, asked: int) -> None:
        """Start the bar of a generation."""
        self._number = number
        self._progress.reset(self._one, total=asked, description=f"  generation {number}, {self._runs}")

    def advance(self, texts: int) -> None:
        """Move the bar of the generation."""
        self._progress.advance(self._one, texts)

    def begun(self, fitness: float) -> None:
        """Show the best fitness of the first generation of the first run, while the others are to come."""
        text = f"best {self._choices.fitness} {fitness:.4f}"
        self._progress.update(self._all, best=f"{text} (first run)")
        if not self._console.is_terminal:
            text = f"generation 1/{self._total}, first of {self._runs}: {text}"
            self._console.print(text, highlight=False)

    def best(self, fitness: Sequence[float]) -> None:
        """Move the bar of the generations and show the best fitness so far."""
        if not fitness:
            return
        text = f"best {self._choices.fitness} {max(fitness):.4f}"
        if min(fitness) < max(fitness):
            text += f" (worst run {min(fitness):.4f})"
        self._progress.update(self._all, completed=self._number, best=text)
        step = max(1, self._total // 10)
        told = self._number in (1, self._total) or self._number % step == 0
        if not self._console.is_terminal and told:
            self._console.print(f"generation {self._number}/{self._total}: {text}", highlight=False)


@contextmanager
def bars(console: Console, choices: Choices, folds: int, done: int) -> Iterator[Bars]:
    """Show progress on `console` within the block; ``done``: generations done before."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[best]}"),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        yield Bars(console, progress, choices, folds, done)


def interval(values: Sequence[float], sign: str = "") -> str:
    """Mean, with the half width of its 95% confidence interval (Student's t over the folds)."""
    mean = statistics.mean(values)
    return f"{mean.mean:{sign}.4f}" + (f" ± {mean.half_width:.4f}" if len(values) > 1 else "")


def results(folds: Sequence[Fold], fitness: str) -> Table:
    """The learned function beside every baseline and the oracle, and how far it is ahead in the test.

    The lead is paired: both replay the same pages and cycles, so its interval is narrower than theirs.
    """
    shown = load_fitness(fitness)
    table = Table(title=f"{fitness}, mean over the scored cycles" + (" and folds" if len(folds) > 1 else ""))
    table.add_column("score function")
    for part in PARTS:
        table.add_column(part, justify="right")
    table.add_column("learned ahead", justify="right")
    besides = [metric for metric in TRIO if metric != shown.name]
    for metric in besides:
        table.add_column(f"test {metric}", justify="right")
    for name in folds[0].table:
        row = [interval([fold.table[name][part][shown.name] for fold in folds]) for part in PARTS]
        gaps = [
            fold.table[LEARNED]["test"][shown.name] - fold.table[name]["test"][shown.name] for fold in folds
        ]
        row.append("" if name == LEARNED else interval(gaps, "+"))
        row += [interval([fold.table[name]["test"][metric] for fold in folds]) for metric in besides]
        table.add_row(name, *row, style="bold" if name == LEARNED else None, end_section=name == LEARNED)
    return table


def report(learned: Learned, choices: Choices, output: Path, console: Console) -> None:
    """End the terminal with the formula, what it is worth, and how to use it."""
    if len(learned.folds) > 1:
        for number, fold in enumerate(learned.folds, start=1):
            console.print(f"fold {number}: {readable(fold.text)}", highlight=False, soft_wrap=True)
        console.print()
    console.print(results(learned.folds, choices.fitness))
    console.print()
    console.print("score = " + readable(learned.best.text), style="bold", highlight=False, soft_wrap=True)
    console.print()
    console.print(f"Written to {output}. To crawl with it, put this line into settings.py:")
    console.print(f"GP4C_SCORE_FUNCTION = {json.dumps(str(output))}", highlight=False, soft_wrap=True)
    if choices.policy != Choices.policy:
        console.print(f"GP4C_POLICY = {json.dumps(choices.policy)}", highlight=False, soft_wrap=True)


def stopped(learned: Learned, choices: Choices, arguments: Sequence[str], console: Console) -> None:
    """Say how far an interrupted run came, and how to go on; ``arguments``: those it was started with."""
    console.print(
        f"\nStopped after generation {learned.generations} of {choices.parameters.generations}; "
        f"to go on:\n{continuation(arguments)}",
        highlight=False,
        soft_wrap=True,
    )


def continuation(arguments: Sequence[str]) -> str:
    """The command that goes on with an interrupted run."""
    return shlex.join(
        ["python", "-m", "training.learn", *(a for a in arguments if a != "--resume"), "--resume"]
    )
