"""A store of which only the plan matters: what cycles would visit, and nothing written.

`Imagined` is what planning asks a store, over the pages of a real one (`PageStore`) or of `InMemory`, which
visits change as a fold would change a store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.surroundings import KnownPages
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.blocks import unpack_extras
from scrapy_gp4c.page_state.claims import NO_CLAIMS, after_visits
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, NO_VISITS, count_visits
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.scoring.refresh_value import GAIN, observe_gains
from scrapy_gp4c.scoring.terminals import change_probability
from scrapy_gp4c.store.records import (
    TRUST,
    StoredGroups,
    StoredRequest,
)

Array = npt.NDArray[Any]


class NothingClaimed:
    """The hints of pages of which no site has claimed anything."""

    def trust(self) -> Array:
        """Nothing, dtype `TRUST`."""
        return np.empty(0, TRUST)


class InMemory:
    """The columns of all pages, 100 bytes each, and what the last cycles tell of their directories."""

    def __init__(
        self,
        state: Columns,
        directories: Array,
        group_visits: dict[int, Array],
        requests: Callable[[Array], list[StoredRequest]],
        before: KnownPages | None = None,
    ) -> None:
        """Take columns ``[P]``, which `fold` changes, directories of dtype `GROUP`, and the pages."""
        self.requests = requests
        self._before = before
        self._folded: dict[int, Array] = {}
        self.hints = NothingClaimed() if before is None else before.hints
        self.state = {**unpack_extras(None, len(state["key"])), **state}
        self._directories = directories
        self._group_visits = group_visits

    @classmethod
    def of(cls, pages: KnownPages, last_cycle: int) -> InMemory:
        """A copy of a store's pages as its last finished cycle left them."""
        parts = [block for _, block in pages.blocks()]
        parts = parts or [columns.new_columns(np.empty(0, np.uint64)) | unpack_extras(None, 0)]
        state = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        kept = range(max(1, last_cycle - KEPT_CYCLES + 1), last_cycle + 1)
        visits = {cycle: pages.group_visits(cycle) for cycle in kept}
        return cls(state, pages.directories(), visits, pages.requests, pages)

    @property
    def merged_pages(self) -> int:
        """P."""
        return len(self.state["key"])

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """All in one, which `fold` changes."""
        yield 0, self.state

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        """All columns of some pages."""
        return {name: column[pages] for name, column in self.state.items()}

    def directories(self) -> Array:
        """Directories of the pages."""
        return self._directories

    def clusters(self) -> StoredGroups | None:
        """Clusters and links of the pages."""
        return None if self._before is None else self._before.clusters()

    def group_visits(self, cycle: int) -> Array:
        """What the visits of a cycle told of directories."""
        return self._group_visits.get(cycle, NO_VISITS)

    def visits(self, first_cycle: int = 1, last_cycle: int | None = None) -> Iterator[tuple[int, Array]]:
        """Visits of cycles: of the store, and those that were folded."""
        if self._before is not None:
            yield from self._before.visits(first_cycle, last_cycle)
        for cycle, visits in self._folded.items():
            if first_cycle <= cycle and (last_cycle is None or cycle <= last_cycle):
                yield cycle, visits

    def fold(self, visits: Array, cycle: int) -> None:
        """Do to the pages what the visits of a cycle came to, dtype `VISIT`."""
        self._folded[cycle] = visits
        judged = visits[among(visits["outcome"], JUDGED)]
        state = self.columns_of(judged["page"])
        self._group_visits[cycle] = count_visits(
            state["group"], judged["outcome"] == CHANGED, change_probability(state, cycle)
        )
        if "dq_n" in self.state:
            gains = np.zeros(len(judged), GAIN)
            gains["gap_cycles"] = cycle - state["last_cycle"]
            observe_gains(self.state, judged["page"].astype(np.intp), gains)
        rows = visits["page"].astype(np.intp)
        columns.apply_visits(self.state, rows, visits, cycle)
        after_visits(self.state, rows, visits["outcome"], NO_CLAIMS, cycle, np.zeros(len(rows)))
