"""Draw queries from the headings of recorded pages: `python -m training.workload CONTENTS -o OUT`.

Writes a log of queries, `query<TAB>count`, as `training.evaluate --query-log` and `GP4C_QUERY_LOG` read it.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from rich.console import Console

from scrapy_gp4c.search.queries import Workload
from scrapy_gp4c.store.atomic_files import replacing
from training import options
from training.histories.contents import read_contents
from training.replaying.search import WorkloadPlan, above_knee, count, draw
from training.reporting.terminal import progress

COUNTS = 1_000_000
"""Sum of the counts of a written log."""


@options.command
def main(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.workload", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("contents", metavar="CONTENTS", help="JSON lines of site, page and versions, plain, gzip or xz")
    options.shared(add, "--output", type=str, help="log of queries to write")
    options.shared(add, "--site", "--changed-only")
    options.queries(add)
    args = parser.parse_args(arguments)
    if args.queries < 1:
        parser.error(f"--queries: expected at least 1; found {args.queries}")
    _write(args, WorkloadPlan(args.queries, args.zipf, args.seed))


def _write(args: argparse.Namespace, plan: WorkloadPlan) -> None:
    contents = read_contents(args.contents, args.site, args.changed_only)
    drawn = draw(contents, plan)
    with progress(Console(stderr=True), len(contents.texts), "counting terms") as advance:
        corpus = count(contents, advance).of(drawn)
    relevant, least = above_knee(corpus, drawn)
    with replacing(args.output) as file:
        file.write("".join(_lines(relevant)).encode())
    lengths = np.bincount([len(query) for query in relevant.queries], minlength=4)[1:4]
    print(
        f"{args.output}: {len(relevant.queries):,} of {len(drawn.queries):,} distinct queries kept, "
        f"those whose TF-IDF sums to {least:.4g} or more; {lengths[0]:,} of one term, {lengths[1]:,} of two, "
        f"{lengths[2]:,} of three; {len(relevant.terms):,} terms; zipf {plan.zipf:g}, seed {plan.seed}"
    )


def _lines(relevant: Workload) -> list[str]:
    order = np.argsort(-relevant.frequency, kind="stable").tolist()
    texts = relevant.texts()
    return [f"{texts[query]}\t{relevant.frequency[query] * COUNTS:.6g}\n" for query in order]


if __name__ == "__main__":
    sys.exit(main())
