"""The k best of all pages of a replay: by cells where the score function allows that, else page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import Block, Chosen, Cut, Pages, Scorer
from scrapy_gp4c.policies.top_k import Scored
from scrapy_gp4c.scoring.common_subexpressions import Level
from scrapy_gp4c.scoring.draws import salted_draws
from scrapy_gp4c.scoring.terminals import Array
from training.histories.neighbours import Groups
from training.replaying.arranged import ArrangedHistory
from training.replaying.cells import Cells
from training.replaying.metrics import Floats, Ints
from training.replaying.own_states import OwnStates
from training.replaying.round_scores import RoundScores, Shared
from training.replaying.selection import FEW, Selection

BLOCK_ROWS: Final = 16_384
"""Pages or cells scored at a time: so many that their columns stay in the processor's caches."""
MANY: Final = 32_768
"""Pages from which on cells are kept: of fewer, what is compiled for them takes longer than it saves."""

Columns = Mapping[str, Array]

_SPARE: Final[dict[int, Cells]] = {}
"""Memory that nobody uses, by pages: taking it over saves the operating system the trouble of clearing it."""


@lru_cache(maxsize=64)
def _draws_of_few(pages: int, salt: np.uint64) -> npt.NDArray[np.uint64]:
    """Draws of all pages: replay after replay asks for those of the same cycles, some of them many times."""
    return salted_draws(np.arange(pages, dtype=np.uint64), salt)


class Known(NamedTuple):
    """What a round knows."""

    state_of: Callable[[Columns, slice], Columns]
    """Some rows of columns, and what the round adds to these."""
    block_of: Callable[[slice], Block]
    """Some pages, visited or not."""
    visited: Pages
    """Those visited in this cycle."""


def blocks(rows: int) -> Iterator[slice]:
    """Split rows into blocks."""
    for start in range(0, rows, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, rows))


class RankedPages:
    """The P pages of a replay."""

    def __init__(
        self,
        arranged: ArrangedHistory,
        states: OwnStates,
        groups: Groups,
    ) -> None:
        """Take the pages' own states and their directories, or none where nothing is told by these."""
        self._by_draw = arranged.ties == "random"
        self._states, self._group = states, groups.group
        self._scores = RoundScores(arranged.pages)
        self._selection = Selection(arranged.pages)
        self._directories: Columns = {"group": np.arange(len(groups.directories))}
        self._cells: Cells | None = None
        self._arranged, self._is_begun = arranged, False

    def begin(self, salt: np.uint64) -> None:
        """Begin a cycle, nothing visited yet; ``salt``: of its draws."""
        self._salt = salt
        self._scores.begin()
        if self._cells is not None:
            self._cells.begin()

    def ties(self, pages: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
        """What decides among pages of equal score."""
        if self._by_draw and self._arranged.pages <= FEW:
            return _draws_of_few(self._arranged.pages, self._salt).take(pages)
        numbers = pages.astype(np.uint64)
        return salted_draws(numbers, self._salt) if self._by_draw else numbers

    def best(self, scores_of: Scorer, k: int, known: Known) -> Chosen:
        """The k best of the pages that are not visited, at least one, best first."""
        parts = self._scores.parts_of(scores_of)
        if parts is not None and parts.is_shared and len(self._states.number) >= MANY:
            if self._cells is None:
                self._cells = self._gathered()
                self._cells.visit(known.visited, False)
            chosen, scores, tie = self._best_cells(self._cells, cast(Scored, scores_of).cycle, k, known)
        else:
            every = self._of_pages(scores_of, known)
            every[known.visited] = -np.inf
            chosen = self._selection.best(every, k, self.ties)
            scores, tie = every[chosen], int(self.ties(chosen[-1:])[0])
        return Chosen(chosen, scores, Cut(float(scores[-1]), tie))

    def _best_cells(self, cells: Cells, cycle: int, k: int, known: Known) -> tuple[Pages, Floats, int]:
        shared = self._shared(cells.own, cells.directory, known)
        columns = {"group": cells.directory}
        states = ((rows, known.state_of(columns, rows)) for rows in blocks(cells.cells))
        return cells.best(self._scores.tell(cycle, shared, states), k, self._salt, self._by_draw)

    def _of_pages(self, scores_of: Scorer, known: Known) -> Floats:
        """Scores of all pages."""
        pieces = ((rows, known.block_of(rows)) for rows in blocks(len(self._states.number)))
        if not isinstance(scores_of, Scored) or self._scores.parts_of(scores_of) is None:
            return self._scores.of_blocks(scores_of, pieces)
        shared = self._shared(self._states.number, self._group, known)
        return self._scores.tell(scores_of.cycle, shared, ((rows, one.state) for rows, one in pieces))

    def _shared(
        self, own: npt.NDArray[Any], directory: npt.NDArray[np.intp], known: Known
    ) -> dict[Level, Shared]:
        return {
            Level.OWN: Shared(known.state_of(self._states.columns, slice(None)), own),
            Level.DIRECTORY: Shared(known.state_of(self._directories, slice(None)), directory),
        }

    def _gathered(self) -> Cells:
        """All pages in cells."""
        pages = len(self._states.number)
        cells = _SPARE.pop(pages, None) or Cells(pages)
        known, are_placed = self._arranged.cells, len(self._group) > 0
        if self._is_begun:
            cells.gather(self._states.number, self._directory_of_pages())
        elif are_placed in known:
            cells.restore(known[are_placed])
        else:
            cells.gather(self._states.number, self._directory_of_pages())
            known[are_placed] = cells.copy()
        return cells

    def _directory_of_pages(self) -> npt.NDArray[np.intp]:
        """``[P]``: one for all where nothing is told by them."""
        return self._group if len(self._group) else np.zeros(len(self._states.number), np.intp)

    def visit(self, pages: Pages, are_told: bool) -> npt.NDArray[np.int32] | None:
        """Pages are visited; returns their directories, where these are at hand.

        ``are_told``: they are those that `best` has just told.
        """
        return None if self._cells is None else self._cells.visit(pages, are_told)

    def observe(self, pages: Ints, changed: npt.NDArray[np.bool_], cycle: int) -> None:
        """The cycle is over: its visits, in order; whether each page had changed: ``[visits]``."""
        self._is_begun = True
        if self._cells is None:
            self._states.observe(pages, changed, cycle)
        else:
            number = self._states.observe(pages, changed, cycle, self._cells.left)
            if not self._cells.observe(pages, number, self._states.renumbered):
                self._cells.gather(self._states.number, self._directory_of_pages())

    def close(self) -> None:
        """The replay is over: its memory may be used by the next one."""
        if self._cells is not None:
            _SPARE.clear()
            _SPARE[len(self._states.number)] = self._cells
            self._cells = None
