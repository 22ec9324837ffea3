"""Collections as BRDC'12 was made: `python -m training.collection sample|overview|imputation`.

BRDC'12 is the daily crawl of the thesis (Santos 2013). ``sample`` draws sites and pages of a list of URLs.
``overview`` prints Table 4.1 of the thesis for a history or store. ``imputation`` removes outcomes of a
history at random, guesses them by the thesis' rule for failed downloads, and shows the effect.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from rich.console import Console

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from training import options
from training.comparing.evaluation import evaluate, markdown, write_text
from training.comparing.statistics import Mean, mean
from training.histories.formats import opened
from training.histories.from_store import read_with_report
from training.histories.history import ChangeHistory
from training.histories.imputation import fill_lost_cycles
from training.histories.offset_history import is_offset_history
from training.histories.reading import read_history
from training.histories.splits import sampled_sites
from training.replaying.prepared import DEFAULTS, CrawlChoices
from training.reporting.terminal import progress

SITES: Final = 10_000
DELAY_S: Final = 35.0
"""Seconds between requests to a site: 2,365 pages in 23 hours; the largest site of BRDC'12 had 2,336."""
HOURS: Final = 23.0
"""Length of a daily crawl, from 0 to about 23 o'clock."""
ERRORS: Final = 0.0292
"""Share of the downloads of BRDC'12 that failed (Table 4.1)."""
REPORTED_SCORES: Final = ("random", "age", "nad", "sad", "aad", "gad", "cg", "t*X")


def read_urls(path: Path) -> dict[str, list[str]]:
    """Site -> its URLs, from a text file of one URL a line, plain, gzip or xz.

    Raises HistoryError for a file that cannot be read, or a line without a host.
    """
    sites: dict[str, list[str]] = {}
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            url = line.decode().strip()
            if not url:
                continue
            host = urlsplit(url).netloc
            if not host:
                raise HistoryError(f"{path}, line {number}: expected a URL with a host; found {url!r}")
            sites.setdefault(host, []).append(url)
    if not sites:
        raise HistoryError(f"{path} has no URL: expected one a line")
    return sites


def draw_sample(
    sites: dict[str, list[str]], wanted_sites: int, pages_per_site: int, seed: int
) -> dict[str, list[str]]:
    """Stratified random sample: sites in proportion to their sizes' distribution, then pages of each site.

    The draw of sites is systematic in the order of their numbers of pages, so that every size has its
    proportion (thesis: "keeping the same distribution of the number of web pages per site"). Of a site all
    pages are taken, or ``pages_per_site`` at random where it has more: as many as politeness allows in a day.
    """
    names = sorted(sites)
    site = np.repeat(np.arange(len(names), dtype=np.int32), [len(sites[name]) for name in names])
    share = min(1.0, wanted_sites / len(names))
    rng = np.random.default_rng(seed)
    sample = {}
    for number in np.unique(site[sampled_sites(site, share, (seed,))]).tolist():
        urls = sites[names[number]]
        drawn = np.sort(rng.permutation(len(urls))[:pages_per_site])
        sample[names[number]] = [urls[position] for position in drawn.tolist()]
    return sample


def overview(path: Path) -> dict[str, str]:
    """Rows of thesis Table 4.1 for a history file or a store, and the changes per page and cycle.

    Raises HistoryError as `read_history`.
    """
    errors = "unknown"
    if path.is_dir() and not is_offset_history(path):
        history, report = read_with_report(path)
        errors = f"{(report.imputed + report.known) / (history.pages * history.cycles):.2%}"
    else:
        history = read_history(path)
    pages = np.unique(history.site, return_counts=True)[1]
    return {
        "Monitoring period, cycles": f"{history.cycles:,}",
        "# web pages": f"{history.pages:,}",
        "# web sites": f"{len(pages):,}",
        "Min # web pages/site": f"{pages.min():,}",
        "Max # web pages/site": f"{pages.max():,}",
        "Average web pages/site": f"{pages.mean():.2f}",
        "% downloads with errors": errors,
        "Changes per page and cycle": f"{history.changed.mean():.2%}",
    }


class Imputed(NamedTuple):
    """Outcomes lost and guessed in one history, and baselines' change rates on it, over several draws."""

    guessed_share: float
    """Share of all outcomes that are guessed."""
    right: Mean
    """Share of the guesses that are right."""
    changes_guessed: Mean
    """Number of guesses that are changes."""
    changes_lost: Mean
    """Number of lost outcomes that were changes."""
    rates: dict[str, tuple[float, Mean]]
    """Score function -> change rate on the truth, and on the imputed histories."""


def imputation_effect(
    history: ChangeHistory,
    error_share: float,
    seeds: Sequence[int],
    crawl: CrawlChoices,
    advance: Callable[[], object] = lambda: None,
) -> Imputed:
    """Remove outcomes at random, guess them by `fill_lost_cycles`, and replay baselines before and after.

    The page's next visit sees a change of a lost cycle, as in a crawl. Raises HistoryError as `evaluate`.
    """
    truth = history.changed
    scored = evaluate(history, REPORTED_SCORES, crawl)
    advance()
    guessed_shares, right, guessed_changes, lost_changes = [], [], [], []
    rates: dict[str, list[float]] = {name: [] for name in REPORTED_SCORES}
    for seed in seeds:
        lost = np.random.default_rng(seed).random(truth.shape) < error_share
        observed, outcomes = ~lost, _carried(truth, lost)
        filled, guessed = fill_lost_cycles(outcomes & observed, observed)
        guessed_shares.append(float(guessed.mean()))
        right.append(float((filled == truth)[guessed].mean()) if guessed.any() else 1.0)
        guessed_changes.append(float(filled[guessed].sum()))
        lost_changes.append(float(truth[lost].sum()))
        imputed = ChangeHistory(filled, history.site, source=history.source)
        for result in evaluate(imputed, REPORTED_SCORES, crawl).results:
            rates[result.score].append(result.metrics["change_rate"].mean)
        advance()
    return Imputed(
        float(np.mean(guessed_shares)),
        mean(right),
        mean(guessed_changes),
        mean(lost_changes),
        {one.score: (one.metrics["change_rate"].mean, mean(rates[one.score])) for one in scored.results},
    )


def _carried(changed: npt.NDArray[np.bool_], lost: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether each visit finds a change since the last visit that did not fail, bool ``[D, P]``."""
    carried = np.zeros_like(changed)
    pending = np.zeros(changed.shape[1], np.bool_)
    for cycle in range(len(changed)):
        pending |= changed[cycle]
        carried[cycle] = pending & ~lost[cycle]
        pending &= lost[cycle]
    return carried


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.collection", description=__doc__.split("\n\n")[1].replace("``", "")
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("sample", help="draw sites and pages of a list of URLs").add_argument
    add("urls", type=Path, help="text file, a URL a line; gzip if it ends in .gz")
    options.shared(add, "--output", help="text file of the drawn URLs")
    add("--sites", type=int, default=SITES, help="sites to draw (default %(default)s)")
    delay_help = "seconds between requests to a site (default %(default)s)"
    add("--delay", type=float, default=DELAY_S, metavar="S", help=delay_help)
    add("--hours", type=float, default=HOURS, help="length of a daily crawl (default %(default)s)")
    options.shared(add, "--seed", help="seed of the draw (default %(default)s)")
    add = commands.add_parser("overview", help="pages, sites and errors of a collection").add_argument
    options.shared(add, "history")
    add = commands.add_parser("imputation", help="effect of imputed errors on change rates").add_argument
    options.shared(add, "history")
    add("--errors", type=float, default=ERRORS, help="share of outcomes lost (default %(default)s)")
    add("--budget", type=float, default=DEFAULTS.budget, help="share of the pages (default %(default)s)")
    add("--seeds", type=int, default=5, help="draws of the errors (default %(default)s)")
    options.shared(add, "--clock", default="cycles")
    return parser


@options.command
def main(arguments: Sequence[str] | None) -> None:
    args = _parser().parse_args(arguments)
    {"sample": _sample, "overview": _overview, "imputation": _imputation}[args.command](args)


def _sample(args: argparse.Namespace) -> None:
    if args.sites < 1 or not args.delay > 0 or not 0 < args.hours <= 24:
        raise HistoryError("--sites must be at least 1, --delay above 0, --hours above 0 and at most 24")
    sites = read_urls(args.urls)
    pages_per_site = max(1, int(args.hours * 3600 / args.delay))
    sample = draw_sample(sites, args.sites, pages_per_site, args.seed)
    write_text(args.output, "".join(f"{url}\n" for urls in sample.values() for url in urls))
    pages = sum(map(len, sample.values()))
    print(
        f"{args.output}: {pages:,} of {counted(sum(map(len, sites.values())), 'page')} of {len(sample):,} of "
        f"{counted(len(sites), 'site')}, at most {pages_per_site:,} of a site; seed {args.seed}"
    )


def _overview(args: argparse.Namespace) -> None:
    print(markdown(["", ""], overview(Path(args.history)).items()), end="")


def _imputation(args: argparse.Namespace) -> None:
    if not 0.0 < args.errors < 1.0 or args.seeds < 1:
        raise HistoryError("--errors must be a share above 0 and below 1, --seeds at least 1")
    history = read_history(args.history)
    crawl = DEFAULTS._replace(budget=args.budget, clock=args.clock)
    with progress(Console(stderr=True), 1 + args.seeds) as advance:
        effect = imputation_effect(history, args.errors, range(args.seeds), crawl, advance)
    print(
        f"{history.source}: {args.errors:.2%} of the outcomes lost at random, {effect.guessed_share:.2%} "
        f"guessed by the rule of the thesis, {effect.right.mean:.1%} of these right; "
        f"{effect.changes_guessed.mean:,.0f} changes guessed, {effect.changes_lost.mean:,.0f} lost (means of "
        f"{args.seeds} draws)\n"
    )
    rows = (
        [name, f"{truth:.4f}", f"{imputed.mean:.4f}", f"{imputed.mean - truth:+.4f}"]
        for name, (truth, imputed) in effect.rates.items()
    )
    print(markdown(["change rate", "truth", "imputed", "difference"], rows), end="")


if __name__ == "__main__":
    sys.exit(main())
