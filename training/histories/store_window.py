"""What a store's closed cycles observed, and which of them make a history.

docs/closing-the-loop.md explains the choice of pages and cycles.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS
from scrapy_gp4c.store.page_store import PageStore

COLLECTED_SHARE: Final = 0.5
"""A cycle belongs to a history if it judged at least this share of the pages that it could have."""
SAMPLE: Final = 20_000
"""Pages by which the window is chosen, of stores that have more."""


class Outcomes:
    """Outcomes of all finished cycles, ``[cycles + 1, P]`` each; row c is store cycle c.

    The P pages are those of the panel if there is one, unless ``everything`` is wanted.
    """

    def __init__(self, store: PageStore, everything: bool) -> None:
        """Read them."""
        panel = np.zeros(store.pages, np.bool_)
        for _, visits in store.visits(1, store.last_cycle):
            panel[visits["page"][visits["kind"] == KINDS.index("panel")]] = True
        if not panel.any():
            panel[:] = True
        taken = np.ones_like(panel) if everything else panel
        self.page = np.flatnonzero(taken)
        """``[P]``: page ids in the store."""
        self.candidates = np.flatnonzero(panel[self.page])
        shape = store.last_cycle + 1, len(self.page)
        self.judged = np.zeros(shape, np.bool_)
        self.changed = np.zeros(shape, np.bool_)
        self.entry = np.full(len(self.page), store.last_cycle + 1)
        """Cycle that brought the page's first copy."""
        position = np.cumsum(taken) - 1
        for cycle, visits in store.visits(1, store.last_cycle):
            visits = visits[taken[visits["page"]]]
            page, outcome = position[visits["page"]], visits["outcome"]
            judged = page[np.isin(outcome, JUDGED)]
            self.judged[cycle, judged] = True
            self.changed[cycle, page[outcome == CHANGED]] = True
            first = page[outcome == FIRST]
            self.entry[first] = np.minimum(self.entry[first], cycle)
            self.entry[judged] = np.minimum(self.entry[judged], cycle - 1)


def window(outcomes: Outcomes, max_errors: int) -> tuple[int, int] | None:
    """Cycles start + 1..stop with the most outcomes of pages that meet the conditions; None: there are none.

    A page meets them if it had a copy in cycle `start` and at most `max_errors` cycles since have no
    outcome. A window begins and ends with a collected cycle and has at most `max_errors` others.
    """
    sample = outcomes.candidates[:: max(1, len(outcomes.candidates) // SAMPLE)]
    judged, entry = outcomes.judged[:, sample], outcomes.entry[sample]
    cycles = np.arange(len(judged))
    entered = np.array([np.count_nonzero(entry < cycle) for cycle in cycles])
    collected = (judged.sum(axis=1) >= COLLECTED_SHARE * entered) & (entered > 0)
    best, found = 0, None
    stop = len(judged) - 1
    while stop >= 2:
        if not collected[stop]:
            stop -= 1
            continue
        lost = np.zeros(len(sample), np.int64)
        uncollected = 0
        begin = stop
        for cycle in range(stop, 1, -1):
            uncollected += int(not collected[cycle])
            if uncollected > max_errors:
                break
            begin = cycle
            lost += ~judged[cycle]
            area = (stop - cycle + 1) * int(np.count_nonzero((entry < cycle) & (lost <= max_errors)))
            if collected[cycle] and area >= best and area > 0:
                best, found = area, (cycle - 1, stop)
        stop = begin - 1
    return found
