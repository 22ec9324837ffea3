"""How long `make demo` takes: until its first curve is on the screen, and as a whole.

    python -m benchmarks.demo [--days 31]
    python -m benchmarks.demo --parts [--seeds 1 2 3]

The demo in a fresh process, as it is, its output read line by line. Targets: 30 s until the first curve, 3
minutes for all of it, on 2 idle cores. Processor time of all its processes is told besides: two idle cores
need half of it at least.

With ``--parts`` the demo's crawls go by the default without one of its parts each, on the web of each seed,
and the means over days and seeds are printed, with the least and the most lead over the default on a
web.
"""

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import machine, verdict
from example_project import demo
from example_project.crawls import DAYS, FIRST_RANKED_DAY
from example_project.tables import STEPS
from scrapy_gp4c.scoring.named import DEFAULT, NAMED

CURVE_S, WHOLE_S = 30.0, 180.0
PARTS = {
    "ages": ("hint_rate", "(0 - log(1 - hinted)) / t"),
    "ages and claims": ("hint_rate", "rate"),
    "size_lift": (" * size_lift ** 0.25", ""),
    "near": (" * near", ""),
    "surprise_site": (" * sqrt(surprise_site)", ""),
}
"""Part of the default -> its text, and what stands for it in a crawl without the part."""

KEYS = ("change_rate", "ndcg", "current")


def mean(rows: list[dict[str, str]], name: str, seed: int, key: str) -> float:
    """Mean of a number over the days of a crawl with the budget."""
    values = [
        float(row[key])
        for row in rows
        if (row["score"], row["seed"]) == (name, str(seed)) and int(row["day"]) >= FIRST_RANKED_DAY
    ]
    return float(np.nanmean(values))


def without_parts(seeds: list[int], days: int) -> int:
    """Print what the demo's crawls find without each part of the default."""
    demo.CRAWLS.clear()
    demo.CRAWLS["default"] = {}
    for name, (part, other) in PARTS.items():
        form = NAMED[DEFAULT].expression.replace(part, other)
        demo.CRAWLS[f"without {name}"] = {
            "GP4C_SCORE_FUNCTION": form,
            "GP4C_POLICY": str(NAMED[DEFAULT].policy),
        }
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in seeds:
            arguments = ["--seed", str(seed), "--days", str(days), "--port", "0", "--output", directory]
            if code := demo.main(arguments):
                return code
            with (Path(directory) / "days.tsv").open() as table:
                rows += [row | {"seed": str(seed)} for row in csv.DictReader(table, delimiter="\t")]
    print("| crawl | change rate | NDCG | current copies |\n|---|---|---|---|")
    means = {
        name: np.array([[mean(rows, name, seed, key) for seed in seeds] for key in KEYS])
        for name in demo.CRAWLS
    }
    for name, of_seeds in means.items():
        leads = of_seeds - means["default"]
        cells = (
            f"{all_seeds.mean():.3f} ({lead.min():+.3f} to {lead.max():+.3f})"
            for all_seeds, lead in zip(of_seeds, leads, strict=True)
        )
        print(f"| {name} | {' | '.join(cells)} |")
    return 0


def main() -> int:
    """Print both waits; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=int, default=DAYS, help="days to simulate (default: %(default)s)")
    parser.add_argument("--parts", action="store_true", help="the default without each of its parts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the webs, with --parts")
    options = parser.parse_args()
    print(machine())
    if options.parts:
        return without_parts(options.seeds, options.days)
    curve_s = None
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-u", "-m", "example_project.demo", "--days", str(options.days)]
        began_s = time.perf_counter()
        with subprocess.Popen(
            [*command, "--port", "0", "--output", directory], stdout=subprocess.PIPE, text=True
        ) as demo:
            assert demo.stdout is not None
            for line in demo.stdout:
                if curve_s is None and set(line) & set(STEPS):
                    curve_s = time.perf_counter() - began_s
        whole_s = time.perf_counter() - began_s
    if demo.returncode or curve_s is None:
        print(f"the demo failed, exit code {demo.returncode}", file=sys.stderr)
        return 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"processor time of all processes: {used.ru_utime + used.ru_stime:.0f} s")
    holds = verdict("first curve on the screen, s", curve_s, CURVE_S, at_least=False)
    return 0 if verdict("the whole demo, s", whole_s, WHOLE_S, at_least=False) and holds else 1


if __name__ == "__main__":
    sys.exit(main())
