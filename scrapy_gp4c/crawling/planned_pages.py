"""The plan of a cycle as it stands in the store: which pages, why, and in what order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.outcomes import KINDS, PLAN
from scrapy_gp4c.policies.base import Pages, Planned
from scrapy_gp4c.scoring.ranking import places_in_order


class PlannedPages:
    """The plan of a cycle, its rounds one behind the other."""

    def __init__(self, chunks: Iterable[npt.NDArray[Any]]) -> None:
        """Take the plan in chunks of dtype `PLAN`."""
        self._plan = np.concatenate([*chunks, np.empty(0, PLAN)])
        self.pages: Pages = np.ascontiguousarray(self._plan["page"])
        """In the order of the plan."""
        self.planned = Planned.of(self._plan)
        """The same, with their kinds."""
        self._by_page = places_in_order(self.pages).astype(np.uint32)
        self._ordered = np.sort(self.pages)

    def __len__(self) -> int:
        return len(self._plan)

    def position(self, page: int) -> int | None:
        """Place of a page in the plan; None: it is not planned."""
        # As uint32: for a Python number, NumPy would convert the whole plan to int64 first.
        found = int(self._ordered.searchsorted(np.uint32(page)))
        if found < len(self._ordered) and self._ordered[found] == page:
            return int(self._by_page[found])
        return None

    def kind_and_score(self, position: int) -> tuple[str, float]:
        """Why the page at this place is visited; its score, NaN where none decided."""
        row = self._plan[position]
        return KINDS[row["kind"]], float(row["score"])

    def of_kind(self, kind: str) -> list[int]:
        """Pages of one kind, in the order of the plan."""
        pages: list[int] = self.pages[self._plan["kind"] == KINDS.index(kind)].tolist()
        return pages

    def kinds(self) -> dict[str, int]:
        """Pages of each kind."""
        counts = np.bincount(self.planned.kinds, minlength=len(KINDS))
        return dict(zip(KINDS, counts.tolist(), strict=True))
