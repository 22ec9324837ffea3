"""Histories prepared for replay: what does not depend on the score function.

`prepare` computes it once per history, budget, warm-up, ties and seed, for the hundreds of thousands of
replays of a learning run. The result is a bundle of arrays, cheap to pickle for workers.
"""

import math
import weakref
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, count_visits
from scrapy_gp4c.scoring import hints, measured, refresh_value, sizes, terminals, weights
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import draw_salt, salted_draws
from scrapy_gp4c.scoring.terminals import ROUND, STATE, TERMINALS, Clock
from training.histories.history import ChangeHistory, Impact
from training.histories.neighbours import Neighbours
from training.replaying.metrics import FixedPointWeights, budget_pages, gain_sums
from training.replaying.promises import HistoryPromises, RulesFile

MOST_ROWS: Final = 65_536
"""Largest number of rows of `States`: states times cycles since the last visit."""
ROWS_PER_CYCLE: Final = 2048
"""Largest number of rows that one more cycle may add to `States`: scoring more costs more than it saves."""
MOST_CACHED: Final = 16_384
"""Largest number of rows of `States` for which replays are kept in a `grouped.PrefixCache`."""


@dataclass(frozen=True)
class States:
    """List of the N states that pages can be in, by some state columns, and of R rows of score functions.

    A row is a state with a number of cycles since the last visit: each function's score of it is computed
    once. The clock of the terminals is ``visits``: they weigh outcomes by visits, not by cycles.
    """

    cycles: int
    """Scored cycles whose states are listed; states after the last one have no score."""
    bits: Ints
    """``[state columns but last_cycle, N]``: the states, floats as their bits."""
    after: npt.NDArray[np.int32]
    """``[N, 2]``: state after a visit without and with a change."""
    first: npt.NDArray[np.int32]
    """``[Q]``: state of each pattern (of equal warm-up outcomes, see `PreparedHistory.pattern`)."""
    aged: bool
    """Whether scores depend on the cycles since the last visit."""
    score_at: Ints
    """``[N]``: first row of each state; if `aged`, rows of t = 1, 2, ... follow each other."""
    columns: dict[str, Array]
    """State columns of the rows, each ``[R]``, as if the cycle to plan were 0."""
    rows: int
    complete: bool
    """Whether the states of all scored cycles are listed."""
    known: dict[str, Array] = field(default_factory=dict)

    def scores(self, expression: Expression) -> Floats:
        """Return the scores of all rows by an expression, ``[R]``."""
        missing = [name for name in expression.terminals if name not in self.known]
        for name, values in terminals.compute(missing, self.columns, 0).items():
            self.known[name] = values.astype(np.float64)
        scores = np.empty(self.rows)
        expression.evaluate(self.known, scores)
        return scores


WITH_G: Final = ("n", "X", "last", "last_cycle", "A", "G")
"""State columns where G is read, which encodes every outcome: other columns split groups no further."""


BY_PAGE: Final = frozenset(
    (
        *ROUND,
        "E",
        "T",
        "found_cycle",
        *refresh_value.COLUMNS,
        *weights.COLUMNS,
        *hints.COLUMNS,
        *measured.COLUMNS,
    )
)
"""State columns in which hardly two pages are equal, so that grouping pages does not pay."""


def are_groups(function: ScoreFunction) -> bool:
    """Whether many pages share the state that `function` reads, so that groups of pages are scored."""
    columns = function.columns
    return function.expression is not None and BY_PAGE.isdisjoint(columns)


def state_columns(function: ScoreFunction) -> tuple[tuple[str, ...], Clock]:
    """State columns that a score function reads, and the clock that it reads them on.

    There are few different results, so that many functions share one list of states.
    """
    clock = function.clock
    if all(TERMINALS[clock][name] is TERMINALS["visits"][name] for name in function.terminals):
        clock = "visits"
    columns = terminals.columns_of(function.terminals, clock)
    return WITH_G if "G" in columns else tuple(name for name in STATE if name in columns), clock


def states_of(prepared: "PreparedHistory", columns: tuple[str, ...], clock: Clock) -> States | None:
    """List the states by ``columns`` (see `state_columns`); None for clock ``cycles``, or too many states.

    On clock ``visits`` terminals depend on the cycle only by t, the cycles since the last visit. So one row
    serves for a state and t in all cycles.
    """
    if clock != "visits":
        return None
    if columns not in prepared.states:
        prepared.states[columns] = _list(prepared, columns)
    return prepared.states[columns]


def _list(prepared: "PreparedHistory", needed: tuple[str, ...]) -> States | None:
    aged = "last_cycle" in needed
    columns = tuple(name for name in needed if name != "last_cycle")
    numbering = _Numbers(columns)
    first = numbering.of(prepared.first_state(columns), prepared.pattern_outcomes.shape[1], 0)
    after: list[tuple[int, int]] = []
    cycles = rows = 0
    while cycles < prepared.cycles - prepared.warmup:
        # One cycle more: pages in every listed state may have gone one cycle longer without a visit.
        begin = len(after)
        added = len(numbering.states) if aged else len(numbering.states) - begin
        if added > ROWS_PER_CYCLE or rows + added > MOST_ROWS:
            break
        cycles += 1
        rows += added
        level = {name: np.repeat(values, 2) for name, values in numbering.columns(begin).items()}
        visits = 2 * (len(numbering.states) - begin)
        outcome = np.zeros(visits, np.bool_)
        outcome[1::2] = True
        terminals.observe(level, outcome, cycles)
        numbers = numbering.of(level, visits, cycles)
        after.extend(zip(numbers[::2], numbers[1::2], strict=True))
    if not cycles:
        return None
    # States that the last cycle leads to are visited no more.
    after.extend((0, 0) for _ in range(len(numbering.states) - len(after)))
    cycles_left = cycles - np.array(numbering.visits)
    counts = cycles_left if aged else np.minimum(cycles_left, 1)
    state = np.repeat(np.arange(len(counts)), counts)
    score_at = np.cumsum(counts) - counts
    states = numbering.columns(0)
    table = {name: values[state] for name, values in states.items()}
    if aged:
        table["last_cycle"] = -(np.arange(len(state)) - score_at[state] + 1)
    bits = [values.view(np.int64) if values.dtype.kind == "f" else values for values in states.values()]
    return States(
        cycles,
        np.array(bits, np.int64).reshape(len(columns), len(counts)),
        np.array(after, np.int32).reshape(-1, 2),
        np.array(first, np.int32),
        aged,
        score_at,
        table,
        len(state),
        cycles == prepared.cycles - prepared.warmup,
    )


class _Numbers:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self.states: dict[tuple[float, ...], int] = {}
        self.visits: list[int] = []
        """For each state, the number of scored cycles before a page can first be in it."""

    def of(self, state: dict[str, Array], rows: int, visits: int) -> list[int]:
        """Numbers of ``rows`` states, given as columns; a new state gets the next one, and ``visits``."""
        columns = (values.tolist() for values in state.values())
        out = []
        for key in zip(*columns, strict=True) if state else [()] * rows:
            if key not in self.states:
                self.states[key] = len(self.states)
                self.visits.append(visits)
            out.append(self.states[key])
        return out

    def columns(self, begin: int) -> dict[str, Array]:
        keys = list(self.states)[begin:]
        return {name: np.array([key[c] for key in keys], STATE[name]) for c, name in enumerate(self._columns)}


Ties = Literal["random", "order"]
TIES: Final[tuple[Ties, ...]] = get_args(Ties)
Words = npt.NDArray[np.uint64]


class CrawlChoices(NamedTuple):
    """Choices of the replayed crawl besides the score function."""

    budget: float = 0.05
    """Visits per cycle: share of the pages (float) or a count (int), see `metrics.budget_pages`."""
    warmup: int = 2
    """Cycles in which every page is visited first."""
    ties: Ties = "random"
    """Order of pages of equal score: drawn anew in every cycle, or by page number."""
    clock: Clock | None = None
    """Clock of the terminals; None: that of the score function."""
    seed: int = 0
    policy: str | None = None
    """Policy, see `scrapy_gp4c.policies.table.load`; None: that of a named function, else ``top_k``."""
    site_share: float = 1.0
    """Largest share of the budget for one site while other sites have candidates, ``GP4C_SITE_SHARE``."""
    rules: RulesFile | None = None
    """Promise rules, such as a largest age for some pages (``GP4C_RULES``); None: there are none."""


DEFAULTS: Final = CrawlChoices()
"""Choices of the crawl that commands and functions take by default."""
PREFIX_SHARE: Final = 0.3
"""Largest share of the pages of which `PreparedHistory.drawn` has the order in a cycle, 4 bytes each."""


@dataclass(frozen=True)
class PreparedHistory:
    """History prepared for replay: P pages, D cycles, W warm-up cycles, S = D - W scored cycles."""

    changed: npt.NDArray[np.bool_]
    """``[D, P]``: the history; row c - 1 says which pages changed between cycles c - 1 and c."""
    words: Words
    """``[P, ceil(D / 64)]``: the same as bits of each page; bit c - 1 belongs to cycle c."""
    weights: FixedPointWeights
    k: int
    """Visits per cycle."""
    warmup: int
    ties: Ties
    seed: int
    site_share: float
    gain_sums: Ints
    """``[k + 1]``: summed fixed-point gains of the first 0..k ranks."""
    pattern: npt.NDArray[np.uint32]
    """``[P]``: pattern 0..Q-1 of each page: pages with equal outcomes in the warm-up have the same."""
    pattern_pages: npt.NDArray[np.uint32]
    """``[P]``: pages by pattern, then by number."""
    pattern_start: npt.NDArray[np.int32]
    """``[Q + 1]``: start of each pattern in `pattern_pages`."""
    pattern_outcomes: npt.NDArray[np.bool_]
    """``[W, Q]``: outcomes of the warm-up visits by pattern."""
    untouched: Ints
    """``[4, D + 2]``: tallies by cycle for a crawl that makes no visit after the warm-up.

    Rows: pages with an unseen change; stale weight; sum of weight * first missed cycle; penalty (see
    `metrics.Tallies`).
    """
    salts: npt.NDArray[np.uint64]
    """``[S]``: seed of the random numbers (draws) that break ties in each scored cycle."""
    drawn: npt.NDArray[np.uint32]
    """Pages with the smallest draws in each scored cycle, in order of draws, cycle after cycle."""
    drawn_start: Ints
    """``[S + 1]``: start of each scored cycle in `drawn`."""
    neighbours: Neighbours
    impact: Impact | None = None
    """Refresh values of the pages in a search engine; None: unknown."""
    claims: npt.NDArray[Any] | None = None
    """Sites' claims of changes, dtype `scrapy_gp4c.page_state.claims.DATED_CLAIM`; None: unknown."""
    size: npt.NDArray[np.uint8] | None = None
    """``[P]``: classes of the sizes of pages, see `scrapy_gp4c.scoring.sizes`; None: unknown."""
    promises: HistoryPromises | None = None
    """Promises about the pages by promise rules; None: there are none."""
    latency_ms: npt.NDArray[np.uint16] | None = None
    flipped: npt.NDArray[np.uint64] | None = None
    """Fingerprint bits of the changes: see `ChangeHistory.flipped`; None: unknown."""
    states: dict[tuple[str, ...], Any] = field(default_factory=dict)
    """Cache of `states_of`, by state columns; not pickled."""
    means: dict[tuple[Any, ...], dict[str, float]] = field(default_factory=dict)
    """Cache of `training.evolution.learning.compare`; not pickled."""

    def __getstate__(self) -> dict[str, object]:
        names = (one.name for one in fields(self))
        return {name: {} if name in ("states", "means") else getattr(self, name) for name in names}

    @cached_property
    def changes(self) -> list[Ints]:
        """Pages that changed, by scored cycle: int64, ascending."""
        return [np.flatnonzero(row) for row in self.changed[self.warmup :]]

    @cached_property
    def warmup_visits(self) -> list[npt.NDArray[np.void]]:
        """Sums of visits by directory in the last warm-up cycles: dtype `GROUP_VISITS`, newest first."""
        state = terminals.new_state(self.pattern_outcomes.shape[1])
        visits = []
        for cycle, outcomes in enumerate(self.pattern_outcomes, start=1):
            if cycle > self.warmup - KEPT_CYCLES:
                predicted = terminals.change_probability(state, cycle)
                group, pattern = self.neighbours.groups.group, self.pattern
                visits.append(count_visits(group, outcomes[pattern], predicted[pattern]))
            terminals.observe(state, outcomes, cycle)
        return visits[::-1]

    @cached_property
    def sized_patterns(self) -> tuple[Ints, npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """Group pages by `pattern` and size: both of each group, ``[N]``, and each page's group, ``[P]``."""
        assert self.size is not None
        pair = self.pattern.astype(np.intp) * sizes.CLASSES + self.size
        pairs = np.flatnonzero(np.bincount(pair))
        position = np.empty(int(pairs[-1]) + 1, np.int32)
        position[pairs] = np.arange(len(pairs))
        of_pattern, size = np.divmod(pairs, sizes.CLASSES)
        return of_pattern, size.astype(np.uint8), position[pair]

    @property
    def pages(self) -> int:
        return len(self.words)

    @property
    def cycles(self) -> int:
        return len(self.changed)

    @property
    def scored_cycles(self) -> Ints:
        return np.arange(self.warmup + 1, self.cycles + 1)

    def first_state(self, columns: tuple[str, ...]) -> dict[str, Array]:
        """State columns after the warm-up, ``[Q]``, by pattern (pages with equal outcomes)."""
        everything = terminals.new_state(self.pattern_outcomes.shape[1])
        for cycle, outcomes in enumerate(self.pattern_outcomes, start=1):
            terminals.observe(everything, outcomes, cycle)
        return {name: everything[name] for name in columns}


PreparedChoices = dict[tuple[CrawlChoices, type], PreparedHistory]
_PREPARED: Final[weakref.WeakKeyDictionary[ChangeHistory, PreparedChoices]] = weakref.WeakKeyDictionary()
KEEP: Final = 8
"""Number of prepared histories that are cached per history, the last ones used.

More than any caller cycles through (a decision needs `comparing.promotion.REPLAYS`). One of 417,048 pages and
57 cycles takes 30 MB.
"""


def prepare(
    history: ChangeHistory,
    *,
    budget: float,
    warmup: int = DEFAULTS.warmup,
    ties: Ties = DEFAULTS.ties,
    seed: int = DEFAULTS.seed,
) -> PreparedHistory:
    """Prepare a history for replays with these choices; results are cached.

    Raises HistoryError for a budget, warm-up, tie rule or seed that cannot be used.
    """
    return prepare_for(history, CrawlChoices(budget, warmup, ties, None, seed))


def prepare_for(history: ChangeHistory, crawl: CrawlChoices) -> PreparedHistory:
    """Prepare a history for replays of `crawl`; results are cached as by `prepare`."""
    choice = crawl._replace(clock=None, policy=""), type(crawl.budget)  # the budget 1 is a page, 1.0 all
    cached = _PREPARED.setdefault(history, {})
    prepared = cached.pop(choice, None) or _arrange(history, crawl)
    while len(cached) >= KEEP:
        cached.pop(next(iter(cached)))
    cached[choice] = prepared
    return prepared


def _arrange(history: ChangeHistory, crawl: CrawlChoices) -> PreparedHistory:
    budget, warmup, ties, _, seed, _, site_share, rules = crawl
    changed = np.ascontiguousarray(history.changed, dtype=np.bool_)
    cycles, pages = changed.shape
    if pages == 0:
        raise HistoryError("the history has no pages: there is nothing to replay")
    if not 0 <= warmup < cycles:
        raise HistoryError(
            f"the warm-up takes {warmup!r} cycles of a history of {cycles}; it must leave at least one "
            f"cycle to score: give a warm-up from 0 to {cycles - 1} or a longer history"
        )
    if not 0.0 <= site_share <= 1.0:
        raise HistoryError(
            f"expected a share of the budget for one site from 0.0 to 1.0; found {site_share!r}"
        )
    if ties not in TIES:
        raise HistoryError(f"ties are broken by one of {', '.join(TIES)}; found {ties!r}")
    k = budget_pages(budget, pages)
    weights = FixedPointWeights.of(history.weight, pages, cycles)
    words = _words(changed)
    pattern, start, outcomes = _patterns(changed, words, warmup)
    scored = cycles - warmup
    salts = np.array([draw_salt(seed, cycle) for cycle in range(warmup + 1, cycles + 1)])
    if ties == "random":
        drawn, drawn_start = _prefixes(pages, k, salts)
    else:
        drawn, drawn_start = np.empty(0, np.uint32), np.zeros(scored + 1, np.int64)
    return PreparedHistory(
        changed,
        words,
        weights,
        k,
        warmup,
        ties,
        seed,
        site_share,
        gain_sums(k),
        pattern,
        np.argsort(pattern, kind="stable").astype(np.uint32),
        start,
        outcomes,
        _untouched(changed, weights, warmup),
        salts,
        drawn,
        drawn_start,
        history.neighbours,
        history.impact,
        history.claims,
        history.size,
        None if rules is None else HistoryPromises.of(history, rules),
        history.latency_ms,
        history.flipped,
    )


def _words(changed: npt.NDArray[np.bool_]) -> Words:
    cycles, pages = changed.shape
    packed = np.packbits(changed, axis=0, bitorder="little")
    padded = np.zeros((pages, -(-cycles // 64) * 8), np.uint8)
    padded[:, : len(packed)] = packed.T
    return padded.view("<u8").astype(np.uint64, copy=False)


def _patterns(
    changed: npt.NDArray[np.bool_], words: Words, warmup: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    pattern = np.zeros(len(words), np.int64)
    for j in range(-(-warmup // 64)):
        bits = min(64, warmup - 64 * j)
        _, seen = np.unique(words[:, j] & np.uint64(2**bits - 1), return_inverse=True)
        _, pattern = np.unique(pattern * (seen.max() + 1) + seen, return_inverse=True)
    count = np.bincount(pattern)
    start = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    example = np.empty(len(count), np.int64)
    example[pattern] = np.arange(len(pattern))
    return pattern.astype(np.uint32), start, changed[:warmup, example]


def _untouched(changed: npt.NDArray[np.bool_], weights: FixedPointWeights, warmup: int) -> Ints:
    cycles, pages = changed.shape
    tallies = np.zeros((4, cycles + 2), np.int64)
    missed = np.zeros(pages, np.int16)
    weighted = len(weights.values) > 0
    for cycle in range(warmup + 1, cycles + 1):
        now = np.flatnonzero(changed[cycle - 1])
        first = now[missed[now] == 0]
        missed[now] += 1
        stale = int(weights.fixed[first].sum()) if weighted else len(first)
        tallies[:, cycle] = tallies[:, cycle - 1]
        tallies[0, cycle] += len(first)
        tallies[1, cycle] += stale
        tallies[2, cycle] += stale * cycle
        tallies[3, cycle] += (
            penalties(weights, now, missed[now]).sum() - penalties(weights, now, missed[now] - 1).sum()
        )
    return tallies


def penalties(weights: FixedPointWeights, pages: Ints, missed: npt.NDArray[Any]) -> Ints:
    """Fixed-point harmonic penalties of `pages`, each of which missed `missed` changes: int64 ``[pages]``."""
    values = weights.penalties[missed]
    if len(weights.values):
        values = values * weights.values[pages]
    return np.asarray(np.rint(np.ldexp(values, weights.penalty_bits)), dtype=np.int64)


def _prefixes(pages: int, k: int, salts: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint32], Ints]:
    """Pages with the smallest draws in each scored cycle, in order, and where each cycle starts in these.

    Picking w of m pages of equal score takes a walk over about w * P / m pages in this order, or a draw for
    each of the m. So walks pay up to sqrt(w * P) pages, and never beyond sqrt(k * P).
    """
    share = min(1.0, PREFIX_SHARE, 1.1 * math.sqrt(k / pages))
    limit = np.uint64(int(share * 2.0**64)) if share < 1.0 else np.uint64(2**64 - 1)
    numbers = np.arange(pages, dtype=np.uint64)
    rows = []
    for salt in salts:
        draws = salted_draws(numbers, salt)
        small = np.flatnonzero(draws <= limit)
        rows.append(small[np.argsort(draws[small])].astype(np.uint32))
    start = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    return np.concatenate(rows), start
