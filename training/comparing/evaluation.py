"""Score functions side by side on a recorded history: the document that ``training.evaluate`` writes."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from scrapy_gp4c.scoring.functions import NAMED, load
from scrapy_gp4c.scoring.terminals import Clock
from training.histories.history import ChangeHistory
from training.replaying.arranged import Ties
from training.replaying.metrics import METRICS, ORACLE
from training.replaying.replay import replay

Document = dict[str, Any]


DEFAULT_SCORES: Final = (*NAMED, ORACLE)


COUNTS: Final = ("visited", "changed", "pending")


def summary(per_cycle: npt.NDArray[np.float64]) -> Document:
    """Mean, half-width of its 95% confidence interval, and the values.

    The interval is Student's t with n - 1 degrees of freedom over the n cycles, as if they were
    independent draws. ``ci95`` is None for a single cycle.
    """
    n = len(per_cycle)
    half_width = None
    if n > 1:
        half_width = float(student_t.ppf(0.975, n - 1) * per_cycle.std(ddof=1) / math.sqrt(n))
    return {"mean": float(per_cycle.mean()), "ci95": half_width, "per_cycle": per_cycle.tolist()}


def evaluate(
    history: ChangeHistory,
    scores: Sequence[str] = DEFAULT_SCORES,
    *,
    budget: float = 0.05,
    warmup: int = 2,
    ties: Ties = "random",
    clock: Clock | None = None,
    seed: int = 0,
    first_cycle: int = 1,
    advance: Callable[[], object] = lambda: None,
) -> Document:
    """Replay every score function on `history`: the JSON document of docs/histories.md.

    Parameters as for `training.replaying.replay.replay`; ``first_cycle`` is the number of the history's first cycle
    in the file that it was cut from; ``advance`` is called after each replay. Raises HistoryError,
    ScoreError or ExpressionError, before any replay where it can.
    """
    functions = [None if text == ORACLE else load(text) for text in scores]
    results = []
    scored: list[int] = []
    k = 0
    for text, function in zip(scores, functions, strict=True):
        result = replay(
            history, function or ORACLE, budget=budget, warmup=warmup, ties=ties, clock=clock, seed=seed
        )
        k, scored = result.k, (result.scored_cycles + first_cycle - 1).tolist()
        metrics = {name: summary(getattr(result, name)) for name in METRICS}
        counts = {name: getattr(result, name).tolist() for name in COUNTS}
        about = {"score": text, "formula": text, "clock": None}
        if function is not None:
            about |= {"formula": function.formula, "clock": clock or function.clock}
        results.append({**about, **metrics, **counts})
        advance()
    return {
        "history": {
            "source": history.source,
            "sha256": history.sha256,
            "pages": history.pages,
            "cycles": history.cycles,
            "first_cycle": first_cycle,
            "scored_cycles": scored,
            "dropped_pages": history.dropped_pages,
            "changed_share": float(history.changed.mean()),
        },
        "settings": {
            "budget": budget,
            "k": k,
            "warmup": warmup,
            "ties": ties,
            "clock": clock,
            "seed": seed,
        },
        "versions": {"scrapy-gp4c": version("scrapy-gp4c"), "numpy": np.__version__},
        "results": results,
    }


def write_csv(file: IO[str], document: Document) -> None:
    """One row per score function and scored cycle: every metric and count."""
    writer = csv.writer(file)
    writer.writerow(["score", "cycle", *COUNTS, *METRICS])
    for result in document["results"]:
        columns = [*(result[name] for name in COUNTS), *(result[name]["per_cycle"] for name in METRICS)]
        for cycle, *values in zip(document["history"]["scored_cycles"], *columns, strict=True):
            writer.writerow([result["score"], cycle, *values])
