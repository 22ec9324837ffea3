"""Frequency of promotions of a challenger that is truly equal, and of one that is truly 5% better.

Score functions with a random factor: ``t*X*(1 + a*random)`` and ``t*X*(1 + a*(1 - random))`` are equally
good by symmetry, yet rank differently; against plain ``t*X``, a is chosen so that the plain one has a
5% higher NDCG, measured on other pages. Every run draws pages and changes anew.

    python -m benchmarks.promotion [--runs 400]
    python -m benchmarks.promotion --next HISTORY... [--runs 40 --policy top_k]

With ``--next`` each run promotes by the first two thirds of a history's cycles, and the last third tells what
that cost: a promotion must not lose more than 0.01 of freshness there.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from benchmarks.common import exit_code, machine, printed, verdict
from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.named import FOUR_ROUNDS
from training import learn
from training.comparing.promotion import GUARD_MARGIN, PROMOTED, Decision, decide
from training.evolution.choices import Choices
from training.evolution.score_file import FORMAT
from training.histories import models
from training.histories.formats import WRITERS
from training.histories.reading import read_history
from training.replaying.prepared import prepare
from training.replaying.replay import replay, run

PAGES = 1000
CYCLES = 30
WARMUP = 2
MODELS = ("brdc12-like", "poisson", "bursty")
CALIBRATION_RUNS = 40
FIRST_SEED = 10_000
"""First seed of the calibration (`worse_by`), whose pages differ from those of the promotions."""


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
    """Decide one promotion on random pages of ``model``."""
    history = models.generate(model, PAGES, CYCLES, seed)
    choices = replace(Choices(), warmup=WARMUP, seed=seed)
    return decide(history, functions.load(champion), functions.load(challenger), choices, judged)


def promoted(model: str, champion: str, challenger: str, runs: int, judged: int = CYCLES - WARMUP) -> int:
    """How many of `runs` simulated promotions happen."""
    return sum(simulated(model, champion, challenger, seed, judged).promoted for seed in range(runs))


CHAMPIONS = ("random", "t", "t * X", "t * (hint_rate + 0.05) * near")
"""Score functions that are in use in the runs, in turn."""
SEARCH = ("--population", "12", "--generations", "2", "--seeds", "1", "--jobs", "1")


def next_cycles(path: Path, seed: int, folder: Path, policy: str) -> Floats | None:
    """Lead in NDCG and freshness of a promoted function in the last third of the cycles, or None."""
    history = read_history(path)
    promoted_by = history.cycles * 2 // 3
    file, score = folder / "older.tsv", folder / "score.json"
    WRITERS[".tsv"](str(file), history.take(cycles=slice(promoted_by)))
    champion = CHAMPIONS[seed % len(CHAMPIONS)]
    score.write_text(json.dumps({"format": FORMAT, "expression": champion, "clock": "visits"}))
    arguments = [str(file), "--promote", str(score), "--seed", str(seed), "--policy", policy, *SEARCH]
    if learn.main(arguments) != PROMOTED:
        return None
    prepared = prepare(history, budget=0.05, seed=seed)
    values = []
    for text in (str(score), champion):
        result = run(prepared, text, metrics=("ndcg", "freshness"), policy=policy)
        rows = np.array([result.ndcg, result.freshness])[:, promoted_by - history.cycles :]
        values.append(rows.mean(axis=1))
    return np.asarray(values[0] - values[1])


def judge_next(histories: list[Path], runs: int, policy: str) -> int:
    """Print what promotions brought; returns 1 if one lost too much freshness."""
    leads = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(runs):
            path = histories[seed // len(CHAMPIONS) % len(histories)]
            lead = next_cycles(path, seed, Path(folder), policy)
            champion = CHAMPIONS[seed % len(CHAMPIONS)]
            gained = "kept" if lead is None else f"promoted, NDCG {lead[0]:+.4f}, freshness {lead[1]:+.4f}"
            print(f"{path.name}, in use {champion}: {gained}", flush=True)
            if lead is not None:
                leads.append(printed(lead[1], ".4f"))
    print(f"{len(leads)} of {runs} promoted")
    worst = min(leads, default=0.0)
    return exit_code(verdict("least lead in freshness", worst, -GUARD_MARGIN, at_least=True))


def main() -> int:
    """Print the share of promotions for every model, or what promotions bring in the next cycles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int)
    parser.add_argument("--next", nargs="+", type=Path, metavar="HISTORY")
    parser.add_argument("--policy", default=FOUR_ROUNDS, help="of the crawl, with --next (%(default)s)")
    options = parser.parse_args()
    print(machine())
    if options.next:
        return judge_next(options.next, options.runs or 40, options.policy)
    runs = options.runs or 400
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
