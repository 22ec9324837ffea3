"""``scrapy gp4c pages``: the best pages by score, by changes found, or by last visit."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.commands.text_tables import print_table
from scrapy_gp4c.page_state.classes import is_unfetched
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.scoring.draws import draws
from scrapy_gp4c.scoring.ranking import top_k

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project
    from scrapy_gp4c.settings import Settings

HELP = "the best pages of a spider's store"
SORTS = ("score", "changes", "last")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"expected a count of at least 1; found {text!r}")
    return number


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument("--top", type=_positive, default=20, metavar="N", help="pages to show (default: 20)")
    parser.add_argument("--sort", choices=SORTS, default="score", help="best first by this (default: score)")
    parser.add_argument("--match", metavar="TEXT", help="only pages whose URL contains TEXT")


def run(project: Project, options: Namespace) -> None:
    """Print the table: memory is bounded by one block and the pages shown."""
    best = np.empty(0, np.int64), np.empty(0), np.empty(0)  # pages, what is sorted by, scores
    with project.open_store() as store:
        cycle = store.open_cycle or store.last_cycle + 1
        for first, block in store.blocks():
            rows = np.flatnonzero(~is_unfetched(block["n"], block["has_copy"]))
            if options.match is not None:
                requests = store.requests(rows + first)
                rows = rows[[options.match in request["url"] for request in requests]]
            if not len(rows):
                continue
            state = {name: column[rows] for name, column in block.items()}
            scores = _scores(project.settings, state, cycle)
            by = {"score": scores, "changes": state["X"], "last": state["last_attempt"]}[options.sort]
            merged = [np.concatenate(pair) for pair in zip(best, (rows + first, by, scores), strict=True)]
            chosen = top_k(merged[1].astype(np.float64), merged[0], options.top)
            best = merged[0][chosen], merged[1][chosen], merged[2][chosen]
        shown = [("score", "n", "X", "t", "last outcome", "URL")]
        for page, score, request in zip(best[0].tolist(), best[2], store.requests(best[0]), strict=True):
            row = store.page(page)
            age_cycles = cycle - row.last_cycle
            numbers = (f"{score:.4g}", str(row.n), str(row.X), str(age_cycles))
            shown.append((*numbers, OUTCOMES[row.outcome], request["url"]))
    print_table(shown)


def _scores(settings: Settings, state: Columns, cycle: int) -> npt.NDArray[Any]:
    with_draws = {**state, "draw": draws(state["key"], settings.seed, cycle)}
    return settings.score_function.scores(with_draws, cycle)
