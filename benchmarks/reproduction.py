"""Published figures of the baselines beside ours: `python -m benchmarks.reproduction`.

For each generator seed, `training.synthetic` makes a brdc12-like collection; every baseline is replayed
on each of 5 folds of its pages with the published protocol (thesis section 4.3: 2 days of warm-up, 5% of
the pages per day, the authors' program's clock of cycles, ties broken anew every day). With --journal,
on the last third of the days alone (journal section 5.2). --clock visits shows the estimators as the papers
print them. The program fails if any published figure of its tables is further away than 0.01.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.common import exit_code, machine, printed, verdict
from scrapy_gp4c.scoring.terminals import CLOCKS, Clock
from training.histories.models import generate
from training.histories.splits import page_folds, time_parts
from training.replaying.replay import replay

PUBLISHED: Final = {
    "random": 0.185687,
    "age": 0.213047,
    "nad": 0.689247,
    "sad": 0.516566,
    "aad": 0.634360,
    "gad": 0.601628,
    "cg": 0.643912,
}
"""Baseline -> change rate in thesis Table 4.3, column Average."""
JOURNAL: Final = {"change_rate": {"cg": 0.667}, "ndcg": {"cg": 0.689}}
"""Metric -> baseline -> mean, as far as the text of journal section 5.3 has them."""
CYCLES: Final = 57
TOLERANCE: Final = 0.01


def values(
    pages: int, seed: int, names: Sequence[str], days: slice, clock: Clock
) -> dict[str, dict[str, list[float]]]:
    """Metric -> score function -> mean over the days, for each fold of one collection."""
    history = generate("brdc12-like", pages, CYCLES, seed)
    out: dict[str, dict[str, list[float]]] = {metric: {name: [] for name in names} for metric in JOURNAL}
    for fold in page_folds(pages, 5, seed):
        test_pages = history.take(fold, days)
        for name in names:
            result = replay(test_pages, name, budget=0.05, clock=clock, seed=seed, metrics=("ndcg",))
            out["change_rate"][name].append(float(result.change_rate.mean()))
            assert result.ndcg is not None
            out["ndcg"][name].append(float(result.ndcg.mean()))
    return out


def show(title: str, means_of: dict[str, list[list[float]]], published: dict[str, float]) -> float:
    """Print one table; returns the largest difference to a published figure."""
    print(f"\n{title}")
    print("| score function | published | ours | difference | seeds from..to | folds from..to |")
    print("|---|---|---|---|---|---|")
    worst = 0.0
    for name, by_seed in means_of.items():
        means = [statistics.fmean(folds) for folds in by_seed]
        every = [value for folds in by_seed for value in folds]
        ours = statistics.fmean(means)
        row = ["–", f"{ours:.4f}", "–"]
        if name in published:
            worst = max(worst, abs(printed(ours - published[name], ".4f")))
            row = [f"{published[name]:.4f}", f"{ours:.4f}", f"{ours - published[name]:+.4f}"]
        spread = [f"{min(means):.4f}..{max(means):.4f}", f"{min(every):.4f}..{max(every):.4f}"]
        print(f"| {name} | {' | '.join([*row, *spread])} |")
    return worst


def main() -> int:
    """Run the comparison; 1 if a baseline is further from its published figure than it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduction", description=__doc__)
    parser.add_argument("--pages", type=int, default=417_048)
    parser.add_argument("--seeds", type=int, default=5, help="collections to generate (5)")
    parser.add_argument("--journal", action="store_true", help="the last third of the days alone")
    parser.add_argument("--clock", choices=CLOCKS, default="cycles", help="of the estimators (cycles)")
    options = parser.parse_args()
    print(machine(("numpy",)))
    days = time_parts(CYCLES, 3)[2] if options.journal else slice(None)
    names = (*PUBLISHED, "t*X")
    started = time.perf_counter()
    runs = [values(options.pages, seed, names, days, options.clock) for seed in range(1, options.seeds + 1)]
    worst = 0.0
    for metric in JOURNAL:
        by_name = {name: [run[metric][name] for run in runs] for name in names}
        published = JOURNAL[metric] if options.journal else PUBLISHED if metric == "change_rate" else {}
        title = f"{metric}, {options.seeds} collections of {options.pages:,} pages, 5 folds each"
        worst = max(worst, show(title, by_name, published))
    print(f"\n{time.perf_counter() - started:.0f} s")
    if options.clock != "cycles":
        print("The published figures belong to the clock of cycles.")
        return 0
    return exit_code(verdict("largest difference", worst, TOLERANCE, at_least=False))


if __name__ == "__main__":
    sys.exit(main())
