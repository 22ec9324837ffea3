"""Results of an experiment as `training.experiment` writes them, small enough to compute by hand."""

import numpy as np

from scrapy_gp4c.scoring.terminals import PAPER_SETS
from training.comparing.trials import BASELINES, Trials
from training.evolution.choices import SPLITS, Choices
from training.evolution.evolve import Parameters
from training.evolution.selection import SELECTIONS
from training.histories.history import RecordedHistory
from training.papers.journal import FITNESSES, ExperimentResults, LearnedFold, LearnedSet, label
from training.replaying.metrics import METRICS

FOLDS, CYCLES = 5, 6
FORMULA = "t * (X + 0.5) / (n + exp(-1.5))"


def results(learned_gain: float = 0.05) -> ExperimentResults:
    """Results in which each baseline is a little better than the one before, and learned functions best."""
    rng = np.random.default_rng(7)
    noise = rng.normal(0.0, 0.01, (FOLDS, CYCLES))
    level = {name: 0.3 + 0.05 * i for i, name in enumerate(BASELINES)} | {"oracle": 0.95}
    for fitness in FITNESSES:
        for terminals in PAPER_SETS:
            for i, selection in enumerate(SELECTIONS):
                level[label(selection, terminals, fitness)] = 0.65 + learned_gain - 0.01 * i
    series = {
        name: {
            metric: (value + noise + rng.normal(0.0, 0.005, noise.shape) + 0.001 * j).tolist()
            for j, metric in enumerate(METRICS)
        }
        for name, value in level.items()
    }
    values = {part: dict.fromkeys(METRICS, 0.7) for part in SPLITS}
    folds = [LearnedFold(FORMULA, 0, values)] * FOLDS
    return ExperimentResults(
        "2026-11-21T00:00:00+00:00",
        {"python": "3.11"},
        RecordedHistory("gone.tsv", 1000, 24, "0" * 64),
        0.1,
        Choices(protocol="journal", seeds=2, parameters=Parameters(population=20, generations=3)),
        [200] * FOLDS,
        (100 + 10 * rng.integers(0, 9, (FOLDS, CYCLES))).tolist(),
        [
            LearnedSet(fitness, selection, folds, 100, 1.5, 2.5, False, terminals)
            for fitness in FITNESSES
            for terminals in PAPER_SETS
            for selection in SELECTIONS
        ],
        Trials(series, 3, 0.05, {"0.01": series, "0.03": series}),
        9.5,
    )
