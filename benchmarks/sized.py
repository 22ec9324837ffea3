"""Gain of score functions by the sizes of pages at first sight, on recorded histories.

    python -m benchmarks.sized HISTORY... [--score default changes ...] [--seeds 3]

Sizes come from NAME.first_sight.tsv.gz beside each history, or from the first texts of contents; ages and
claims are left out. A row is a score function, a column a history, each mean over budgets and seeds.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.common import BUDGETS, metric_means
from scrapy_gp4c.scoring.sizes import size_class
from training.histories.claims import first_sight_beside, read_first_sight
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory, known_or_none
from training.histories.reading import read_contents_or_history
from training.replaying.metrics import TRIO


def sized(path: Path) -> ChangeHistory:
    """A history with the sizes of its pages."""
    recorded = read_contents_or_history(path)
    if isinstance(recorded, ContentHistory):
        size = size_class([len((text or "").encode()) for text in recorded.texts_at(0)])
        return replace(recorded.history, size=known_or_none(size))
    first_sight = first_sight_beside(path)
    assert first_sight is not None, f"{path}: no sizes"
    return replace(recorded, size=read_first_sight(first_sight, recorded).size)


POLICY = "rounds(rounds=4)"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("histories", nargs="+", metavar="HISTORY", type=Path)
    parser.add_argument("--score", nargs="+", default=["default", "changes", "freshness"])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(arguments)
    histories = [sized(path) for path in args.histories]
    names = " | ".join(path.name.partition(".")[0] for path in args.histories)
    print(f"NDCG / freshness\n\n| score | {names} | mean |\n|---|{'---|' * (len(histories) + 1)}")
    for score in args.score:
        means = [
            metric_means(history, score, TRIO, BUDGETS, range(args.seeds), POLICY).mean(axis=(0, 1))
            for history in histories
        ]
        cells = [*means, np.mean(means, axis=0)]
        shown = (f"{ndcg:.3f} / {fresh:.3f}" for _, ndcg, fresh in cells)
        print(f"| `{score}` | {' | '.join(shown)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
