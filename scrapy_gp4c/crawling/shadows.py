"""Shadows: the state that a panel page would have if it were no panel page.

What related pages tell of a shadow must leave out what its own page tells, which is visited in every cycle:
a shadow would otherwise be visited just when its page has changed, and those left alone would seem too good.
What its visits as an ordinary page would have told takes that place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.surroundings import KnownPages
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.groupings import NOWHERE
from scrapy_gp4c.page_state.groups import KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.page_state.related import (
    WINDOW_CYCLES,
    Floats,
    Level,
    Related,
    Sums,
    near,
    share,
    so_far,
    surprise,
)
from scrapy_gp4c.scoring import rates, terminals
from scrapy_gp4c.scoring.terminals import Array
from scrapy_gp4c.store.records import SHADOW

Bools = npt.NDArray[np.bool_]


def enter(pages: npt.NDArray[np.uint32], state: columns.Columns) -> Array:
    """Shadows of pages visited as panel pages for the first time, equal to the pages themselves.

    ``pages``: uint32 ``[S]``; ``state``: their columns ``[S]``. Dtype `SHADOW` ``[S]``.
    """
    shadows = np.zeros(len(pages), SHADOW)
    shadows["page"] = pages
    for name in ("key", *terminals.STATE):
        shadows[name] = state[name]
    shadows["current"] = shadows["copy"] = state["fingerprint"]
    return shadows


class OwnVisits(NamedTuple):
    """What the pages of shadows were visited for in the open cycle, each ``[S]``."""

    state: Mapping[str, Array]
    """Columns of the pages themselves."""
    judged: Bools
    changed: Bools
    predicted: npt.NDArray[np.float64]
    """Chance of that before the visit; 0 without one."""

    def only(self, seen: Bools) -> OwnVisits:
        """Those that a round has seen."""
        return OwnVisits(self.state, self.judged & seen, self.changed & seen, self.predicted * seen)


def own_visits(
    pages: KnownPages, shadows: Array, visits: Array, cycle: int
) -> tuple[OwnVisits, npt.NDArray[np.intp]]:
    """What the open cycle visited the pages of shadows for, and each visit's place (none: behind all)."""
    ids = np.ascontiguousarray(shadows["page"])
    order = np.argsort(ids)
    place_of = np.argsort(order)
    state = {name: column[place_of] for name, column in pages.columns_of(ids[order]).items()}
    places = np.flatnonzero(among(visits["outcome"], JUDGED))
    _, rows, found = np.intersect1d(ids, visits["page"][places], assume_unique=True, return_indices=True)
    judged, changed = np.zeros((2, len(ids)), np.bool_)
    judged[rows] = True
    changed[rows] = visits["outcome"][places[found]] == CHANGED
    position = np.full(len(ids), len(visits))
    position[rows] = places[found]
    predicted = rates.whole_units(terminals.change_probability(state, cycle)) * judged
    return OwnVisits(state, judged, changed, predicted), position


class Apart:
    """What related pages tell the shadows in a round."""

    def __init__(self, related: Related, shadows: Array, own: OwnVisits, cycle: int) -> None:
        """Take what they tell all others, and the visits to the shadows' pages that the round has seen."""
        self._related = related
        self._shadows = shadows
        self._own = own
        self._cycle = cycle

    @property
    def names(self) -> tuple[str, ...]:
        """As of all others."""
        return self._related.names

    def column(self, name: str, state: Mapping[str, Array], rows: int) -> Array:
        """One column of all shadows, see `Related.column`."""
        groups = state["group"]
        if name == "near":
            parts = (
                self._window("directory", groups),
                self._window("site", groups),
                self._window(None, groups),
            )
            return near(*parts)
        if name in ("near_dir", "near_site"):
            return share(*self._window("directory" if name == "near_dir" else "site", groups))
        if name in ("surprise_dir", "surprise_site"):
            return surprise(self._since("directory" if name == "surprise_dir" else "site", state))
        if name in ("site_now", "directory_now"):
            return self._so_far("site" if name == "site_now" else "directory", groups)
        if name in terminals.CLUSTERED:
            return self._of_clusters(state["cluster"], begun=name == "cluster_now")
        if name == "site_rate":
            return self._site_rate(groups)
        return self._related.column(name, state, rows)

    def _rows(self, level: Level, groups: Array) -> Array:
        return groups if level == "directory" else self._related.sites_of(groups)

    def _window(self, level: Level | None, groups: Array) -> Sums:
        """With the shadows' visits for those of their pages; None: of the whole crawl."""
        if level is None:
            found, visits = self._related.crawl
        else:
            rows = self._rows(level, groups)
            found, visits = (one[rows] for one in self._related.window(level))
        found = found + self._last("outdated", WINDOW_CYCLES) - self._last("changed", WINDOW_CYCLES)
        visits = visits + self._last("visited", WINDOW_CYCLES) - self._last("judged", WINDOW_CYCLES)
        return Sums(found - self._own.changed, visits - self._own.judged)

    def _so_far(self, level: Level, groups: Array) -> Floats:
        begun, rows = self._related.begun(level), self._rows(level, groups)
        now = Sums(begun.found[rows] - self._own.changed, begun.tried[rows] - self._own.judged)
        return so_far(now, self._window(level, groups))

    def _of_clusters(self, clusters: Array, begun: bool) -> Floats:
        """As of all others, with the shadows' visits for those of their pages, which a cluster counts."""
        now, recent = (Sums(*(sums[clusters] for sums in part)) for part in self._related.of_clusters())
        counted = clusters != NOWHERE
        outdated, changed, visited, judged = (
            counted * self._last(name, WINDOW_CYCLES).astype(np.float64)
            for name in ("outdated", "changed", "visited", "judged")
        )
        recent = Sums(recent.found + outdated - changed, recent.tried + visited - judged)
        if not begun:
            return share(*recent)
        now = Sums(now.found - counted * self._own.changed, now.tried - counted * self._own.judged)
        return so_far(now, Sums(now.found + recent.found, now.tried + recent.tried))

    def _last(self, name: str, cycles: int | Array) -> Array:
        """How many of the last finished cycles set the bit."""
        bits = np.left_shift(1, cycles) - 1
        return np.asarray(np.bitwise_count(self._shadows[name] & bits))

    def _since(self, level: Level, state: Mapping[str, Array]) -> Sums:
        """Without their pages' visits; shadows have none since their last."""
        sums = self._related.since(level)
        cycles = np.minimum(self._cycle - 1 - state["last_cycle"], sums.found.shape[1] - 1)
        at = self._rows(level, state["group"]), cycles
        predicted = self._own.predicted.copy()
        for n in range(1, KEPT_CYCLES + 1):
            predicted += self._shadows[f"predicted_{n}"] * (cycles >= n)
        return Sums(
            sums.found[at] - self._last("changed", cycles) - self._own.changed, sums.tried[at] - predicted
        )

    def _site_rate(self, groups: Array) -> Array:
        sums, rows = self._related.site_sums(), self._related.sites_of(groups)
        own = self._own.state
        return rates.rate_of_group(
            sums.expected[rows] - own["E"] + self._shadows["E"],
            sums.cycles[rows] - own["T"] + self._shadows["T"],
        )


def remember(shadows: Array, own: OwnVisits | None, visited: Array, outdated: Array) -> None:
    """Add a cycle to what the shadows know of the last ones, in place.

    ``own``: None where no score asked for related pages; ``visited``, ``outdated``: rows of the shadows that
    the cycle would have visited, and of those of them that it would have found changed.
    """
    for name in ("judged", "changed", "visited", "outdated"):
        shadows[name] <<= 1
    for n in range(KEPT_CYCLES, 1, -1):
        shadows[f"predicted_{n}"] = shadows[f"predicted_{n - 1}"]
    shadows["predicted_1"] = 0.0
    if own is not None:
        shadows["judged"] |= own.judged
        shadows["changed"] |= own.changed
        shadows["visited"][visited] |= 1
        shadows["outdated"][outdated] |= 1
        shadows["predicted_1"] = own.predicted
