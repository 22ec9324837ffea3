"""Traits of a change history: statistics of pages, directories and sites that make it easy or hard to crawl.

``python -m example_project.traits FILE... --without TEXT`` prints a column per file. docs/lab/demo.md has
what it gives for recorded histories and for the monitored web (`example_project.history`), whose constants it
led to.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrapy_gp4c.errors import Gp4cError
from training.histories.history import ChangeHistory, addresses_of
from training.histories.reading import read_history

LEAST_PAGES = 5  # of a group that may tell something about its pages
LEAST_SWEPT = 8  # pages of a directory in which half of them at once is no chance
LEAST_DIVIDED = 50  # pages of a site whose directories are measured
WEEK = 7


class Bits(NamedTuple):
    """Changes of a history, and the directory and site of each page."""

    changed: NDArray[np.bool_]  # [cycles, P]
    site: NDArray[np.int64]  # [P]
    directory: NDArray[np.int64]  # [P], all sites counted through


def bits_of(history: ChangeHistory, without: Sequence[str] = ()) -> Bits:
    """Return the changes of a history whose pages have names: a directory is a path but for its last segment.

    ``without``: pages whose site, slash and name have one of these texts in them are left out.
    """
    names = addresses_of(history)
    columns = np.flatnonzero([not any(part in name for part in without) for name in names])
    if not columns.size:
        raise ValueError(f"{history.source}: no page is left")
    seen: dict[str, int] = {}
    directory = [seen.setdefault(names[page].rpartition("/")[0], len(seen)) for page in columns.tolist()]
    site = np.unique(history.site[columns], return_inverse=True)[1]
    return Bits(history.changed[:, columns], site, np.array(directory))


def _counts(bits: Bits, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Changes per group and cycle, [groups, cycles]."""
    cycle, page = np.nonzero(bits.changed)
    cycles, groups = len(bits.changed), int(group.max()) + 1
    return np.bincount(group[page] * cycles + cycle, minlength=groups * cycles).reshape(groups, cycles)


def _together(bits: Bits, group: NDArray[np.int64], lag: int) -> tuple[float, float]:
    """Share of the other pages of a changed page's group that change ``lag`` cycles later; and by chance.

    The mean is over all changes in groups of at least `LEAST_PAGES`. By chance: the share if each page
    changed as often, but independently of the others.
    """
    cycles = len(bits.changed) - lag
    counts, size = _counts(bits, group), np.bincount(group)
    first, then = bits.changed[:cycles], bits.changed[lag:]
    itself = np.bincount(group, (first & then).sum(0), len(size))
    pairs = (counts[:, :cycles] * counts[:, lag:]).sum(1) - itself
    rate = bits.changed.mean(0)
    apart = np.bincount(group, rate, len(size)) ** 2 - np.bincount(group, rate**2, len(size))
    is_large = size >= LEAST_PAGES
    changes = counts[is_large, :cycles].sum()
    if not changes:
        return float("nan"), float("nan")
    others = size[is_large] - 1
    return float((pairs[is_large] / others).sum() / changes), float(
        (apart[is_large] * cycles / others).sum() / changes
    )


def _alike(bits: Bits, group: NDArray[np.int64]) -> float:
    """Intraclass correlation, in groups, of the square roots of pages' numbers of changes."""
    root = np.sqrt(bits.changed.sum(0) + 3 / 8)  # Anscombe: of a Poisson number, of constant variance
    size = np.bincount(group)
    if not 1 < len(size) < len(root):
        return float("nan")
    mean = np.bincount(group, root) / size
    within = ((root - mean[group]) ** 2).sum() / (len(root) - len(size))
    between = (size * (mean - root.mean()) ** 2).sum() / (len(size) - 1)
    usual = (len(root) - (size**2).sum() / len(root)) / (len(size) - 1)
    return float((between - within) / (between + (usual - 1) * within))


def _directories(bits: Bits) -> tuple[float, float]:
    """Mean pages per directory, and the standard deviation of their logarithm: medians over large sites."""
    means, deviations = [], []
    for site in np.flatnonzero(np.bincount(bits.site) >= LEAST_DIVIDED):
        size = np.unique(bits.directory[bits.site == site], return_counts=True)[1]
        means.append(size.mean())
        deviations.append(np.log(size).std())
    return (float(np.median(means)), float(np.median(deviations))) if means else (float("nan"),) * 2


def traits(bits: Bits) -> dict[str, float]:
    """Return the traits by their names."""
    cycles, pages = bits.changed.shape
    times = bits.changed.sum(0)
    busiest = np.sort(times)[::-1][: pages // 20]
    result = {"pages": pages, "cycles": cycles, "changes per page and cycle": bits.changed.mean()}
    result["pages that never changed"] = (times == 0).mean()
    for most in (1, 3, 5):
        result[f"pages with at most {most} changes"] = (times <= most).mean()
    for least in (0.2, 0.5, 0.9):
        result[f"pages that changed in {least:.0%} of the cycles or more"] = (times >= least * cycles).mean()
    result["changes of the busiest 5% of the pages"] = busiest.sum() / times.sum()
    for name, group in (("directory", bits.directory), ("site", bits.site)):
        for lag, when in ((0, "same cycle"), (1, "next cycle")):
            real, apart = _together(bits, group, lag)
            result[f"{name}: others changed in the {when}"] = real
            result[f"{name}: the same by their rates alone, {when}"] = apart
        result[f"{name}: correlation of the numbers of changes"] = _alike(bits, group)
    again, rate = (bits.changed[:-1] & bits.changed[1:]).sum(), bits.changed.mean(0)
    result["a page's next cycle: changed again, to its rate"] = again / ((rate**2).sum() * (cycles - 1))
    size = np.bincount(bits.directory)
    counts = _counts(bits, bits.directory)[size >= LEAST_SWEPT]
    swept = counts >= 0.5 * size[size >= LEAST_SWEPT, None]
    result["sweeps (half a directory at once): per directory and cycle"] = swept.mean() if swept.size else 0.0
    result["sweeps: share of all changes"] = counts[swept].sum() / times.sum()
    shares = counts / size[size >= LEAST_SWEPT, None]
    result["sweeps: share of the directory"] = shares[swept].mean() if swept.any() else float("nan")
    mean, deviation = _directories(bits)
    result["pages per directory (median of sites)"] = mean
    result["sigma of their logarithm (median of sites)"] = deviation
    for day in range(min(WEEK, cycles)):
        name = f"cycles {day + 1}, {day + 1 + WEEK}, ...: to the mean of all"
        result[name] = bits.changed[day::WEEK].mean() / bits.changed.mean()
    return {name: float(value) for name, value in result.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 2 with one message where a file cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m example_project.traits", description="Traits of histories."
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="history with page names, or a file of contents"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="TEXT",
        help="leave out pages with this in site/name",
    )
    options = parser.parse_args(arguments)
    columns = []
    try:
        for path in options.files:
            columns.append(traits(bits_of(read_history(path), options.without)))
    except (Gp4cError, ValueError, OSError) as problem:
        print(f"example_project.traits: {problem}", file=sys.stderr)
        return 2
    for name in columns[0]:
        print(name, *(f"{column[name]:.4g}" for column in columns), sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
