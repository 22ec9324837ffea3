"""``python -m training.evaluate``: score functions side by side on a recorded history.

Each score function is replayed (`training.replaying.replay`) on the same history with the same budget,
warm-up and seed. The figures are means over the scored cycles with the half-width of their 95% confidence
interval. ``--all`` is the leaderboard: all that has a name.
"""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.scoring.functions import ScoreParser
from scrapy_gp4c.scoring.named import DEFAULT
from training import options
from training.clustering.clusters import CLUSTERS, RecordedCycles, group_texts, regrouping
from training.clustering.groups_file import read_groups
from training.comparing.evaluation import (
    DEFAULT_SCORES,
    EVERY,
    asked,
    cycles_of,
    evaluate,
    write_csv,
    write_json,
)
from training.comparing.leaderboard import Leaderboard, leaderboard, names
from training.histories.contents import ContentHistory
from training.histories.growth_reading import read_growth
from training.histories.history import ChangeHistory
from training.histories.reading import read_contents_or_history
from training.replaying.growth import HUBS, growth_crawl, replay_growth
from training.replaying.metrics import ORACLE, parse_budget
from training.replaying.oracle_baselines import is_replays
from training.replaying.prepared import DEFAULTS, CrawlChoices
from training.reporting.evaluation import of_leaderboard, row_of, show, show_growth, show_leaderboard
from training.reporting.figures import draw_scatter, save
from training.reporting.terminal import progress, wide_console


def _add_group_options(add: options.Add) -> None:
    """Where clusters and links come from."""
    add("--groups", type=Path, metavar="NPZ", help="clusters and links of the pages, by training.cluster")
    add(
        "--recluster",
        type=int,
        metavar="N",
        help="cluster the pages of contents by the copies of cycle 0 (or --groups), and after every N cycles "
        "by those that a policy has fetched (default: never)",
    )


def take_groups(given: Namespace, history: ChangeHistory, first: int) -> None:
    """Give a history its groups; ``first``: cycles (each of ``--every``) before it in the file.

    Raises HistoryError for groups of other pages, or where there are no contents to cluster.
    """
    if given.groups:
        history.neighbours.groups_by_content = read_groups(given.groups, history)
    if given.recluster is None:
        return
    if given.recluster < 1:
        raise HistoryError(f"--recluster: expected a number of cycles of at least 1; found {given.recluster}")
    if given.query_log:
        raise HistoryError("--recluster goes without --query-log: measure quality with --groups alone")
    contents = read_contents_or_history(given.history)
    if not isinstance(contents, ContentHistory):
        raise HistoryError(
            f"--recluster needs what the pages said, and {given.history} tells only when they changed: give "
            "a file of contents, or leave --recluster out"
        )
    cycles = RecordedCycles(first, given.every)
    groups = history.neighbours.groups_by_content
    clusters = min(CLUSTERS, history.pages) if groups is None else len(groups.order)
    if groups is None:
        begun = cycles.texts(contents, np.zeros(history.pages, np.int64))
        history.neighbours.groups_by_content = group_texts(contents, begun, clusters, seed=given.seed)
    history.neighbours.regrouping = regrouping(contents, given.recluster, cycles, clusters, seed=given.seed)


def _add_growth_options(add: Callable[..., Any]) -> None:
    """Add the options of replays of growth, and that of what they show as others do."""
    add("--weighted", action="store_true", help="change rate and NDCG by the weights of the pages")
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


def _evaluate_growth(given: Namespace) -> None:
    """Replay every score function with every share, and print the table; raises Gp4cError."""
    if bad := [share for share in given.discovery if not 0.0 <= share <= 1.0]:
        raise HistoryError(f"--discovery: expected shares from 0.0 to 1.0; found {bad[0]}")
    grown = read_growth(Path(given.history))
    rows = []
    choices = CrawlChoices(
        parse_budget(given.budget), given.warmup, given.ties, given.clock, given.seed, given.policy
    )
    for text in given.score or (DEFAULT,):
        for share in given.discovery:
            crawl = growth_crawl(text, given.policy, share, given.discovery_function, choices)
            rows.append(row_of(text, share, replay_growth(grown, crawl)))
    own = grown.history
    new = int((grown.born > 0).sum())
    title = (
        f"{given.history}: {own.pages:,} pages, {new:,} of them new in {own.cycles} cycles; "
        f"budget {given.budget}, warm-up {given.warmup}, seed {given.seed}"
    )
    show_growth(title, rows, wide_console(), weighted=given.weighted)
    if given.json:
        given.json.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = ScoreParser(prog="python -m training.evaluate", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("history", metavar="HISTORY", help="change history (text, TSV, npz, gzip) or store directory")
    default = ", ".join(DEFAULT_SCORES)
    options.scores(add, f"name, expression, score file, dotted path, or {ORACLE} (default: {default})")
    options.search(add)
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
    options.warmup(add, DEFAULTS.warmup, f" (default {DEFAULTS.warmup})")
    options.ties(add, DEFAULTS.ties, f"order of equal scores (default {DEFAULTS.ties})")
    options.clock(add, DEFAULTS.clock, "how outcomes are weighed (default: the score file's, else visits)")
    options.seed(add, DEFAULTS.seed, f"seed of the random ties and draws (default {DEFAULTS.seed})")
    add("--cycles", metavar="A:B", help="only cycles A to B, from 1, both included; warm-up begins at A")
    add("--seeds", type=int, default=1, help="replays with so many seeds (default %(default)s)")
    _add_group_options(add)
    add("--figure", type=Path, metavar="OUT", help="with --all: draw change rate over freshness (.png, .svg)")
    _add_growth_options(add)
    add("--json", type=Path, metavar="OUT", help="write everything as JSON")
    add("--csv", type=Path, metavar="OUT", help="write a row per score function and cycle as CSV")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, or 2 for input that cannot be used."""
    parser = _parser()
    given = parser.parse_args(arguments)
    given.board = given.all or given.seeds != 1
    lone = given.weighted if given.board else given.figure
    if lone or (given.board and not (given.all or given.policy)):
        parser.error("--seeds and --figure go with --all, or several seeds with --policy; not --weighted")
    try:
        if given.growth:
            _evaluate_growth(given)
            return 0
        bar = partial(progress, Console(stderr=True))
        history = options.history_of(given, bar)
        cycles = cycles_of(given.cycles or ":", history.cycles)
        if given.cycles:
            history = history.take(cycles=cycles)
        take_groups(given, history, cycles.start)
        _evaluate(given, history, cycles.start + 1)
    except Gp4cError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _evaluate(given: argparse.Namespace, history: ChangeHistory, first_cycle: int) -> None:
    named = names(history) if given.all else ()
    scores, policies = what = asked(history, named, given.score or (), given.policy)
    only = policies[0] if len(policies) == 1 and not is_replays(policies[0]) else None
    crawl = CrawlChoices(parse_budget(given.budget), given.warmup, given.ties, given.clock, given.seed, only)
    with progress(Console(stderr=True), len(what.contenders(crawl)) * given.seeds) as advance:
        one = partial(evaluate, weighted=given.weighted)
        run = partial(leaderboard, seeds=given.seeds) if given.board else one
        found = run(history, scores, crawl, policies=policies, first_cycle=first_cycle, advance=advance)
    evaluations = found.evaluations if isinstance(found, Leaderboard) else [found]
    if given.json:
        write_json(given.json, found.to_json())
    if given.csv:
        write_csv(given.csv, evaluations)
    if given.figure and isinstance(found, Leaderboard):
        save(draw_scatter(of_leaderboard(found)), given.figure)
    if isinstance(found, Leaderboard):
        show_leaderboard(found, wide_console())
    else:
        show(found, wide_console())


if __name__ == "__main__":
    sys.exit(main())
