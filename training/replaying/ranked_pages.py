"""Ranking of all pages of a replay: the k best by a score function or by another scorer.

Scores equal those of a crawl bit for bit, but are computed faster: parts of a score that many pages share are
computed once (`training.replaying.divided_scores`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.policies.base import Block, Cut, Pages, Scorer, Selection
from scrapy_gp4c.policies.top_k import CycleScorer
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import in_order, salted_draws, top_k
from training.histories.neighbours import PageDirectories
from training.replaying.divided_scores import Divided, Level, divided
from training.replaying.page_states import PageStates
from training.replaying.prepared import PreparedHistory

Rows = npt.NDArray[np.uint32]

FEW: Final = 2_000
"""Largest number of rows for which compiling a kernel takes longer than it saves."""
SAMPLE_ROWS: Final = 4_096
"""Number of rows in the sample that estimates the score of the k-th best."""


class BestRows:
    """Selection of the k best of P rows, as `scrapy_gp4c.scoring.ranking.top_k`, with draws for few rows."""

    def __init__(self, pages: int) -> None:
        from training.replaying.kernels import dense  # compiles: only when it is used

        self._kernels = dense
        # One more: the kernel writes every row before it knows whether it counts.
        self._among = np.empty(pages + 1, np.uint32)

    def best(self, scores: Floats, k: int, ties_of: Callable[[Rows], npt.NDArray[Any]]) -> Rows:
        """Rows of the k best, best first; among equal scores those with the lowest numbers `ties_of`.

        ``scores``: float64 ``[P]``, not NaN; ``ties_of(rows)``: returns a distinct number for each row.
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
        among = self._above_sample(scores, k)
        if among is None:
            among = np.arange(len(scores), dtype=np.uint32)
        candidate_scores = scores[among]
        cut = np.partition(candidate_scores, len(among) - k)[len(among) - k]
        higher, equal = among[candidate_scores > cut], among[candidate_scores == cut]
        if len(higher) + len(equal) > k:
            missing = k - len(higher)
            equal = equal[np.argpartition(ties_of(equal), missing - 1)[:missing]]
        chosen = np.concatenate((higher, equal))
        chosen.sort()
        return chosen

    def _above_sample(self, scores: Floats, k: int) -> Rows | None:
        """Rows, ascending, whose scores reach the k-th best score as estimated by a sample of the scores.

        There are k to 4 k of them; None: the estimate was worse than that, or the scores are few.
        """
        sample = scores[:: max(1, len(scores) // SAMPLE_ROWS)].copy()
        likely = k * len(sample) / len(scores)
        rank = len(sample) - int(likely + 3.0 * math.sqrt(likely) + 8.0)  # that row and a few before it
        if len(scores) < 8 * SAMPLE_ROWS or rank < 0:
            return None
        cut = float(np.partition(sample, rank)[rank])
        count = self._kernels.at_least(scores, cut, self._among)
        return self._among[:count] if k <= count <= 4 * k else None


BLOCK_ROWS: Final = 16_384
"""Pages scored at a time, so that their columns stay in the processor's caches."""

Columns = Mapping[str, Array]


def blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, rows))


class RankedPages:
    """Ranking of the P pages of a replay; subexpressions that pages share are computed once."""

    def __init__(self, prepared: PreparedHistory, states: PageStates, groups: PageDirectories) -> None:
        """``groups``: directories of the pages; empty where no terminal needs them."""
        self._pages, self._by_draw = prepared.pages, prepared.ties == "random"
        self._states, self._group = states, groups.group
        self._selection = BestRows(prepared.pages)
        self._directories: Columns = {"group": np.arange(len(groups.directories.site))}
        self._scores = np.empty(prepared.pages)
        self._function: ScoreFunction | None = None
        self._divided: Divided | None = None

    def begin(self, salt: np.uint64) -> None:
        """Begin a cycle; ``salt``: seed of its draws (random numbers that break ties)."""
        self._salt = salt

    def ties(self, pages: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
        """Return the numbers that order pages of equal score, the lowest first: draws, or page numbers."""
        numbers = pages.astype(np.uint64)
        return salted_draws(numbers, self._salt) if self._by_draw else numbers

    def best(
        self,
        scores_of: Scorer,
        k: int,
        visited: Pages,
        state_of: Callable[[Columns], Columns],
        block_of: Callable[[slice], Block],
    ) -> Selection:
        """Selection of the k best of the pages that are not in `visited`, at least one.

        ``state_of(columns)``: returns these with the columns that the cycle's visits so far decide;
        ``block_of(rows)``: returns a slice of all pages as a block for `scores_of`.
        """
        if isinstance(scores_of, CycleScorer) and scores_of.function is not self._function:
            self._function, self._divided = scores_of.function, divided(scores_of.function)
        pieces = ((rows, block_of(rows)) for rows in blocks(self._pages))
        if not isinstance(scores_of, CycleScorer) or self._divided is None:
            for rows, block in pieces:
                self._scores[rows] = scores_of(block)
        else:
            self._put_together(self._divided, scores_of.cycle, state_of, pieces)
        self._scores[visited] = -np.inf
        chosen = self._selection.best(self._scores, k, self.ties)
        scores = self._scores[chosen]
        return Selection(chosen, scores, Cut(float(scores[-1]), int(self.ties(chosen[-1:])[0])))

    def _put_together(
        self,
        parts: Divided,
        cycle: int,
        state_of: Callable[[Columns], Columns],
        pieces: Iterable[tuple[slice, Block]],
    ) -> None:
        """Score all pages, given in ``pieces`` (slices and blocks), into `_scores`; compute `parts` once."""
        tables: dict[str, tuple[Floats, npt.NDArray[Any]]] = {}
        for level, columns, number in (
            (Level.OWN, self._states.columns, self._states.number),
            (Level.DIRECTORY, self._directories, self._group),
        ):
            state = state_of(columns)
            for name in parts.parts[level]:
                tables[name] = parts.value(name, level, state, cycle), number
        tokens = parts.remainder.tokens
        if tokens == (*tables,):  # pages that share a state, or a directory, have equal scores
            ((table, number),) = tables.values()
            np.take(table, number, out=self._scores, mode="clip")  # mode "raise" would copy them
            return
        if len(tokens) == 3 and tokens[0] == "*" and len(tables) == 2 and tables.keys() >= {*tokens[1:]}:
            (one, of_one), (other, of_other) = tables.values()
            from training.replaying.kernels import dense  # compiles: only when it is used

            if dense.multiply(one, of_one, other, of_other, self._scores):
                return  # else some product is not finite
        for rows, block in pieces:
            values = {name: table.take(number[rows]) for name, (table, number) in tables.items()}
            parts.finish(values, block.state, cycle, self._scores[rows])
