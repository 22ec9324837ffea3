"""Options that several commands have, and what their texts mean."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.scoring.functions import score_argument
from scrapy_gp4c.scoring.terminals import (
    CLOCKS,
    NAMES,
    PAPERS,
    RELATED,
    SETS,
    UNREPLAYED,
)
from scrapy_gp4c.search.measuring import SCORINGS
from scrapy_gp4c.search.queries import read_query_log
from training.evolution.choices import Choices
from training.evolution.evolve import Parameters
from training.histories import splits
from training.histories.contents import read_contents
from training.histories.formats import WRITERS
from training.histories.history import ChangeHistory
from training.histories.reading import read_coarsened, read_history
from training.replaying.metrics import parse_budget
from training.replaying.prepared import TIES
from training.replaying.refresh_value import Measuring, measured

Add = Callable[..., object]
"""``add_argument`` of a parser or group."""


def history(add: Add) -> None:
    """What to learn from."""
    add("history", help="history file, or the store of a crawl (a directory)")


def scores(add: Add, what: str) -> None:
    """Score functions, in several ``--score`` or after one; the parser is a `ScoreParser`."""
    add("--score", nargs="+", action="extend", type=score_argument, metavar="SCORE", help=what)


def output(add: Add, what: str, default: Path | None = None, kind: Callable[[str], Any] = Path) -> None:
    """``-o``; without a default it has to be given."""
    if default is None:
        add("-o", "--output", type=kind, required=True, help=what)
    else:
        add("-o", "--output", type=kind, default=default, help=what)


def protocol(add: Add, default: splits.Protocol, *others: str) -> None:
    """How a history is split; ``others``: protocols that split none, which the command's epilog explains."""
    known, shown = (*splits.PROTOCOLS, *others), f"{{{','.join(splits.PROTOCOLS)}}}"
    add("--protocol", choices=known, metavar=shown, default=default, help="how to split the history")


def budget(add: Add, default: float) -> None:
    """Budget of the crawl that is learned for; the namespace lacks it where it is not given."""
    what = f"visits per cycle: share (0.05) or count (500) (default: {default}; with --promote "
    add("--budget", type=_budget, default=SUPPRESS, help=what + "that of the crawl's newest cycle)")


def _budget(text: str) -> float:
    return parse_budget(text)  # argparse names this function where the text is no number


def terminal_names(add: Add) -> None:
    """What functions are learned from: a set of `SETS` or a list of names."""
    own = [name for name in NAMES if name not in (*RELATED[len(PAPERS) :], *UNREPLAYED)]
    what = f"basic, all, or a list such as n,X,t ({', '.join(own)})"
    add("--terminals", type=lambda text: SETS.get(text, tuple(text.split(","))), default="all", help=what)


def warmup(add: Add, default: int, note: str = "") -> None:
    """Warm-up of a replay."""
    add("--warmup", type=int, default=default, help=f"cycles in which every page is visited first{note}")


def clock(add: Add, default: str | None, what: str = "how the terminals weigh outcomes") -> None:
    """Clock of the terminals."""
    add("--clock", choices=CLOCKS, default=default, help=what)


def ties(add: Add, default: str, what: str = "order of pages with equal scores") -> None:
    """Order of equal scores."""
    add("--ties", choices=TIES, default=default, help=what)


def seed(add: Add, default: int, what: str = "all randomness follows from it") -> None:
    """Seed of all that is drawn."""
    add("--seed", type=int, default=default, help=what)


def process(add: Add) -> None:
    """Size of the genetic programming, and its seed."""
    parameters = Parameters()
    add("--population", type=int, default=parameters.population, help="individuals per generation")
    add("--generations", type=int, default=parameters.generations, help="generations")
    add("--seeds", type=int, default=Choices.seeds, help="independent runs per fold")
    seed(add, Choices.seed)


def jobs(add: Add) -> None:
    """Number of workers."""
    add("--jobs", type=int, default=-1, help="worker processes; -1: one per processor")


def choices_of(given: Namespace) -> Choices:
    """What to learn and how; what a command has no option for is as by default.

    Raises LearningError or ExpressionError for what cannot be used.
    """

    def named(kind: type[Any]) -> Any:
        names = [field.name for field in fields(kind) if hasattr(given, field.name)]
        return {name: getattr(given, name) for name in names}

    return Choices(**named(Choices), parameters=Parameters(**named(Parameters)))


def writer_of(output: str) -> Callable[[str, ChangeHistory], None]:
    """What writes a history to a file of this name. Raises HistoryError for a name of no known format."""
    write = next((write for end, write in WRITERS.items() if output.endswith(end)), None)
    if write is None:
        raise HistoryError(f"the output must be named *{', *'.join(WRITERS)}; found {output!r}")
    return write


def pages(add: Add) -> None:
    """Which pages of a file of contents."""
    add("--site", metavar="NAME", help="only the pages of this site")
    add("--changed-only", action="store_true", help="only pages that change at all")


def search(add: Add) -> None:
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
