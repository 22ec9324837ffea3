"""How long `make demo` takes: until its first curve is on the screen, and as a whole.

    python -m benchmarks.demo [--days 31]
    python -m benchmarks.demo --seeds 1 2 3 [--parts]

The demo runs in a fresh process, and its output is read line by line. Targets: 30 s until the first curve, 3
minutes for all of it, on 2 idle cores. Printed besides is the processor time of all its processes, of which
two idle cores need at least half.

With ``--seeds`` the demo runs on the web of each seed. It prints means over days and seeds, the least and the
largest lead of each crawl over the default on a web, and how many times as many changes the default finds.
With ``--parts`` the other crawls use the default function without one of its parts, instead of ``age`` and
``random``.
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

from benchmarks.common import exit_code, machine, verdict
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
"""Part of the default function -> its text, and the text that replaces it."""

KEYS = ("change_rate", "ndcg", "current")


def compare_parts() -> None:
    """Replace the demo's compared crawls by crawls with the default function less one of its `PARTS` each."""
    for name in set(demo.CRAWLS) - {DEFAULT}:
        del demo.CRAWLS[name]
    for name, (part, other) in PARTS.items():
        form = NAMED[DEFAULT].expression.replace(part, other)
        demo.CRAWLS[f"without {name}"] = {
            "GP4C_SCORE_FUNCTION": form,
            "GP4C_POLICY": str(NAMED[DEFAULT].policy),
        }


def days_of(seed: int, days: int, directory: str) -> list[dict[str, str]]:
    """Run the demo on the web of ``seed``; return the rows of its table from `FIRST_RANKED_DAY` on."""
    arguments = ["--seed", str(seed), "--days", str(days), "--port", "0", "--output", directory]
    if code := demo.main(arguments):
        sys.exit(code)
    with (Path(directory) / "days.tsv").open() as table:
        return [row for row in csv.DictReader(table, delimiter="\t") if int(row["day"]) >= FIRST_RANKED_DAY]


def print_means(seeds: list[int], days: int) -> int:
    """Run the demo with each seed, and print means and leads of its crawls."""
    means = {name: np.zeros((len(KEYS), len(seeds))) for name in demo.CRAWLS}
    changes = {name: np.zeros(len(seeds)) for name in demo.CRAWLS}
    for column, seed in enumerate(seeds):
        with tempfile.TemporaryDirectory() as directory:
            rows = days_of(seed, days, directory)
        for name in demo.CRAWLS:
            crawl_rows = [row for row in rows if row["score"] == name]
            means[name][:, column] = [np.nanmean([float(row[key]) for row in crawl_rows]) for key in KEYS]
            changes[name][column] = sum(int(row["changed"]) for row in crawl_rows)
    print("| crawl | change rate | NDCG | current copies | times the changes |\n|---|---|---|---|---|")
    for name, of_seeds in means.items():
        leads = of_seeds - means[DEFAULT]
        cells = [
            f"{all_seeds.mean():.3f} ({lead.min():+.3f} to {lead.max():+.3f})"
            for all_seeds, lead in zip(of_seeds, leads, strict=True)
        ]
        times = changes[DEFAULT] / changes[name]
        cells.append(f"{times.mean():.2f} ({times.min():.2f} to {times.max():.2f})")
        print(f"| {name} | {' | '.join(cells)} |")
    return 0


def main() -> int:
    """Print both waits; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=int, default=DAYS, help="days to simulate (default: %(default)s)")
    parser.add_argument("--parts", action="store_true", help="the default without each of its parts")
    parser.add_argument(
        "--seeds", type=int, nargs="+", metavar="SEED", help="of webs: compare the demo's crawls"
    )
    options = parser.parse_args()
    print(machine())
    if options.parts:
        compare_parts()
    if options.parts or options.seeds:
        return print_means(options.seeds or [1, 2, 3], options.days)
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
    return exit_code(verdict("the whole demo, s", whole_s, WHOLE_S, at_least=False), holds)


if __name__ == "__main__":
    sys.exit(main())
