"""Results of an experiment as `training.experiment` writes them, small enough to compute by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from scrapy_gp4c.scoring.terminals import SETS
from training.comparing.paper import BASELINES, FITNESSES, label
from training.evolution.selection import SELECTIONS
from training.replaying.metrics import METRICS

FOLDS, CYCLES = 5, 6
FORMULA = "t * (X + 0.5) / (n + exp(-1.5))"


def results(learned_gain: float = 0.05) -> dict[str, Any]:
    """Deterministic results: every baseline a little better than the one before, learned ones best."""
    rng = np.random.default_rng(7)
    noise = rng.normal(0.0, 0.01, (FOLDS, CYCLES))
    level = {name: 0.3 + 0.05 * i for i, name in enumerate(BASELINES)} | {"oracle": 0.95}
    for fitness in FITNESSES:
        for terminals in SETS:
            for i, selection in enumerate(SELECTIONS):
                level[label(selection, terminals, fitness)] = 0.65 + learned_gain - 0.01 * i
    series = {
        name: {
            metric: (value + noise + rng.normal(0.0, 0.005, noise.shape) + 0.001 * j).tolist()
            for j, metric in enumerate(METRICS)
        }
        for name, value in level.items()
    }
    values = {part: dict.fromkeys(METRICS, 0.7) for part in ("training", "validation", "test")}
    learned = [
        {
            "fitness": fitness,
            "selection": selection,
            "terminals": terminals,
            "folds": [{"text": FORMULA, "run": 0, **values} for _ in range(FOLDS)],
            "replays": 100,
            "replay_s": 1.5,
            "wall_s": 2.5,
            "resumed": False,
        }
        for fitness in FITNESSES
        for terminals in SETS
        for selection in SELECTIONS
    ]
    return {
        "format": "gp4c-experiment/1",
        "created": "2026-11-21T00:00:00+00:00",
        "versions": {"python": "3.11"},
        "history": {"source": "gone.tsv", "pages": 1000, "cycles": 24, "sha256": "0" * 64},
        "choices": {
            "protocol": "journal",
            "budget": 0.05,
            "warmup": 2,
            "clock": "visits",
            "ties": "random",
            "seeds": 2,
            "seed": 1,
            "parameters": {"population": 20, "generations": 3},
        },
        "first_cycle": 3,
        "test_pages": [200] * FOLDS,
        "changed_pages": (100 + 10 * rng.integers(0, 9, (FOLDS, CYCLES))).tolist(),
        "learned": learned,
        "series": series,
        "smaller_budgets": {"0.01": series, "0.03": series},
    }
