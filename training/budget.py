"""``python -m training.budget``: what a budget buys, by replaying a recorded history at several.

Change rate, changes found a day, freshness, age and delay over the budget, as a table and a figure, and the
answers that people want. Every figure is that of `training.evaluate` at the same budget. A store of which
only a panel was visited in every cycle is told by that sample of its pages, with intervals.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.scoring.functions import ScoreParser
from training import options
from training.comparing.budgets import BUDGETS, PARTS, Budgets, read_budgets, study
from training.comparing.evaluation import write_json
from training.comparing.leaderboard import STAND_IN, names
from training.histories.from_store import read_with_report
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.prepared import DEFAULTS
from training.reporting.budgets import show, write
from training.reporting.evaluation import progress
from training.reporting.terminal import wide_console

COMPARED = ("age", "random")
"""What stands beside the default unless other score functions are named."""


def _parser() -> ScoreParser:
    parser = ScoreParser(prog="python -m training.budget", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    options.history(add)
    options.scores(add, "score functions; the answers are for the first (default: default, age, random)")
    add("--budgets", default=",".join(BUDGETS), help="shares or counts (default: 1%%,2%%,5%%,10%%,20%%)")
    add("--cycles-a-day", type=float, default=1.0, help="cycles of a day (default: %(default)g)")
    options.warmup(add, DEFAULTS.warmup)
    options.seed(add, DEFAULTS.seed)
    add("--figure", type=Path, default=Path("budget.png"), help="figure to draw (default: %(default)s)")
    add("--json", type=Path, metavar="OUT", help="write everything as JSON")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, or 2 for input that cannot be used."""
    given = _parser().parse_args(arguments)
    try:
        budgets = read_budgets(given.budgets)
        if not 0.0 < given.cycles_a_day < float("inf"):
            raise HistoryError(f"--cycles-a-day must be above 0; found {given.cycles_a_day}")
        history, known_pages = _read(Path(given.history))
        first = "default" if "default" in names(history) else STAND_IN
        scores = given.score or [first, *COMPARED]
        crawl = DEFAULTS._replace(warmup=given.warmup, seed=given.seed)
        replays = len(budgets) * len(scores) * (1 if known_pages is None else 1 + PARTS)
        with progress(Console(stderr=True), replays) as advance:
            found = study(
                history, scores, budgets, crawl, known_pages=known_pages, cycles_a_day=given.cycles_a_day,
                advance=advance,
            )  # fmt: skip
        _write(found, given.figure, given.json)
    except Gp4cError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _read(path: Path) -> tuple[ChangeHistory, int | None]:
    """The history, and of how many pages it is a panel; None: of itself."""
    if not path.is_dir():
        return read_history(path), None
    history, report = read_with_report(path)
    return history, history.pages + report.off_panel if report.off_panel else None


def _write(found: Budgets, figure: Path, document: Path | None) -> None:
    write(found, figure)
    if document is not None:
        write_json(document, found.to_json())
    show(found, wide_console())
    print(f"Figure: {figure}")


if __name__ == "__main__":
    sys.exit(main())
