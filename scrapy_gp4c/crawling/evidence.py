"""Evidence of a crawl for its policy: columns of the store, and visits of the cycle so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.crawling.neighbourhood import KnownPages, Neighbourhood
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.outcomes import CHOSEN, among
from scrapy_gp4c.page_state.related import Related, RoundState
from scrapy_gp4c.policies.base import Block, CycleVisits, Pages, Planned
from scrapy_gp4c.policies.top_k import SpreadSample
from scrapy_gp4c.scoring.draws import draw_salt, salted_draws
from scrapy_gp4c.scoring.ranking import spread_rows

FEW_FROM_PAGES: Final = 1_000_000
"""Least number of pages for which a sample saves more time than it costs: of 10 million, a seventh."""


class LiveEvidence:
    """The evidence of one round of a crawl."""

    def __init__(
        self,
        store: KnownPages,
        rankable: npt.NDArray[np.bool_],
        salt: tuple[int, int],
        planned: Planned,
        visits: CycleVisits,
        neighbourhood: Neighbourhood,
        related: Related,
    ) -> None:
        """Take what the cycle knows before the round.

        ``rankable``: of every page of `blocks`, whether it may be ranked in this cycle; ``salt``: seed and
        cycle of the draws; ``planned``: pages of the plan so far, whatever for; ``visits``: those so far;
        ``related``: what related pages tell the round.
        """
        self._store = store
        self._salt = draw_salt(*salt)
        self._visits = visits
        self._neighbourhood = neighbourhood
        self._related = related
        chosen = among(planned.kinds, CHOSEN)
        self._planned = Planned(planned.pages[chosen], planned.kinds[chosen])
        self._open = rankable.copy()
        for taken in (planned.pages, visits.pages):
            self._open[taken[taken < len(self._open)]] = False

    def candidates(self) -> Iterator[Block]:
        """Yield the rankable pages that this cycle has neither planned nor visited, block by block."""
        for first, columns in self._store.blocks(self._neighbourhood.of_pages):
            ids = slice(first, first + len(columns["key"]))
            is_open = self._open[ids]
            if is_open.all():
                pages = np.arange(ids.start, ids.stop, dtype=np.uint32)
                yield self._block(pages, columns, ids, slice(None))
            else:
                rows = np.flatnonzero(is_open)
                yield self._block((rows + first).astype(np.uint32), columns, ids, rows)

    def _block(
        self, pages: Pages, columns: Columns, ids: slice | Array, rows: slice | npt.NDArray[np.intp]
    ) -> Block:
        """Block of some rows of columns; ``ids``: pages of all rows."""
        known, draws = self._neighbourhood.columns(columns, ids), Draws(columns["key"], self._salt)
        state = RoundState(known, rows, self._related, draws)
        return Block(
            pages, state, draws if isinstance(rows, slice) else Draws(columns["key"][rows], self._salt)
        )

    def spread_sample(self) -> SpreadSample | None:
        """Sample of the candidates from all over the store, as related pages lie close to each other."""
        pages, names = len(self._open), self._neighbourhood.of_pages
        if pages < FEW_FROM_PAGES or names is None:
            return None
        some = spread_rows(pages)
        few = some[self._open[some]].astype(np.uint32)
        columns = self._store.columns_of(few, names)
        return SpreadSample(self._block(few, columns, few, slice(None)), len(some) / pages)

    def may_visit(self, pages: Pages) -> npt.NDArray[np.bool_]:
        """Whether each page is a candidate."""
        known = pages < len(self._open)
        known[known] = self._open[pages[known]]
        return known

    def rows(self, pages: Pages) -> Block:
        """Return the columns of some pages, as the last finished cycle left them."""
        order = np.argsort(pages)
        columns = self._store.columns_of(pages[order])
        return self._block(pages, columns, pages[order], np.argsort(order))

    def visits(self) -> CycleVisits:
        """Return the visits that had an outcome when the round was planned."""
        return self._visits

    def planned(self) -> Planned:
        """Return the pages that the policy has chosen in earlier rounds."""
        return self._planned

    def grouping(self, name: Name) -> Grouping:
        """Return how all pages fall into groups."""
        return self._neighbourhood.grouping(name)

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Return how popular each page is, from 0 to 10."""
        return self._neighbourhood.clusters.popularity()


class Draws:
    """Random numbers of pages in a cycle, computed when asked for."""

    def __init__(self, keys: npt.NDArray[np.uint64], salt: np.uint64) -> None:
        """Take the keys of pages, ``[P]``."""
        self._keys = keys
        self._salt = salt

    def __call__(self, rows: npt.NDArray[np.intp] | slice) -> npt.NDArray[np.uint64]:
        """Draws of some of the pages."""
        return salted_draws(self._keys[rows], self._salt)
