"""Options of replays that know clusters and links, and the groups that they mean."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np

from scrapy_gp4c.errors import HistoryError
from training import options
from training.clustering.clusters import CLUSTERS, RecordedCycles, group_texts, regrouping
from training.clustering.groups_file import read_groups
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.histories.reading import read_contents_or_history


def add_options(add: options.Add) -> None:
    """Where clusters and links come from."""
    add("--groups", type=Path, metavar="NPZ", help="clusters and links of the pages, by training.cluster")
    add(
        "--recluster",
        type=int,
        metavar="N",
        help="cluster the pages of contents by the copies of cycle 0 (or --groups), and after every N cycles "
        "by those that a policy has fetched (default: never)",
    )


def take_groups(given: Namespace, history: ChangeHistory, first: int) -> None:
    """Give a history its groups; ``first``: cycles (each of ``--every``) before it in the file.

    Raises HistoryError for groups of other pages, or where there are no contents to cluster.
    """
    if given.groups:
        history.neighbours.groups_by_content = read_groups(given.groups, history)
    if given.recluster is None:
        return
    if given.recluster < 1:
        raise HistoryError(f"--recluster: expected a number of cycles of at least 1; found {given.recluster}")
    if given.query_log:
        raise HistoryError("--recluster goes without --query-log: measure quality with --groups alone")
    contents = read_contents_or_history(given.history)
    if not isinstance(contents, ContentHistory):
        raise HistoryError(
            f"--recluster needs what the pages said, and {given.history} tells only when they changed: give "
            "a file of contents, or leave --recluster out"
        )
    cycles = RecordedCycles(first, given.every)
    groups = history.neighbours.groups_by_content
    clusters = min(CLUSTERS, history.pages) if groups is None else len(groups.order)
    if groups is None:
        begun = cycles.texts(contents, np.zeros(history.pages, np.int64))
        history.neighbours.groups_by_content = group_texts(contents, begun, clusters, seed=given.seed)
    history.neighbours.regrouping = regrouping(contents, given.recluster, cycles, clusters, seed=given.seed)
