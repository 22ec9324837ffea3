"""``python -m training.evaluate``: score functions side by side on a recorded history.

Each score function is replayed (`training.replaying.replay`) on the same history with the same budget,
warm-up and seed. The figures are means over the scored cycles with the half-width of their 95% confidence
interval. ``--all`` is the leaderboard: all that has a name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.scoring.functions import ScoreParser
from training import cluster_options, evaluate_growth, options, search_options
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
from training.histories.history import ChangeHistory
from training.replaying.metrics import ORACLE, parse_budget
from training.replaying.oracle_baselines import is_replays
from training.replaying.prepared import DEFAULTS, CrawlChoices
from training.reporting.evaluation import of_leaderboard, show, show_leaderboard
from training.reporting.figures import draw_scatter, save
from training.reporting.terminal import progress, wide_console


def _parser() -> argparse.ArgumentParser:
    parser = ScoreParser(prog="python -m training.evaluate", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("history", metavar="HISTORY", help="change history (text, TSV, npz, gzip) or store directory")
    default = ", ".join(DEFAULT_SCORES)
    options.scores(add, f"name, expression, score file, dotted path, or {ORACLE} (default: {default})")
    search_options.search(add)
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
    cluster_options.add_options(add)
    add("--figure", type=Path, metavar="OUT", help="with --all: draw change rate over freshness (.png, .svg)")
    evaluate_growth.add_options(add)
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
            evaluate_growth.run(given)
            return 0
        bar = partial(progress, Console(stderr=True))
        history = search_options.history_of(given, bar)
        cycles = cycles_of(given.cycles or ":", history.cycles)
        if given.cycles:
            history = history.take(cycles=cycles)
        cluster_options.take_groups(given, history, cycles.start)
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
