"""The experiment of the journal article (Santos et al. 2014) and the thesis (2013), its tables and report."""

import dataclasses
import datetime
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from rich.console import Console

from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.scoring.terminals import PAPER_SETS
from training.comparing import statistics
from training.comparing.difference import Difference, differ
from training.comparing.evaluation import markdown, write_rows, write_text
from training.comparing.learned_score import plain, recorded_choices
from training.comparing.trials import (
    BASELINES,
    COMPETITIVE,
    SHOWN,
    Functions,
    Trials,
    best_baseline,
    held_out,
    try_out,
    values,
)
from training.evolution.checkpoint import Checkpoint, write_atomically
from training.evolution.choices import SPLITS, Choices, identity, prepare_splits
from training.evolution.evolve import Depths, Json, readable
from training.evolution.learning import LEARNED, learn_by_rules
from training.evolution.score_file import ShowProgress, versions_of
from training.evolution.selection import SELECTIONS
from training.evolution.workers import PreparedSplit, Workers, workers
from training.histories.history import ChangeHistory, RecordedHistory
from training.replaying.metrics import METRICS, ORACLE, TRIO, budget_pages
from training.reporting import score as sections
from training.reporting.figures import Chart
from training.reporting.page import ReportPage, Section, defined, figure, fold_away, table
from training.reporting.score import (
    HEADLINE,
    Formula,
    Study,
    budgets,
    cycles_of,
    line,
    methods,
    per_cycle_chart,
)

FORMAT: Final = "gp4c-experiment/1"
NAME: Final = "results.json"
FITNESSES: Final = ("ndcg", "change_rate")


def label(selection: str, terminal_set: str, fitness: str) -> str:
    """Name of a learned function in the results, such as ``GP4C best all ndcg``."""
    return f"GP4C {selection} {terminal_set} {fitness}"


_BOTH: Final = {"depths": Depths(), "clock": "cycles", "warmup": 2, "budget": 0.05}
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "journal": {"protocol": "journal", "operators": "journal", "protected_division": "zero", **_BOTH},
    "thesis": {"protocol": "thesis", "operators": "thesis", "protected_division": "large", **_BOTH},
}
"""Paper -> options of its experiment (journal sections 4.2 and 5.2; thesis 3.2, 3.3, 4.3 and 4.4).

Both use the clock ``cycles``: the papers print sums over visits, but only with that clock do their figures
come out.
"""
THESIS_SEARCHES: Final = (("change_rate", "basic"),)
SEARCHES: Final = tuple((fitness, name) for fitness in FITNESSES for name in PAPER_SETS)
"""Pairs (fitness, name of the set of terminals), one for every learning run."""


@dataclass(frozen=True)
class LearnedFold:
    """The function learned on one fold."""

    text: str
    run: int
    values: dict[str, dict[str, float]]
    """Split (training, validation, test) -> metric -> mean over its scored cycles."""


@dataclass(frozen=True)
class LearnedSet:
    """Functions that one selection rule chose in a learning run, one for each fold, and the run's cost."""

    fitness: str
    selection: str
    folds: list[LearnedFold]
    replays: int
    replay_s: float
    """Processor time of evolution's replays, in seconds."""
    wall_s: float
    resumed: bool
    """Whether the run was interrupted: its times are then those of the last part only."""
    terminals: str

    @property
    def name(self) -> str:
        return label(self.selection, self.terminals, self.fitness)


@dataclass(frozen=True)
class ExperimentResults:
    """Results of an experiment, format ``gp4c-experiment/1``."""

    created: str
    versions: dict[str, str]
    history: RecordedHistory
    changes_per_page_and_cycle: float
    choices: Choices
    test_pages: list[int]
    changed_pages: list[list[int]]
    """For each fold, the number of pages that changed in each scored cycle of its test set."""
    learned: list[LearnedSet]
    trials: Trials
    """Metrics on the test sets of the baselines, the oracle, and every `LearnedSet` by its name."""
    total_s: float
    preset: str | None = None
    """Key of `PRESETS`; None: other choices than a paper's."""

    @property
    def fitnesses(self) -> list[str]:
        return list(dict.fromkeys(one.fitness for one in self.learned))

    @property
    def terminal_sets(self) -> list[str]:
        """Names of the sets of terminals that were learned with, the largest last."""
        return list(dict.fromkeys(one.terminals for one in self.learned))

    def learned_for(self, metric: str, terminal_set: str = "", selection: str = "best") -> str:
        """Name (`label`) of the function learned for ``metric``, or for the first fitness if none was.

        ``terminal_set``: by default the largest; ``selection``: rule that chose the function.
        """
        fitness = metric if metric in self.fitnesses else self.fitnesses[0]
        return label(selection, terminal_set or self.terminal_sets[-1], fitness)

    def to_json(self) -> Json:
        return {
            "format": FORMAT,
            "created": self.created,
            "preset": self.preset,
            "versions": self.versions,
            "history": self.history._asdict()
            | {"changes_per_page_and_cycle": self.changes_per_page_and_cycle},
            "choices": plain(self.choices.recorded()),
            "first_cycle": self.trials.first_cycle,
            "test_pages": self.test_pages,
            "changed_pages": self.changed_pages,
            "learned": msgspec.to_builtins(self.learned),
            "series": self.trials.series,
            "smaller_budgets": self.trials.smaller_budgets,
            "total_s": self.total_s,
        }

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """Parse the content of ``results.json``.

        Raises ValueError for another format, KeyError or TypeError for what is missing or of another kind,
        LearningError for choices that cannot be used.
        """
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        choices = recorded_choices(content["choices"] | content["choices"]["parameters"])
        return cls(
            content["created"],
            content["versions"],
            RecordedHistory.from_json(content["history"]),
            content["history"]["changes_per_page_and_cycle"],
            choices,
            content["test_pages"],
            content["changed_pages"],
            msgspec.convert(content["learned"], list[LearnedSet]),
            Trials(
                content["series"],
                content["first_cycle"],
                float(choices.budget),
                content["smaller_budgets"],
            ),
            content["total_s"],
            content["preset"],
        )


def read_results(directory: Path) -> ExperimentResults:
    """Read the results in the directory of an experiment. Raises HistoryError where there are none."""
    path = directory / NAME
    try:
        return ExperimentResults.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise HistoryError(
            f"{path} has no results of `python -m training.experiment` to report ({error}); give the "
            "directory of an experiment, a score file, or the store of a crawl"
        ) from None


class Experiment(NamedTuple):
    """Experiment that writes to a directory and resumes from it."""

    history: ChangeHistory
    choices: Choices
    directory: Path
    console: Console
    """Terminal on which progress is printed."""
    shown: ShowProgress
    preset: str | None = None
    """Key of `PRESETS`."""

    def run(self, jobs: int) -> ExperimentResults:
        """Learn all functions on ``jobs`` processes (-1: one per processor), and replay them on test sets.

        Raises HistoryError or LearningError as `training.evolution.learning.learn` does, Gp4cError for the
        directory of another experiment. After a KeyboardInterrupt the same call goes on where it stopped.
        """
        started = time.perf_counter()
        history, choices = self.history, self.choices
        folds = prepare_splits(
            history, choices
        )  # an unusable history is an error now, not after the first hour
        with workers(jobs) as parallel:
            learned = list(self._learn_all(folds, parallel))
        tests = held_out(history, choices)
        functions: Functions = {name: [name] * len(tests) for name in (*BASELINES, ORACLE)} | {
            one.name: [fold.text for fold in one.folds] for one in learned
        }
        less = [name for name in functions if "best" in name.split() or name in ("nad", "t*X")]
        trials = try_out(tests, functions, less, choices.crawl(float(choices.budget)))
        return ExperimentResults(
            datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions_of("scrapy-gp4c", "deap", "numpy", "scipy"),
            history.identity,
            float(history.changed.mean()),
            choices,
            [test.pages for test in tests],
            [test.changed[choices.warmup :].sum(axis=1).tolist() for test in tests],
            learned,
            trials,
            time.perf_counter() - started,
            self.preset,
        )

    def _learn_all(self, folds: list[PreparedSplit], parallel: Workers) -> Iterator[LearnedSet]:
        """Learn with every combination of fitness and terminals; yield the functions by selection rule.

        A finished combination is read from the directory; an interrupted one goes on from its checkpoint.
        """
        for fitness, name in THESIS_SEARCHES if self.preset == "thesis" else SEARCHES:
            names = PAPER_SETS[name]
            parameters = dataclasses.replace(self.choices.parameters, terminals=names)
            chosen = dataclasses.replace(self.choices, fitness=fitness, parameters=parameters)
            run = plain(identity(self.history, chosen))
            done = self.directory / f"learned-{fitness}-{name}.json"
            learned = _read_done(done, run)
            if learned is None:
                self.console.print(
                    f"Learning for {fitness} with {name} terminals: {', '.join(names)}", highlight=False
                )
                checkpoint = Checkpoint(self.directory / f"checkpoint-{fitness}-{name}", run)
                learned = self._learn(chosen, name, folds, checkpoint, parallel)
                write_atomically(done, {"run": run, "learned": msgspec.to_builtins(learned)})
                checkpoint.remove()
            yield from learned

    def _learn(
        self,
        choices: Choices,
        terminals: str,
        folds: list[PreparedSplit],
        checkpoint: Checkpoint,
        parallel: Workers,
    ) -> list[LearnedSet]:
        states = checkpoint.open(resume=True)
        started = time.perf_counter()
        with self.shown(choices, len(folds), states[0].generation if states else 0) as watch:
            learned = learn_by_rules(
                self.history,
                [dataclasses.replace(choices, selection=selection) for selection in SELECTIONS],
                parallel,
                folds=folds,
                checkpoint=checkpoint,
                watch=watch,
            )
        first = learned[0]
        if not first.complete:
            raise KeyboardInterrupt
        # Evolution goes on once for all selection rules.
        costs = first.replays, first.replay_s, time.perf_counter() - started, bool(states), terminals
        return [
            LearnedSet(
                choices.fitness,
                selection,
                [LearnedFold(fold.text, fold.run, fold.table[LEARNED]) for fold in one.folds],
                *costs,
            )
            for selection, one in zip(SELECTIONS, learned, strict=True)
        ]


def _read_done(path: Path, run: object) -> list[LearnedSet] | None:
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("run") != run:
        raise Gp4cError(
            f"{path} belongs to another experiment (other history or choices): give another directory with "
            "-o, or remove it"
        )
    return msgspec.convert(content["learned"], list[LearnedSet])


def difference_of(results: ExperimentResults, history: ChangeHistory) -> Difference:
    """Compare visits on the test sets, of the function learned for `HEADLINE` and of the best baseline by it.

    ``history``: that of the results.
    """
    name = results.learned_for(HEADLINE)
    learned = next(one for one in results.learned if one.name == name)
    texts = [fold.text for fold in learned.folds]
    others = [best_baseline(results.trials, HEADLINE)] * len(texts)
    return differ(held_out(history, results.choices), texts, others, results.choices.crawl())


Row = dict[str, str | int | float]


def table_2(results: ExperimentResults) -> list[Row]:
    """Overall performance: mean over all folds and cycles with its 95% interval.

    The learned functions of a column are those learned for its metric, else for ndcg.
    """
    rows = []
    for name in (*BASELINES, *(f"GP4C {terminal_set}" for terminal_set in results.terminal_sets), ORACLE):
        row: Row = {"method": name}
        for metric in SHOWN:
            source = results.learned_for(metric, name.split()[1]) if name.startswith("GP4C") else name
            mean = statistics.mean(values(results.trials, source, metric))
            row |= {metric: mean.mean, f"{metric} ±": mean.half_width}
        rows.append(row)
    return rows


def table_3(results: ExperimentResults) -> list[Row]:
    """Victories, losses and ties per cycle against each baseline (paired t test over the folds, 95%)."""
    rows = []
    for metric in results.fitnesses:
        for terminal_set in results.terminal_sets:
            learned_values = values(results.trials, results.learned_for(metric, terminal_set), metric)
            for name in COMPETITIVE:
                duel = statistics.duel(learned_values, values(results.trials, name, metric))
                rows.append({"metric": metric, "GP4C": terminal_set, "baseline": name, **duel._asdict()})
    return rows


def table_4(results: ExperimentResults) -> list[Row]:
    """Functions that rule ``best`` selected, by fitness, terminals and fold, with values on each split."""
    return [
        {
            "fitness": learned.fitness,
            "terminals": learned.terminals,
            "fold": number,
            "score function": readable(fold.text),
            **{split: fold.values[split][learned.fitness] for split in SPLITS},
        }
        for learned in results.learned
        if learned.selection == "best"
        for number, fold in enumerate(learned.folds, start=1)
    ]


def selections(results: ExperimentResults) -> list[Row]:
    """Selection rules side by side (Figure 3 in numbers): each one's mean and interval on the test sets."""
    rows: list[Row] = []
    for learned in results.learned:
        mean = statistics.mean(values(results.trials, learned.name, learned.fitness))
        rows.append(
            {
                "fitness": learned.fitness,
                "terminals": learned.terminals,
                "selection": learned.selection,
                "mean": mean.mean,
                "±": mean.half_width,
            }
        )
    return rows


def correlations(results: ExperimentResults) -> list[Row]:
    """Pearson correlation, over the cycles, of the number of changed pages with each function's metrics."""
    changed = np.array(results.changed_pages, dtype=np.float64).mean(axis=0)
    names = (*COMPETITIVE, *(results.learned_for(metric) for metric in results.fitnesses))
    return [
        {
            "method": name,
            **{
                metric: statistics.correlation(changed, values(results.trials, name, metric).mean(axis=0))
                for metric in FITNESSES
            },
        }
        for name in names
    ]


def timing(results: ExperimentResults) -> list[Row]:
    """Time of learning (thesis 4.4 and 4.7): replays, processor time in them, wall time, in seconds."""
    columns = ("fitness", "terminals", "replays", "replay_s", "wall_s", "resumed")
    best = [learned for learned in results.learned if learned.selection == "best"]
    return [{name: getattr(learned, name) for name in columns} for learned in best]


TABLES: Final[dict[str, tuple[str, Callable[[ExperimentResults], list[Row]]]]] = {
    "table2": ("Overall performance (journal Table 2)", table_2),
    "table3": ("Victories, losses and ties per cycle (journal Table 3)", table_3),
    "table4": ("Best functions of every fold (journal Table 4)", table_4),
    "selections": ("Selection rules (journal Figure 3)", selections),
    "correlations": ("Correlation of changed pages and effectiveness (journal 5.3)", correlations),
    "timing": ("Time of learning (thesis 4.7)", timing),
}


def cell(value: Any) -> str:
    """Text of a value in a table: numbers with 4 decimals, nan as the empty text."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4f}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def table_of(rows: Sequence[Row]) -> str:
    return markdown(
        list(rows[0]), ([cell(value).replace("|", "\\|") for value in row.values()] for row in rows)
    )


def write_tables(results: ExperimentResults, directory: Path) -> list[Path]:
    """Write every table as CSV, and all as ``tables.md``, each whole or not at all; returns the paths."""
    paths = []
    text = []
    for name, (title, make) in TABLES.items():
        rows = make(results)
        path = directory / f"{name}.csv"
        write_rows(path, [rows[0], *(row.values() for row in rows)])
        paths.append(path)
        text.append(f"## {title}\n\n{table_of(rows)}")
    path = directory / "tables.md"
    write_text(path, "\n".join(text))
    return [*paths, path]


NEW_PAGES: Final = {
    "new_pages": "never visited since the warm-up",
    "idle_pages": "not visited in the cycle before",
}
"""The two meanings of "new page" that Figure 6 may have -> name of the metric."""


def selection_rules(results: ExperimentResults, metric: str) -> Chart:
    """Figure 3: the three selection rules, with the largest set of terminals, learned for the metric."""
    lines = [
        line(results.trials, results.learned_for(metric, selection=selection), metric, f"GP4C {selection}")
        for selection in SELECTIONS
    ]
    title = f"{METRICS[metric].heading} of the three selection rules"
    return per_cycle_chart(results.trials, f"figure3-{metric}", title, metric, lines)


def new_pages(trials: Trials, learned: str) -> Chart:
    """Figure 6: share of new pages among the visits, under both meanings of "new"."""
    lines = [
        line(trials, learned, metric, shown)
        for metric, shown in NEW_PAGES.items()
        if metric in trials.series[learned]
    ]
    return Chart(
        "figure6",
        "Share of new pages among the visits",
        "cycle of the test period",
        "share of the visits",
        cycles_of(trials),
        lines,
        True,
    )


def paper_charts(results: ExperimentResults) -> list[Chart]:
    """Figures 3 to 6, for both metrics where the paper has both."""
    trials, best = results.trials, results.learned_for
    charts = [selection_rules(results, metric) for metric in results.fitnesses]
    charts += [methods(trials, metric, best(metric)) for metric in results.fitnesses]
    tried = {best(metric): f"learned for {METRICS[metric].name}" for metric in results.fitnesses}
    charts += [budgets(trials, metric, tried | {"nad": "nad"}) for metric in results.fitnesses]
    return [*charts, new_pages(trials, best("ndcg"))]


def experiment_page(results: ExperimentResults, difference: Difference | None, note: str = "") -> ReportPage:
    """Report of an experiment's results.

    ``difference``: visits of the function learned for `HEADLINE` beside those of the best baseline by it;
    ``note``: why there is no ``difference``.
    """
    learned = {metric: results.learned_for(metric) for metric in TRIO}
    budget_names = {
        results.learned_for(metric): f"learned for {METRICS[metric].name}" for metric in results.fitnesses
    } | {"nad": "nad", "t*X": "t*X"}
    study = Study(
        f"Learned against published score functions on {Path(results.history.source).name}",
        results.trials,
        learned,
        _formulas(results),
        _facts(results),
        results.created,
        budget_pages(results.trials.budget, results.test_pages[0]),
        difference,
        note,
        budget_names,
        [_rules(results), _new(results.trials, learned["ndcg"]), _tables(results)],
    )
    return sections.page(study)


def _facts(results: ExperimentResults) -> list[tuple[str, str]]:
    history, choices = results.history, results.choices
    parameters = choices.parameters
    return [
        *([] if results.preset is None else [("Preset", results.preset)]),
        ("History", f"{history.source}, SHA-256 {history.sha256 or 'unknown'}"),
        ("Size", f"{history.pages:,} pages, {history.cycles} cycles"),
        (
            "Protocol",
            f"{choices.protocol}: {len(results.test_pages)} test sets of about "
            f"{results.test_pages[0]:,} pages and {len(results.changed_pages[0])} scored cycles after "
            f"{choices.warmup} of warm-up",
        ),
        ("Budget", f"{choices.budget:.1%} of the pages per cycle"),
        (
            "Genetic programming",
            f"{parameters.population} individuals, {parameters.generations} generations, "
            f"{choices.seeds} runs per fold, seed {choices.seed}; mutations of the {parameters.operators}, a "
            f"division by zero is {parameters.protected_division}",
        ),
        ("Estimators", f"clock of the {choices.clock}; ties broken: {choices.ties}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in results.versions.items())),
    ]


def _formulas(results: ExperimentResults) -> list[Formula]:
    formulas = [
        (
            learned.name != results.learned_for(HEADLINE),
            Formula(
                f"Learned for {learned.fitness.replace('_', ' ')}, {learned.terminals} terminals, "
                f"fold {number}",
                fold.text,
                {split: fold.values[split][learned.fitness] for split in SPLITS},
            ),
        )
        for learned in results.learned
        if learned.selection == "best"
        for number, fold in enumerate(learned.folds, start=1)
    ]
    best = max((one for other, one in formulas if not other), key=lambda one: one.values["training"])
    return [best, *(one for _, one in formulas if one is not best)]


def _rules(results: ExperimentResults) -> Section:
    return Section(
        "How the best is chosen",
        "Best takes the individual with the highest training fitness; Sum and Avg also look at the "
        "validation part, and prefer steady individuals.",
        [figure(selection_rules(results, metric)) for metric in results.fitnesses],
    )


def _new(trials: Trials, learned: str) -> Section:
    return Section(
        "New pages",
        "Does the learned function visit the same pages for ever? The share of each cycle's visits that go "
        "to pages never visited since the warm-up, and to pages not visited in the cycle before.",
        [figure(new_pages(trials, learned))],
    )


def _tables(results: ExperimentResults) -> Section:
    blocks = []
    for title, make in TABLES.values():
        rows = make(results)
        terms = [defined(name) if name in ("victories",) else name.replace("_", " ") for name in rows[0]]
        words = sum(isinstance(value, str) for value in rows[0].values())
        body = [[cell(value) for value in row.values()] for row in rows]
        blocks.append(fold_away(title, table(terms, body, words=words)))
    return Section("Tables of the paper, for this data", "", blocks)
