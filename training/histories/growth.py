"""Histories that grow: which page appeared in which cycle, and whose response leads to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.claims import CLAIM_KINDS
from training.histories.claims import DATED_CLAIM
from training.histories.formats import write_npz
from training.histories.history import ChangeHistory

NO_FINDER: Final = -1
"""Finder of a page that needs none: a start request."""


@dataclass(frozen=True)
class GrowthHistory:
    """A history of P pages with their births. Raises HistoryError for arrays that do not fit."""

    history: ChangeHistory
    """Changes; none up to the cycle of a page's birth."""
    born: npt.NDArray[np.int32]
    """``[P]``: cycle (from 1) in which the page appeared; 0: it was there before."""
    finder: npt.NDArray[np.int32]
    """``[P]``: position of the page that links to it; `NO_FINDER`: it is known once it is there."""
    claims: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, DATED_CLAIM))
    """Dtype `DATED_CLAIM`: what sites claimed of pages, in order of cycles."""

    def __post_init__(self) -> None:
        pages, cycles = self.history.pages, self.history.cycles
        for name, values, low, high in (
            ("born", self.born, 0, cycles),
            ("finder", self.finder, NO_FINDER, pages - 1),
        ):
            fits = values.shape == (pages,) and values.dtype.kind in "iu"
            if not fits or values.min() < low or values.max() > high:
                raise HistoryError(
                    f"{name!r} of a growth history must be integers from {low} to {high:,}, one for each of "
                    f"{pages:,} pages; found {values.dtype} of shape {list(values.shape)}"
                )
        claims = self.claims
        if len(claims) and not ((claims["page"] < pages) & (claims["kind"] < CLAIM_KINDS)).all():
            raise HistoryError(
                f"'claims' of a growth history must be of its {pages:,} pages and of known kinds"
            )
        if (self.finder == np.arange(pages)).any():
            raise HistoryError("a page of a growth history must not be its own finder")

    @property
    def observed(self) -> npt.NDArray[np.bool_]:
        """``[D, P]``: whether a change of the page could be seen: after its birth."""
        return np.asarray(np.arange(1, self.history.cycles + 1)[:, None] > self.born)

    def until(self, cycle: int) -> GrowthHistory:
        """The first cycles, with the pages born in them that can be found by then; cycles keep numbers."""
        known = self.born <= cycle
        while len(lost := np.flatnonzero(known & (self.finder != NO_FINDER) & ~known[self.finder])):
            known[lost] = False
        position = np.full(len(known) + 1, NO_FINDER, np.int32)
        position[:-1][known] = np.arange(np.count_nonzero(known))
        claims = self.claims[(self.claims["cycle"] <= cycle) & known[self.claims["page"]]].copy()
        claims["page"] = position[claims["page"]]
        history = self.history.take(known, slice(0, cycle))
        return GrowthHistory(history, self.born[known], position[self.finder[known]], claims)


def write_growth(path: Path, growth: GrowthHistory) -> None:
    """Write an npz archive that is a history too: of the pages that were there from the start.

    Raises HistoryError for a name that it cannot hold.
    """
    history = growth.history
    known = ChangeHistory(
        history.changed,
        history.site,
        history.weight,
        growth.observed,
        history.site_names,
        history.page_names,
        history.key,
    )
    write_npz(path, known, {"born": growth.born, "finder": growth.finder, "claims": growth.claims})
