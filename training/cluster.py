"""``python -m training.cluster``: groups of pages that may change together, from a file of their contents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from scrapy_gp4c.errors import Gp4cError
from training import options
from training.clustering.clusters import FEATURES, group_pages
from training.histories.contents import read_contents
from training.histories.groups_file import write_groups


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.cluster", description=__doc__)
    add = parser.add_argument
    add("contents", metavar="CONTENTS", help="file of contents: what every page said in every cycle")
    options.output(add, "file of groups to write (.npz)")
    add("--clusters", type=int, default=100, help="number of clusters (default %(default)s)")
    add("--features", default=",".join(FEATURES), help="what pages are alike by (default %(default)s)")
    options.seed(add, 0, "seed of the clustering (default %(default)s)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, or 2 for input that cannot be used."""
    given = _parser().parse_args(arguments)
    try:
        contents = read_contents(given.contents)
        groups = group_pages(contents, given.clusters, given.features.split(","), given.seed)
        write_groups(given.output, groups)
    except Gp4cError as error:
        print(error, file=sys.stderr)
        return 2
    size = np.sort(np.bincount(groups.cluster))
    print(
        f"{len(groups.cluster):,} pages in {len(size):,} clusters of {size[0]:,} to {size[-1]:,} pages, "
        f"half of them of {size[len(size) // 2]:,} or more; {len(groups.links.source):,} links; "
        f"seed {given.seed}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
