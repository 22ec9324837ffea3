"""All four panels of the user-centric experiment, and the document that it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.index.curves import PIECES
from training.comparing.evaluation import write_json
from training.comparing.examples import Example, examples
from training.comparing.forecasts import Halves, halves
from training.comparing.refreshing_trial import (
    BUDGETS,
    TAUS,
    Estimate,
    Needed,
    Point,
    Trial,
    points,
    prepared,
    resources,
)
from training.evolution.evolve import Json
from training.histories.contents import read_contents
from training.histories.writing import replacing
from training.replaying import links
from training.replaying.corpus import count
from training.replaying.search import search
from training.replaying.workloads import Plan, draw, knee
from training.replaying.worths import Measuring

SITE: Final = "fastapi/fastapi"
SCORINGS: Final = ("tfidf", "inlinks")
QUICK_BUDGETS: Final = (0.02, 0.05, 0.20)
QUICK_TAUS: Final = (0.0, 0.5)


class Plans(NamedTuple):
    """What is compared, and how."""

    estimate: Estimate = "whole"
    plan: Plan = Plan()
    pieces: int = PIECES
    budgets: tuple[float, ...] = BUDGETS
    taus: tuple[float, ...] = TAUS
    scorings: tuple[str, ...] = SCORINGS
    sites: tuple[str | None, ...] = (SITE, None)
    """A data set each: one site (P's BDS), or all pages that change (None, P's MDS)."""
    refit_cycles: int = 0
    """See `Trial.refit_cycles`."""


class Panel(NamedTuple):
    """What one data set under one scoring function came to."""

    name: str
    pages: int
    changed_share: float
    queries: int
    """Kept after the filter."""
    never: float
    """Quality in the last cycle if nothing is ever refreshed."""
    never_mean: float
    """The same, mean over the judged cycles."""
    points: list[Point]
    resources: list[Needed]
    halves: Halves
    examples: list[Example]


@dataclass(frozen=True)
class Results:
    """The experiment's results."""

    source: str
    sha256: str
    plans: Plans
    panels: list[Panel]

    def to_json(self) -> Json:
        """The document: what was compared, every point, the table, the forecasts."""
        return {
            "source": self.source,
            "sha256": self.sha256,
            "estimate": self.plans.estimate,
            "workload": self.plans.plan._asdict(),
            "pieces": self.plans.pieces,
            "refit_cycles": self.plans.refit_cycles,
            "versions": {"scrapy-gp4c": version("scrapy-gp4c"), "numpy": np.__version__},
            "panels": [
                {
                    **{key: getattr(panel, key) for key in Panel._fields[:6]},
                    "points": [point._asdict() for point in panel.points],
                    "resources": [row._asdict() for row in panel.resources],
                    "forecasts": [row._asdict() for row in panel.halves.forecasts],
                }
                for panel in self.panels
            ],
        }

    def write(self, directory: Path) -> None:
        """Write ``results.json`` and ``points.csv``."""
        write_json(directory / "results.json", self.to_json())
        with replacing(directory / "points.csv") as raw:
            rows: list[tuple[object, ...]] = [("panel", *Point._fields)]
            rows += [(panel.name, *point) for panel in self.panels for point in panel.points]
            raw.write("".join(",".join(map(_cell, row)) + "\n" for row in rows).encode())


def _cell(value: object) -> str:
    return "" if value is None else str(value).replace(",", ";")


def run_all(
    path: Path, plans: Plans, steps: Callable[[int, str], Callable[[], object]]
) -> tuple[Results, list[Trial]]:
    """Run every panel; ``steps(count, what)`` shows a bar and gives what to call after each step."""
    panels, trials = [], []
    for site in plans.sites:
        contents = read_contents(path, site, changed_only=site is None)
        corpus = count(contents, steps(len(contents.texts), f"{site or 'all changed'}: counting terms"))
        drawn = draw(contents, plans.plan)
        own = corpus.of(drawn)
        relevance = search(own, drawn, "tfidf").relevance()
        workload = drawn.take(np.flatnonzero(relevance >= knee(relevance)))
        own = corpus.of(workload)
        for scoring in plans.scorings:
            importance = links.importance(contents) if scoring == "inlinks" else None
            how = Measuring(workload, scoring, importance, plans.pieces)
            name = f"{site or 'all changed pages'}, {scoring}"
            trial = prepared(name, own, how, plans.estimate, plans.plan.seed, plans.refit_cycles)
            panels.append(_panel(trial, plans, steps))
            trials.append(trial)
    history = contents.history
    return Results(history.source, history.sha256, plans, panels), trials


def _panel(trial: Trial, plans: Plans, steps: Callable[[int, str], Callable[[], object]]) -> Panel:
    observed = plans.estimate == "observed"
    found: list[Point] = []
    size = 5 if observed else 6
    advance = steps(len(plans.budgets) * size, trial.name)
    for point in points(trial, plans.budgets, plans.taus, observed):
        found.append(point)
        advance()
    live = trial.search.live
    never = trial.search.quality(np.repeat(live[[trial.first]], trial.judged, axis=0))
    return Panel(
        trial.name,
        trial.pages,
        float(trial.history.changed.mean()),
        len(trial.how.workload.queries),
        float(never[-1]),
        float(never.mean()),
        found,
        resources(found),
        halves(trial),
        [] if observed else examples(trial, found),
    )
