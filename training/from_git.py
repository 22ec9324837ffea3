"""A change history from git repositories whose files are pages.

`training.histories.git_history` defines pages and changes; docs/lab/histories.md has the commands that
rebuild public histories.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from training import options
from training.histories.claims import true_claims, write_claims
from training.histories.formats import write_tsv
from training.histories.git_history import (
    RepositoryPages,
    build,
    join,
    parse_end,
    parse_length,
    read_growth_of,
    utc,
    window_of,
)
from training.histories.growth import write_growth
from training.reporting.terminal import progress, wide_console

SHOWN_COMMITS: Final = 20


def _show(repositories: Sequence[RepositoryPages], console: Console) -> None:
    table = Table("repository", "pages", "left out", "changed per cycle", title="Pages", title_justify="left")
    for one in repositories:
        changed = f"{one.changed.mean():.2%} of them"
        table.add_row(Text(one.name), f"{len(one.paths):,}", f"{one.left_out:,}", changed)
    console.print(table)
    mass = sorted((row for one in repositories for row in one.mass_commits), key=lambda row: -row.share)
    if not mass:
        return
    shown = mass[:SHOWN_COMMITS]
    title = f"Mass commits: {len(mass):,}" + (f", the largest {len(shown)}" if len(shown) < len(mass) else "")
    table = Table(
        "repository", "commit", "time", "pages", "share", "subject", title=title, title_justify="left"
    )
    for row in shown:
        # Text: a subject such as "[/docs] fix" is no markup.
        subject = Text(row.subject, overflow="ellipsis", no_wrap=True)
        pages, share = f"{row.pages:,}", f"{row.share:.0%}"
        table.add_row(Text(row.repository), row.commit[:10], utc(row.time_s), pages, share, subject)
    console.print(table)


def _write_growth(args: argparse.Namespace) -> None:
    if len(args.repositories) > 1 or args.output.suffix != ".npz" or args.claims:
        raise HistoryError("--growth: expected one repository, an output that ends in .npz, and no --claims")
    end_s = None if args.end is None else parse_end(args.end)
    window = window_of(args.repositories, args.cycles, parse_length(args.cycle_length), end_s)
    grown = read_growth_of(args.repositories[0], window, args.include or ("*",))
    write_growth(args.output, grown)
    new = int((grown.born > 0).sum())
    pages, cycles = counted(grown.history.pages, "page"), counted(window.cycles, "cycle")
    print(f"{args.output}: {pages}, {new:,} of them new in {cycles}")


@options.command
def main(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.from_git", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "repositories", nargs="+", type=Path, metavar="REPO_DIR", help="a clone's top directory"
    )
    parser.add_argument("--cycles", type=int, required=True, help="cycles of the history")
    parser.add_argument("--cycle-length", default="1d", help="length of a cycle: 12h, 1d, 1w (default 1d)")
    parser.add_argument("--end", help="last day, or the time the last cycle ends, UTC (default: last commit)")
    parser.add_argument("--include", action="append", metavar="PATTERN", help="paths to take (default: all)")
    parser.add_argument(
        "--mass-share", type=float, default=0.2, help="share of pages from which a commit is reported"
    )
    parser.add_argument(
        "--growth",
        action="store_true",
        help="also files that appear later, and their finders; writes .npz",
    )
    claims_help = "file to write with what a sitemap would claim of every change (training.evaluate --claims)"
    parser.add_argument("--claims", type=Path, metavar="FILE", help=claims_help)
    options.shared(parser.add_argument, "--output", help="TSV file to write; gzip if it ends in .gz")
    args = parser.parse_args(arguments)
    errors = Console(stderr=True)
    if args.growth:
        _write_growth(args)
        return
    with progress(errors, len(args.repositories) * args.cycles, "reading") as advance:
        window, parts = build(
            args.repositories,
            args.cycles,
            parse_length(args.cycle_length),
            None if args.end is None else parse_end(args.end),
            args.include or ("*",),
            args.mass_share,
            advance,
        )
    history = join(parts, str(args.output))
    edges = window.edges()
    cycles = counted(window.cycles, "cycle")
    notes = [f"{cycles} of {args.cycle_length} from {utc(edges[0])} to {utc(edges[-1])}"]
    notes += [f"{repository.name} at commit {repository.head}" for repository in parts]
    write_tsv(args.output, history, notes)
    claims = args.claims and write_claims(args.claims, history, true_claims(history))
    console = wide_console()
    _show(parts, console)
    console.print(
        f"{args.output}: {counted(history.pages, 'page')}, {counted(history.cycles, 'cycle')}, "
        f"{history.changed.mean():.2%} of the pages changed per cycle",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    if claims is not None:
        line = f"{args.claims}: {counted(claims, 'claim')}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
