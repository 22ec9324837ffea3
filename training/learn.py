"""Learn a score function: `python -m training.learn HISTORY`; docs/learning.md explains every option."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError
from training import learn_growth, learn_options, options, search_options
from training.comparing.promotion import budget_of_crawl, policy_of_crawl, promote
from training.evolution.checkpoint import check_writable
from training.evolution.score_file import front_of, learn_to_file
from training.evolution.workers import workers
from training.reporting.terminal import bars, progress, report, show_front, stopped, wide_console


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0, 2 for bad input, 130 for Ctrl-C, 3: see --promote."""
    parser = learn_options.parser()
    given = parser.parse_args(arguments)
    errors = Console(stderr=True)
    try:
        if given.growth:
            learn_growth.run(given, parser, errors)
            return 0
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
    if not hasattr(given, "policy"):
        choices = replace(choices, policy=policy_of_crawl(source, console))
    with (
        workers(given.jobs, given.backend, given.scheduler) as parallel,
        bars(errors, choices, 1, 0) as watch,
    ):
        return promote(source, given.promote, choices, parallel, console, watch)


def _learn(given: argparse.Namespace, words: Sequence[str], errors: Console) -> int:
    choices, output = options.choices_of(given), given.output
    check_writable(output)
    learned = learn_to_file(
        search_options.history_of(given, partial(progress, errors)),
        choices,
        output,
        given.checkpoint or output.with_name(output.name + ".checkpoint"),
        resume=given.resume,
        working=partial(workers, given.jobs, given.backend, given.scheduler),
        shown=partial(bars, errors),
    )
    if choices.front:
        show_front(learned, choices, front_of(output), wide_console())
    report(learned, choices, output, wide_console())
    if not learned.complete:
        stopped(learned, choices, words, errors)
    return 0 if learned.complete else 130


if __name__ == "__main__":
    sys.exit(main())
