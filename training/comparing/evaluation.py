"""Score functions and policies side by side on a recorded history."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies.table import POLICIES
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.named import BASELINES, PURPOSES
from scrapy_gp4c.scoring.terminals import Clock
from scrapy_gp4c.store.atomic_files import replacing
from training.comparing import statistics
from training.evolution.evolve import Json
from training.histories.history import ChangeHistory
from training.replaying.baselines import Baseline, is_oracle_baseline, load_oracle_baseline
from training.replaying.metrics import COSTED, ORACLE, WEIGHTED
from training.replaying.prepared import DEFAULTS, CrawlChoices, Ties, prepare_for
from training.replaying.replay import QUICK, Engine, can_replay, load, metrics_of, policy_of, run, variant_for

DEFAULT_SCORES: Final = (*PURPOSES, *BASELINES, ORACLE)
EVERY: Final = "all"
"""Word in place of a policy's name, for all policies that a history has the groups of pages for."""
UNDER: Final = " under "


class Contender(NamedTuple):
    """What one row of an evaluation is about: a score function under a policy, or a policy alone."""

    text: str
    function: ScoreFunction | Baseline | None
    """Score function or baseline; None: the oracle, or a policy that needs no score function."""
    policy: str | None
    """Text of the policy; None for the oracle and baselines."""


def contenders(scores: Sequence[str], policies: Sequence[str], crawl: CrawlChoices) -> list[Contender]:
    """Combine every score function with every policy that uses one; other policies stand alone.

    ``policies``: texts; empty: every score function is replayed under its own, or the crawl's policy. Raises
    ScoreError, ExpressionError or PolicyError for what cannot be read.
    """
    timed = [peer for text in policies if (peer := load_oracle_baseline(text))]
    choices = [load_policy(text) for text in policies if not is_oracle_baseline(text)]
    by_score: list[str | None] = [one.text for one in choices if one.scored]
    several = []
    for text in scores:
        function = load(text, crawl.clock)
        if not isinstance(function, ScoreFunction):
            several.append(Contender(text, function, None))
            continue
        for policy in by_score or [None if timed else crawl.policy]:
            row = f"{text}{UNDER}{policy}" if len(by_score) > 1 else text
            several.append(Contender(row, function, policy or policy_of(function)))
    several += [Contender(one.text, one, None) for one in timed]
    return several + [Contender(one.text, None, one.text) for one in choices if not one.scored]


def contest(
    history: ChangeHistory,
    named: Sequence[str],
    scores: Sequence[str],
    policies: Sequence[str],
    in_use: str | None = None,
) -> tuple[list[str], list[str]]:
    """Score functions and policies that a command line evaluates side by side.

    ``in_use``: the crawl's function; ``named``: functions that an option such as ``--all`` stands for.
    Without ``named`` and ``scores``: those of `DEFAULT_SCORES` that can be replayed, if a policy needs one.
    """
    texts = [one for text in policies for one in (_known(history) if text == EVERY else [text])]
    live = [text for text in texts if not is_oracle_baseline(text)]
    alone = bool(texts) and not any(load_policy(text).scored for text in live)
    first = [] if in_use is None else [in_use]
    usual = [] if alone else [text for text in DEFAULT_SCORES if can_replay(history, load(text))]
    scores_of_all = (*named, *scores) or usual
    return [*dict.fromkeys((*first, *scores_of_all))], texts


def _known(history: ChangeHistory) -> list[str]:
    known = history.neighbours.knows
    return [text for text in POLICIES if all(known(name) for name in load_policy(text).near)]


RANDOM: Final = "random"
"""Name in place of the score function, for a policy that needs none."""
COUNTS: Final = ("visited", "changed", "pending")


class Summary(NamedTuple):
    """A metric's mean over the scored cycles, the mean's interval, and the values."""

    mean: float
    ci95: float | None
    """Half width of the 95% interval; None for a single cycle."""
    per_cycle: list[float]


class ReplayedHistory(NamedTuple):
    """Size and source of the history that was replayed."""

    source: str
    sha256: str
    pages: int
    cycles: int
    first_cycle: int
    scored_cycles: list[int]
    dropped_pages: int
    changed_share: float


class ReplaySettings(NamedTuple):
    """Settings with which functions were replayed, as results record them."""

    budget: float
    k: int
    """Visits per cycle."""
    warmup: int
    ties: Ties
    clock: Clock | None
    """Clock of the terminals; None: that of each score file, else ``visits``."""
    seed: int
    policy: str
    """The crawl's policy; named functions may bring another."""


class Result(NamedTuple):
    """Result of the replay of one score function or policy."""

    score: str
    formula: str
    clock: Clock | None
    """Clock of the terminals; None for the oracle, baselines and policies without a score function."""
    policy: str | None
    """Text of the policy; None for the oracle and baselines."""
    metrics: dict[str, Summary]
    """Name of a metric of `training.replaying.metrics.KNOWN` -> its mean."""
    counts: dict[str, list[int]]
    """One of `COUNTS` -> number in every scored cycle."""


@dataclass(frozen=True)
class Evaluation:
    """Results of several score functions and policies on one history."""

    history: ReplayedHistory
    settings: ReplaySettings
    versions: dict[str, str]
    results: list[Result]

    def to_json(self) -> Json:
        """The evaluation as the JSON document that docs/lab/histories.md describes."""
        return {
            "history": self.history._asdict(),
            "settings": self.settings._asdict(),
            "versions": self.versions,
            "results": [self._result(one) for one in self.results],
        }

    def _result(self, one: Result) -> Json:
        policy_entry = {} if one.policy in (None, self.settings.policy) else {"policy": one.policy}
        metrics = {name: summary._asdict() for name, summary in one.metrics.items()}
        return {
            "score": one.score,
            "formula": one.formula,
            "clock": one.clock,
            **policy_entry,
            **metrics,
            **one.counts,
        }


def summary(per_cycle: Floats) -> Summary:
    """Return the `Summary` of a metric's values, one of each scored cycle, taken as independent draws."""
    half_width = statistics.half_width(per_cycle, error_first=False) if len(per_cycle) > 1 else None
    return Summary(float(per_cycle.mean()), half_width, per_cycle.tolist())


def evaluate(
    history: ChangeHistory,
    scores: Sequence[str] = DEFAULT_SCORES,
    crawl: CrawlChoices = DEFAULTS,
    *,
    policies: Sequence[str] = (),
    weighted: bool = False,
    by_time: bool = False,
    first_cycle: int = 1,
    advance: Callable[[], object] = lambda: None,
) -> Evaluation:
    """Replay score functions, and policies that need none, on a history, and take the means of metrics.

    ``policies``: see `contenders`; ``weighted``: compute the weighted NDCG too; ``by_time``: also changes per
    second; ``first_cycle``: number of the history's first cycle in its file; ``advance`` is called after
    each replay. Raises HistoryError, ScoreError, ExpressionError or PolicyError, before any replay if it can.
    """
    several = contenders(scores, policies, crawl)
    default_policy = crawl.policy or policy_of(None)
    results = []
    prepared = prepare_for(history, crawl)
    engine: Engine = "dense" if history.pages * history.cycles <= QUICK else "auto"
    names = (*metrics_of(history), *(WEIGHTED if weighted else ()), *(COSTED if by_time else ()))
    scored = (prepared.scored_cycles + first_cycle - 1).tolist()
    for text, function, policy in several:
        function_or_name = function or (RANDOM if policy else ORACLE)
        result = run(prepared, function_or_name, metrics=names, policy=policy, engine=engine)
        formula, clock = text, None
        if isinstance(function, ScoreFunction):
            formula, clock = variant_for(history, function).formula, function.clock
        metrics = {name: summary(getattr(result, name)) for name in names}
        counts = {name: getattr(result, name).tolist() for name in COUNTS}
        results.append(Result(text, formula, clock, policy, metrics, counts))
        advance()
    history_facts = ReplayedHistory(
        history.source,
        history.sha256,
        history.pages,
        history.cycles,
        first_cycle,
        scored,
        history.dropped_pages,
        float(history.changed.mean()),
    )
    versions = {"scrapy-gp4c": version("scrapy-gp4c"), "numpy": np.__version__}
    return Evaluation(
        history_facts,
        ReplaySettings(
            crawl.budget, prepared.k, crawl.warmup, crawl.ties, crawl.clock, crawl.seed, default_policy
        ),
        versions,
        results,
    )


def costs(with_promises: Evaluation, free: Evaluation) -> list[str]:
    """Lines on each function's change rate with and without (``free``) promise rules (GP4C_RULES)."""
    lines = []
    for one, other in zip(with_promises.results, free.results, strict=False):
        with_rules, without = (result.metrics["change_rate"].mean for result in (one, other))
        lines.append(
            f"{one.score}: change rate {with_rules:.1%} with the rules, {without:.1%} without: "
            f"{100 * (with_rules - without):+.1f} points"
        )
    return lines


def cycles_of(text: str, cycles: int) -> slice:
    """Parse a range of cycles ``A:B``, counted from 1, both included, to a slice of positions from 0.

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


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises HistoryError."""
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path, document: Json | list[Json]) -> None:
    """Write a JSON document. Raises HistoryError."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def write_rows(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows as CSV. Raises HistoryError."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    write_text(path, text.getvalue())


def write_csv(path: Path, evaluations: Sequence[Evaluation]) -> None:
    """Write a CSV row per score function, seed and scored cycle. Raises HistoryError."""
    several = len(evaluations) > 1
    head = ["score", *(["seed"] if several else []), "cycle", *COUNTS, *evaluations[0].results[0].metrics]
    rows: list[Sequence[object]] = [head]
    for evaluation in evaluations:
        seed = [evaluation.settings.seed] if several else []
        for result in evaluation.results:
            columns: list[Sequence[float]] = list(result.counts.values())
            columns += (summary.per_cycle for summary in result.metrics.values())
            for cycle, *values in zip(evaluation.history.scored_cycles, *columns, strict=True):
                rows.append([result.score, *seed, cycle, *values])
    write_rows(path, rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
