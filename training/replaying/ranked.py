"""The k best of all pages of a replay, found in memory that is used again: see `scoring.ranking.top_k`.

Scores of all pages in the rounds of a cycle: what many pages share is told once for all of them.

The k best of all pages of a replay: by buckets where the score function allows that, else page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.base import Block, Cut, Pages, Scorer, Selection
from scrapy_gp4c.policies.top_k import CycleScorer
from scrapy_gp4c.scoring.common_subexpressions import Divided, Level, divided
from scrapy_gp4c.scoring.draws import salted_draws
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import best_k, in_order, likely_cut, top_k
from scrapy_gp4c.scoring.terminals import Array
from training.histories.neighbours import PageDirectories
from training.replaying.buckets import Buckets, PageStates
from training.replaying.metrics import Floats, Ints
from training.replaying.prepared import PreparedHistory

Rows = npt.NDArray[np.uint32]

FEW: Final = 2_000
"""Rows up to which compiling what looks for the best, or sorts these, takes longer than it saves."""


class BestRows:
    """Memory for selections among P pages."""

    def __init__(self, pages: int) -> None:
        """Take P."""
        from training.replaying.kernels import dense  # compiles: only when it is used

        self._kernels = dense
        self._counts = np.empty(dense.BINS, np.int32)
        self._bins = np.empty(pages, np.uint16)
        # One more: the kernels write every row before they know whether it counts.
        self._above, self._among = np.empty(pages + 1, np.uint32), np.empty(pages + 1, np.uint32)

    def best(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """Rows of the k best, best first: by score descending, then ties ascending, then row.

        ``scores``: float64 ``[P]``, not NaN; ``ties_of(rows)``: numbers that decide among equal scores. As
        `scrapy_gp4c.scoring.ranking.top_k`, which needs the ties of all.
        """
        if k <= 0:
            return np.empty(0, np.uint32)
        if len(scores) <= FEW:
            return top_k(scores, ties_of(np.arange(len(scores), dtype=np.uint32)), k).astype(np.uint32)
        chosen = self._chosen(scores, k, ties_of)
        ties = np.asarray(ties_of(chosen), np.uint64)
        if k < FEW:
            return chosen[in_order(scores[chosen], ties)]
        return np.asarray(chosen[self._kernels.in_order(scores[chosen], ties)])

    def _chosen(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """The k best, ascending."""
        rows = self._above_sample(scores, k)
        if rows is None:
            certain, maybe = self._kernels.highest(
                scores, k, self._counts, self._bins, self._above, self._among
            )
            above, among = self._above[:certain], self._among[:maybe]
        else:
            above, among = rows[:0], rows
        wanted = k - len(above)
        if wanted < len(among):
            own = scores[among]
            cut = np.partition(own, len(among) - wanted)[len(among) - wanted]
            higher, equal = among[own > cut], among[own == cut]
            wanted -= len(higher)
            if wanted < len(equal):
                # All of the lowest score are at the border, those above it are wanted.
                equal = equal[best_k(np.zeros(len(equal)), ties_of(equal), wanted)]
            among = np.concatenate((higher, equal))
        chosen = np.concatenate((above, among))
        chosen.sort()
        return chosen

    def _above_sample(self, scores: Floats, k: int) -> Rows | None:
        """Rows that score at least what about k do, ascending: the k best, and some more.

        None where a sample of the scores cannot tell that.
        """
        cut = likely_cut([scores], k)
        if cut is None:
            return None
        found = self._kernels.at_least(scores, cut, self._among)
        return self._among[:found] if k <= found <= 4 * k else None


_SHARED = (Level.OWN, Level.DIRECTORY)


class Shared(NamedTuple):
    """Those who share something, N of them."""

    state: Mapping[str, Array]
    """Their columns, each ``[N]``."""
    number: npt.NDArray[Any]
    """``[P]``: which of them each page is of."""


class RoundScores:
    """Memory for the scores of P pages."""

    def __init__(self, pages: int) -> None:
        """Take P."""
        self._scores = np.empty(pages)
        self._function: ScoreFunction | None = None
        self._divided: Divided | None = None
        self._asked = 0
        self._still: dict[str, Floats] = {}
        self._own: dict[str, Floats] = {}

    def begin(self) -> None:
        """A cycle begins: nothing of the last one stands."""
        self._asked = 0
        self._own = {}

    def parts_of(self, scores_of: Scorer) -> Divided | None:
        """The parts of a score function; None: there are none."""
        if not isinstance(scores_of, CycleScorer):
            return None
        if scores_of.function is not self._function:
            self._function, self._divided = scores_of.function, divided(scores_of.function)
            self.begin()
        return self._divided

    def of_blocks(self, scores_of: Scorer, blocks: Iterable[tuple[slice, Block]]) -> Floats:
        """Scores of all pages by what cannot be parted, ``[P]``, in memory that the next call writes to.

        ``blocks``: all pages, and where each block is among them.
        """
        for rows, block in blocks:
            self._scores[rows] = scores_of(block)
        return self._scores

    def tell(
        self,
        cycle: int,
        shared: Mapping[Level, Shared],
        states: Iterable[tuple[slice, Mapping[str, Array]]],
    ) -> Floats:
        """Scores of R rows by the parts asked for last, ``[R]``, in memory that the next call writes to.

        ``shared``: rows in equal own state and rows of one directory. ``states``: columns of all rows, block
        by block, and where each block is among them.
        """
        assert self._divided is not None
        whole, scores = self._divided, self._scores[: len(shared[Level.OWN].number)]
        self._asked += 1
        tables = {
            name: (self._table(whole, name, level, shared[level].state, cycle), shared[level].number)
            for level in _SHARED
            for name in whole.parts[level]
        }
        if not self._multiplied(whole, tables, scores):
            self._finished(whole, tables, cycle, states, scores)
        return scores

    def _table(
        self, whole: Divided, name: str, level: Level, state: Mapping[str, Array], cycle: int
    ) -> Floats:
        """One shared part; own states stand still in a cycle, but for numbers of the round."""
        table = self._own.get(name)
        if table is None:
            table = whole.value(name, level, state, cycle)
            if level is Level.OWN and whole.stands_still(name):
                self._own[name] = table
        return table

    def _multiplied(
        self, whole: Divided, tables: Mapping[str, tuple[Floats, npt.NDArray[Any]]], out: Floats
    ) -> bool:
        """Score by the product of two tables, in one go; False: it is not one, or not always finite."""
        tokens = whole.rest.tokens
        if len(tokens) != 3 or tokens[0] != "*" or len(tables) != 2 or not tables.keys() >= {*tokens[1:]}:
            return False
        (one, of_one), (other, of_other) = tables.values()
        from training.replaying.kernels import dense  # compiles: only when it is used

        return bool(dense.multiply(one, of_one, other, of_other, out))

    def _finished(
        self,
        whole: Divided,
        tables: Mapping[str, tuple[Floats, npt.NDArray[Any]]],
        cycle: int,
        states: Iterable[tuple[slice, Mapping[str, Array]]],
        out: Floats,
    ) -> None:
        """Score block by block; from the second round on, what stands still is put aside."""
        still = whole.parts[Level.STILL]
        if still and self._asked == 2:
            self._still = {name: np.empty(len(out)) for name in still}
        for rows, state in states:
            parts = {name: table.take(number[rows]) for name, (table, number) in tables.items()}
            for name in still:
                if self._asked < 3:
                    parts[name] = whole.value(name, Level.STILL, state, cycle)
                    if self._asked == 2:
                        self._still[name][rows] = parts[name]
                else:
                    parts[name] = self._still[name][rows]
            whole.finish(parts, state, cycle, out[rows])


BLOCK_ROWS: Final = 16_384
"""Pages or buckets scored at a time: so many that their columns stay in the processor's caches."""
MANY: Final = 32_768
"""Pages from which on buckets are kept: of fewer, what is compiled for them takes longer than it saves."""

Columns = Mapping[str, Array]

_SPARE: Final[dict[int, Buckets]] = {}
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
        prepared: PreparedHistory,
        states: PageStates,
        groups: PageDirectories,
    ) -> None:
        """Take the pages' own states and their directories, or none where nothing is told by these."""
        self._by_draw = prepared.ties == "random"
        self._states, self._group = states, groups.group
        self._scores = RoundScores(prepared.pages)
        self._selection = BestRows(prepared.pages)
        self._directories: Columns = {"group": np.arange(len(groups.directories))}
        self._buckets: Buckets | None = None
        self._prepared, self._is_begun = prepared, False

    def begin(self, salt: np.uint64) -> None:
        """Begin a cycle, nothing visited yet; ``salt``: of its draws."""
        self._salt = salt
        self._scores.begin()
        if self._buckets is not None:
            self._buckets.begin()

    def ties(self, pages: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
        """What decides among pages of equal score."""
        if self._by_draw and self._prepared.pages <= FEW:
            return _draws_of_few(self._prepared.pages, self._salt).take(pages)
        numbers = pages.astype(np.uint64)
        return salted_draws(numbers, self._salt) if self._by_draw else numbers

    def best(self, scores_of: Scorer, k: int, known: Known) -> Selection:
        """The k best of the pages that are not visited, at least one, best first."""
        parts = self._scores.parts_of(scores_of)
        if parts is not None and parts.is_shared and len(self._states.number) >= MANY:
            if self._buckets is None:
                self._buckets = self._gathered()
                self._buckets.visit(known.visited, False)
            cycle = cast(CycleScorer, scores_of).cycle
            chosen, scores, tie = self._best_buckets(self._buckets, cycle, k, known)
        else:
            every = self._of_pages(scores_of, known)
            every[known.visited] = -np.inf
            chosen = self._selection.best(every, k, self.ties)
            scores, tie = every[chosen], int(self.ties(chosen[-1:])[0])
        return Selection(chosen, scores, Cut(float(scores[-1]), tie))

    def _best_buckets(self, buckets: Buckets, cycle: int, k: int, known: Known) -> tuple[Pages, Floats, int]:
        shared = self._shared(buckets.own, buckets.directory, known)
        columns = {"group": buckets.directory}
        states = ((rows, known.state_of(columns, rows)) for rows in blocks(buckets.buckets))
        return buckets.best(self._scores.tell(cycle, shared, states), k, self._salt, self._by_draw)

    def _of_pages(self, scores_of: Scorer, known: Known) -> Floats:
        """Scores of all pages."""
        pieces = ((rows, known.block_of(rows)) for rows in blocks(len(self._states.number)))
        if not isinstance(scores_of, CycleScorer) or self._scores.parts_of(scores_of) is None:
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

    def _gathered(self) -> Buckets:
        """All pages in buckets."""
        pages = len(self._states.number)
        buckets = _SPARE.pop(pages, None) or Buckets(pages)
        known, are_placed = self._prepared.buckets, len(self._group) > 0
        if self._is_begun:
            buckets.gather(self._states.number, self._directory_of_pages())
        elif are_placed in known:
            buckets.restore(known[are_placed])
        else:
            buckets.gather(self._states.number, self._directory_of_pages())
            known[are_placed] = buckets.copy()
        return buckets

    def _directory_of_pages(self) -> npt.NDArray[np.intp]:
        """``[P]``: one for all where nothing is told by them."""
        return self._group if len(self._group) else np.zeros(len(self._states.number), np.intp)

    def visit(self, pages: Pages, are_told: bool) -> npt.NDArray[np.int32] | None:
        """Pages are visited; returns their directories, where these are at hand.

        ``are_told``: they are those that `best` has just told.
        """
        return None if self._buckets is None else self._buckets.visit(pages, are_told)

    def observe(self, pages: Ints, changed: npt.NDArray[np.bool_], cycle: int) -> None:
        """The cycle is over: its visits, in order; whether each page had changed: ``[visits]``."""
        self._is_begun = True
        if self._buckets is None:
            self._states.observe(pages, changed, cycle)
        else:
            number = self._states.observe(pages, changed, cycle, self._buckets.left)
            if not self._buckets.observe(pages, number, self._states.renumbered):
                self._buckets.gather(self._states.number, self._directory_of_pages())

    def close(self) -> None:
        """The replay is over: its memory may be used by the next one."""
        if self._buckets is not None:
            _SPARE.clear()
            _SPARE[len(self._states.number)] = self._buckets
            self._buckets = None
