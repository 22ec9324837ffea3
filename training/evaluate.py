"""``python -m training.evaluate``: score functions side by side on a recorded history.

Each score function is replayed (`training.replaying.replay`) on the same history with the same budget, warm-up and
seed. The figures are means over the scored cycles with the half-width of their 95% confidence interval.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table
from rich.text import Text

from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.scoring.terminals import CLOCKS
from training.comparing.evaluation import DEFAULT_SCORES, Document, evaluate, write_csv
from training.histories.reading import read_history
from training.replaying.arranged import TIES
from training.replaying.metrics import METRICS, ORACLE, TRIO, parse_budget

SHOWN: Final = (*TRIO, "harmonic_staleness", "age")
"""Metrics in the table; the files have all of `METRICS`."""


def table(document: Document) -> Table:
    """The results as a table for the terminal."""
    out = Table("score function", *(METRICS[name].name for name in SHOWN))
    longest = max(len(result["score"]) for result in document["results"])
    out.columns[0].width = min(longest, 24)  # fixed: on a narrow terminal the figures break, not the names
    for column in out.columns[1:]:
        column.justify = "right"
    for result in document["results"]:
        cells = []
        for name in SHOWN:
            mean, half_width = result[name]["mean"], result[name]["ci95"]
            cells.append(f"{mean:.4f}" + ("" if half_width is None else f" ± {half_width:.4f}"))
        out.add_row(Text(result["score"], overflow="fold"), *cells)
    return out


def parse_cycles(text: str, cycles: int) -> slice:
    """Positions of cycles A..B, counted from 1, both included; an end left out is the history's.

    Raises HistoryError unless 1 <= A <= B <= cycles.
    """
    first, colon, last = text.partition(":")
    try:
        start, stop = int(first or 1), int(last or cycles)
    except ValueError:
        start = stop = 0
    if not colon or not 1 <= start <= stop <= cycles:
        raise HistoryError(
            f"--cycles: expected A:B, the first and last cycle with 1 <= A <= B <= {cycles}, such as "
            f"{max(1, cycles * 2 // 3 + 1)}:{cycles}; found {text!r}"
        )
    return slice(start - 1, stop)


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
    add("--budget", default="0.05", help="visits per cycle: a share such as 0.05 or a count such as 5000")
    add("--warmup", type=int, default=2, help="cycles in which every page is visited first (default 2)")
    add("--ties", choices=TIES, default="random", help="order of equal scores (default random)")
    add("--clock", choices=CLOCKS, help="how outcomes are weighed (default: the score file's, else visits)")
    add("--seed", type=int, default=0, help="seed of the random ties and draws (default 0)")
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
        cycles = parse_cycles(given.cycles or ":", history.cycles)
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
            document = evaluate(
                history,
                scores,
                budget=parse_budget(given.budget),
                warmup=given.warmup,
                ties=given.ties,
                clock=given.clock,
                seed=given.seed,
                first_cycle=cycles.start + 1,
                advance=lambda: bar.advance(task),
            )
        if given.json:
            with _written(given.json) as file:
                json.dump(document, file, indent=1, allow_nan=False)
                file.write("\n")
        if given.csv:
            with _written(given.csv) as file:
                write_csv(file, document)
    except Gp4cError as error:
        print(error, file=sys.stderr)
        return 2
    console = Console()
    if not console.is_terminal:
        console.width = 160
    settings, about = document["settings"], document["history"]
    scored = about["scored_cycles"]
    console.print(
        f"{about['source']}: {about['pages']:,} pages, scored cycles {scored[0]} to {scored[-1]}, "
        f"{about['changed_share']:.2%} of the pages change per cycle\n"
        f"k = {settings['k']:,} visits per cycle, warm-up {settings['warmup']}, ties {settings['ties']}, "
        f"clock {settings['clock'] or 'visits, or as the score file says'}, seed {settings['seed']}; "
        "mean ± half-width of the 95% interval over cycles",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    console.print(table(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
