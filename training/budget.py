"""``python -m training.budget``: figures of score functions at several budgets on a history.

Change rate, changes found a day, freshness, age and delay over the budget, as a table and a figure, and the
answers that people want. Every figure is that of `training.evaluate` at the same budget. A store of which
only a panel was visited in every cycle is told by that sample of its pages, with intervals.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.scoring.functions import ScoreParser
from training import options
from training.comparing.budgets import (
    BUDGETS,
    FIGURES,
    PARTS,
    Budgets,
    Curve,
    Value,
    answers,
    read_budgets,
    study,
)
from training.comparing.evaluation import costs, evaluate, write_json
from training.comparing.leaderboard import STAND_IN, names
from training.histories.from_store import read_with_report
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.prepared import DEFAULTS
from training.replaying.promises import describe_rules, read_rules_file
from training.reporting.figures import Line, finish, new_figure, plot_lines, save
from training.reporting.terminal import progress, wide_console

COMPARED = ("age", "random")
"""Score functions beside the default."""


SHOWN: Final[dict[str, str]] = {
    "change_rate": "change rate",
    "changes_a_day": "changes found a day",
    "freshness": "freshness",
    "age": "age (cycles)",
    "delay_cycles": "delay (cycles)",
}
"""Figure -> its name for people."""
SHARES: Final = ("change_rate", "freshness")
DRAWN: Final = ("change_rate", "changes_a_day", "freshness", "delay_cycles")


def table(bought: Budgets) -> Table:
    """Every score function at every budget."""
    out = Table("score function", "budget", "visits", *(SHOWN[name] for name in FIGURES))
    for column in out.columns[1:]:
        column.justify = "right"
    for curve in bought.curves:
        for number, point in enumerate(curve.points):
            cells = [_text(name, point.figures[name]) for name in FIGURES]
            last = number == len(curve.points) - 1
            label = Text("" if number else curve.score, overflow="fold")
            out.add_row(label, f"{point.budget:.1%}", f"{point.visits:,}", *cells, end_section=last)
    return out


def _text(name: str, value: Value) -> str:
    if math.isnan(value.mean):
        return "-"
    digits = "{:.1%}" if name in SHARES else "{:,.1f}"
    width = "" if value.ci95 is None or math.isnan(value.ci95) else " ± " + digits.format(value.ci95)
    return digits.format(value.mean) + width


def show(bought: Budgets, console: Console) -> None:
    """Print what was replayed, the table, and the answers."""
    about = bought.evaluations[0].history
    spoken = f"{about.source}: {about.pages:,} pages, {about.cycles} cycles"
    if bought.is_sample:
        spoken += (
            "; only its panel was visited in every cycle: a random sample of "
            f"{bought.pages:,} pages, for all of which changes are estimated; mean ± half-width of the 95% "
            "interval, over samples"
        )
    else:
        spoken += "; mean ± half-width of the 95% interval, over cycles"
    console.print(spoken, highlight=False, markup=False, soft_wrap=True)
    console.print(table(bought))
    for line in answers(bought):
        console.print(f"{bought.curves[0].score}: {line}", highlight=False, markup=False, soft_wrap=True)


def draw(budgets: Budgets) -> Figure:
    """A panel for each of `DRAWN`, a line for each score function."""
    figure, panels = new_figure(9.0, 6.4, 2, 2, sharex=True)
    for name, axes in zip(DRAWN, panels, strict=True):
        plot_lines(
            axes,
            [point.budget for point in budgets.curves[0].points],
            [_line(curve, name) for curve in budgets.curves],
        )
        finish(axes, SHOWN[name])
        if name in SHARES:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        if name == "freshness":
            axes.set_ylim(top=1.0)
        else:
            axes.set_ylim(bottom=0.0)
        axes.set_xlim(left=0.0)
    for axes in panels[2:]:
        axes.set_xlabel("budget: visits per cycle, share of the pages")
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    about = budgets.evaluations[0].history
    sample = ", estimated from its panel" if budgets.is_sample else ""
    figure.suptitle(f"{Path(about.source).name}: {budgets.pages:,} pages{sample}", x=0.02, ha="left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.89, bottom=0.15, hspace=0.22, wspace=0.2)
    return figure


def _line(curve: Curve, name: str) -> Line:
    values = [point.figures[name] for point in curve.points]
    half_widths = [math.nan if value.ci95 is None else value.ci95 for value in values]
    return Line(curve.score, [value.mean for value in values], half_widths)


def _parser() -> ScoreParser:
    parser = ScoreParser(prog="python -m training.budget", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    options.history(add)
    options.scores(add, "score functions; the answers are for the first (default: default, age, random)")
    add("--budgets", default=",".join(BUDGETS), help="shares or counts (default: 1%%,2%%,5%%,10%%,20%%)")
    add("--cycles-a-day", type=float, default=1.0, help="cycles of a day (default: %(default)g)")
    options.rules(add)
    options.warmup(add, DEFAULTS.warmup)
    options.seed(add, DEFAULTS.seed)
    add("--figure", type=Path, default=Path("budget.png"), help="figure to draw (default: %(default)s)")
    add("--json", type=Path, metavar="OUT", help="write everything as JSON")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, or 2 for input that cannot be used."""
    args = _parser().parse_args(arguments)
    try:
        budgets = read_budgets(args.budgets)
        if not 0.0 < args.cycles_a_day < float("inf"):
            raise HistoryError(f"--cycles-a-day must be above 0; found {args.cycles_a_day}")
        history, known_pages = _read(Path(args.history))
        first = "default" if "default" in names(history) else STAND_IN
        scores = args.score or [first, *COMPARED]
        crawl = DEFAULTS._replace(warmup=args.warmup, seed=args.seed)
        if args.rules is not None:
            crawl = crawl._replace(rules=read_rules_file(args.rules, args.cycles_a_day))
        replays = len(budgets) * len(scores) * (1 if known_pages is None else 1 + PARTS)
        with progress(Console(stderr=True), replays) as advance:
            bought = study(
                history, scores, budgets, crawl, known_pages=known_pages, cycles_a_day=args.cycles_a_day,
                advance=advance,
            )  # fmt: skip
        _write(bought, args.figure, args.json)
        if crawl.rules is not None:
            shown = [one.settings.k for one in bought.evaluations]
            print("\n".join(describe_rules(crawl.rules, history, shown)))
            for one in bought.evaluations:
                free = evaluate(history, scores[:1], crawl._replace(budget=one.settings.budget, rules=None))
                print(f"{one.settings.k:,} visits: {costs(one, free)[0]}")
    except Gp4cError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _read(path: Path) -> tuple[ChangeHistory, int | None]:
    """The history, and the number of pages that it is a panel of, or None."""
    if not path.is_dir():
        return read_history(path), None
    history, report = read_with_report(path)
    return history, history.pages + report.off_panel if report.off_panel else None


def _write(bought: Budgets, figure: Path, document: Path | None) -> None:
    save(draw(bought), figure)
    if document is not None:
        write_json(document, bought.to_json())
    show(bought, wide_console())
    print(f"Figure: {figure}")


if __name__ == "__main__":
    sys.exit(main())
