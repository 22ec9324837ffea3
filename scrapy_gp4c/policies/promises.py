"""Promises (``max_age`` of a page): which pages a cycle has to visit, so that none is visited too late.

A page with a promise is visited at least once in ``max_age`` cycles. Pages are taken by earliest deadline:
those that are due now, and just as many others as keep any later cycle from having more due than its budget.
Crawls and replays call the same function. Source: C. L. Liu & J. W. Layland 1973, "Scheduling algorithms for
multiprogramming in a hard-real-time environment", Journal of the ACM 20, section 7.
"""

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Ints

HORIZON: Final = 1024
"""Number of cycles that are simulated."""
LARGEST_REMEMBERED: Final = 2_000
"""Largest simulated state, in numbers, that is remembered to see when states repeat."""


PROMISE: Final = np.dtype(
    [
        ("cycles_left", "<i8"),  # that may pass before the page is visited; 0: it is due, below 0: it is late
        ("max_age", "<i8"),  # in cycles, at least 1
        ("min_interval", "<i8"),  # in cycles, from 1 to `max_age`
        ("is_open", "?"),  # the page may be visited now
    ]
)
"""A promise about a page, when a cycle is planned."""


def needed_visits(max_age: Array) -> int:
    """Return the visits per cycle that keep all promises: the sum of 1 / `max_age` of pages, rounded up."""
    return math.ceil(float((1.0 / max_age).sum()) - 1e-9)


def promised_visits(promised: Array, budget: int) -> npt.NDArray[np.intp]:
    """Choose the pages that a cycle has to visit by their promises, the earliest deadline first.

    ``promised``: all pages with a promise, with the fields of `PROMISE`; ``budget``: most visits. Returns
    positions in `promised`, as few as keep all promises, if the whole budget of each cycle could keep them.
    Else the pages that are late longest come first.
    """
    cycles_left = promised["cycles_left"]
    order: npt.NDArray[np.intp] = np.lexsort((promised["min_interval"], promised["max_age"], cycles_left))
    order = order[promised["is_open"][order]]
    due = int(np.count_nonzero(cycles_left[order] <= 0))
    most = min(budget, len(order))
    if due >= most or len(cycles_left) <= budget:
        return order[: min(due, most)]
    ahead = _CyclesAhead(promised, budget)
    low, high = due, most
    if not (lateness := ahead.lateness(order[:low])) or lateness <= (least := ahead.lateness(order[:high])):
        return order[:low]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ahead.lateness(order[:middle]) <= least else (middle, high)
    return order[:high]


class _CyclesAhead:
    """Simulation of the next cycles, in which all of the budget goes to promises, by earliest deadline."""

    def __init__(self, promised: Array, budget: int) -> None:
        self._budget = budget
        ages = (np.minimum(promised[name], HORIZON) for name in ("max_age", "min_interval"))
        pairs = np.stack(tuple(ages), axis=1)
        classes, of_page = np.unique(pairs, axis=0, return_inverse=True)
        self._max_age, self._min_interval = classes.astype(np.int64).T
        size = len(classes), int(self._max_age.max()) + 1
        self._cell = of_page.reshape(-1) * size[1] + np.clip(promised["cycles_left"], 0, size[1] - 1)
        self._counts = self._counted(slice(None), size)
        self._released = np.arange(size[1]) <= (self._max_age - self._min_interval)[:, None]

    def _counted(self, rows: Any, shape: tuple[int, int]) -> Ints:
        """Count the pages at `rows` by class (pair of max_age and min_interval) and cycles left: `shape`."""
        return np.bincount(self._cell[rows], minlength=shape[0] * shape[1]).reshape(shape).astype(np.int64)

    def lateness(self, visited: npt.NDArray[np.intp]) -> int:
        """Sum up the late pages after each of the next cycles, if this one visits the positions `visited`."""
        counts, visits = self._counts, self._counted(visited, self._counts.shape)
        late = 0
        states: dict[bytes, tuple[int, int]] = {}
        for cycle in range(HORIZON):
            counts, late_now = self._after(counts, visits)
            late += late_now
            if counts.size <= LARGEST_REMEMBERED:
                first_cycle, late_before = states.setdefault(counts.tobytes(), (cycle, late))
                if first_cycle < cycle:  # from here on, states repeat
                    repeats = (HORIZON - cycle) // (cycle - first_cycle)
                    return late + (late - late_before) * repeats
            visits = self._by_deadline(counts)
        return late

    def _after(self, counts: Ints, visits: Ints) -> tuple[Ints, int]:
        """Return `counts` (see `_counted`) after a cycle with such `visits`, and its number of late pages."""
        counts = counts - visits
        late = int(counts[:, 0].sum())
        counts[:, 1] += counts[:, 0]  # they stay due
        counts[:, :-1] = counts[:, 1:]
        counts[:, -1] = 0
        counts[np.arange(len(visits)), self._max_age - 1] += visits.sum(axis=1)
        return counts, late

    def _by_deadline(self, counts: Ints) -> Ints:
        waiting = np.where(self._released, counts, 0).T
        earlier = np.cumsum(waiting).reshape(waiting.shape) - waiting
        return np.asarray(np.clip(self._budget - earlier, 0, waiting).T)
