"""Changes found and copies current at several budgets, on a recorded history.

Change rate, changes found a day, freshness, age and delay over the budget, as a table and a figure, and
sentences such as "80% freshness needs a budget of 4.2%". Every figure is that of `training.evaluate` at the
same budget. A store's panel (random sample of pages) stands for all pages, with 95% intervals.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.scoring.functions import ScoreParser
from training import options
from training.comparing import statistics
from training.comparing.evaluation import Evaluation, costs, evaluate, write_json
from training.comparing.leaderboard import STAND_IN, names
from training.evolution.evolve import Json
from training.histories.from_store import read_with_report
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.metrics import budget_pages, parse_budget
from training.replaying.prepared import DEFAULTS, CrawlChoices
from training.replaying.promises import describe_rules, read_rules_file
from training.reporting.figures import Line, finish, new_figure, plot_lines, save
from training.reporting.terminal import new_table, progress, wide_console

BUDGETS: Final = ("1%", "2%", "5%", "10%", "20%")
SHOWN: Final[dict[str, str]] = {
    "change_rate": "change rate",
    "changes_a_day": "changes found a day",
    "freshness": "freshness",
    "age": "age (cycles)",
    "delay_cycles": "delay (cycles)",
}
"""Name of a figure (number of a row) -> its name for people."""
FRESHNESS: Final = (0.8, 0.9, 0.95, 0.99)
"""Levels of freshness for which the budget that reaches them is estimated."""
PARTS: Final = 10
"""Number of parts of a panel's pages, each left out once to estimate intervals (jackknife)."""


class Value(NamedTuple):
    """One figure with the half width of its 95% interval, None or nan where unknown."""

    mean: float
    ci95: float | None


class BudgetPoint(NamedTuple):
    """Results of one score function at one budget."""

    budget: float
    """Visits per cycle, as a share of the pages."""
    visits: int
    """Visits per cycle, on all pages that the history stands for."""
    figures: dict[str, Value]


class Curve(NamedTuple):
    """One score function's results over the budgets."""

    score: str
    points: list[BudgetPoint]


@dataclass(frozen=True)
class BudgetResults:
    """Results of score functions at several budgets on one history."""

    evaluations: list[Evaluation]
    """Evaluation at each budget, by ascending budget."""
    curves: list[Curve]
    pages: int
    """Number of pages that the figures are for."""
    is_sample: bool
    """Whether the history is of a panel, a random sample of these pages."""
    cycles_a_day: float

    def to_json(self) -> Json:
        """The JSON document of docs/lab/replay.md."""
        return {
            "pages": self.pages,
            "panel": self.is_sample,
            "cycles_a_day": self.cycles_a_day,
            "curves": [
                {
                    "score": curve.score,
                    "points": [
                        {
                            "budget": point.budget,
                            "visits": point.visits,
                            **{name: _json(value) for name, value in point.figures.items()},
                        }
                        for point in curve.points
                    ],
                }
                for curve in self.curves
            ],
            "answers": answers(self),
            "evaluations": [one.to_json() for one in self.evaluations],
        }


def _json(value: Value) -> Json:
    return {name: None if one is None or math.isnan(one) else one for name, one in value._asdict().items()}


def read_budgets(text: str) -> list[float]:
    """Parse budgets such as ``1%,0.02,500``: shares and counts. Raises HistoryError."""
    amounts: list[float] = []
    for amount in text.split(","):
        number = amount.strip()
        try:
            amounts.append(float(number[:-1]) / 100 if number.endswith("%") else parse_budget(number))
        except (ValueError, HistoryError):
            raise HistoryError(
                f"--budgets: expected shares or counts such as 1%,0.02,500; found {amount!r}"
            ) from None
    return amounts


def study(
    history: ChangeHistory,
    scores: Sequence[str],
    budgets: Sequence[float],
    crawl: CrawlChoices = DEFAULTS,
    *,
    known_pages: int | None = None,
    cycles_a_day: float = 1.0,
    advance: Callable[[], object] = lambda: None,
) -> BudgetResults:
    """Evaluate score functions at every budget.

    ``known_pages``: number of the crawl's pages, if the history has only its panel (a random sample); figures
    and budgets in visits are then for all known pages. ``advance`` is called after every replay. Raises
    HistoryError, ScoreError, ExpressionError or PolicyError.
    """
    pages = known_pages or history.pages
    shares = [
        budget / pages if known_pages is not None and isinstance(budget, int) else budget
        for budget in budgets
    ]
    by_visits = {budget_pages(budget, pages): budget for budget in reversed(shares)}
    shares = [by_visits[visits] for visits in sorted(by_visits)]
    evaluations = [
        evaluate(history, scores, crawl._replace(budget=budget), advance=advance) for budget in shares
    ]
    parts = _without_each_part(history) if known_pages is not None else []
    again = [
        [evaluate(fold, scores, crawl._replace(budget=budget), advance=advance) for fold in parts]
        for budget in shares
    ]
    curves = []
    for number, score in enumerate(scores):
        points = []
        for budget, complete, others in zip(shares, evaluations, again, strict=True):
            figures = _figures(complete, number, pages, cycles_a_day)
            without_folds = [_figures(one, number, pages, cycles_a_day) for one in others]
            if without_folds:
                figures = {
                    name: Value(value.mean, _jackknife([one[name].mean for one in without_folds]))
                    for name, value in figures.items()
                }
            visits = budget_pages(budget, pages)
            points.append(BudgetPoint(visits / pages, visits, figures))
        curves.append(Curve(score, points))
    return BudgetResults(evaluations, curves, pages, known_pages is not None, cycles_a_day)


def _figures(evaluation: Evaluation, number: int, pages: int, cycles_a_day: float) -> dict[str, Value]:
    """Figures (names of `SHOWN`) of the result ``number`` of an evaluation, scaled to ``pages`` pages."""
    result, replayed = evaluation.results[number], evaluation.history.pages
    changed = np.array(result.counts["changed"], np.float64)
    stale = (1.0 - np.array(result.metrics["freshness"].per_cycle)) * replayed
    delay = float(stale.sum() / changed.sum()) if changed.any() else math.nan
    a_day = changed * (pages / replayed * cycles_a_day)
    width = statistics.half_width(a_day) if len(a_day) > 1 else None
    figures = {name: Value(*result.metrics[name][:2]) for name in ("change_rate", "freshness", "age")}
    figures |= {"changes_a_day": Value(float(a_day.mean()), width), "delay_cycles": Value(delay, None)}
    return {name: figures[name] for name in SHOWN}


def _without_each_part(history: ChangeHistory) -> list[ChangeHistory]:
    """Copies of a history, each without a different tenth of its pages; none for a very small history."""
    if history.pages < 2 * PARTS:
        return []
    fold = np.arange(history.pages) % PARTS
    return [history.take(np.flatnonzero(fold != number)) for number in range(PARTS)]


def _jackknife(values: Sequence[float]) -> float:
    """Half width of a figure's 95% interval (jackknife, J. W. Tukey 1958).

    ``values``: the figure, estimated without the first part of the sample, without the second, and so on.
    """
    array = np.array(values)
    deviation = float(np.sqrt((len(array) - 1) * array.var()))
    return statistics.t_quantile(len(array) - 1) * deviation


def answers(results: BudgetResults) -> list[str]:
    """Sentences on the first score function: budgets for levels of freshness, changes for more budget."""
    curve = results.curves[0]
    return [*_freshness(curve), *_more(curve, results.cycles_a_day)]


def _freshness(curve: Curve) -> Iterator[str]:
    points = [(point.budget, point.figures["freshness"].mean) for point in curve.points]
    if points[0][1] >= FRESHNESS[0]:
        yield f"a budget of {points[0][0]:.1%} keeps {points[0][1]:.1%} of the copies current already"
    for level in FRESHNESS:
        for (low, fresh), (high, fresher) in pairwise(points):
            if fresh < level <= fresher:
                needed = low + (high - low) * (level - fresh) / (fresher - fresh)
                yield f"{level:.0%} freshness needs a budget of {needed:.1%}"
                break
        else:
            if points[-1][1] < level:
                best = f"{points[-1][0]:.1%} keep {points[-1][1]:.1%} of the copies current"
                yield f"{level:.0%} freshness needs more than the largest budget: {best}"
                return


def _more(curve: Curve, cycles_a_day: float) -> Iterator[str]:
    for one, other in pairwise(curve.points):
        points = (other.budget - one.budget) * 100
        changes = other.figures["changes_a_day"].mean - one.figures["changes_a_day"].mean
        yield (
            f"from {one.budget:.1%} to {other.budget:.1%}: +1% budget finds {changes / points:,.1f} more "
            "changes a day"
        )


COMPARED = ("age", "random")
"""Score functions beside the default."""
SHARES: Final = ("change_rate", "freshness")
DRAWN: Final = ("change_rate", "changes_a_day", "freshness", "delay_cycles")


def table(results: BudgetResults) -> Table:
    """Table with a row for every score function at every budget."""
    out = new_table(["score function", "budget", "visits", *SHOWN.values()])
    for curve in results.curves:
        for number, point in enumerate(curve.points):
            cells = [_text(name, point.figures[name]) for name in SHOWN]
            last = number == len(curve.points) - 1
            label = Text("" if number else curve.score)
            out.add_row(label, f"{point.budget:.1%}", f"{point.visits:,}", *cells, end_section=last)
    return out


def _text(name: str, value: Value) -> str:
    if math.isnan(value.mean):
        return "-"
    digits = "{:.1%}" if name in SHARES else "{:,.1f}"
    width = "" if value.ci95 is None or math.isnan(value.ci95) else " ± " + digits.format(value.ci95)
    return digits.format(value.mean) + width


def show(results: BudgetResults, console: Console) -> None:
    """Print what was replayed, the table, and the answers."""
    history = results.evaluations[0].history
    spoken = f"{history.source}: {counted(history.pages, 'page')}, {counted(history.cycles, 'cycle')}"
    if results.is_sample:
        spoken += (
            "; only its panel was visited in every cycle: a random sample of "
            f"{counted(results.pages, 'page')}, for all of which changes are estimated; mean ± half-width of "
            "the 95% interval, over samples"
        )
    else:
        spoken += "; mean ± half-width of the 95% interval, over cycles"
    console.out(spoken, highlight=False)
    console.print(table(results))
    for line in answers(results):
        console.out(f"{results.curves[0].score}: {line}", highlight=False)


def draw(results: BudgetResults) -> Figure:
    """Figure with a panel for each number of `DRAWN`, and a line for each score function."""
    figure, panels = new_figure(9.0, 6.4, 2, 2, sharex=True)
    for name, axes in zip(DRAWN, panels, strict=True):
        plot_lines(
            axes,
            [point.budget for point in results.curves[0].points],
            [_line(curve, name) for curve in results.curves],
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
    history = results.evaluations[0].history
    sample = ", estimated from its panel" if results.is_sample else ""
    figure.suptitle(
        f"{Path(history.source).name}: {counted(results.pages, 'page')}{sample}", x=0.02, ha="left"
    )
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.89, bottom=0.15, hspace=0.22, wspace=0.2)
    return figure


def _line(curve: Curve, name: str) -> Line:
    values = [point.figures[name] for point in curve.points]
    half_widths = [math.nan if value.ci95 is None else value.ci95 for value in values]
    return Line(curve.score, [value.mean for value in values], half_widths)


def _parser() -> ScoreParser:
    parser = ScoreParser(**options.usage("budget"), description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    options.shared(add, "history")
    scores_help = "score functions; the answers are for the first (default: default, age, random)"
    options.shared(add, "--score", help=scores_help)
    add("--budgets", default=",".join(BUDGETS), help="shares or counts (default: 1%%,2%%,5%%,10%%,20%%)")
    options.shared(add, "--cycles-a-day", "--rules")
    options.shared(add, "--warmup", default=DEFAULTS.warmup)
    options.shared(add, "--seed", default=DEFAULTS.seed)
    add("--figure", type=Path, default=Path("budget.png"), help="figure to draw (default: %(default)s)")
    add("--json", type=Path, metavar="OUT", help="write everything as JSON")
    return parser


@options.command
def main(arguments: Sequence[str] | None) -> None:
    args = _parser().parse_args(arguments)
    budgets = read_budgets(args.budgets)
    history, known_pages = _read(Path(args.history))
    first = "default" if "default" in names(history) else STAND_IN
    scores = args.score or [first, *COMPARED]
    crawl = DEFAULTS._replace(warmup=args.warmup, seed=args.seed)
    if args.rules is not None:
        crawl = crawl._replace(rules=read_rules_file(args.rules, args.cycles_a_day))
    replays = len(budgets) * len(scores) * (1 if known_pages is None else 1 + PARTS)
    with progress(Console(stderr=True), replays) as advance:
        results = study(
            history, scores, budgets, crawl, known_pages=known_pages, cycles_a_day=args.cycles_a_day,
            advance=advance,
        )  # fmt: skip
    save(draw(results), args.figure)
    if args.json is not None:
        write_json(args.json, results.to_json())
    show(results, wide_console())
    print(f"Figure: {args.figure}")
    if crawl.rules is not None:
        shown = [one.settings.k for one in results.evaluations]
        print("\n".join(describe_rules(crawl.rules, history, shown)))
        for one in results.evaluations:
            free = evaluate(history, scores[:1], crawl._replace(budget=one.settings.budget, rules=None))
            print(f"{counted(one.settings.k, 'visit')}: {costs(one, free)[0]}")


def _read(path: Path) -> tuple[ChangeHistory, int | None]:
    """Read a history, and the number of pages that it is a panel (random sample) of, else None."""
    if not path.is_dir():
        return read_history(path), None
    history, report = read_with_report(path)
    report.log()
    return history, history.pages + report.off_panel if report.off_panel else None


if __name__ == "__main__":
    sys.exit(main())
