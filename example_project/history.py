"""The truth about the monitored web as a change history: ``python -m example_project.history -o FILE``.

What the demo's crawls take minutes for, `training.evaluate` replays on such a file in a second: any score
function, on a web of any seed. Warm-up, first ranked day and days are the demo's.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from scrapy_gp4c.errors import Gp4cError
from training import options
from training.histories.formats import WRITERS
from training.histories.history import ChangeHistory

from .model import LAST_DAY, Web

DAYS, HOSTS = 31, 40  # the demo's


def history_of(web: Web, days: int = DAYS) -> ChangeHistory:
    """Return what changed from day to day: days - 1 cycles of the pages that live through all days.

    Cycle c is what changed on day c + 1; with two warm-up visits, the first ranked cycle is the demo's day 4.
    Left out are pages that appear, go, redirect or may not be fetched, and index pages, which follow these.

    Raises:
        ValueError: the model does not have so many days.
    """
    if not 2 <= days <= LAST_DAY:
        raise ValueError(f"a history of the web has 2 to {LAST_DAY} days, not {days}")
    pages = np.flatnonzero(web.steady)
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
    options.output(parser.add_argument, f"a file named *{', *'.join(WRITERS)}", kind=str)
    given = parser.parse_args(arguments)
    try:
        history = history_of(Web(given.seed, given.hosts), given.days)
        options.writer_of(given.output)(given.output, history)
    except (Gp4cError, ValueError, OSError) as problem:
        print(f"example_project.history: {problem}", file=sys.stderr)
        return 2
    (cycles, pages), share = history.changed.shape, history.changed.mean()
    print(f"{given.output}: {pages:,} pages, {cycles} cycles, {share:.4f} changes per page and cycle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
