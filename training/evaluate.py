"""Score functions side by side on a recorded history.

Each score function is replayed (`training.replaying.replay`) on the same history with the same budget,
warm-up and seed. The figures are means over the scored cycles with the half-width of their 95% confidence
interval. ``--all`` is the leaderboard: all that has a name.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.scoring.functions import ScoreParser, load
from scrapy_gp4c.scoring.named import DEFAULT
from training import options
from training.clustering.clusters import CLUSTERS, RecordedCycles, group_pages, read_groups, regrouping
from training.comparing.evaluation import (
    DEFAULT_SCORES,
    EVERY,
    contenders,
    contest,
    costs,
    cycles_of,
    evaluate,
    write_csv,
    write_json,
)
from training.comparing.leaderboard import Leaderboard, leaderboard, names
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.histories.reading import read_contents_or_history
from training.papers import lambdacrawl
from training.replaying.baselines import is_oracle_baseline
from training.replaying.growth import HUBS, growth_crawl, replay_growth
from training.replaying.metrics import ORACLE, parse_budget
from training.replaying.prepared import DEFAULTS, CrawlChoices
from training.replaying.promises import describe_rules, read_rules_file
from training.reporting.figures import draw_scatter, save
from training.reporting.terminal import (
    of_leaderboard,
    progress,
    row_of,
    show,
    show_growth,
    show_leaderboard,
    wide_console,
)


def _add_group_options(add: options.Add) -> None:
    options.evidence(add)
    add("--groups", type=Path, metavar="NPZ", help="clusters and links of the pages, by training.cluster")
    add(
        "--recluster",
        type=int,
        metavar="N",
        help="cluster the pages of contents by the copies of cycle 0 (or --groups), and after every N cycles "
        "by those that a policy has fetched (default: never)",
    )


def take_groups(args: Namespace, history: ChangeHistory, cycles_before: int) -> None:
    """Add the clusters and links of ``--groups``, and the clustering of ``--recluster``, to `history`.

    ``cycles_before``: cycles that the history's file has before its first one. Raises HistoryError for groups
    of other pages, or where there are no contents to cluster.
    """
    if args.groups:
        history.neighbours.groups_by_content = read_groups(args.groups, history)
    if args.recluster is None:
        return
    if args.recluster < 1:
        raise HistoryError(f"--recluster: expected a number of cycles of at least 1; found {args.recluster}")
    if args.query_log:
        raise HistoryError("--recluster goes without --query-log: measure quality with --groups alone")
    contents = read_contents_or_history(args.history)
    if not isinstance(contents, ContentHistory):
        raise HistoryError(
            f"--recluster needs what the pages said, and {args.history} tells only when they changed: give "
            "a file of contents, or leave --recluster out"
        )
    cycles = RecordedCycles(cycles_before, args.every)
    groups = history.neighbours.groups_by_content
    clusters = min(CLUSTERS, history.pages) if groups is None else len(groups.order)
    if groups is None:
        texts = cycles.texts(contents, np.zeros(history.pages, np.int64))
        history.neighbours.groups_by_content = group_pages(contents, clusters, seed=args.seed, texts=texts)
    history.neighbours.regrouping = regrouping(contents, args.recluster, cycles, clusters, seed=args.seed)


def _add_growth_options(add: Callable[..., Any]) -> None:
    add("--weighted", action="store_true", help="change rate and NDCG by the weights of the pages")
    options.shared(add, "--cost", help="time: changes per second of download too")
    add("--growth", action="store_true", help="pages appear and have to be found: delay, coverage, changes")
    add(
        "--discovery",
        nargs="+",
        type=float,
        default=[0.0, 0.1],
        metavar="SHARE",
        help="with --growth: shares of the budget for hubs (default: 0.0 0.1)",
    )
    add("--discovery-function", default=HUBS, metavar="SCORE", help="with --growth: ranks hubs (%(default)s)")
    options.new_pages(add, "")
    ranked_help = "with --new-pages: ranks first visits (default: those that wait longest)"
    add("--new-page-function", metavar="SCORE", help=ranked_help)


def _crawl(args: Namespace, policy: str | None) -> CrawlChoices:
    budget = parse_budget(args.budget)
    return CrawlChoices(budget, args.warmup, args.ties, args.clock, args.seed, policy, args.site_share)


def _evaluate_growth(args: Namespace) -> None:
    """Replay a growing history with every score function and hubs' share of the budget; raises Gp4cError."""
    if bad := [share for share in args.discovery if not 0.0 <= share <= 1.0]:
        raise HistoryError(f"--discovery: expected shares from 0.0 to 1.0; found {bad[0]}")
    if args.claims or args.first_sight:
        raise HistoryError(
            "--claims, --first-sight: expected a history without growth, which has the claims that its "
            "crawl read: leave the option out with --growth"
        )
    if len(args.policy) > 1:
        raise HistoryError(f"--policy: expected one with --growth; found {', '.join(args.policy)}")
    policy = args.policy[0] if args.policy else None
    grown = options.growth_of(args)
    rows = []
    choices = _crawl(args, policy)
    first_visits = {
        "new_pages": args.new_pages,
        "new_page_function": args.new_page_function and load(args.new_page_function),
        "from_start": args.from_start,
    }
    for text in args.score or (DEFAULT,):
        for share in args.discovery:
            crawl = growth_crawl(text, policy, share, args.discovery_function, choices, **first_visits)
            rows.append(row_of(text, share, replay_growth(grown, crawl)))
    history = grown.history
    new = int((grown.born > 0).sum())
    title = (
        f"{args.history}: {counted(history.pages, 'page')}, {new:,} of them new in "
        f"{counted(history.cycles, 'cycle')}; budget {args.budget}, warm-up {args.warmup}, seed {args.seed}"
    )
    show_growth(title, rows, wide_console(), weighted=args.weighted)
    if args.json:
        write_json(args.json, rows)


def _parser() -> argparse.ArgumentParser:
    parser = ScoreParser(**options.usage("evaluate"), description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("history", metavar="HISTORY", help="change history (text, TSV, npz, gzip) or store directory")
    default = ", ".join(DEFAULT_SCORES)
    scores_help = f"name, expression, score file, dotted path, or {ORACLE} (default: {default})"
    options.shared(add, "--score", help=scores_help)
    options.search(add)
    add("--in-use", metavar="SCORE", help="function in use: the first row (default: as if it were default)")
    preset_help = (
        "published policies and ours as Kolobov et al. 2019 compare: a fifth of the pages a cycle, harmonic "
        "staleness by weight (their experiments: python -m training.experiment --preset lambdacrawl)"
    )
    add("--preset", choices=(lambdacrawl.NAME,), help=preset_help)
    add("--all", action="store_true", help="all that has a name: functions, policies of others, the oracle")
    add(
        "--budget",
        default=f"{DEFAULTS.budget}",
        help="visits per cycle: a share such as 0.05 or a count such as 5000",
    )
    add(
        "--policy",
        metavar="TEXT",
        nargs="+",
        action="extend",
        default=[],
        help=f"what chooses: top_k, rounds(rounds=4), db(d=1), sbr(tau=0.3), ..., a dotted path, or {EVERY} "
        "(default: the one that a named function brings along, else top_k)",
    )
    what = "most of the budget for a restless or swelling site, GP4C_SITE_SHARE of a crawl "
    what += "(default %(default)s)"
    add("--site-share", type=float, default=DEFAULTS.site_share, metavar="SHARE", help=what)
    warmup_help = "cycles in which every page is visited first (default %(default)s)"
    options.shared(add, "--warmup", default=DEFAULTS.warmup, help=warmup_help)
    options.shared(add, "--ties", default=DEFAULTS.ties, help="order of equal scores (default %(default)s)")
    clock_help = "how outcomes are weighed (default: the score file's, else visits)"
    options.shared(add, "--clock", default=DEFAULTS.clock, help=clock_help)
    options.shared(add, "--rules")
    options.shared(add, "--cycles-a-day", help="cycles of a day, for --rules (default: %(default)g)")
    seed_help = "seed of the random ties and draws (default %(default)s)"
    options.shared(add, "--seed", default=DEFAULTS.seed, help=seed_help)
    add("--cycles", metavar="A:B", help="only cycles A to B, from 1, both included; warm-up begins at A")
    add("--seeds", type=int, default=1, help="replays with so many seeds (default %(default)s)")
    _add_group_options(add)
    add("--figure", type=Path, metavar="OUT", help="with --all: draw change rate over freshness (.png, .svg)")
    _add_growth_options(add)
    add("--json", type=Path, metavar="OUT", help="write everything as JSON")
    add("--csv", type=Path, metavar="OUT", help="write a row per score function and cycle as CSV")
    return parser


@options.command
def main(arguments: Sequence[str] | None) -> None:
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.preset:
        parser.set_defaults(budget=f"{lambdacrawl.BUDGET_SHARE}")
        args = parser.parse_args(arguments)
        args.score = [*lambdacrawl.SCORES, *(args.score or ())]
    args.board = args.all or args.seeds != 1
    lone = args.weighted or args.cost != "visits" if args.board else args.figure
    if lone or (args.board and not (args.all or args.policy)):
        parser.error("--seeds goes with --all or --policy, --figure with --all; not --weighted or --cost")
    if args.growth:
        _evaluate_growth(args)
        return
    bar = partial(progress, Console(stderr=True))
    history = options.history_of(args, bar)
    cycles = cycles_of(args.cycles or ":", history.cycles)
    if args.cycles:
        history = history.take(cycles=cycles)
    history = options.with_evidence(args, history, cycles.start + 1)
    take_groups(args, history, cycles.start)
    _evaluate(args, history, cycles.start + 1)


def _evaluate(args: argparse.Namespace, history: ChangeHistory, first_cycle: int) -> None:
    named = names(history) if args.all else ()
    scores, policies = contest(history, named, args.score or (), args.policy, args.in_use)
    only = policies[0] if len(policies) == 1 and not is_oracle_baseline(policies[0]) else None
    crawl = _crawl(args, only)
    if args.rules is not None:
        crawl = crawl._replace(rules=read_rules_file(args.rules, args.cycles_a_day))
    with progress(Console(stderr=True), len(contenders(scores, policies, crawl)) * args.seeds) as advance:
        evaluate_once = partial(evaluate, weighted=args.weighted, by_time=args.cost == "time")
        judge = partial(leaderboard, seeds=args.seeds) if args.board else evaluate_once
        compared = judge(history, scores, crawl, policies=policies, first_cycle=first_cycle, advance=advance)
    evaluations = compared.evaluations if isinstance(compared, Leaderboard) else [compared]
    if args.json:
        write_json(args.json, compared.to_json())
    if args.csv:
        write_csv(args.csv, evaluations)
    if args.figure and isinstance(compared, Leaderboard):
        save(draw_scatter(of_leaderboard(compared)), args.figure)
    if isinstance(compared, Leaderboard):
        show_leaderboard(compared, wide_console())
    else:
        show(compared, wide_console())
        if crawl.rules is not None:
            without = evaluate(history, scores, crawl._replace(rules=None), policies=policies)
            k = compared.settings.k
            for line in (*describe_rules(crawl.rules, history, [k]), *costs(compared, without)):
                print(line)


if __name__ == "__main__":
    sys.exit(main())
