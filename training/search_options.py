"""Options of the commands that measure search quality, and the history that they mean."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.search.measuring import SCORINGS
from scrapy_gp4c.search.queries import read_query_log
from training import options
from training.histories.contents import read_contents
from training.histories.history import ChangeHistory
from training.histories.reading import read_coarsened, read_history
from training.replaying.refresh_value import Measuring, measured


def pages(add: options.Add) -> None:
    """Which pages of a file of contents."""
    add("--site", metavar="NAME", help="only the pages of this site")
    add("--changed-only", action="store_true", help="only pages that change at all")


def search(add: options.Add) -> None:
    """What tells how good a search is: a log of queries, and how it scores."""
    add(
        "--query-log", type=Path, metavar="LOG", help="query<TAB>count lines; the history is then of contents"
    )
    add("--scoring", choices=SCORINGS, default="tfidf", help="how the search scores pages (default tfidf)")
    importance = "site<TAB>page<TAB>number lines for --scoring inlinks (default: 1 + links at cycle 0)"
    add("--importance", type=Path, metavar="FILE", help=importance)
    add("--every", type=int, default=1, metavar="N", help="take every N cycles as one (default %(default)s)")
    pages(add)


def history_of(given: Namespace, steps: Callable[..., Any]) -> ChangeHistory:
    """Read the history of a command with `search`; ``steps(count, what)``: a progress bar.

    Raises HistoryError or QueryLogError.
    """
    if given.query_log is None:
        if given.site or given.changed_only or given.importance:
            raise HistoryError("--site, --changed-only and --importance go with --query-log: give a log too")
        return read_history(given.history) if given.every == 1 else read_coarsened(given.history, given.every)
    if given.every != 1:
        raise HistoryError("--every goes without --query-log, which measures in the cycles recorded")
    workload = read_query_log(given.query_log)
    contents = read_contents(given.history, given.site, given.changed_only)
    with steps(len(contents.texts), "counting terms") as advance:
        return measured(contents, Measuring(workload, given.scoring), given.importance, advance)
