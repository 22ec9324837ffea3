"""The published experiment on any history: `python -m training.experiment HISTORY -o DIR`.

Learns with both fitness functions of the papers on the basic and on all terminals, evaluates what the three
selection rules choose beside every baseline and the oracle on the test folds, and writes ``results.json``,
the numbers behind the tables and figures of Santos et al. 2014, section 5; the tables (`training.paper`) and
figures (`training.charts`, `training.figures`); and ``report.html`` (`training.report`).
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from scrapy_gp4c import terminals
from scrapy_gp4c.errors import Gp4cError
from training import splits
from training.charts import paper_charts
from training.checkpoint import Checkpoint, check_writable, write_atomically
from training.choices import PARTS, Choices, Parts, arrange, identity
from training.evolve import Parameters
from training.figures import write_figures
from training.history import ChangeHistory, read_history
from training.learn_output import bars
from training.learning import ORACLE, Fold, Learned, learn
from training.paper import BASELINES, FITNESSES, TERMINALS, label, markdown, table_2, write_tables
from training.parallel import workers
from training.report import experiment_page, write_report
from training.selection import SELECTIONS
from training.trials import evaluate, smaller_budgets

FORMAT: Final = "gp4c-experiment/1"
QUICK: Final = {"population": 20, "generations": 3}
QUICK_SEEDS: Final = 2


class _LastStates:
    """A checkpoint that also remembers what it saved last."""

    def __init__(self, checkpoint: Checkpoint, states: list[dict[str, Any]] | None) -> None:
        self._checkpoint = checkpoint
        self.states = states

    def save(self, states: list[dict[str, Any]]) -> None:
        self._checkpoint.save(states)
        self.states = states


def learn_all(
    history: ChangeHistory, choices: Choices, directory: Path, parallel: Any, console: Console
) -> Iterator[dict[str, Any]]:
    """Learn every combination of fitness and terminals; yield one entry per selection rule.

    A combination that is done is read from ``directory``; one that was interrupted goes on from its
    checkpoint. Raises HistoryError or LearningError as `training.learning.learn` does.
    """
    folds: list[Parts] | None = None
    for fitness in FITNESSES:
        for name, names in TERMINALS.items():
            chosen = dataclasses.replace(
                choices, fitness=fitness, parameters=dataclasses.replace(choices.parameters, terminals=names)
            )
            run = identity(history, chosen)
            done = directory / f"learned-{fitness}-{name}.json"
            entries = _read_done(done, run)
            if entries is None:
                if folds is None:
                    folds = arrange(history, choices)
                console.print(
                    f"Learning for {fitness} with {name} terminals: {', '.join(names)}", highlight=False
                )
                checkpoint = Checkpoint(directory / f"checkpoint-{fitness}-{name}", run)
                entries = _learn_one(history, chosen, folds, checkpoint, parallel, console)
                for entry in entries:
                    entry["terminals"] = name
                write_atomically(done, {"run": _plain(run), "learned": entries})
                checkpoint.remove()
            yield from entries


def _learn_one(
    history: ChangeHistory,
    choices: Choices,
    folds: list[Parts],
    checkpoint: Checkpoint,
    parallel: Any,
    console: Console,
) -> list[dict[str, Any]]:
    states = checkpoint.open(resume=True)
    last = _LastStates(checkpoint, states)
    entries = []
    started = time.perf_counter()
    evolution: Learned | None = None
    for selection in SELECTIONS:
        chosen = dataclasses.replace(choices, selection=selection)
        done = last.states[0]["generation"] if last.states else 0
        with bars(console, chosen, len(folds), done) as watch:
            learned = learn(
                history,
                chosen,
                parallel,
                folds=folds,
                checkpoint=last,  # type: ignore[arg-type]  # has all that is used of a Checkpoint
                states=last.states,
                watch=watch,
            )
        if not learned.complete:
            raise KeyboardInterrupt
        if evolution is None:  # the other rules choose from what it found
            evolution, wall_s = learned, time.perf_counter() - started
        entries.append(
            {
                "fitness": choices.fitness,
                "selection": selection,
                "folds": [_fold(fold, choices.fitness) for fold in learned.folds],
                "replays": evolution.replays,
                "replay_s": evolution.replay_s,
                "wall_s": wall_s,
                "resumed": bool(states),
            }
        )
    return entries


def _fold(fold: Fold, fitness: str) -> dict[str, Any]:
    learned = fold.table["learned"]
    return {"text": fold.text, "run": fold.run, **{part: learned[part] for part in PARTS}}


def _read_done(path: Path, run: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("run") != _plain(run):
        raise Gp4cError(
            f"{path} belongs to another experiment (other history or choices): give another directory with "
            "-o, or remove it"
        )
    entries: list[dict[str, Any]] = content["learned"]
    return entries


def _plain(content: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(content))


def experiment(
    history: ChangeHistory, choices: Choices, directory: Path, jobs: int, console: Console
) -> dict[str, Any]:
    """Run the whole experiment, resuming what ``directory`` has of it; returns what it writes."""
    started = time.perf_counter()
    arrange(history, choices)  # an unusable history is an error now, not after the first hour
    with workers(jobs) as parallel:
        learned = list(learn_all(history, choices, directory, parallel, console))
    parts = splits.protocol_splits(history, choices.protocol, seed=choices.seed, warmup=choices.warmup)
    tests = [split.test for split in parts]
    functions: dict[str, Sequence[str]] = {name: [name] * len(tests) for name in (*BASELINES, ORACLE)}
    for entry in learned:
        name = label(entry["selection"], entry["terminals"], entry["fitness"])
        functions[name] = [fold["text"] for fold in entry["folds"]]
    budget = float(choices.budget)
    series = evaluate(tests, functions, choices, budget)
    tried = {
        name: texts for name, texts in functions.items() if "best" in name.split() or name in ("nad", "t*X")
    }
    first = parts[0].test.cycles - len(series["random"]["ndcg"][0]) + 1
    return {
        "format": FORMAT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("scrapy-gp4c", "deap", "numpy", "scipy")},
        "history": {
            "source": history.source,
            "pages": history.pages,
            "cycles": history.cycles,
            "sha256": history.sha256,
            "changes_per_page_and_cycle": float(history.changed.mean()),
        },
        "choices": _plain(dataclasses.asdict(choices)),
        "first_cycle": first,
        "test_pages": [test.pages for test in tests],
        "changed_pages": [test.changed[choices.warmup :].sum(axis=1).tolist() for test in tests],
        "learned": learned,
        "series": series,
        "smaller_budgets": smaller_budgets(tests, tried, choices, budget),
        "total_s": time.perf_counter() - started,
    }


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
