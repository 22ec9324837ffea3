"""The published experiment on any history: `python -m training.experiment HISTORY -o DIR`.

Learns with both fitness functions of the papers on the basic and on all terminals, evaluates what the three
selection rules choose beside every baseline and the oracle on the test folds, and writes ``results.json``,
the numbers behind the tables and figures of Santos et al. 2014, section 5; the tables (`training.comparing.paper`) and
figures (`training.reporting.charts`, `training.reporting.figures`); and ``report.html`` (`training.report`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.scoring import terminals
from training.comparing.experiment import experiment
from training.comparing.paper import markdown, table_2, write_tables
from training.evolution.checkpoint import check_writable, write_atomically
from training.evolution.choices import Choices
from training.evolution.evolve import Parameters
from training.histories import splits
from training.histories.reading import read_history
from training.reporting.charts import paper_charts
from training.reporting.experiment import experiment_page
from training.reporting.figures import write_figures
from training.reporting.page import write_report

QUICK: Final = {"population": 20, "generations": 3}
QUICK_SEEDS: Final = 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    choices, parameters = Choices(), Parameters()
    command = argparse.ArgumentParser(
        prog="python -m training.experiment",
        description="Repeat the published experiment (Santos et al. 2014, section 5) on a history.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = command.add_argument
    add("history", help="history file, or the store of a crawl (a directory)")
    add("-o", "--output", type=Path, required=True, help="directory for results, tables, figures and report")
    add("--protocol", choices=splits.PROTOCOLS, default="journal", help="how to split the history")
    add("--budget", type=float, default=choices.budget, help="visits per cycle, as a share of the pages")
    add("--warmup", type=int, default=choices.warmup, help="cycles in which every page is visited first")
    add("--clock", choices=terminals.CLOCKS, default=choices.clock, help="how the terminals weigh outcomes")
    add("--population", type=int, default=parameters.population, help="individuals per generation")
    add("--generations", type=int, default=parameters.generations, help="generations")
    add("--seeds", type=int, default=choices.seeds, help="independent runs per fold")
    add("--seed", type=int, default=choices.seed, help="all randomness follows from it")
    add("--jobs", type=int, default=-1, help="worker processes; -1: one per processor")
    add("--quick", action="store_true", help=f"a small size to try it: {QUICK}, {QUICK_SEEDS} seeds")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0, 2 for bad input, 130 when stopped by Ctrl-C."""
    given = parser().parse_args(arguments)
    console = Console(stderr=True)
    sizes = QUICK if given.quick else {"population": given.population, "generations": given.generations}
    directory: Path = given.output
    try:
        choices = Choices(
            protocol=given.protocol,
            budget=given.budget,
            warmup=given.warmup,
            clock=given.clock,
            seeds=QUICK_SEEDS if given.quick else given.seeds,
            seed=given.seed,
            parameters=Parameters(**sizes),
        )
        history = read_history(given.history)
        directory.mkdir(parents=True, exist_ok=True)
        check_writable(directory / "results.json")
        results = experiment(history, choices, directory, given.jobs, console)
        write_atomically(directory / "results.json", results)
        write_tables(results, directory)
        write_figures(paper_charts(results), directory)
        write_report(experiment_page(results, history), directory / "report.html")
    except (Gp4cError, OSError) as error:
        console.print(f"error: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("Stopped. The same command goes on from here.")
        return 130
    print(markdown(table_2(results)))
    Console().print(
        f"Seed {given.seed}. Results: {directory / 'results.json'}; report: {directory / 'report.html'}",
        highlight=False,
        soft_wrap=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
