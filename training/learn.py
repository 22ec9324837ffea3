"""Learn a score function: `python -m training.learn HISTORY`; docs/learning.md explains every option."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.scoring import terminals
from training.comparing.promotion import budget_of_crawl, promote
from training.evolution.checkpoint import Checkpoint, check_writable
from training.evolution.choices import Choices, arrange, identity
from training.evolution.evolve import Parameters
from training.evolution.learning import learn
from training.evolution.score_file import write_learned
from training.evolution.selection import GUARDED, RULES
from training.evolution.variation import RATES
from training.evolution.workers import workers
from training.histories import splits
from training.histories.reading import read_history
from training.replaying.arranged import TIES
from training.replaying.metrics import MEASURES, parse_budget
from training.reporting.terminal import bars, continuation, report

WIDTH: Final = 160
"""Columns of the result where it is not shown on a terminal."""
FORGET: Final = 0.05
"""Recommended; the papers forget nothing (docs/learning.md compares)."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    choices, parameters = Choices(), Parameters()
    command = argparse.ArgumentParser(
        prog="python -m training.learn",
        description="Learn a score function from a recorded change history by genetic programming.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = command.add_argument
    add("history", help="history file, or the store of a crawl (a directory)")
    add("-o", "--output", type=Path, default=Path("score.json"), help="score file to write")
    add(
        "--promote",
        type=Path,
        metavar="PATH",
        help="score file in use: replace it only if what is learned is significantly better "
        "(docs/closing-the-loop.md); exit code 0 promoted, 3 kept",
    )
    goal = command.add_argument_group("what to learn")
    add = goal.add_argument
    add("--fitness", default=choices.fitness, help=f"{', '.join(MEASURES)}, or a dotted path")
    add(
        "--terminals",
        default="all",
        help=f"basic, all, or a list such as n,X,t ({', '.join(terminals.NAMES)})",
    )
    add("--protocol", choices=splits.PROTOCOLS, default=choices.protocol, help="how to split the history")
    add("--selection", choices=RULES, default=GUARDED, help="which of the best is taken")
    crawl = command.add_argument_group("the crawl that is replayed")
    add = crawl.add_argument
    add(
        "--budget",
        type=_budget,
        default=argparse.SUPPRESS,
        help=f"visits per cycle: share (0.05) or count (500) (default: {choices.budget}; with --promote "
        "that of the crawl's newest cycle)",
    )
    add("--warmup", type=int, default=choices.warmup, help="cycles in which every page is visited first")
    add("--clock", choices=terminals.CLOCKS, default=choices.clock, help="how the terminals weigh outcomes")
    add("--ties", choices=TIES, default=choices.ties, help="order of pages with equal scores")
    process = command.add_argument_group("genetic programming")
    add = process.add_argument
    add("--population", type=int, default=parameters.population, help="individuals per generation")
    add("--generations", type=int, default=parameters.generations, help="generations")
    add("--seeds", type=int, default=choices.seeds, help="independent runs per fold")
    add("--seed", type=int, default=choices.seed, help="all randomness follows from it")
    add("--operators", choices=tuple(RATES), default=parameters.operators, help="mutations of which paper")
    add(
        "--parsimony", type=float, default=parameters.parsimony, help="price of a node, taken off the fitness"
    )
    add("--forget", type=float, default=FORGET, help="share of training changes taken out at random")
    running = command.add_argument_group("running")
    add = running.add_argument
    add("--jobs", type=int, default=-1, help="worker processes; -1: one per processor")
    add("--backend", default="loky", help="of joblib: loky, dask, ray")
    add("--scheduler", help="address of a Dask scheduler, such as tcp://127.0.0.1:8786")
    add("--checkpoint", type=Path, help="directory for the state of the run (default: OUTPUT.checkpoint)")
    add("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    return command


def _budget(text: str) -> float:
    return parse_budget(text)  # argparse names this function where the text is no number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0, 2 for bad input, 130 for Ctrl-C, 3: see --promote."""
    given = parser().parse_args(arguments)
    words = list(sys.argv[1:] if arguments is None else arguments)
    errors = Console(stderr=True)
    try:
        if given.promote is not None:
            return _promote(given, errors)
        complete = _learn(given, errors, words)
    except Gp4cError as error:
        errors.print(f"error: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        return 2
    except KeyboardInterrupt:
        errors.print("stopped before anything was learned", style="yellow")
        return 130
    return 0 if complete else 130


def _choices(given: Any) -> Choices:
    return Choices(
        fitness=given.fitness,
        protocol=given.protocol,
        budget=getattr(given, "budget", Choices.budget),
        warmup=given.warmup,
        clock=given.clock,
        ties=given.ties,
        seeds=given.seeds,
        seed=given.seed,
        selection=given.selection,
        forget=given.forget,
        parameters=Parameters(
            terminals=terminals.SETS.get(given.terminals, tuple(given.terminals.split(","))),
            population=given.population,
            generations=given.generations,
            operators=given.operators,
            parsimony=given.parsimony,
        ),
    )


def _promote(given: Any, errors: Console) -> int:
    choices, source, console = _choices(given), Path(given.history), Console()
    if not hasattr(given, "budget"):
        choices = replace(choices, budget=budget_of_crawl(source, choices.budget, console))
    with (
        workers(given.jobs, given.backend, given.scheduler) as parallel,
        bars(errors, choices, 1, 0) as watch,
    ):
        return promote(source, given.promote, choices, parallel, console, watch)


def _learn(given: Any, errors: Console, words: Sequence[str]) -> bool:
    choices = _choices(given)
    output: Path = given.output
    check_writable(output)
    history = read_history(given.history)
    folds = arrange(history, choices)
    run = identity(history, choices)
    directory = given.checkpoint or output.with_name(output.name + ".checkpoint")
    checkpoint = Checkpoint(directory, run)
    states = checkpoint.open(given.resume)
    done = states[0]["generation"] if states else 0
    with (
        workers(given.jobs, given.backend, given.scheduler) as parallel,
        bars(errors, choices, len(folds), done) as watch,
    ):
        learned = learn(
            history, choices, parallel, folds=folds, checkpoint=checkpoint, states=states, watch=watch
        )
    # What was learned must reach the disk even if Ctrl-C is pressed again.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        write_learned(output, learned, choices, history, {"generations_done": learned.generations})
    finally:
        signal.signal(signal.SIGINT, interrupt)
    report(learned, choices, output, Console(width=None if sys.stdout.isatty() else WIDTH))
    if learned.complete:
        checkpoint.remove()
    else:
        errors.print(
            f"\nStopped after generation {learned.generations} of {choices.parameters.generations}; "
            f"to go on:\n{continuation(words)}",
            highlight=False,
            soft_wrap=True,
        )
    return learned.complete


if __name__ == "__main__":
    sys.exit(main())
