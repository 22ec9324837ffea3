"""Gain of the default by claims of sites on recorded histories, by the share of pages listed truthfully.

    python -m benchmarks.claimed HISTORY... [--share 0 0.1 0.3 1] [--noise 0 0.2] [--seeds 2]

In the cycle of every change of a listed page the crawl reads a claim of a sitemap about it; the next plan is
the first that knows it. A share of the other pages (noise) has as many claims as changes, in random cycles.
Rows are means over histories, budgets and seeds.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.common import BUDGETS, metric_means
from training.histories.claims import first_sight_beside, read_first_sight, true_claims
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.metrics import TRIO


def claims_of(history: ChangeHistory, share: float, noise: float, seed: int) -> npt.NDArray[np.void]:
    """True claims about ``share`` of the pages, random ones about ``noise``: dtype `DATED_CLAIM`."""
    random = np.random.default_rng(seed)
    draw = random.random(history.pages)
    claimed = history.changed & (draw < share)
    for page in np.flatnonzero((draw >= share) & (draw < share + noise)):
        claimed[:, page] = random.permutation(history.changed[:, page])
    return np.asarray(true_claims(replace(history, changed=claimed)))


def ages_of(history: ChangeHistory, path: Path, liars: float, seed: int) -> npt.NDArray[np.void]:
    """Ages at first sight, as claims read before cycle 1 (dtype `DATED_CLAIM`); share ``liars``: age 0."""
    first_sight = first_sight_beside(path)
    assert first_sight is not None
    ages = read_first_sight(first_sight, history).claims
    ages["value"][np.random.default_rng(seed).random(len(ages)) < liars] = -1
    return ages


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("histories", nargs="+", metavar="HISTORY")
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.1, 0.3, 1.0])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.2])
    parser.add_argument(
        "--ages", action="store_true", help="read NAME.first_sight.tsv.gz beside each history"
    )
    parser.add_argument("--liars", type=float, default=0.0, help="share of the ages that say now")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args(arguments)
    histories = [read_history(path) for path in args.histories]
    print("| listed truthfully | noise | " + " | ".join(TRIO) + " |\n|---|---|" + "---|" * len(TRIO))
    for share in args.share:
        for noise in args.noise:
            rows = []
            for seed in range(args.seeds):
                for history, path in zip(histories, args.histories, strict=True):
                    parts = [claims_of(history, share, noise, seed)]
                    if args.ages:
                        parts.insert(0, ages_of(history, Path(path), args.liars, seed))
                    claims = np.concatenate(parts) if any(map(len, parts)) else None
                    means = metric_means(replace(history, claims=claims), "default", TRIO, BUDGETS, [seed])
                    rows += means[:, 0].tolist()
            cells = [f"{share:.0%}", f"{noise:.0%}", *(f"{one:.3f}" for one in np.mean(rows, axis=0))]
            print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
