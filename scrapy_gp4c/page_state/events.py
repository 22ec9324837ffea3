"""Page events (new, changed, gone, back, failing, doubtful), derived from a visit and the state before."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Ints
from scrapy_gp4c.page_state.outcomes import CHANGED, DOUBTFUL, ERROR, FAILED, FIRST, GONE, among

EVENTS: Final = ("new", "changed", "gone", "back", "failing", "doubtful")
"""Kinds of events; `CycleEvents.kinds` has positions in this tuple."""


class CycleEvents(NamedTuple):
    """Events of one cycle, in order of the visits; a visit may cause two, such as back and changed."""

    cycle: int
    visits: Array
    """Visit of each event, dtype `scrapy_gp4c.page_state.outcomes.VISIT` ``[E]``."""
    kinds: npt.NDArray[np.uint8]
    """``[E]``: position in `EVENTS`."""
    previous_s: npt.NDArray[np.float64]
    """``[E]``: time of the page's last visit before, s since 1970; NaN: none is known."""
    changes: npt.NDArray[np.int64]
    """``[E]``: changes of the page so far, this visit included."""

    def only(self, rows: Array) -> "CycleEvents":
        """Return the events at `rows`, indices or a mask."""
        return CycleEvents(
            self.cycle, self.visits[rows], self.kinds[rows], self.previous_s[rows], self.changes[rows]
        )


def event_masks(outcome: Array, before: Array, gone: Array, gone_after: int) -> dict[str, Array]:
    """Return kind of event -> mask ``[V]`` of the visits that cause it.

    ``outcome``: of the visits; ``before``, ``gone``: columns ``outcome`` and ``gone`` of their pages before
    the visits. A page is gone with its ``gone_after``-th 404 or 410 in a row and back with the next success;
    its first failure in a row makes it failing, its first doubtful answer in a row doubtful.
    """
    failed, had_failed = among(outcome, FAILED), among(before, FAILED)
    return {
        "new": outcome == FIRST,
        "changed": outcome == CHANGED,
        "gone": (outcome == GONE) & (gone.astype(np.int64) + 1 == gone_after),
        "back": ~failed & (gone >= gone_after),
        "failing": among(outcome, (ERROR, GONE)) & ~had_failed,
        "doubtful": (outcome == DOUBTFUL) & ~had_failed,
    }


def events_of(
    cycle: int, visits: Array, before: Mapping[str, Array], previous_s: Array, gone_after: int
) -> CycleEvents:
    """Return the events that the visits of a cycle cause; ``visits``: ``[V]``, at most one per page.

    ``before``: columns ``outcome``, ``gone`` and ``X`` of the visited pages before the cycle ``[V]``;
    ``previous_s``: times of their last visits before ``[V]``.
    """
    masks = event_masks(visits["outcome"], before["outcome"], before["gone"], gone_after)
    rows = np.concatenate([np.flatnonzero(masks[kind]) for kind in EVENTS])
    counts = [np.count_nonzero(masks[kind]) for kind in EVENTS]
    kinds = np.repeat(np.arange(len(EVENTS), dtype=np.uint8), counts)
    order = np.lexsort((kinds, rows))
    rows, kinds = rows[order], kinds[order]
    changes = before["X"].astype(np.int64)[rows] + (visits["outcome"][rows] == CHANGED)
    return CycleEvents(cycle, visits[rows], kinds, previous_s[rows], changes)


def last_events(events: CycleEvents, kinds: Collection[str], most: int) -> CycleEvents:
    """Return the last `most` events whose kind is one of `kinds`, names of `EVENTS`."""
    numbers = [EVENTS.index(kind) for kind in kinds]
    rows = np.flatnonzero(np.isin(events.kinds, numbers))[-most:]
    return events.only(rows)


def recorded_events(
    cycles: Iterable[tuple[int, Array]], state: Mapping[str, Ints], gone_after: int, first_cycle: int = 1
) -> Iterator[CycleEvents]:
    """Yield the events of recorded cycles from ``first_cycle`` on, for each chunk of visits.

    ``cycles``: (cycle, chunk of visits) of all cycles of the store, in order, as `Store.visits` yields them;
    ``state``: columns ``X``, ``gone`` and ``outcome`` of the pages before those cycles, ``[P]``.
    """
    columns = {name: column.copy() for name, column in state.items()}
    time_s = np.full(len(columns["X"]), np.nan)
    for cycle, visits in cycles:
        page, outcome = visits["page"].astype(np.int64), visits["outcome"]
        before = {name: column[page] for name, column in columns.items()}
        if cycle >= first_cycle:
            yield events_of(cycle, visits, before, time_s[page], gone_after)
        failed = among(outcome, FAILED)
        columns["outcome"][page] = outcome
        columns["gone"][page] = np.where(failed, before["gone"] + (outcome == GONE), 0)
        columns["X"][page] += outcome == CHANGED
        time_s[page] = visits["time"]
