"""Groups of pages that may change together, by their texts, addresses and links.

Command `python -m training.cluster`: reads a file of contents, or a store whose copies have descriptions
(`scrapy_gp4c.words.descriptions`), and writes a file of groups (.npz).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scrapy_gp4c.foreign_text import counted
from training import options
from training.clustering.clusters import (
    CLUSTERS,
    FEATURES,
    HISTORY,
    group_copies,
    group_pages,
    read_copies,
    write_groups,
)
from training.histories.contents import read_contents


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.cluster", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("pages", metavar="CONTENTS|STORE", type=Path,
        help="file of contents, what every page said in every cycle; or the store of a crawl")  # fmt: skip
    options.shared(add, "--output", help="file of groups to write (.npz)")
    add("--clusters", type=int, default=CLUSTERS, help="number of clusters (default %(default)s)")
    default = ",".join(FEATURES)
    add(
        "--features",
        default=default,
        help=f"what pages are alike by (default %(default)s; of a store also {HISTORY})",
    )
    options.shared(add, "--seed", default=0, help="seed of the clustering (default %(default)s)")
    return parser


@options.command
def main(arguments: Sequence[str] | None) -> None:
    args = _parser().parse_args(arguments)
    features = args.features.split(",")
    if args.pages.is_dir():
        groups = group_copies(read_copies(args.pages), args.clusters, features, args.seed)
    else:
        groups = group_pages(read_contents(args.pages), args.clusters, features, args.seed)
    write_groups(args.output, groups)
    size = np.sort(groups.sizes)
    print(
        f"{counted(size.sum(), 'page')} in {counted(len(size), 'cluster')} of {size[0]:,} to "
        f"{counted(size[-1], 'page')}, "
        f"half of them of {size[len(size) // 2]:,} or more; {counted(len(groups.links.source), 'link')}; "
        f"seed {args.seed}"
    )
    if without := len(groups.cluster) - int(size.sum()):
        print(f"{counted(without, 'page has', 'pages have')} no description, and no cluster")


if __name__ == "__main__":
    sys.exit(main())
