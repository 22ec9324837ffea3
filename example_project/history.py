"""The truth about the monitored web as a change history: ``python -m example_project.history -o FILE``.

`training.evaluate` replays any score function on such a file in a second; the demo's crawls take minutes.
Warm-up, first ranked day and days are the demo's. Ages and sizes of the pages are written beside a TSV. With
``--growth`` the history has the pages that appear too, and the pages that lead to them.
"""

import argparse
import gzip
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from scrapy_gp4c.errors import Gp4cError, HistoryError
from training import options
from training.histories.formats import WRITERS
from training.histories.growth import NO_FINDER, GrowthHistory, write_growth
from training.histories.history import ChangeHistory

from .crawls import DAYS, HOSTS
from .model import BY_INDEX, LAST_DAY, NEVER, Web
from .page_text import Noise, render


def history_of(web: Web, days: int = DAYS) -> ChangeHistory:
    """Return the web's changes from day to day as a history: days - 1 cycles of pages that live on all days.

    Cycle c is what changed on day c + 1; with one warm-up visit, the first ranked cycle is the demo's day 3.
    Left out are pages that appear, go, redirect or may not be fetched, and index pages, which follow these.

    Raises:
        ValueError: the model does not have so many days.
    """
    return _history(web, np.flatnonzero(web.steady), days)


def growth_of(web: Web, days: int = DAYS) -> GrowthHistory:
    """Return the changes with pages that appear, each on the day of its birth, and pages that list others.

    Left out are pages that go, redirect or may not be fetched, and the calendar.

    Raises:
        ValueError: the model does not have so many days.
    """
    stays = (web.born <= days) & (web.gone == NEVER) & ~web.private & ~web.redirects
    pages = np.flatnonzero(stays)
    leads = web.first[web.host] + ((web.found_by[web.host] != BY_INDEX) & (web.born > 1))
    leads[web.index] = 0
    birth_rank = np.cumsum(stays) - 1
    finder = birth_rank[leads[pages]].astype(np.int32)
    finder[0] = NO_FINDER
    return GrowthHistory(_history(web, pages, days), (web.born[pages] - 1).astype(np.int32), finder)


def first_sight_lines(web: Web) -> list[str]:
    """Lines of the pages of `history_of`, as `training.histories.claims.read_first_sight` reads them."""
    noise = Noise(Random(web.seed), datetime(2026, 1, 1, tzinfo=UTC))
    return [
        f"{web.address(int(web.host[page]))}\t{web.path(page)}\t"
        f"{web.age_days[page] if web.host[page] % 4 else ''}\t{len(render(web, page, 1, 80, noise))}\n"
        for page in np.flatnonzero(web.steady).tolist()
    ]


def _history(web: Web, pages: NDArray[np.intp], days: int) -> ChangeHistory:
    if not 2 <= days <= LAST_DAY:
        raise ValueError(f"a history of the web has 2 to {LAST_DAY} days, not {days}")
    return ChangeHistory(
        np.array([web.changed(day)[pages] for day in range(2, days + 1)]),
        web.host[pages],
        site_names=[web.address(host) for host in range(web.hosts + 1)],
        page_names=[web.path(int(page)) for page in pages],
        source=f"example_project.history --seed {web.seed} --hosts {web.hosts} --days {days}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 2 with one message where the file cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m example_project.history", description="Write the truth about the monitored web."
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the change model (1)")
    parser.add_argument("--hosts", type=int, default=HOSTS, help=f"hosts besides the directory ({HOSTS})")
    parser.add_argument("--days", type=int, default=DAYS, help=f"days, one more than cycles ({DAYS})")
    what = f"a file named *{', *'.join(WRITERS)}"
    options.shared(parser.add_argument, "--output", type=str, help=what)
    parser.add_argument("--growth", action="store_true", help="pages that appear too; writes .npz")
    args = parser.parse_args(arguments)
    try:
        web = Web(args.seed, args.hosts)
        if args.growth:
            if not args.output.endswith(".npz"):
                raise HistoryError(f"--growth: expected an output that ends in .npz; found {args.output!r}")
            grown = growth_of(web, args.days)
            history = grown.history
            write_growth(Path(args.output), grown)
        else:
            history = history_of(web, args.days)
            options.writer_of(args.output)(args.output, history)
            if (name := args.output.removesuffix(".gz")).endswith(".tsv"):
                lines = "".join(first_sight_lines(web)).encode()
                Path(f"{name.removesuffix('.tsv')}.first_sight.tsv.gz").write_bytes(
                    gzip.compress(lines, mtime=0)
                )
    except (Gp4cError, ValueError, OSError) as problem:
        print(f"example_project.history: {problem}", file=sys.stderr)
        return 2
    (cycles, pages), share = history.changed.shape, history.changed.mean()
    print(f"{args.output}: {pages:,} pages, {cycles} cycles, {share:.4f} changes per page and cycle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
