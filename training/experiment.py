"""The papers' experiment on any history: `python -m training.experiment HISTORY -o DIR`.

Learns with both fitness functions of the papers on the basic and on all terminals. The test folds judge the
functions that the three selection rules choose, beside every baseline and the oracle. Writes the tables and
figures of Santos et al. 2014, section 5 (`training.papers.journal`), the numbers behind them
(``results.json``), and ``report.html`` (`training.report`).

``--protocol tan`` repeats another experiment, that of Tan et al. 2007 on sampling policies; ``--preset
lambdacrawl`` those of Kolobov et al. 2019.
"""

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from scrapy_gp4c.errors import HistoryError
from training import options
from training.clustering.clusters import CLUSTERS, group_pages
from training.comparing.evaluation import write_text
from training.evolution.checkpoint import check_writable, write_atomically
from training.evolution.choices import Choices
from training.histories import splits
from training.histories.contents import ContentHistory
from training.histories.offset_history import DAY_S, MAX_PAGES, is_offset_history, read_offset_history
from training.histories.reading import read_contents_or_history, read_history
from training.papers import lambdacrawl
from training.papers.journal import (
    NAME,
    PRESETS,
    Experiment,
    difference_of,
    experiment_page,
    paper_charts,
    table_2,
    table_of,
    write_tables,
)
from training.papers.tan import QUICK_DEPTHS, TanPlan, claims_table, planned, run_experiment, write_all
from training.reporting.figures import draw, write_figures
from training.reporting.page import render
from training.reporting.terminal import bars, progress

PROTOCOL: Final = "tan"
LEARNING: Final = (
    "budget", "warmup", "clock", "population", "generations", "jobs", "preset", "operators",
    "protected_division",
)  # fmt: skip
"""Options for learning, which ``--protocol tan`` refuses."""
LEAST_CLUSTER: Final = 10
"""Least mean size of a cluster, in pages."""


def _check_tan(args: Namespace, parser: ArgumentParser) -> None:
    for name in LEARNING:
        if getattr(args, name) != parser.get_default(name):
            parser.error(
                f"--protocol {PROTOCOL} has budgets and warm-up of its own and learns nothing: "
                f"leave out --{name}"
            )
    Choices(seeds=args.seeds, seed=args.seed)


def _run_tan(args: Namespace, console: Console) -> None:
    recorded = read_contents_or_history(args.history)
    history = recorded.history if isinstance(recorded, ContentHistory) else recorded
    args.output.mkdir(parents=True, exist_ok=True)
    check_writable(args.output / "results.json")
    if isinstance(recorded, ContentHistory):
        clusters = min(CLUSTERS, max(1, history.pages // LEAST_CLUSTER))
        with console.status("clustering the pages by what they say in week 0"):
            history.neighbours.groups_by_content = group_pages(recorded, clusters, seed=args.seed)
    plans = TanPlan(seeds=args.seeds, seed=args.seed)
    if args.quick:
        plans = plans._replace(depths=QUICK_DEPTHS, seeds=QUICK_SEEDS)
    with progress(console, len(planned(history, plans))) as advance:
        results = run_experiment(recorded, plans, advance)
    results.write(args.output)
    write_all(results, args.output)
    print(claims_table(results), end="")
    print(f"Seed {args.seed}. Tables, figures and results.json: {args.output}")


def _run_lambdacrawl(args: Namespace) -> None:
    path = Path(args.history)
    if not is_offset_history(path):
        raise HistoryError(
            f"--preset {lambdacrawl.NAME} needs a directory of irregular visits (docs/lab/histories.md); "
            f"{path} is none"
        )
    max_pages = MAX_PAGES if args.max_pages is None else args.max_pages
    data = read_offset_history(path, args.cycle or DAY_S, max_pages)
    args.output.mkdir(parents=True, exist_ok=True)
    check_writable(args.output / NAME)
    results = lambdacrawl.run(data, QUICK_SEEDS if args.quick else args.seeds, args.seed)
    results.write(args.output)
    print(results.tables())
    print(f"Seed {args.seed}. Tables and {NAME}: {args.output}")


QUICK: Final = {"population": 20, "generations": 3}
QUICK_SEEDS: Final = 2


def parser() -> argparse.ArgumentParser:
    choices = Choices()
    command = argparse.ArgumentParser(
        **options.usage("experiment", " -o DIRECTORY"),
        description="Repeat the published experiment (Santos et al. 2014, section 5) on a history.",
        epilog="--protocol tan repeats the experiment of Tan et al. 2007 on sampling policies instead.",
        formatter_class=options.HelpWithDefaults,
    )
    add = command.add_argument
    options.shared(add, "history")
    options.shared(add, "--output", help="directory for results, tables, figures and report")
    preset_help = (
        "everything as in one paper: protocol, operators, protected division, depths, clock, warm-up, "
        "budget, fitnesses and terminals; other options overrule it. lambdacrawl: the experiments of Kolobov "
        "et al. 2019 on a directory of irregular visits, of --seeds runs"
    )
    add("--preset", choices=(*PRESETS, lambdacrawl.NAME), help=preset_help)
    options.shared(add, "--protocol", choices=(*splits.PROTOCOLS, PROTOCOL), default="journal")
    add("--budget", type=float, default=choices.budget, help="visits per cycle, as a share of the pages")
    options.shared(add, "--warmup", default=choices.warmup)
    options.shared(add, "--clock", default=choices.clock)
    options.shared(add, *options.PROCESS, "--jobs", "--cycle", "--max-pages")
    add("--quick", action="store_true", help=f"a small size to try it: {QUICK}, {QUICK_SEEDS} seeds")
    return command


@options.command
def main(arguments: Sequence[str] | None) -> None:
    command = parser()
    args = command.parse_args(arguments)
    if args.preset in PRESETS:
        fitness = "change_rate" if args.preset == "thesis" else "ndcg"
        command.set_defaults(**PRESETS[args.preset], fitness=fitness)
        args = command.parse_args(arguments)
    console = Console(stderr=True)
    directory: Path = args.output
    if args.protocol == PROTOCOL:
        _check_tan(args, command)
        _run_tan(args, console)
        return
    if args.preset == lambdacrawl.NAME:
        _run_lambdacrawl(args)
        return
    if args.quick:
        vars(args).update(QUICK, seeds=QUICK_SEEDS)
    choices = options.choices_of(args)
    history = read_history(args.history, args.cycle, args.max_pages)
    directory.mkdir(parents=True, exist_ok=True)
    check_writable(directory / NAME)
    experiment = Experiment(history, choices, directory, console, partial(bars, console), args.preset)
    try:
        results = experiment.run(args.jobs)
    except KeyboardInterrupt:
        console.print("Stopped. The same command goes on from here.")
        raise
    write_atomically(directory / NAME, results.to_json())
    write_tables(results, directory)
    write_figures({chart.key: draw(chart) for chart in paper_charts(results)}, directory)
    difference = difference_of(results, history)
    write_text(directory / "report.html", render(experiment_page(results, difference)))
    print(table_of(table_2(results)))
    print(f"Seed {args.seed}. Results: {directory / NAME}; report: {directory / 'report.html'}")


if __name__ == "__main__":
    sys.exit(main())
