"""Score functions side by side on a recorded history: the document that ``training.evaluate`` writes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import IO, Final, NamedTuple

import numpy as np

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.scoring.functions import NAMED, load
from scrapy_gp4c.scoring.terminals import Clock
from training.comparing import statistics
from training.comparing.statistics import Floats
from training.evolution.evolve import Json
from training.histories.history import ChangeHistory
from training.replaying.arranged import DEFAULTS, CrawlChoices, Ties, prepare_for
from training.replaying.metrics import METRICS, ORACLE
from training.replaying.replay import run

DEFAULT_SCORES: Final = (*NAMED, ORACLE)
COUNTS: Final = ("visited", "changed", "pending")


class Summary(NamedTuple):
    """A metric over the scored cycles."""

    mean: float
    ci95: float | None
    """Half width of the mean's 95% confidence interval; None for a single cycle."""
    per_cycle: list[float]


class About(NamedTuple):
    """The history that was replayed."""

    source: str
    sha256: str
    pages: int
    cycles: int
    first_cycle: int
    """Number of its first cycle in the file that it was cut from."""
    scored_cycles: list[int]
    """Their numbers in that file."""
    dropped_pages: int
    changed_share: float


class Used(NamedTuple):
    """The settings of the replays."""

    budget: float
    k: int
    """Visits per cycle."""
    warmup: int
    ties: Ties
    clock: Clock | None
    """None: that of each score file, else ``visits``."""
    seed: int
    policy: str
    """As it was given."""


class Result(NamedTuple):
    """What replaying a score function gave."""

    score: str
    """As it was given."""
    formula: str
    clock: Clock | None
    """None for the oracle, which has no terminals."""
    metrics: dict[str, Summary]
    """By the names of `training.replaying.metrics.METRICS`."""
    counts: dict[str, list[int]]
    """One of `COUNTS` -> its number in every scored cycle."""


@dataclass(frozen=True)
class Evaluation:
    """Several score functions on one history."""

    history: About
    settings: Used
    versions: dict[str, str]
    results: list[Result]

    def to_json(self) -> Json:
        """The JSON document of docs/histories.md."""
        return {
            "history": self.history._asdict(),
            "settings": self.settings._asdict(),
            "versions": self.versions,
            "results": [
                {"score": one.score, "formula": one.formula, "clock": one.clock}
                | {name: summary._asdict() for name, summary in one.metrics.items()}
                | one.counts
                for one in self.results
            ],
        }


def summary(per_cycle: Floats) -> Summary:
    """Mean, half width of its 95% confidence interval, and the values, of a metric ``[scored cycles]``.

    The interval takes the cycles as if they were independent draws.
    """
    half_width = statistics.half_width(per_cycle, error_first=False) if len(per_cycle) > 1 else None
    return Summary(float(per_cycle.mean()), half_width, per_cycle.tolist())


def evaluate(
    history: ChangeHistory,
    scores: Sequence[str] = DEFAULT_SCORES,
    crawl: CrawlChoices = DEFAULTS,
    *,
    first_cycle: int = 1,
    advance: Callable[[], object] = lambda: None,
) -> Evaluation:
    """Replay every score function on `history`.

    ``first_cycle``: number of the history's first cycle in the file that it was cut from; ``advance`` is
    called after each replay. Raises HistoryError, ScoreError, ExpressionError or PolicyError, before any
    replay where it can.
    """
    functions = [None if text == ORACLE else load(text) for text in scores]
    results = []
    arranged = prepare_for(history, crawl)
    scored = (arranged.scored_cycles + first_cycle - 1).tolist()
    for text, function in zip(scores, functions, strict=True):
        result = run(arranged, function or ORACLE, clock=crawl.clock, policy=crawl.policy)
        results.append(
            Result(
                text,
                text if function is None else function.formula,
                None if function is None else crawl.clock or function.clock,
                {name: summary(getattr(result, name)) for name in METRICS},
                {name: getattr(result, name).tolist() for name in COUNTS},
            )
        )
        advance()
    about = About(
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
        about,
        Used(crawl.budget, arranged.k, crawl.warmup, crawl.ties, crawl.clock, crawl.seed, crawl.policy),
        versions,
        results,
    )


def cycles_of(text: str, cycles: int) -> slice:
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


def write_csv(file: IO[str], evaluation: Evaluation) -> None:
    """One row per score function and scored cycle: every metric and count."""
    writer = csv.writer(file)
    writer.writerow(["score", "cycle", *COUNTS, *METRICS])
    for result in evaluation.results:
        columns: list[Sequence[float]] = list(result.counts.values())
        columns += (summary.per_cycle for summary in result.metrics.values())
        for cycle, *values in zip(evaluation.history.scored_cycles, *columns, strict=True):
            writer.writerow([result.score, cycle, *values])
