"""``python -m training.evaluate``: score functions side by side on a recorded history.

Each score function is replayed (`training.replaying.replay`) on the same history with the same budget,
warm-up and seed. The figures are means over the scored cycles with the half-width of their 95% confidence
interval.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from scrapy_gp4c.errors import Gp4cError, HistoryError
from training import options
from training.comparing.evaluation import DEFAULT_SCORES, cycles_of, evaluate, write_csv
from training.histories.reading import read_history
from training.replaying.arranged import DEFAULTS, CrawlChoices
from training.replaying.metrics import ORACLE, parse_budget
from training.reporting.evaluation import show
from training.reporting.terminal import wide_console


@contextlib.contextmanager
def _written(path: Path) -> Iterator[IO[str]]:
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror or error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.evaluate", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("history", metavar="HISTORY", help="change history (text, TSV, npz, gzip) or store directory")
    add(
        "--score",
        nargs="+",
        action="extend",
        metavar="SCORE",
        help=f"name, expression, score file, dotted path, or {ORACLE} (default: {', '.join(DEFAULT_SCORES)})",
    )
    add(
        "--budget",
        default=f"{DEFAULTS.budget}",
        help="visits per cycle: a share such as 0.05 or a count such as 5000",
    )
    add(
        "--policy",
        metavar="TEXT",
        default=DEFAULTS.policy,
        help="what chooses by the score: top_k, rounds(rounds=4) or a dotted path (default %(default)s)",
    )
    options.warmup(add, DEFAULTS.warmup, f" (default {DEFAULTS.warmup})")
    options.ties(add, DEFAULTS.ties, f"order of equal scores (default {DEFAULTS.ties})")
    options.clock(add, DEFAULTS.clock, "how outcomes are weighed (default: the score file's, else visits)")
    options.seed(add, DEFAULTS.seed, f"seed of the random ties and draws (default {DEFAULTS.seed})")
    add("--cycles", metavar="A:B", help="only cycles A to B, from 1, both included; warm-up begins at A")
    add("--json", type=Path, metavar="OUT", help="write everything as JSON")
    add("--csv", type=Path, metavar="OUT", help="write a row per score function and cycle as CSV")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, or 2 for input that cannot be used."""
    given = _parser().parse_args(arguments)
    scores = given.score or DEFAULT_SCORES
    errors = Console(stderr=True)
    try:
        history = read_history(given.history)
        cycles = cycles_of(given.cycles or ":", history.cycles)
        if given.cycles:
            history = history.take(cycles=cycles)
        with Progress(
            *Progress.get_default_columns(),
            MofNCompleteColumn(),
            console=errors,
            transient=True,
            disable=not errors.is_terminal,
        ) as bar:
            task = bar.add_task("replaying", total=len(scores))
            evaluation = evaluate(
                history,
                scores,
                CrawlChoices(
                    parse_budget(given.budget),
                    given.warmup,
                    given.ties,
                    given.clock,
                    given.seed,
                    given.policy,
                ),
                first_cycle=cycles.start + 1,
                advance=lambda: bar.advance(task),
            )
        if given.json:
            with _written(given.json) as file:
                json.dump(evaluation.to_json(), file, indent=1, allow_nan=False)
                file.write("\n")
        if given.csv:
            with _written(given.csv) as file:
                write_csv(file, evaluation)
    except Gp4cError as error:
        print(error, file=sys.stderr)
        return 2
    show(evaluation, wide_console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
