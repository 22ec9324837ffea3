"""Time of learning with the terminals of related pages, on a history with page names.

    python -m benchmarks.learn_related [HISTORY] [--full] [--jobs N]

Without HISTORY it takes a small synthetic one. ``--full`` is 300 individuals x 50 generations; the default is
a smoke size. One evolution run with the defaults of `training.learn`: splits of whole sites, named functions
in the first generation, a budget of 5%. Printed are the time from the file to the score function, the values
of the learned function and of the best named one on the test split (other sites, other cycles), and, at full
size, whether it took at most `TARGET_MINUTES`.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.common import exit_code, machine, verdict
from scrapy_gp4c.scoring.terminals import RELATED
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import Parameters
from training.evolution.learning import LEARNED, learn
from training.evolution.workers import workers
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.histories.reading import read_history
from training.learn import FORGET
from training.replaying.metrics import ORACLE

FULL = {"population": 300, "generations": 50}
SMOKE = {"population": 20, "generations": 3}
TARGET_MINUTES = 15.0


def synthetic() -> ChangeHistory:
    """A small history whose pages have directories."""
    history = generate("brdc12-like", 5000, 30, 0)
    return replace(history, page_names=[f"/{page % 7}/{page}" for page in range(history.pages)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 1 if the target of the full size was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("history", nargs="?")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    choices = Choices(
        seeds=1,
        seed=options.seed,
        forget=FORGET,
        selection="guarded",
        parameters=Parameters(RELATED, **(FULL if options.full else SMOKE)),
    )
    print(machine(("numpy", "numba", "deap")))
    begin = time.perf_counter()
    history = read_history(options.history) if options.history else synthetic()
    folds = prepare_splits(history, choices)
    with workers(options.jobs) as pool:
        learned = learn(history, choices, pool, folds=folds)
    minutes = (time.perf_counter() - begin) / 60
    sizes = ", ".join(f"{split.pages:,} x {split.cycles}" for split in folds[0][:3])
    print(f"{history.source}: training, validation, test of {sizes} pages x cycles")
    print(f"{60 * minutes:.1f} s, {learned.replays:,} replays, {learned.replay_s:.1f} s of processor time")
    print(f"learned: {learned.best.text}")
    table = {name: parts["test"] for name, parts in learned.best.table.items() if name != ORACLE}
    best = max(table.keys() - {LEARNED}, key=lambda name: table[name]["ndcg"])
    for name in (LEARNED, best, "age"):
        print(f"test of {name}: ndcg {table[name]['ndcg']:.4f}, freshness {table[name]['freshness']:.4f}")
    if not options.full:
        return 0
    return exit_code(verdict("minutes", minutes, TARGET_MINUTES, at_least=False))


if __name__ == "__main__":
    sys.exit(main())
