"""Make a report: `python -m training.report SOURCE [-o report.html]`.

SOURCE is the directory of an experiment, a score file of `training.learn`, or the store of a crawl (a
directory with ``data.mdb``). The report is one HTML file that needs no network.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scrapy_gp4c.errors import HistoryError
from training import options
from training.comparing.evaluation import write_text
from training.comparing.learned_score import find_history, read_learned, try_learned
from training.papers.journal import difference_of, experiment_page, read_results
from training.reporting.page import ReportPage, render
from training.reporting.score import HEADLINE, score_page


def page_of(source: Path, history: Path | None = None) -> ReportPage:
    """The report of a directory or file. Raises Gp4cError where there is nothing to report."""
    if source.is_dir():
        if (source / "data.mdb").exists():
            from training.reporting.crawl import crawl_page

            return crawl_page(source)
        results = read_results(source)
        recorded, note = find_history(results.history, history)
        if recorded is None:
            return experiment_page(results, None, note)
        difference = difference_of(results, recorded)
        return experiment_page(results, difference, note)
    if not source.exists():
        raise HistoryError(
            f"there is no {source}; give the directory of an experiment, a score file, or the store of a "
            "crawl"
        )
    learned = read_learned(source)
    recorded, note = find_history(learned.history, history)
    again = None if recorded is None else try_learned(source, learned, recorded, HEADLINE)
    return score_page(learned, again, note)


@options.command
def main(arguments: Sequence[str] | None) -> None:
    command = argparse.ArgumentParser(
        prog="python -m training.report", description="Make a report: one HTML file that needs no network."
    )
    command.add_argument(
        "source", type=Path, help="directory of an experiment, score file, or store of a crawl"
    )
    options.shared(
        command.add_argument, "--output", required=False, default=Path("report.html"), help="file to write"
    )
    command.add_argument(
        "--history", type=Path, help="the history that was learned from, if its file has moved"
    )
    args = command.parse_args(arguments)
    write_text(args.output, render(page_of(args.source, args.history)))
    print(f"Report: {args.output}")


if __name__ == "__main__":
    sys.exit(main())
