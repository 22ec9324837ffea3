"""Terminal output of training's commands: progress, results, Pareto front, and how to go on."""

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
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
from rich.text import Text

from scrapy_gp4c.errors import HistoryError, LearningError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.scoring.named import NAMED
from training.comparing import statistics
from training.comparing.evaluation import Evaluation, Result, write_rows
from training.comparing.leaderboard import FRONT, Leaderboard
from training.comparing.trials import written
from training.evolution.choices import SPLITS, Choices
from training.evolution.discovery import REPLAYS, LearnedDiscovery
from training.evolution.evolve import readable
from training.evolution.front import GUARD
from training.evolution.learning import LEARNED, Fold, Learned
from training.evolution.workers import load_fitness
from training.replaying.baselines import BASELINES
from training.replaying.growth import GrowthResult
from training.replaying.metrics import CONTENTS, COST, KNOWN, METRICS, ORACLE, TRIO, WEIGHTED
from training.replaying.replay import policy_of
from training.reporting.figures import Point, Scatter, draw_scatter, write_figures

WIDTH: Final = 160
"""Width of tables, in characters, where the output is no terminal."""


def wide_console() -> Console:
    """Standard output, wide enough for tables where it is no terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


def new_table(names: Sequence[str], title: str = "", words: int = 1) -> Table:
    """A table whose first ``words`` columns hold words, the others numbers."""
    table = Table(title=title or None, title_justify="left")
    for number, name in enumerate(names):
        table.add_column(name, justify="left" if number < words else "right", overflow="fold")
    return table


class Bars:
    """Progress bars on a terminal, else a line now and then; a `ProgressListener`."""

    def __init__(self, console: Console, progress: Progress, choices: Choices, folds: int, done: int) -> None:
        """Add the bars of all generations and of one; ``done``: generations done before, by a resumed run."""
        self._console = console
        self._progress = progress
        self._choices = choices
        self._total = choices.parameters.generations
        self._runs = counted(folds * choices.seeds, "run") if folds > 1 else counted(choices.seeds, "seed")
        self._all: TaskID = progress.add_task("generations", total=self._total, completed=done, best="")
        self._one: TaskID = progress.add_task("", total=1, best="")
        self._number = done

    def generation(self, number: int, individuals: int) -> None:
        self._number = number
        self._progress.reset(self._one, total=individuals, description=f"  generation {number}, {self._runs}")

    def advance(self, individuals: int) -> None:
        self._progress.advance(self._one, individuals)

    def first_fitness(self, fitness: float) -> None:
        """Show the best fitness of the first generation of the first run, while the others are to come."""
        text = f"best {self._choices.fitness} {fitness:.4f}"
        self._progress.update(self._all, best=f"{text} (first run)")
        if not self._console.is_terminal:
            text = f"generation 1/{self._total}, first of {self._runs}: {text}"
            self._console.out(text, highlight=False)

    def best(self, fitness: Sequence[float]) -> None:
        if not fitness:
            return
        text = f"best {self._choices.fitness} {max(fitness):.4f}"
        if min(fitness) < max(fitness):
            text += f" (worst run {min(fitness):.4f})"
        self._progress.update(self._all, completed=self._number, best=text)
        step = max(1, self._total // 10)
        is_shown = self._number in (1, self._total) or self._number % step == 0
        if not self._console.is_terminal and is_shown:
            self._console.out(f"generation {self._number}/{self._total}: {text}", highlight=False)


@contextmanager
def bars(console: Console, choices: Choices, folds: int, done: int) -> Iterator[Bars]:
    """Context with progress bars on `console`; ``done``: generations done before, by a resumed run."""
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


def results(folds: Sequence[Fold], fitness: str) -> Table:
    """Table of the learned function beside every baseline and the oracle, with its lead in the test.

    The lead is paired: both replay the same pages and cycles, so its interval is narrower than theirs.
    """

    def of_folds(values: Sequence[float], sign: str = "") -> str:
        return written(statistics.mean(values), 4, sign)

    shown = load_fitness(fitness)
    besides = [metric for metric in TRIO if metric != shown.name]
    head = ["score function", *SPLITS, "learned ahead", *(f"test {metric}" for metric in besides)]
    title = f"{fitness}, mean over the scored cycles" + (" and folds" if len(folds) > 1 else "")
    table = new_table(head, title)
    for name in folds[0].table:
        row = [of_folds([fold.table[name][split][shown.name] for fold in folds]) for split in SPLITS]
        gaps = [
            fold.table[LEARNED]["test"][shown.name] - fold.table[name]["test"][shown.name] for fold in folds
        ]
        row.append("" if name == LEARNED else of_folds(gaps, "+"))
        row += [of_folds([fold.table[name]["test"][metric] for fold in folds]) for metric in besides]
        table.add_row(name, *row, style="bold" if name == LEARNED else None, end_section=name == LEARNED)
    return table


def report(learned: Learned, choices: Choices, output: Path, console: Console) -> None:
    """Print the learned formula, its metrics, and the line for settings.py that makes a crawl use it."""
    if len(learned.folds) > 1:
        for number, fold in enumerate(learned.folds, start=1):
            console.out(f"fold {number}: {readable(fold.text)}", highlight=False)
        console.print()
    console.print(results(learned.folds, choices.fitness))
    console.print()
    console.out("score = " + readable(learned.best.text), style="bold", highlight=False)
    console.print()
    console.print(f"Written to {output}. A crawl uses it with this line in settings.py:")
    console.out(f"GP4C_SCORE_FUNCTION = {json.dumps(str(output))}", highlight=False)
    policy = choices.goal.policy_of(learned.best.text)
    if policy != Choices.policy:
        console.out(f"The policy {policy} is in the file, too.", highlight=False)
    console.out(f"\n{advice(learned, choices)}", highlight=False)


def advice(learned: Learned, choices: Choices) -> str:
    """Sentence that advises to use the learned function or keep the one in use, by its lead in the test."""
    if learned.best.text == choices.in_use:
        return f"Keep what you have: the learned function is {choices.in_use}, which is in use."
    leads = [float(np.mean(fold.leads)) for fold in learned.folds if fold.leads]
    if not leads:
        return (
            f"The history cannot replay the function in use, {choices.in_use}: nothing says which is better."
        )
    lead = statistics.mean(leads if len(leads) > 1 else learned.best.leads)
    by = f"{lead.mean:+.4f} ± {lead.half_width:.4f} {choices.fitness}"
    lead_in_test = f"its lead over {choices.in_use} in the test is {by}"
    if lead.mean > 0 and lead.mean > lead.half_width:
        return f"Use the learned function: {lead_in_test}."
    return f"Keep what you have: {lead_in_test}, which may be chance. The file is written all the same."


def stopped(learned: Learned, choices: Choices, arguments: Sequence[str], console: Console) -> None:
    """Print how far an interrupted run came, and the command that resumes it."""
    again = [one for one in arguments if one != "--resume"]
    console.out(
        f"\nStopped after generation {learned.generations} of {choices.parameters.generations}; "
        f"to go on:\n{shlex.join(['python', '-m', 'training.learn', *again, '--resume'])}",
        highlight=False,
    )


NAME: Final = "front"
"""Stem of the names of a front's table and figure files."""


class FrontRow(NamedTuple):
    """Row of a front's table: a function of the front, or a named one to compare with."""

    name: str
    """Number of a function of the front (``01``, ...), or the name of a named function."""
    text: str
    taken: bool
    values: dict[str, dict[str, float]]
    """Split -> metric -> mean over the scored cycles."""


def rows_of(learned: Learned) -> list[FrontRow]:
    """Rows of the front's functions, then of the named ones."""
    best = learned.best
    front = [
        FrontRow(str(number), one.text, one.taken, one.values) for number, one in enumerate(best.front, 1)
    ]
    others = [
        FrontRow(name, NAMED[name].expression, False, values)
        for name, values in best.table.items()
        if name not in (LEARNED, ORACLE)
    ]
    return [*front, *others]


def show_front(learned: Learned, choices: Choices, directory: Path, console: Console) -> None:
    """Write table and figure of a front into the directory of its score files, and print the table.

    Raises LearningError when a file cannot be written.
    """
    rows = rows_of(learned)
    pairs = [(split, metric) for split in SPLITS for metric in (choices.fitness, GUARD)]
    names = [f"{split} {metric}" for split, metric in pairs]
    title = f"the front of {choices.fitness} and {GUARD}; taken: {choices.prefer}"
    table = new_table(["", "score function", *names], title, words=2)
    front = len(learned.best.front)
    for number, row in enumerate(rows, start=1):
        values = [f"{row.values[split][metric]:.4f}" for split, metric in pairs]
        style = "bold" if row.taken else None
        table.add_row(row.name, readable(row.text), *values, style=style, end_section=number == front)
    console.print(table)
    try:
        lines = (
            [row.name, int(row.taken), *(row.values[split][metric] for split, metric in pairs), row.text]
            for row in rows
        )
        write_rows(directory / f"{NAME}.csv", [["function", "taken", *names, "expression"], *lines])
        write_figures({NAME: draw_front(rows, choices.fitness)}, directory)
    except (OSError, HistoryError) as error:
        raise LearningError(
            f"cannot write to {str(directory)!r} ({error}): give an --output elsewhere"
        ) from error
    console.out(f"Score files, {NAME}.csv, {NAME}.png and {NAME}.svg are in {directory}", highlight=False)
    console.print()


def draw_front(rows: list[FrontRow], fitness: str) -> Figure:
    """Figure of the test values: the front as a line, its functions by number, the named ones by name."""
    points = []
    for row in rows:
        is_front = row.name.isdigit()
        kind = "taken" if row.taken else "learned" if is_front else "named functions"
        x, y = row.values["test"][fitness], row.values["test"][GUARD]
        points.append(Point(f"{row.name} (taken)" if row.taken else row.name, x, y, kind, is_front))
    heading = METRICS[fitness].heading if fitness in METRICS else fitness
    split = "test pages and cycles"
    return draw_scatter(
        Scatter(
            "Learned functions", f"{heading}, {split}", f"{METRICS[GUARD].heading}, {split}", points, False
        )
    )


def show_discovery(learned: LearnedDiscovery, source: str, console: Console) -> None:
    """Print a learned function of a growing crawl beside the crawl's default: current copies and delays."""
    first, second = learned.ends
    spans = [f"learned from, to {first}", f"chosen by, to {second}", "after"]
    table = new_table(
        ["function", *spans, "delay", "90th pct.", "coverage"],
        f"{source}: {counted(learned.replays, 'function')}, {REPLAYS} replays each; current copies by "
        "cycles, the rest over all of them",
    )
    for one in dict.fromkeys((learned.best.text, learned.default.text)):
        candidate = learned.best if one == learned.best.text else learned.default
        delay = candidate.replayed.delay
        parts = (f"{share:.4f}" for share in (candidate.training, candidate.validation, candidate.test))
        delays = (f"{delay.mean():.2f}", f"{np.quantile(delay, 0.9):.1f}")
        table.add_row(one, *parts, *delays, f"{candidate.replayed.coverage:.3f}")
    console.print(table)


@contextlib.contextmanager
def progress(console: Console, steps: int, what: str = "replaying") -> Iterator[Callable[[], object]]:
    """Context with a progress bar of ``steps`` steps; yields a function that advances it by one."""
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)


SHOWN: Final = (COST, *TRIO, "harmonic_staleness", "age")
"""Metrics in the printed table, after those of contents; result files have all of `METRICS`."""
UNWEIGHTED: Final = {"change_rate": "weighted_change_rate", "ndcg": "weighted_ndcg"}
"""Metric -> the weighted one that a table shows in its place, where pages have weights."""
COMPARED: Final = ("ndcg", "freshness")
"""Metrics for which a leaderboard shows leads over the reference row."""
NAME_WIDTH: Final = 24
"""Fixed width of the names' column: on a narrow terminal the numbers wrap, not the names."""


def table(evaluation: Evaluation) -> Table:
    """Table of an evaluation's results for the terminal."""
    measured = evaluation.results[0].metrics
    shown = [name for name in (*CONTENTS, *SHOWN) if name in measured]
    if not WEIGHTED.keys().isdisjoint(measured):
        shown = [UNWEIGHTED.get(name, name) for name in shown]
    out = new_table(["score function", *(KNOWN[name].name for name in shown)])
    labels = [_label(result, evaluation.settings.policy) for result in evaluation.results]
    out.columns[0].width = min(max(map(len, labels)), NAME_WIDTH)
    for label, result in zip(labels, evaluation.results, strict=True):
        cells = []
        for name in shown:
            mean, half_width, _ = result.metrics[name]
            cells.append(f"{mean:.4f}" + ("" if half_width is None else f" ± {half_width:.4f}"))
        out.add_row(Text(label), *cells)
    return out


def _label(result: Result, policy: str) -> str:
    """Label of a row: the score function, and its policy unless that is the crawl's."""
    is_told = result.policy in (None, policy) or result.score.endswith(str(result.policy))
    return result.score if is_told else f"{result.score}, {result.policy}"


def leaderboard_table(board: Leaderboard) -> Table:
    """Table of a leaderboard for the terminal; rows on the front stand out."""
    names = [*(METRICS[name].name for name in TRIO), *(f"{METRICS[name].name} ahead" for name in COMPARED)]
    out = new_table(["score function or policy", "front", *names], words=2)
    out.add_column("source")
    policy = board.evaluations[0].settings.policy
    for row in board.rows:
        cells = [written(row.metrics[name].mean, 4) for name in TRIO]
        gaps = [row.metrics[name].ahead for name in COMPARED]
        cells += ["" if gap is None else written(gap, 4, "+") for gap in gaps]
        style = "bold" if row.on_front else None
        out.add_row(
            Text(_label(row.result, policy)),
            "●" if row.on_front else "",
            *cells,
            row.source,
            style=style,
        )
    return out


def show(evaluation: Evaluation, console: Console) -> None:
    seed = f"seed {evaluation.settings.seed}"
    console.out(
        f"{_heading(evaluation, seed)}; mean ± half-width of the 95% interval over cycles",
        highlight=False,
    )
    console.print(table(evaluation))


def show_leaderboard(board: Leaderboard, console: Console) -> None:
    seeds = [one.settings.seed for one in board.evaluations]
    one = len(seeds) == 1
    text = f"seed {seeds[0]}" if one else f"seeds {seeds[0]} to {seeds[-1]}"
    first, other = (METRICS[name].name for name in FRONT)
    console.out(
        f"{_heading(board.evaluations[0], text)}; mean ± half-width of the 95% interval over "
        f"{'cycles' if one else 'seeds'}; ahead: of {board.reference!r}, paired; "
        f"●: on the front of {first} and {other}",
        highlight=False,
    )
    console.print(leaderboard_table(board))
    shown = {row.name for row in board.rows}
    left_out = [name for name in NAMED if name not in shown] if shown.issuperset(BASELINES) else []
    measured = [name for name in left_out if "dq_" in NAMED[name].expression]
    unnamed = [name for name in left_out if name not in measured]
    for why, names in (("the history has no page names", unnamed), ("no log of queries is given", measured)):
        if names:
            text = f"Not replayed, because {why}: {', '.join(names)}"
            console.out(text, highlight=False)


def _heading(evaluation: Evaluation, seeds: str) -> str:
    settings, history = evaluation.settings, evaluation.history
    scored = history.scored_cycles
    return (
        f"{history.source}: {counted(history.pages, 'page')}, scored cycles {scored[0]} to {scored[-1]}, "
        f"{history.changed_share:.2%} of the pages change per cycle\n"
        f"k = {counted(settings.k, 'visit')} per cycle, warm-up {settings.warmup}, ties {settings.ties}, "
        f"clock {settings.clock or 'visits, or as the score file says'}, {seeds}"
        f"{'' if settings.policy == policy_of(None) else f', policy {settings.policy}'}"
    )


def row_of(score: str, discovery: float, result: GrowthResult) -> dict[str, Any]:
    """Row of JSON for a replay of growth with ``score`` and the share of budget for hubs, ``discovery``.

    Metrics are means over the cycles after the warm-up.
    """
    delay = result.delay if len(result.delay) else np.zeros(1)
    return {
        "score": score,
        "discovery": discovery,
        "change_rate": result.change_rate,
        "weighted_change_rate": result.weighted_change_rate,
        "delay_cycles": float(delay.mean()),
        "delay_p90_cycles": float(np.quantile(delay, 0.9)),
        "missed": result.missed,
        "coverage": float(result.coverage.mean()),
        "current": float(result.current.mean()),
        "hub_visits": float(result.hubs.mean()),
    }


def show_growth(
    title: str, rows: Sequence[dict[str, Any]], console: Console, *, weighted: bool = False
) -> None:
    """Print a table of rows that `row_of` made; ``weighted``: with the change rate by weights."""
    rate = "weighted_change_rate" if weighted else "change_rate"
    columns = {
        "discovery": ("discovery", ".0%"),
        rate.replace("_", " "): (rate, ".3f"),
        "delay": ("delay_cycles", ".2f"),
        "90th pct.": ("delay_p90_cycles", ".1f"),
        "never found": ("missed", ","),
        "coverage": ("coverage", ".3f"),
        "current copies": ("current", ".3f"),
        "hub visits": ("hub_visits", ".1f"),
    }
    table = new_table(["score function", *columns], title)
    for row in rows:
        table.add_row(row["score"], *(f"{row[key]:{shown}}" for key, shown in columns.values()))
    console.print(table)


def of_leaderboard(board: Leaderboard) -> Scatter:
    """Scatter chart of change rate over freshness, all rows but the oracle."""
    y, x = FRONT
    history, settings = board.evaluations[0].history, board.evaluations[0].settings
    points = [
        Point(
            row.name,
            row.metrics[x].mean.mean,
            row.metrics[y].mean.mean,
            "policies of others" if row.name in BASELINES else "named functions",
            row.on_front,
        )
        for row in board.rows
        if row.name != ORACLE
    ]
    title = f"{Path(history.source).name}: {settings.k:,} of {counted(history.pages, 'page')} per cycle"
    return Scatter(title, METRICS[x].heading, METRICS[y].heading, points)
