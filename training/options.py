"""Command lines: exit codes, options that several commands share, and the values of their texts."""

import sys
from argparse import Action, ArgumentDefaultsHelpFormatter, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, Final

import training
from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.scoring.functions import score_argument
from scrapy_gp4c.scoring.terminals import (
    CLOCKS,
    NAMES,
    SETS,
    UNREPLAYED,
)
from scrapy_gp4c.search.measuring import SCORINGS
from scrapy_gp4c.search.queries import read_query_log
from training.evolution.choices import Choices
from training.evolution.evolve import OPERATORS, QUOTIENTS, Parameters
from training.histories import claims, splits
from training.histories.claims import FIRST_SIGHT, LINE
from training.histories.contents import has_contents, read_contents
from training.histories.formats import WRITERS
from training.histories.git_history import parse_length
from training.histories.growth import GrowthHistory, is_export, read_growth
from training.histories.history import ChangeHistory
from training.histories.offset_history import MAX_PAGES
from training.histories.reading import coarsened, read_contents_or_history, read_history
from training.replaying.linked import growth_of_contents
from training.replaying.metrics import parse_budget
from training.replaying.prepared import TIES
from training.replaying.refresh_value import QualityMeasure, with_refresh_values
from training.replaying.search import WorkloadPlan

Add = Callable[..., object]
"""``add_argument`` of a parser or group."""


def command(main: Callable[[Sequence[str] | None], None]) -> Callable[..., int]:
    """Decorator of a command: its exit code is 0, 2 for input that cannot be used, or 130 after Ctrl-C."""

    @wraps(main)
    def run(arguments: Sequence[str] | None = None) -> int:
        try:
            main(arguments)
        except (Gp4cError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
        return 0

    return run


class HelpWithDefaults(ArgumentDefaultsHelpFormatter):
    """Formatter of help texts, which appends an option's default, where it has one."""

    def _get_help_string(self, action: Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def usage(name: str, required: str = "") -> dict[str, Any]:
    """Arguments ``prog`` and ``usage`` of a command's parser; ``required``: text of its required options."""
    history = "SPIDER|HISTORY" if training.program.startswith("scrapy") else "HISTORY"
    return {"prog": f"{training.program}{name}", "usage": f"%(prog)s [options] {history}{required}"}


def budget(text: str) -> float:
    """Parse ``--budget``; an error of argparse has this function's name in it."""
    return parse_budget(text)


def _length(text: str) -> int:
    try:
        return parse_length(text)
    except HistoryError as error:
        raise ArgumentTypeError(str(error)) from None


def _above_0(text: str) -> float:
    number = float(text)
    if not 0.0 < number < float("inf"):
        raise ArgumentTypeError(f"expected a number above 0, such as 24; found {text!r}")
    return number


_PARAMETERS: Final = Parameters()
_REPLAYED: Final = ", ".join(name for name in NAMES if name not in UNREPLAYED)
SHARED: Final[dict[str, dict[str, Any]]] = {
    "history": {"metavar": "HISTORY", "help": "history file, or the store of a crawl (a directory)"},
    "--output": {"type": Path, "required": True},
    "--rules": {
        "type": Path,
        "metavar": "FILE",
        "help": "JSON list of rules about pages, as GP4C_RULES has them",
    },
    "--cycles-a-day": {"type": _above_0, "default": 1.0, "help": "cycles of a day (default: %(default)g)"},
    "--score": {"nargs": "+", "action": "extend", "type": score_argument, "metavar": "SCORE"},
    "--protocol": {
        "choices": splits.PROTOCOLS,
        "metavar": f"{{{','.join(splits.PROTOCOLS)}}}",
        "help": "how to split the history",
    },
    "--terminals": {
        "type": lambda text: SETS.get(text, tuple(text.split(","))),
        "default": "all",
        "help": f"basic, papers, all, or a list such as n,X,t ({_REPLAYED})",
    },
    "--cost": {"choices": ("visits", "time"), "default": "visits"},
    "--warmup": {"type": int, "help": "cycles in which every page is visited first"},
    "--clock": {"choices": CLOCKS, "help": "how the terminals weigh outcomes"},
    "--ties": {"choices": TIES, "help": "order of pages with equal scores"},
    "--seed": {"type": int, "default": Choices.seed, "help": "all randomness follows from it"},
    "--seeds": {"type": int, "default": Choices.seeds, "help": "independent runs per fold"},
    "--population": {"type": int, "default": _PARAMETERS.population, "help": "individuals per generation"},
    "--generations": {"type": int, "default": _PARAMETERS.generations, "help": "generations"},
    "--operators": {
        "choices": tuple(OPERATORS),
        "default": _PARAMETERS.operators,
        "help": "mutations of which paper",
    },
    "--protected-division": {
        "choices": tuple(QUOTIENTS),
        "default": _PARAMETERS.protected_division,
        "help": "quotient of a division by zero: 0 (journal) or a very large number (thesis)",
    },
    "--jobs": {"type": int, "default": -1, "help": "worker processes; -1: one per processor"},
    "--site": {"metavar": "NAME", "help": "only the pages of this site"},
    "--changed-only": {"action": "store_true", "help": "only pages that change at all"},
    "--cycle": {
        "type": _length,
        "metavar": "LENGTH",
        "help": "of irregular visits: length of a cycle (default 1d)",
    },
    "--max-pages": {
        "type": int,
        "metavar": "N",
        "help": f"of irregular visits: draw whole hosts, so many pages at most (default {MAX_PAGES:,})",
    },
}
"""Options that several commands share -> their arguments; ``--score`` is for a `ScoreParser`."""
PROCESS: Final = ("--population", "--generations", "--seeds", "--seed", "--operators", "--protected-division")
"""Names of the options of genetic programming: its size, its seed, and variants of the papers."""


def shared(add: Add, *names: str, **changes: Any) -> None:
    """Add options of `SHARED`, as in ``shared(add, "--seed", "--jobs")``.

    ``changes``: keyword arguments of ``add_argument`` that differ for this command.
    """
    for name in names:
        flags = ("-o", name) if name == "--output" else (name,)
        add(*flags, **SHARED[name] | changes)


def new_pages(add: Add, more_help: str) -> None:
    """Add ``--new-pages`` (cap on first visits) and ``--from-start`` (begin with pages without a finder).

    Both are for replays of growth. ``more_help``: end of the help of ``--new-pages``.
    """
    add("--new-pages", type=int, metavar="N", help=f"with --growth: cap on first visits per cycle{more_help}")
    add("--from-start", action="store_true", help="with --growth: begin with pages that need no finder alone")


def choices_of(args: Namespace) -> Choices:
    """Choices of a parsed command line; defaults where the command has no option.

    Raises LearningError or ExpressionError for what cannot be used.
    """

    def named(kind: type[Any]) -> Any:
        names = [field.name for field in fields(kind) if hasattr(args, field.name)]
        return {name: getattr(args, name) for name in names}

    return Choices(**named(Choices), parameters=Parameters(**named(Parameters)))


def writer_of(output: str) -> Callable[[str, ChangeHistory], None]:
    """Function that writes a history in the format of the file name.

    Raises HistoryError for an unknown format.
    """
    write = next((write for end, write in WRITERS.items() if output.endswith(end)), None)
    if write is None:
        raise HistoryError(f"the output must be named *{', *'.join(WRITERS)}; found {output!r}")
    return write


def search(add: Add) -> None:
    """Add the options for search quality: query log and scoring."""
    add(
        "--query-log", type=Path, metavar="LOG", help="query<TAB>count lines; the history is then of contents"
    )
    add("--scoring", choices=SCORINGS, default="tfidf", help="how the search scores pages")
    importance = "site<TAB>page<TAB>number lines for --scoring inlinks (default: 1 + links at cycle 0)"
    add("--importance", type=Path, metavar="FILE", help=importance)
    add("--every", type=int, default=1, metavar="N", help="take every N cycles as one (default %(default)s)")
    shared(add, "--cycle", "--max-pages", "--site", "--changed-only")


def queries(add: Add) -> None:
    """Add the options of a `WorkloadPlan`: how many queries are drawn, by which law, and the seed."""
    plan = WorkloadPlan()
    add("--queries", type=int, default=plan.queries, help="distinct queries to draw (default %(default)s)")
    add("--zipf", type=float, default=plan.zipf, help="frequency ~ rank^-zipf (default %(default)s)")
    shared(add, "--seed", default=plan.seed, help="of all draws (default %(default)s)")


WITHOUT: Final = Path("none")
"""Value of ``--first-sight`` for no file: pages rank by their changes alone."""


def evidence(add: Add) -> None:
    """Add the options for files about a history's pages: sites' claims, and ages and sizes at first sight."""
    add("--claims", type=Path, metavar="FILE", help=f"claims of sites about the pages: lines {LINE}")
    what = f"ages and sizes of the pages at first sight: lines {FIRST_SIGHT} (default: the file "
    what += f"NAME.first_sight.tsv.gz beside the history, where there is one; {WITHOUT}: neither)"
    add("--first-sight", type=Path, metavar="FILE", help=what)


def with_evidence(args: Namespace, history: ChangeHistory, first_cycle: int = 1) -> ChangeHistory:
    """Copy of `history` with the contents of the files that the options of `evidence` name.

    ``first_cycle``: number of the history's first cycle in its file. Raises HistoryError.
    """
    first_sight = args.first_sight
    if first_sight is None and history.page_names is not None:
        first_sight = claims.first_sight_beside(Path(args.history))
        if first_sight is not None:
            line = f"{first_sight}: first sight of pages found beside the history: used"
            print(f"{line} (--first-sight {WITHOUT}: without)", file=sys.stderr)
    known = None if first_sight == WITHOUT else first_sight
    return claims.with_evidence(history, args.claims, known, first_cycle)


def growth_of(args: Namespace) -> GrowthHistory:
    """Read the history of growth that a command with the options of `search` names.

    Of a file of contents, the links between its pages give the growth: see `training.replaying.linked`.
    Raises HistoryError, QueryLogError.
    """
    path = Path(args.history)
    options = [name for name in ("query_log", "site", "changed_only") if getattr(args, name)]
    if not path.is_dir() and not is_export(path) and has_contents(path):
        log = read_query_log(args.query_log) if args.query_log else None
        return growth_of_contents(read_contents(path, args.site, args.changed_only), log)
    if options:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise HistoryError(f"{named} with --growth: expected a file of contents; {path} has no texts")
    return read_growth(path)


def history_of(args: Namespace, steps: Callable[..., Any]) -> ChangeHistory:
    """Read the history that a command with the options of `search` names.

    ``steps(count, what)`` makes the context manager of a progress bar. Raises HistoryError or QueryLogError.
    """
    if args.query_log is None:
        if args.site or args.changed_only or args.importance:
            raise HistoryError("--site, --changed-only and --importance go with --query-log: give a log too")
        if args.every != 1 and args.cycle is None:
            return coarsened(read_contents_or_history(args.history), args.every)
        return read_history(args.history, args.cycle, args.max_pages)
    if args.every != 1:
        raise HistoryError("--every goes without --query-log, which has the recorded cycles: leave one out")
    workload = read_query_log(args.query_log)
    contents = read_contents(args.history, args.site, args.changed_only)
    with steps(len(contents.texts), "counting terms") as advance:
        return with_refresh_values(contents, QualityMeasure(workload, args.scoring), args.importance, advance)
