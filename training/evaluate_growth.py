"""``python -m training.evaluate --growth``: replays in which pages appear and have to be found."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.scoring.named import DEFAULT
from training.histories.growth_reading import read_growth
from training.replaying.growth import HUBS, growth_crawl, replay_growth
from training.replaying.metrics import parse_budget
from training.replaying.prepared import CrawlChoices
from training.reporting.evaluation import row_of, show_growth
from training.reporting.terminal import wide_console


def add_options(add: Callable[..., Any]) -> None:
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


def run(given: Namespace) -> None:
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
