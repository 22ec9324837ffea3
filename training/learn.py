"""Learn a score function: `python -m training.learn HISTORY`; docs/learning.md explains every option."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError
from training import options
from training.comparing.promotion import budget_of_crawl, promote
from training.evolution.checkpoint import check_writable
from training.evolution.choices import Choices
from training.evolution.evolve import Parameters
from training.evolution.long_run import learn_to_file
from training.evolution.selection import GUARDED, RULES
from training.evolution.variation import RATES
from training.evolution.workers import workers
from training.histories.reading import read_history
from training.replaying.metrics import MEASURES
from training.reporting.terminal import bars, report, stopped, wide_console

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
    options.history(add)
    options.output(add, "score file to write", Path("score.json"))
    promote_help = (
        "score file in use: replace it only if what is learned is significantly better "
        "(docs/closing-the-loop.md); exit code 0 promoted, 3 kept"
    )
    add("--promote", type=Path, metavar="PATH", help=promote_help)
    add = command.add_argument_group("what to learn").add_argument
    add("--fitness", default=choices.fitness, help=f"{', '.join(MEASURES)}, or a dotted path")
    options.terminal_names(add)
    options.protocol(add, choices.protocol)
    add("--selection", choices=RULES, default=GUARDED, help="which of the best is taken")
    add = command.add_argument_group("the crawl that is replayed").add_argument
    options.budget(add, choices.budget)
    options.warmup(add, choices.warmup)
    options.clock(add, choices.clock)
    options.ties(add, choices.ties)
    add = command.add_argument_group("genetic programming").add_argument
    options.process(add)
    add("--operators", choices=tuple(RATES), default=parameters.operators, help="mutations of which paper")
    price_help = "price of a node, taken off the fitness"
    add("--parsimony", type=float, default=parameters.parsimony, help=price_help)
    add("--forget", type=float, default=FORGET, help="share of training changes taken out at random")
    add = command.add_argument_group("running").add_argument
    options.jobs(add)
    add("--backend", default="loky", help="of joblib: loky, dask, ray")
    add("--scheduler", help="address of a Dask scheduler, such as tcp://127.0.0.1:8786")
    add("--checkpoint", type=Path, help="directory for the state of the run (default: OUTPUT.checkpoint)")
    add("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0, 2 for bad input, 130 for Ctrl-C, 3: see --promote."""
    given = parser().parse_args(arguments)
    errors = Console(stderr=True)
    try:
        if given.promote is not None:
            return _promote(given, errors)
        return _learn(given, sys.argv[1:] if arguments is None else arguments, errors)
    except Gp4cError as error:
        errors.print(f"error: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        return 2
    except KeyboardInterrupt:
        errors.print("stopped before anything was learned", style="yellow")
        return 130


def _promote(given: argparse.Namespace, errors: Console) -> int:
    choices, source, console = options.choices_of(given), Path(given.history), Console()
    if not hasattr(given, "budget"):
        choices = replace(choices, budget=budget_of_crawl(source, choices.budget, console))
    with (
        workers(given.jobs, given.backend, given.scheduler) as parallel,
        bars(errors, choices, 1, 0) as watch,
    ):
        return promote(source, given.promote, choices, parallel, console, watch)


def _learn(given: argparse.Namespace, words: Sequence[str], errors: Console) -> int:
    choices, output = options.choices_of(given), given.output
    check_writable(output)
    learned = learn_to_file(
        read_history(given.history),
        choices,
        output,
        given.checkpoint or output.with_name(output.name + ".checkpoint"),
        resume=given.resume,
        working=partial(workers, given.jobs, given.backend, given.scheduler),
        shown=partial(bars, errors),
    )
    report(learned, choices, output, wide_console())
    if not learned.complete:
        stopped(learned, choices, words, errors)
    return 0 if learned.complete else 130


if __name__ == "__main__":
    sys.exit(main())
