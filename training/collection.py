"""Collections as BRDC'12 was made: `python -m training.collection sample|overview|imputation`.

``sample`` draws sites and pages of a list of URLs. ``overview`` prints Table 4.1 of the thesis for a history
or store. ``imputation`` loses outcomes at random and shows the effect of the thesis' rule for errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError, HistoryError
from scrapy_gp4c.store.atomic_files import replacing
from training import options
from training.histories.reading import read_history
from training.papers import collection
from training.replaying.prepared import DEFAULTS
from training.reporting.terminal import progress


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.collection", description=__doc__.split("\n\n")[1].replace("``", "")
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("sample", help="draw sites and pages of a list of URLs").add_argument
    add("urls", type=Path, help="text file, a URL a line; gzip if it ends in .gz")
    options.output(add, "text file of the drawn URLs")
    add("--sites", type=int, default=collection.SITES, help="sites to draw (default %(default)s)")
    delay_help = "seconds between requests to a site (default %(default)s)"
    add("--delay", type=float, default=collection.DELAY_S, metavar="S", help=delay_help)
    add("--hours", type=float, default=collection.HOURS, help="length of a daily crawl (default %(default)s)")
    options.seed(add, 1, "seed of the draw (default %(default)s)")
    add = commands.add_parser("overview", help="pages, sites and errors of a collection").add_argument
    options.history(add)
    add = commands.add_parser("imputation", help="effect of imputed errors on change rates").add_argument
    options.history(add)
    add(
        "--errors", type=float, default=collection.ERRORS, help="share of outcomes lost (default %(default)s)"
    )
    add("--budget", type=float, default=DEFAULTS.budget, help="share of the pages (default %(default)s)")
    add("--seeds", type=int, default=5, help="draws of the errors (default %(default)s)")
    options.clock(add, "cycles")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, or 2 for input that cannot be used."""
    args = _parser().parse_args(arguments)
    try:
        {"sample": _sample, "overview": _overview, "imputation": _imputation}[args.command](args)
    except (Gp4cError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _sample(args: argparse.Namespace) -> None:
    if args.sites < 1 or not args.delay > 0 or not 0 < args.hours <= 24:
        raise HistoryError("--sites must be at least 1, --delay above 0, --hours above 0 and at most 24")
    sites = collection.read_urls(args.urls)
    pages_per_site = max(1, int(args.hours * 3600 / args.delay))
    sample = collection.draw_sample(sites, args.sites, pages_per_site, args.seed)
    with replacing(args.output) as file:
        file.write("".join(f"{url}\n" for urls in sample.values() for url in urls).encode())
    pages = sum(map(len, sample.values()))
    print(
        f"{args.output}: {pages:,} of {sum(map(len, sites.values())):,} pages of {len(sample):,} of "
        f"{len(sites):,} sites, at most {pages_per_site:,} of a site; seed {args.seed}"
    )


def _overview(args: argparse.Namespace) -> None:
    print("| | |\n|---|---|")
    for name, value in collection.overview(Path(args.history)).rows():
        print(f"| {name} | {value} |")


def _imputation(args: argparse.Namespace) -> None:
    if not 0.0 < args.errors < 1.0 or args.seeds < 1:
        raise HistoryError("--errors must be a share above 0 and below 1, --seeds at least 1")
    history = read_history(args.history)
    crawl = DEFAULTS._replace(budget=args.budget, clock=args.clock)
    with progress(Console(stderr=True), 1 + args.seeds) as advance:
        effect = collection.imputation_effect(history, args.errors, range(args.seeds), crawl, advance)
    print(
        f"{history.source}: {args.errors:.2%} of the outcomes lost at random, {effect.guessed_share:.2%} "
        f"guessed by the rule of the thesis, {effect.right.mean:.1%} of these right; "
        f"{effect.changes_guessed.mean:,.0f} changes guessed, {effect.changes_lost.mean:,.0f} lost (means of "
        f"{args.seeds} draws)\n"
    )
    print("| change rate | truth | imputed | difference |\n|---|---|---|---|")
    for name, (truth, imputed) in effect.rates.items():
        print(f"| {name} | {truth:.4f} | {imputed.mean:.4f} | {imputed.mean - truth:+.4f} |")


if __name__ == "__main__":
    sys.exit(main())
