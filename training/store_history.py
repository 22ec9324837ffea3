"""Histories in the stores of crawls: `python -m training.store_history STORE... -o FILE`.

A crawl observes only what it visits, and a page that the score function picks was picked because it
changes: a history of such pages flatters every score function. The panel (setting ``GP4C_PANEL``) is a
random share of pages visited in every cycle whatever their score. So if the store has panel visits, its
history is that of panel pages; else it is that of all pages, over cycles that visited them all
(``GP4C_BUDGET = 1.0``). docs/lab/closing-the-loop.md explains the choice of pages and cycles.

Pages come in the order of their keys, not of their discovery, which depends on how fast servers answered:
crawls that saw the same give the same history, and learn the same from it.

Everything is read in short transactions from what closed cycles left, which never changes: a crawl that
writes to the store meanwhile is neither seen nor slowed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from training import options
from training.histories.claims import write_claims
from training.histories.from_store import MAX_ERRORS, merge, read_with_report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.store_history",
        description="Write the change history in the stores of crawls to a file.",
    )
    add = parser.add_argument
    add("store", nargs="+", type=Path, help="directory of a store; a crawl may be writing to it")
    options.shared(add, "--output", type=str, help="a file named *.txt, *.tsv (either with .gz) or *.npz")
    add(
        "--max-errors",
        type=int,
        default=MAX_ERRORS,
        help="cycles without an outcome that a page may have (default %(default)s)",
    )
    add("--claims", type=Path, metavar="FILE", help="file to write with the claims that the crawls have read")
    add("--partial", action="store_true", help="admit pages visited now and then, drawing what is not known")
    return parser


@options.command
def main(arguments: Sequence[str] | None) -> None:
    args = _parser().parse_args(arguments)
    write = options.writer_of(args.output)
    if args.partial and "partial" not in Path(args.output).name:
        raise HistoryError(
            f"every report names the file that a history came from, and a partial one has to be told "
            f"apart: give a name with 'partial' in it; found {args.output!r}"
        )
    if args.max_errors < 0:
        raise HistoryError(f"--max-errors must be at least 0; found {args.max_errors}")
    histories = []
    for path in args.store:
        history, report = read_with_report(path, max_errors=args.max_errors, partial=args.partial)
        print(report)
        histories.append(history)
    history = merge(histories)
    write(args.output, history)
    print(f"{args.output}: {counted(history.pages, 'page')}, {counted(history.cycles, 'cycle')}")
    if history.claims is not None and args.claims is None:
        left_out = counted(len(history.claims), "claim of a site is", "claims of sites are")
        print(f"{left_out} left out; give --claims FILE too")
    elif history.claims is not None:
        print(f"{args.claims}: {counted(write_claims(args.claims, history, history.claims), 'claim')}")


if __name__ == "__main__":
    sys.exit(main())
