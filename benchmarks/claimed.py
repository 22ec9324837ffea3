"""Gain of the default by claims of sites on recorded histories, by the share of pages listed truthfully.

    python -m benchmarks.claimed HISTORY... [--score default] [--share 0 0.1 0.3 1] [--noise 0 0.2]
                                 [--budget 0.01 0.05 0.1] [--seeds 2]

In the cycle of every change of a listed page the crawl reads a claim of a sitemap about it; the next plan is
the first that knows it. A share of the other pages (noise) has as many claims as changes, in random cycles.
Rows are means over histories, budgets and seeds.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from training.histories.claims import DATED_CLAIM
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.metrics import TRIO
from training.replaying.prepared import prepare
from training.replaying.replay import run


def claims_of(history: ChangeHistory, share: float, noise: float, seed: int) -> npt.NDArray[np.void]:
    """True claims about a share of the pages, and random ones about others: dtype `DATED_CLAIM`."""
    random = np.random.default_rng(seed)
    draw = random.random(history.pages)
    claimed = history.changed & (draw < share)
    for page in np.flatnonzero((draw >= share) & (draw < share + noise)):
        claimed[:, page] = random.permutation(history.changed[:, page])
    cycle, page = np.nonzero(claimed)
    claims = np.zeros(len(page), DATED_CLAIM)
    claims["page"], claims["cycle"], claims["value"] = page, cycle + 1, cycle + 1
    return claims


def measure(
    histories: list[ChangeHistory], score: str, share: float, noise: float, budgets: list[float], seeds: int
) -> list[float]:
    """Means of `TRIO` over histories, budgets and seeds."""
    rows = []
    for history in histories:
        for seed in range(seeds):
            claims = claims_of(history, share, noise, seed) if share or noise else None
            told = replace(history, claims=claims)
            for budget in budgets:
                result = run(prepare(told, budget=budget, seed=seed), score, metrics=TRIO, policy=None)
                rows.append([float(np.mean(getattr(result, name))) for name in TRIO])
    return [float(value) for value in np.mean(rows, axis=0)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("histories", nargs="+", metavar="HISTORY")
    parser.add_argument("--score", default="default")
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.1, 0.3, 1.0])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.2])
    parser.add_argument("--budget", type=float, nargs="+", default=[0.01, 0.05, 0.1])
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args(arguments)
    histories = [read_history(path) for path in args.histories]
    print("| listed truthfully | noise | " + " | ".join(TRIO) + " |\n|---|---|" + "---|" * len(TRIO))
    for share in args.share:
        for noise in args.noise:
            values = measure(histories, args.score, share, noise, args.budget, args.seeds)
            print(
                f"| {share:.0%} | {noise:.0%} | " + " | ".join(f"{one:.3f}" for one in values) + " |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
