"""How often a challenger is promoted that is truly equal, and one that is truly 5% better.

Score functions with a random factor: ``t*X*(1 + a*random)`` and ``t*X*(1 + a*(1 - random))`` are equally
good by symmetry, yet rank differently; against plain ``t*X``, a is chosen so that the plain one has a
5% higher NDCG, measured on other pages. Every run draws pages and changes anew.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from scipy.stats import binomtest

from benchmarks.common import machine
from scrapy_gp4c.scoring import functions
from training.comparing.promotion import Decision, decide
from training.evolution.choices import Choices
from training.histories import models
from training.replaying.replay import replay

PAGES = 1000
CYCLES = 30
WARMUP = 2
MODELS = ("brdc12-like", "poisson", "bursty")
CALIBRATION_RUNS = 40
FIRST_SEED = 10_000
"""Of the calibration: other pages than those of the promotions."""


def noisy(a: float, other: str = "random") -> str:
    """Score function that is the worse, the larger a is."""
    return f"t*X*(1 + {a!r}*{other})"


def mean_ndcg(model: str, text: str) -> float:
    """Mean NDCG over many draws of pages."""
    seeds = range(FIRST_SEED, FIRST_SEED + CALIBRATION_RUNS)
    histories = (models.generate(model, PAGES, CYCLES, seed) for seed in seeds)
    return float(
        np.mean([replay(h, text, budget=0.05, warmup=WARMUP, metrics=["ndcg"]).ndcg for h in histories])
    )


def worse_by(model: str, factor: float) -> str:
    """Score function whose mean NDCG is that of t*X divided by `factor`."""
    target = mean_ndcg(model, "t*X") / factor
    low, high = 0.0, 64.0
    for _ in range(8):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mean_ndcg(model, noisy(middle)) > target else (low, middle)
    return noisy(0.5 * (low + high))


def simulated(model: str, champion: str, challenger: str, seed: int, judged: int) -> Decision:
    """One simulated promotion."""
    history = models.generate(model, PAGES, CYCLES, seed)
    choices = replace(Choices(), warmup=WARMUP, seed=seed)
    return decide(history, functions.load(champion), functions.load(challenger), choices, judged)


def promoted(model: str, champion: str, challenger: str, runs: int, judged: int = CYCLES - WARMUP) -> int:
    """How many of `runs` simulated promotions happen."""
    return sum(simulated(model, champion, challenger, seed, judged).promoted for seed in range(runs))


def main() -> None:
    """Print the share of promotions for every model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    print(machine())
    for model in MODELS:
        worse = worse_by(model, 1.05)
        pairs = {
            "truly equal": (noisy(3.0), noisy(3.0, "(1 - random)")),
            f"truly 5% better than {worse}": (worse, "t*X"),
        }
        for what, (champion, challenger) in pairs.items():
            for judged in (CYCLES - WARMUP, CYCLES // 2, CYCLES // 4 + 1):
                count = promoted(model, champion, challenger, runs, judged)
                low, high = binomtest(count, runs).proportion_ci()
                print(
                    f"{model}, {PAGES} pages, {judged} of {CYCLES} cycles judged, {what}: {count} of {runs} "
                    f"promoted, {count / runs:.1%} ({low:.1%} to {high:.1%})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
