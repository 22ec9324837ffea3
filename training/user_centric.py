"""Repeat the experiment of Pandey & Olston 2005: `python -m training.user_centric CONTENTS -o DIR`.

Search quality by budget for user-centric, staleness- and embarrassment-based refreshing, age and t*X, on one
site and on all pages that change, under two scoring functions; figures 3 and 4, tables, JSON and CSV.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.search.gains import PIECES
from training import options
from training.papers import user_centric
from training.papers.user_centric import (
    BUDGETS,
    ESTIMATES,
    UserCentricPlan,
    forecast_table,
    resource_table,
    write_all,
)
from training.replaying.search import WorkloadPlan
from training.reporting.terminal import progress


@options.command
def main(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m training.user_centric", description=__doc__.split("\n\n")[0]
    )
    add = parser.add_argument
    add("contents", type=Path, metavar="CONTENTS", help="JSON lines of site, page and versions")
    options.shared(add, "--output", help="directory for figures, tables, JSON and CSV")
    estimates = "what is known of pages: from all weeks, the first half, or a policy's own visits"
    add("--estimate", choices=ESTIMATES, default="whole", help=estimates)
    add("--site", default=user_centric.SITE, metavar="NAME", help="the data set of one site")
    options.queries(add)
    add("--pieces", type=int, default=PIECES, help="pieces of the curve F (default %(default)s)")
    refit = "weeks after which F, idf and mean length are learnt anew for the estimates (default: never)"
    add("--refit", type=int, default=0, metavar="N", help=refit)
    shares = "shares of the pages refreshed per week"
    add("--budgets", type=float, nargs="+", default=BUDGETS, metavar="SHARE", help=shares)
    add("--quick", action="store_true", help="one data set, tfidf, three budgets, 1,000 queries")
    only = "Figure 3 alone: do the gains of the first half forecast those of the second; no budget is tried"
    add("--forecasts", action="store_true", help=only)
    args = parser.parse_args(arguments)
    plans = UserCentricPlan(
        args.estimate,
        WorkloadPlan(args.queries, args.zipf, args.seed),
        args.pieces,
        () if args.forecasts else tuple(args.budgets),
        sites=(args.site, None),
        refit_cycles=args.refit,
    )
    if args.refit < 0:
        parser.error(f"--refit: expected a number of weeks, or 0 for never; found {args.refit}")
    if wrong := [share for share in plans.budgets if not 0.0 < share <= 1.0]:
        parser.error(f"--budgets: expected shares above 0, at most 1; found {wrong[0]:g}")
    if args.quick:
        plans = plans._replace(
            plan=plans.plan._replace(queries=1_000),
            budgets=() if args.forecasts else user_centric.QUICK_BUDGETS,
            taus=user_centric.QUICK_TAUS,
            scorings=("tfidf",),
            sites=(args.site,),
        )
    _run(args.contents, args.output, plans)


def _run(contents: Path, directory: Path, plans: UserCentricPlan) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    steps = partial(progress, Console(stderr=True))
    results, trials = user_centric.run_experiment(contents, plans, steps)
    results.write(directory)
    write_all(results, trials[0].history.cycles, directory)
    for panel in results.panels:
        print(
            f"{panel.name}: {counted(panel.pages, 'page')}, {panel.changed_share:.2%} change a week, "
            f"{panel.queries:,} queries; never refreshed, quality ends at {panel.never:.4f}"
        )
    if plans.budgets:
        print(resource_table(results.panels))
    print(forecast_table(results.panels))
    print(f"Seed {plans.plan.seed}, estimate {plans.estimate}. Figures, tables and results.json: {directory}")


if __name__ == "__main__":
    sys.exit(main())
