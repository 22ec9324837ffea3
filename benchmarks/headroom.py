"""How far any evolved function could be ahead: `python -m benchmarks.headroom [HISTORY] [--fitness ...]`.

The search knows the future: it learns on the test part of every fold of the journal's protocol, and is tested
on the same. No function learned from other pages and days can be expected to be further ahead of the named
functions. Where this lead is small, the budget leaves nothing to learn. Without a history it takes a small
generated one, like BRDC'12.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence

from scrapy_gp4c.scoring.named import BASELINES
from scrapy_gp4c.scoring.terminals import PAPERS
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import Parameters
from training.evolution.learning import LEARNED, learn
from training.evolution.workers import PreparedSplit, workers
from training.histories.models import generate
from training.histories.reading import read_history

PAGES = 6000
CYCLES = 57


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the test values of the search's function and of the best named one, fold by fold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headroom", description=__doc__)
    parser.add_argument("history", nargs="?", help="history file or store (default: a generated history)")
    parser.add_argument("--fitness", choices=("ndcg", "change_rate", "freshness"), default="ndcg")
    parser.add_argument("--population", type=int, default=100)
    parser.add_argument("--generations", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    choices = Choices(
        fitness=options.fitness,
        protocol="journal",
        seeds=options.seeds,
        seed=options.seed,
        parameters=Parameters(
            terminals=PAPERS, population=options.population, generations=options.generations
        ),
    )
    history = (
        read_history(options.history)
        if options.history
        else generate("brdc12-like", PAGES, CYCLES, options.seed)
    )
    folds = [PreparedSplit(parts.test, parts.test, parts.test) for parts in prepare_splits(history, choices)]
    with workers(-1) as parallel:
        learned = learn(history, choices, parallel, folds=folds)
    leads = []
    for number, fold in enumerate(learned.folds, start=1):
        values = {name: fold.table[name]["test"][options.fitness] for name in (LEARNED, *BASELINES)}
        learned_value = values.pop(LEARNED)
        named = max(values, key=values.__getitem__)
        leads.append(learned_value - values[named])
        print(
            f"fold {number}: {learned_value:.4f}, {named} {values[named]:.4f}: {leads[-1]:+.4f}  {fold.text}"
        )
    print(
        f"{options.fitness}, knowing the future: {statistics.fmean(leads):+.4f} in the mean "
        f"(seed {options.seed})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
