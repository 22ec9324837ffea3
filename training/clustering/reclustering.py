"""Clusters made anew in the course of a replay, of what a policy has fetched by then: no look-ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import PageGroups
from training.clustering.clusters import CLUSTERS, FEATURES, group_texts
from training.histories.contents import ContentHistory
from training.histories.neighbours import Regrouping


class Cycles(NamedTuple):
    """Which recorded cycles a history's are."""

    first: int = 0
    """The recorded cycle that is its cycle 0, of those that one of its cycles takes."""
    every: int = 1
    """Recorded cycles that one of its cycles takes."""

    def texts(self, contents: ContentHistory, cycles: npt.NDArray[np.int64]) -> list[str | None]:
        """Text of every page in a cycle of its own, ``[P]``."""
        recorded = (self.first + cycles) * self.every
        versions = contents.version[recorded, np.arange(len(cycles))]
        return [contents.texts[number] for number in versions.tolist()]


def regrouping(
    contents: ContentHistory,
    every_cycles: int,
    cycles: Cycles = Cycles(),  # noqa: B008 (a tuple)
    clusters: int = CLUSTERS,
    features: Sequence[str] = FEATURES,
    seed: int = 0,
) -> Regrouping:
    """Cluster the copies of a replay after every so many cycles; parameters as `clusters.group_pages`."""

    def group(copies: npt.NDArray[np.int64]) -> PageGroups:
        return group_texts(contents, cycles.texts(contents, copies), clusters, features, seed)

    return Regrouping(every_cycles, group)
