"""Policies by score: the papers' `TopK` (Santos 2013, thesis Algorithm 2; journal 3.1), and `Rounds`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.page_state.groupings import Level
from scrapy_gp4c.page_state.outcomes import SAMPLE
from scrapy_gp4c.policies.base import (
    NOTHING_CHOSEN,
    Block,
    Cut,
    Evidence,
    Pages,
    PolicySettings,
    Round,
    Sampled,
    Scorer,
    Selection,
    ranking_of,
)
from scrapy_gp4c.policies.members import first_members, plan_of
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import Best, Purpose, drawn_for


@dataclass(frozen=True)
class TopK:
    """Policy ``top_k``: spend the whole budget on the pages of the highest score, in one round."""

    settings: PolicySettings
    name: str = "top_k"
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Choose the candidates of the highest scores, with memory for the chosen ones only."""
        return best_candidates(
            CycleScorer(self.settings.score_function, round.cycle), round.remaining, evidence
        )


MOST_STATES: Final = 2**18
"""Most states in a table of scores, so that it stays in the processor's cache."""
LEAST_NODES: Final = 8
"""Least nodes of an expression for which looking scores up in a table is faster."""
WHOLE: Final = frozenset(name for name, dtype in terminals.STATE.items() if np.dtype(dtype).kind in "iu")
"""Columns of `STATE` that are whole numbers, mostly small."""


class CycleScorer:
    """`Scorer` of a function in one cycle, which looks scores up by the values of the function's columns.

    A table is used where the function reads only columns of whole numbers, with few combinations; the scores
    are the same. Until as many pages were scored as the table would have entries, each page is scored itself.
    """

    def __init__(self, function: ScoreFunction, cycle: int) -> None:
        self.function, self.cycle = function, cycle
        is_long = function.expression is not None and len(function.expression.tokens) >= LEAST_NODES
        self._names = function.columns if is_long and WHOLE.issuperset(function.columns) else ()
        self._seen: list[tuple[int, int]] = []
        """Least and greatest value of each column in the blocks so far."""
        self._known: list[tuple[int, int]] = []
        """Least and greatest value of each column in the table."""
        self._table: npt.NDArray[np.float64] = np.empty(0)
        self._one_by_one = 0

    def __call__(self, block: Block) -> Floats:
        columns = [block.state[name] for name in self._names]
        if columns and len(columns[0]) and self._extend_to(columns):
            return self._table.take(self._places(columns))
        return self.function.scores(block.state, self.cycle)

    def _extend_to(self, columns: Sequence[Array]) -> bool:
        """Make a larger table if a block needs it and it pays; returns whether the table covers the block."""
        ends = [(int(column.min()), int(column.max())) for column in columns]
        span = dict(zip(self._names, ends, strict=True))
        if "n" in span and "X" in span:
            # Pages that change at each visit are rare: a table without room for them is soon made anew.
            span["X"] = span["X"][0], max(span["X"][1], span["n"][1])
        spans = list(span.values())
        self._seen = _spanned(self._seen, spans) if self._seen else spans
        if self._known and _spanned(self._known, spans) == self._known:
            return True
        states = math.prod(last - first + 1 for first, last in self._seen)
        if states <= min(self._one_by_one + len(columns[0]), MOST_STATES):
            self._make([column.dtype for column in columns], states)
            return True
        self._one_by_one += len(columns[0])
        return False

    def _make(self, dtypes: Sequence[np.dtype[Any]], states: int) -> None:
        self._known, self._one_by_one = self._seen, 0
        number, state = np.arange(states), {}
        for name, dtype, (first, last) in zip(
            self._names[::-1], dtypes[::-1], self._known[::-1], strict=True
        ):
            number, digit = np.divmod(number, last - first + 1)
            state[name] = (digit + first).astype(dtype)
        with np.errstate(all="ignore"):  # no page has some of these states
            self._table = self.function.scores(state, self.cycle)

    def _places(self, columns: Sequence[Array]) -> npt.NDArray[np.int32]:
        combination: npt.NDArray[np.int32] = np.zeros(len(columns[0]), np.int32)
        for column, (first, last) in zip(columns, self._known, strict=True):
            combination *= np.int32(last - first + 1)
            combination += np.subtract(column, first, dtype=np.int32)
        return combination


def _spanned(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]


def best_candidates(scores_of: Scorer, k: int, evidence: Evidence, most: int = 0) -> Selection:
    """Choose the k candidates with the highest scores, best first; ties by `Block.ties_of`, then by page.

    ``most``: number of candidates up to which all are chosen, though they are more than k.
    """
    if max(k, most) <= 0:
        return NOTHING_CHOSEN
    ranking = ranking_of(evidence)
    if ranking is not None:
        return ranking.best(scores_of, most if ranking.candidate_count <= most else k)
    cut = likely_cut(scores_of, k or most, evidence)
    best, candidates = _best_of(scores_of, k or most, evidence, cut)
    if 0 < k < candidates <= most:
        return best_candidates(scores_of, most, evidence)
    size = most if candidates <= most else k
    pages, scores, ties = best.result(size)
    if cut is not None and len(pages) < min(size, candidates):  # the sample misled
        pages, scores, ties = _best_of(scores_of, size, evidence)[0].result(size)
    last = Cut(float(scores[-1]), int(ties[-1])) if len(pages) else None
    return Selection(np.asarray(pages, np.uint32), scores, last)


def likely_cut(scores_of: Scorer, k: int, evidence: Evidence) -> float | None:
    """Score that k candidates, and a few more, probably reach; None: the evidence has no sample of them."""
    sample = evidence.sample() if isinstance(evidence, Sampled) else None
    if sample is None:
        return None
    block, share = sample
    scores, expected = scores_of(block), k * share
    above = int(expected + 3.0 * math.sqrt(expected) + 8.0)  # by three standard deviations more
    return float(np.partition(scores, -above)[-above]) if above <= len(scores) else None


def _best_of(scores_of: Scorer, k: int, evidence: Evidence, cut: float | None = None) -> tuple[Best, int]:
    """Return the k best of the candidates that reach the score `cut`, and the number of all candidates."""
    best, candidates = Best(k, cut=cut), 0
    for block in evidence.candidates():
        if len(block.pages):
            best.add(scores_of(block), block.ties_of, block.pages)
            candidates += len(block.pages)
    return best, candidates


@dataclass(frozen=True)
class Rounds:
    """Policy ``rounds``: spend the budget in equal parts, scoring anew before each part.

    ``sample``: share of the budget that a round before these spends on random pages of all groups. Without
    it, and with scores that depend only on each page's own visits, it visits the same pages as `TopK`.
    """

    settings: PolicySettings
    equal_rounds: int = 4
    sample: float = 0.0
    level: Level = "site"

    @property
    def name(self) -> str:
        """``rounds(...)`` with its number of rounds, and its sample if there is one."""
        sample = f", sample={self.sample}, level={self.level!r}" if self.sample else ""
        return f"rounds(rounds={self.equal_rounds}{sample})"

    @property
    def rounds(self) -> int:
        """Number of rounds: the equal ones, and one for the sample if there is any."""
        return self.equal_rounds + (self.sample > 0)

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Choose the best candidates for this round's part of the budget: of 10 in 4 rounds 2, 2, 3, 3.

        If the budget left is enough for all candidates, no later round could choose better, so that all are
        taken at once. The crawl can then visit each page after its finder (`crawling.feeding`).
        """
        if self.sample > 0 and round.number == 0:
            wanted = int(self.sample * round.remaining + 1e-9)
            return plan_of([(SAMPLE, one_a_group(wanted, self.level, evidence))])
        share = round.remaining // (self.rounds - round.number)
        scores_of = CycleScorer(self.settings.score_function, round.cycle)
        return best_candidates(scores_of, share, evidence, most=round.remaining)


def one_a_group(wanted: int, level: Level, evidence: Evidence) -> Pages:
    """Choose `wanted` random candidates: one of each group of `level`, then a second, ...; ungrouped last."""
    members = first_members(evidence, evidence.grouping(level), wanted)
    size = np.diff(members.begin)
    layer = np.arange(len(members.pages)) - np.repeat(members.begin[:-1], size)
    last = int(np.searchsorted(np.cumsum(np.bincount(layer)), wanted))
    rows = np.flatnonzero(layer <= last)
    layer = layer[rows]
    drawn = drawn_for(np.repeat(members.drawn, size)[rows] + layer.astype(np.uint64), Purpose.GROUP)
    chosen = members.pages[rows[np.lexsort((drawn, layer))[:wanted]]]
    return np.concatenate((chosen, members.alone[: wanted - len(chosen)]))
