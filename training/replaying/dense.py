"""Dense replay engine: every page has its own row, in plain NumPy.

It replays score functions whose terminals differ from page to page (``random``, related pages, callables),
all policies but ``top_k``, baselines and the oracle; tests compare `training.replaying.grouped` with it.
Sampling policies have compiled loops (`compiled_loop`), as a replay knows every outcome beforehand.

Scores equal those of a crawl bit for bit, but are computed faster. Parts of a score that many pages share are
computed once (`divided`): those of pages in equal state, and those of pages of one directory. Sums over
recent visits are kept up to date by `GroupWindow`.
"""

import itertools
import math
import weakref
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.errors import HistoryError, PolicyError, ScoreError
from scrapy_gp4c.page_state.claims import KINDS_OF
from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, NO_VISITS, Directories, count_changes, count_visits
from scrapy_gp4c.page_state.outcomes import CHANGED, PROMISED, SAMPLE, UNCHANGED
from scrapy_gp4c.page_state.related import (
    WINDOW_CYCLES,
    Clustered,
    PageSums,
    RecentVisits,
    Related,
    RoundState,
    Sums,
)
from scrapy_gp4c.page_state.related import (
    Level as GroupLevel,
)
from scrapy_gp4c.policies import site_share
from scrapy_gp4c.policies.base import (
    NOTHING_CHOSEN,
    Block,
    Cut,
    CycleVisits,
    Evidence,
    Pages,
    Planned,
    Policy,
    PolicySettings,
    Round,
    Scorer,
    Selection,
    choose,
    rounds_of,
)
from scrapy_gp4c.policies.members import SampleOutcomes, sample_pages
from scrapy_gp4c.policies.sampling import Follow, Greedy, RandomNodes
from scrapy_gp4c.policies.table import TOP_K, PolicyChoice, columns_read
from scrapy_gp4c.policies.top_k import CycleScorer, best_candidates
from scrapy_gp4c.scoring import hints, measured, refresh_value, sizes, terminals
from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression, Token, finite
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import in_order, salted_draws, top_k
from scrapy_gp4c.scoring.terminals import Clock
from training.histories.neighbours import PageDirectories
from training.replaying.baselines import Baseline
from training.replaying.claims import ReplayedPageClaims
from training.replaying.measured import ReplayedDistances
from training.replaying.metrics import CONTENT_BITS, CONTENTS, ORACLE, Tallies
from training.replaying.prepared import PreparedHistory, penalties


class Level(IntEnum):
    """Kinds of subexpressions, by the pages that share a value."""

    NUMBER = 0
    """All pages share the value in one round: a number."""
    OWN = 1
    """Pages in equal state share the value."""
    DIRECTORY = 2
    """Pages of one directory share the value."""
    PAGE = 3
    """No two pages share a value."""


PARTS: Final = (Level.OWN, Level.DIRECTORY)
"""Levels at which parts of a score are computed once, instead of for every page."""
OF_DIRECTORIES: Final = frozenset(("near", "near_site", "near_dir", "site_rate", "site_now", "directory_now"))
"""Columns of a round with one number per directory."""
OF_STATES: Final = frozenset((*terminals.STATE, *sizes.COLUMNS, "size_lift"))
"""Columns in which pages in equal state are equal, for all rounds of a cycle."""


class Divided(NamedTuple):
    """Score expression in parts, each computed once for the pages that share its value (see `Level`)."""

    parts: dict[Level, dict[str, Expression]]
    """Level of `PARTS` -> name -> subexpression."""
    remainder: Expression
    """Expression with names in place of the parts."""
    reads: tuple[str, ...]
    """Terminals of `remainder`."""
    clock: Clock

    def value(self, name: str, level: Level, state: Mapping[str, npt.NDArray[Any]], cycle: int) -> Floats:
        """Values of the part `name` of `level`, float64 ``[R]``, finite.

        ``state``: columns ``[R]``, a row for each state or directory.
        """
        expression = self.parts[level][name]
        return expression(terminals.compute(expression.terminals, state, cycle, self.clock))

    def finish(
        self, parts: Mapping[str, Floats], state: Mapping[str, npt.NDArray[Any]], cycle: int, out: Floats
    ) -> None:
        """Write scores to ``out``, float64 ``[P]``: those of `ScoreFunction.scores`, bit for bit.

        ``parts``: name -> values of each page, ``[P]``; ``state``: as for `ScoreFunction.scores`.
        """
        with np.errstate(all="ignore"):
            computed = terminals.compute(self.reads, state, cycle, self.clock)
            values = {name: finite(column) for name, column in computed.items()}
        self.remainder.evaluate(values | dict(parts), out)


def divided(function: ScoreFunction) -> Divided | None:
    """Divide a score function into parts, to compute each once; None for a callable."""
    if function.expression is None:
        return None
    levels = {name: _level_of(name, function.clock) for name in function.terminals}
    parts: dict[Level, dict[tuple[Token, ...], str]] = {level: {} for level in PARTS}

    def named(tokens: tuple[Token, ...], level: Level) -> tuple[Token, ...]:
        if level not in parts:
            return tokens
        return (parts[level].setdefault(tokens, f"{level.name.lower()}_{len(parts[level])}"),)

    stack: list[tuple[tuple[Token, ...], Level]] = []
    for token in reversed(function.expression.tokens):
        if token not in PRIMITIVES:
            stack.append(((token,), levels[token] if isinstance(token, str) else Level.NUMBER))
            continue
        assert isinstance(token, str)
        arguments = [stack.pop() for _ in range(PRIMITIVES[token].arity)]
        level = Level.NUMBER
        for _, other in arguments:
            level = _joined(level, other)
        operands = [named(*one) if level is Level.PAGE else one[0] for one in arguments]
        stack.append(((token, *(one for operand in operands for one in operand)), level))
    page_level = Expression(named(*stack.pop()))
    by_level = {
        level: {name: Expression(tokens) for tokens, name in names.items()} for level, names in parts.items()
    }
    names = {name for operands in by_level.values() for name in operands}
    return Divided(by_level, page_level, tuple(sorted({*page_level.terminals} - names)), function.clock)


def _level_of(name: str, clock: Clock) -> Level:
    columns = frozenset(terminals.TERMINALS[clock][name].columns)
    if columns == {"spent"}:
        return Level.NUMBER
    if columns <= OF_STATES:
        return Level.OWN
    return Level.DIRECTORY if columns <= OF_DIRECTORIES else Level.PAGE


def _joined(one: Level, other: Level) -> Level:
    """Level of a value computed from values of two levels: `PAGE` for `OWN` and `DIRECTORY`."""
    low, high = min(one, other), max(one, other)
    return high if low in (high, Level.NUMBER) else Level.PAGE


SLACK: Final = 4096
"""Number of states, beyond twice those in use, from which on unused ones are dropped."""


class PageStates(Mapping[str, Array]):
    """State columns of P pages by name, each ``[P]``; stored once for each of N distinct states."""

    def __init__(self, state: Mapping[str, Array], number: npt.NDArray[Any]) -> None:
        """``state``: columns of the first states, ``[N]``; ``number``: state of each page, ``[P]``."""
        self.columns = dict(state)
        """Columns of `scrapy_gp4c.scoring.terminals.STATE` by state, each ``[N]``."""
        self.number = number.astype(np.int32)
        """``[P]``: state of each page."""
        self.pages = np.bincount(self.number, minlength=self.states)
        """``[N]``: pages in each state."""
        self._of_pages: dict[str, Array] = {}
        self._most = 2 * self.states + SLACK

    def __getitem__(self, name: str) -> Array:
        column = self._of_pages.get(name)
        if column is None:  # made once, then updated by `observe`
            column = self._of_pages[name] = self.columns[name].take(self.number)
        return column

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def states(self) -> int:
        return len(next(iter(self.columns.values())))

    def observe(self, pages: npt.NDArray[Any], changed: npt.NDArray[np.bool_], cycle: int) -> None:
        """Add a judged visit to each of some distinct pages; ``changed``: ``[visits]``."""
        if not len(pages):
            return
        moved = 2 * self.number[pages] + changed
        moves = np.bincount(moved)
        used = np.flatnonzero(moves)
        moves = moves[used]
        after = {name: values.take(used >> 1) for name, values in self.columns.items()}
        terminals.observe(after, used & 1, cycle)
        distinct, state = _merged(after)
        target = np.empty(int(used[-1]) + 1, np.intp)
        target[used] = self.states + state
        departures, arrivals = np.bincount(used >> 1, moves, self.states), np.bincount(state, moves)
        self.pages = np.concatenate((self.pages - departures.astype(np.intp), arrivals.astype(np.intp)))
        self.columns = {
            name: np.concatenate((values, after[name][distinct])) for name, values in self.columns.items()
        }
        number = target[moved]
        self.number[pages] = number
        for name, column in self._of_pages.items():
            column[pages] = self.columns[name].take(number)
        if self.states > self._most:
            self._drop()

    def _drop(self) -> None:
        used = np.flatnonzero(self.pages)
        target = np.zeros(self.states, np.intp)
        target[used] = np.arange(len(used))
        self.number = target[self.number].astype(np.int32)
        self.pages = self.pages[used]
        self.columns = {name: values[used] for name, values in self.columns.items()}
        self._most = 2 * len(used) + SLACK


def _merged(state: Mapping[str, Array]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Positions of distinct rows of `state`, and for each row the number of its distinct row."""
    columns = np.array([values.astype(np.float64) for values in state.values()])
    order = np.lexsort(columns)
    ordered = columns[:, order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    number = np.empty(len(order), np.intp)
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number


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
        """Selection of the k best pages, at least one, of those not in `visited`.

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
            self._score_by_parts(self._divided, scores_of.cycle, state_of, pieces)
        self._scores[visited] = -np.inf
        chosen = self._selection.best(self._scores, k, self.ties)
        scores = self._scores[chosen]
        return Selection(chosen, scores, Cut(float(scores[-1]), int(self.ties(chosen[-1:])[0])))

    def _score_by_parts(
        self,
        parts: Divided,
        cycle: int,
        state_of: Callable[[Columns], Columns],
        pieces: Iterable[tuple[slice, Block]],
    ) -> None:
        """Write the scores of all pages to `_scores`; compute shared `parts` once, not for every page.

        ``state_of``: see `best`; ``pieces``: slices of all pages with their blocks.
        """
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


class _VisitSums(NamedTuple):
    group: npt.NDArray[np.intp]
    changes: Floats
    visits: Floats


class GroupWindow:
    """Running sums of visits and changes by directory and site, over `WINDOW_CYCLES` cycles and this one."""

    def __init__(self, directories: Directories, finished: Sequence[Array]) -> None:
        """``finished``: sums of visits of the cycles so far, newest first, dtype `GROUP_VISITS`."""
        self._directories = directories
        self._sums = self._zeros()
        self._now: list[_VisitSums] = []
        self._finished: list[list[_VisitSums]] = []
        for visits in finished[:WINDOW_CYCLES]:
            changes, attempts = (visits[name].astype(np.float64) for name in ("changes", "visits"))
            self._finished.append([_VisitSums(visits["group"].astype(np.intp), changes, attempts)])
            self._add(self._sums, self._finished[-1])

    def add(self, group: npt.NDArray[np.intp], changed: npt.NDArray[np.bool_]) -> None:
        """Add visits of the current cycle: directory of each, and whether it found a change."""
        self._now.append(_VisitSums(group, changed.astype(np.float64), np.ones(len(group))))
        self._add(self._sums, self._now[-1:])

    def finish(self) -> None:
        """End the current cycle; the oldest one leaves the window."""
        self._finished.insert(0, self._now)
        self._now = []
        if len(self._finished) > WINDOW_CYCLES:
            self._add(self._sums, self._finished.pop(), -1.0)

    def window(self, level: GroupLevel) -> Sums:
        """Sums over the window's cycles by directory ``[G]`` or site ``[S]``; the next visits change them."""
        return self._sums[level]

    def this_cycle(self, level: GroupLevel) -> Sums:
        """Sums over the current cycle by directory or site, ``[G]`` or ``[S]``."""
        sums = self._zeros()
        self._add(sums, self._now)
        return sums[level]

    def _zeros(self) -> dict[GroupLevel, Sums]:
        lengths: dict[GroupLevel, int] = {
            "directory": len(self._directories.site),
            "site": self._directories.sites,
        }
        return {level: Sums(np.zeros(size), np.zeros(size)) for level, size in lengths.items()}

    def _add(self, sums: dict[GroupLevel, Sums], parts: Sequence[_VisitSums], sign: float = 1.0) -> None:
        from training.replaying.kernels import dense  # compiles: only when it is used

        both = tuple(sums["directory"]), tuple(sums["site"])
        for visits in parts:
            dense.add(*visits, sign, self._directories.site, *both)


NO_GROUPS: Final = PageDirectories(np.empty(0, np.intp), Directories(np.empty(0, np.intp), 0))


class _RefreshValues:
    """State columns of the gains in search quality by all visits (`refresh_value.COLUMNS`)."""

    def __init__(self, prepared: PreparedHistory, columns: tuple[str, ...]) -> None:
        if prepared.impact is None:
            raise ScoreError(
                "the terminals dq_rate, dq_last and dq_decay need contents and a log of queries: replay a "
                "file of contents with --query-log"
            )
        self._impact = prepared.impact
        self.state = {
            name: np.zeros(prepared.pages, dtype)
            for name, dtype in refresh_value.COLUMNS.items()
            if name in columns
        }
        self._held = self._impact.version[0].copy()
        everything = np.arange(prepared.pages)
        for cycle in range(1, prepared.warmup + 1):
            since = {"last_cycle": np.full(prepared.pages, cycle - 1)}
            self.observe(self.state | since, everything, cycle)

    def observe(self, seen: dict[str, Array], pages: Ints, cycle: int) -> None:
        live = self._impact.version[cycle, pages]
        gained = self._impact.between(self._held[pages], live, pages)
        refresh_value.observe(seen, gained, cycle - seen["last_cycle"])
        self._held[pages] = live


class ReplayEvidence:
    """Pages and visits of a replay, as a policy reads them (`scrapy_gp4c.policies.base.Evidence`)."""

    def __init__(self, prepared: PreparedHistory, columns: tuple[str, ...]) -> None:
        """``columns``: state columns that policy and score function read."""
        self._prepared = prepared
        related = [name for name in columns if name in terminals.ROUND and name not in ("draw", "spent")]
        claim_columns = {*hints.COLUMNS, *KINDS_OF}
        reads_claims = prepared.claims is not None and not claim_columns.isdisjoint(columns)
        self._claims = ReplayedPageClaims(prepared) if reads_claims else None
        self._is_related = bool(related)
        self._group, self._directories = prepared.neighbours.groups if related else NO_GROUPS
        self._is_predicted = any(name.startswith("surprise") for name in related)
        needed = {"last_cycle", *columns, *(("E", "T") if "size_lift" in columns else ())}
        state_names = [name for name in terminals.STATE if name in needed]
        first_state = prepared.first_state(tuple(state_names))
        number: npt.NDArray[Any] = prepared.pattern
        self._is_sized = prepared.size is not None and "size_lift" in related
        if self._is_sized:
            of_pattern, size, number = prepared.sized_patterns
            first_state = {name: values[of_pattern] for name, values in first_state.items()} | {"size": size}
        self.states = PageStates(first_state, number)
        self._worth = (
            _RefreshValues(prepared, columns)
            if not refresh_value.COLUMNS.keys().isdisjoint(columns)
            else None
        )
        self._beside: dict[str, Array] = {"group": self._group} if related else {}
        if self._claims is not None:
            self._beside |= self._claims.columns
        if self._worth is not None:
            self._beside |= self._worth.state
        self._distances: ReplayedDistances | None = None
        if not measured.COLUMNS.keys().isdisjoint(columns):
            self._beside |= self._measured(prepared)
        self._neighbours = prepared.neighbours
        if len(prepared.weights.values):
            self._beside["weight"] = prepared.weights.values
        self._clusters: Grouping | None = None
        self._recent_visits: list[tuple[Ints, npt.NDArray[np.bool_]]] = []
        if any(name in terminals.CLUSTERED for name in related) and self._neighbours.knows("cluster"):
            recent_changes = prepared.changed[max(0, prepared.warmup - WINDOW_CYCLES) : prepared.warmup]
            self._recent_visits = [(np.arange(prepared.pages), row) for row in recent_changes[::-1]]
            self._take_clusters()
        warmup_visits = prepared.warmup_visits if related else []
        self._window = GroupWindow(self._directories, warmup_visits)
        self._finished = list(warmup_visits) if self._is_predicted else []
        self._pages = np.arange(prepared.pages, dtype=np.uint32)
        self._drawn = np.empty(prepared.pages, np.uint64)
        self._open = np.ones(prepared.pages, np.bool_)
        self._ranked = RankedPages(prepared, self.states, PageDirectories(self._group, self._directories))
        self._best = NOTHING_CHOSEN
        self._visits = CycleVisits(*(np.empty(prepared.pages, one) for one in ("u4", "u1", "u1")))

    def _measured(self, prepared: PreparedHistory) -> dict[str, Array]:
        """Columns that visits measure (download time, size of changes), as far as the history has them."""
        measured_columns: dict[str, Array] = {}
        if prepared.latency_ms is not None:
            measured_columns["latency_ms"] = prepared.latency_ms
        if prepared.flipped is not None:
            self._distances = ReplayedDistances(prepared.changed, prepared.flipped)
            for changed in prepared.changed[: prepared.warmup]:
                pages = np.flatnonzero(changed)
                self._distances.change(pages)
                self._distances.visit(pages)
            measured_columns |= self._distances.columns
        return measured_columns

    def _take_clusters(self) -> None:
        self._clusters = self._neighbours.grouping("cluster")
        self._beside["cluster"] = self._clusters.number
        self._clustered = [
            count_changes(self._clusters.number[pages], changed) for pages, changed in self._recent_visits
        ]

    def begin(self, cycle: int, salt: np.uint64) -> None:
        """Begin a cycle; cluster the pages anew by their copies where that is due."""
        anew = self._prepared.neighbours.regrouping
        if anew is not None and cycle > 1 and (cycle - 1) % anew.every_cycles == 0:
            copies = self.states["last_cycle"].astype(np.int64)
            self._neighbours = self._neighbours.regrouped(anew.group(copies))
            if self._clusters is not None:
                self._take_clusters()
        self._cycle, self.salt = cycle, salt
        if self._distances is not None:
            self._distances.change(np.flatnonzero(self._prepared.changed[cycle - 1]))
        self._size_sums = cache(self._sums_by_size) if self._is_sized else None
        self._site_claims = (
            None if self._claims is None else cache(partial(self._claims.site_claims, cycle, self.states))
        )
        self.visited = self.promised = 0
        self._hidden = self._pages[:0]
        self._open[:] = True
        self._ranked.begin(salt)

    @property
    def pages(self) -> int:
        return len(self._pages)

    def _related(self) -> Related:
        recent = RecentVisits(self._cycle, self._finished, self._visit_sums(), self._spent)
        clustered = None
        if self._clusters is not None:
            clustered = Clustered(self._clusters.groups, self._clustered, self._counted_clusters())
        return Related(
            self._directories,
            recent,
            self._site_sums,
            clustered,
            self._site_claims,
            kept_sums=self._window,
            size_sums=self._size_sums,
        )

    @property
    def _spent(self) -> float:
        budget = self._prepared.k - self.promised
        return (self.visited - self.promised) / budget if budget else 0.0

    def _counted_clusters(self) -> npt.NDArray[np.void]:
        assert self._clusters is not None
        return count_changes(self._clusters.number[self.visited_pages()], self.is_changed())

    def _visit_sums(self) -> npt.NDArray[np.void]:
        """Sums by directory of the cycle's visits, changes and predicted changes: dtype `GROUP_VISITS`."""
        visited = self.visited_pages()
        if not len(visited) or not self._is_predicted:
            return NO_VISITS
        state = {name: self.states[name][visited] for name in ("E", "T", "last_cycle")}
        predicted = terminals.change_probability(state, self._cycle)
        return count_visits(self._group[visited], self.is_changed(), predicted)

    def _site_sums(self) -> PageSums:
        site = self._directories.site[self._group]
        return PageSums.by(site, self._directories.sites, self.states["E"], self.states["T"])

    def _sums_by_size(self) -> PageSums:
        state, pages = self.states.columns, self.states.pages
        return PageSums.by(state["size"], sizes.CLASSES, pages * state["E"], pages * state["T"])

    def candidates(self) -> Iterator[Block]:
        related = self._related()
        for rows in blocks(len(self._pages)):
            is_all = not self.visited and not len(self._hidden)
            open_rows = rows if is_all else np.flatnonzero(self._open[rows]) + rows.start
            yield self._block(open_rows, related)

    def _block(self, rows: npt.NDArray[np.intp] | slice, related: Related) -> Block:
        columns = ChainMap(self.states, self._beside)  # type: ignore[arg-type]  # nobody writes to it
        state = RoundState(columns, rows, related, self._draw)
        pages = self._pages[rows]
        return Block(pages, state, lambda places: self._ranked.ties(pages[places]))

    @property
    def candidate_count(self) -> int:
        return len(self._pages) - self.visited - len(self._hidden)

    def best(self, scores_of: Scorer, k: int) -> Selection:
        """Selection of the k best candidates, as by `best_candidates`, but faster."""
        k = min(k, self.candidate_count)
        self._best = NOTHING_CHOSEN
        if k > 0:
            related = self._related()
            self._best = self._ranked.best(
                scores_of,
                k,
                np.concatenate((self.visits().pages, self._hidden)),
                lambda columns: RoundState(columns, slice(None), related, self._draw),
                lambda rows: self._block(rows, related),
            )
            self._best.pages.flags.writeable = False
        return self._best

    def trusts(self, chosen: Selection) -> bool:
        """Whether `chosen` is what `best` returned last, unchanged, so that it needs no check."""
        return chosen is self._best and not chosen.pages.flags.writeable

    @property
    def is_partial(self) -> bool:
        """Whether promise rules (GP4C_RULES) visited or excluded pages before the policy chooses any."""
        return bool(self.promised or len(self._hidden))

    def keep_promises(self, promised: Pages, changed: npt.NDArray[np.bool_], hidden: Pages) -> None:
        """Visit the pages `promised`, which have `changed` or not, and exclude the pages `hidden`."""
        kinds = np.full(len(promised), PROMISED, np.uint8)
        self.visit(Selection(promised, np.full(len(promised), np.nan), None, kinds), changed)
        self.promised, self._hidden = len(promised), hidden
        self._open[hidden] = False

    def first_of_groups(self, grouping: Grouping, most: int) -> tuple[Pages, Ints, Ints]:
        """First `most` pages of every group, by their draws; to be called before any visit of the cycle.

        Returns the pages, the start of each group's in these, and the groups' numbers.
        """
        from training.replaying.kernels import sampling  # compiles: only when it is used

        assert not self.visited
        sampling.draw(self.salt, self._drawn)
        return sampling.first_pages(most, self._drawn, grouping.by_group)  # compiled

    def _draw(self, rows: npt.NDArray[np.intp] | slice) -> npt.NDArray[np.uint64]:
        return salted_draws(self._pages[rows].astype(np.uint64), self.salt)

    def may_visit(self, pages: Pages) -> npt.NDArray[np.bool_]:
        """Whether each of `pages` exists and may still be visited in this cycle, ``[pages]``."""
        known = np.minimum(pages, len(self._open) - 1)
        return np.asarray(self._open[known] & (pages == known))

    def rows(self, pages: Pages) -> Block:
        return self._block(pages.astype(np.intp), self._related())

    def visits(self) -> CycleVisits:
        return self._visits.first(self.visited)

    def planned(self) -> Planned:
        """Visits that the policy has chosen in this cycle so far, without those of promise rules."""
        pages, _, kinds = self.visits()
        return Planned(pages[self.promised :], kinds[self.promised :])

    def grouping(self, name: Name) -> Grouping:
        """Return the grouping `name` of all pages, such as sites; PolicyError where the history has none."""
        return self._neighbours.grouping(name)

    def popularity(self) -> npt.NDArray[np.uint8]:
        return self._neighbours.popularity()

    def visit(self, chosen: Selection, changed: npt.NDArray[np.bool_]) -> None:
        """Record the visits of a round; ``changed``: whether each page had changed, ``[visits]``."""
        rows = slice(self.visited, self.visited + len(changed))
        outcomes = np.where(changed, np.uint8(CHANGED), np.uint8(UNCHANGED))
        self._visits.pages[rows], self._visits.outcomes[rows] = chosen.pages, outcomes
        self._visits.kinds[rows] = chosen.kinds_of_pages()
        self.visited += len(changed)
        self._best = NOTHING_CHOSEN
        pages = chosen.pages.astype(np.intp)  # indexing by others takes more than twice as long
        if self._is_related:
            self._window.add(self._group[pages], changed)
        self._open[pages] = False

    def visited_pages(self) -> Ints:
        """Pages visited in this cycle, in order of visit."""
        return self.visits().pages.astype(np.int64)

    def is_changed(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.visits().outcomes == CHANGED)

    def observe(self) -> None:
        """End the cycle: add its visits to the states of pages and the sums of groups."""
        if self._is_related:
            self._window.finish()
        if self._is_predicted:
            self._finished = [self._visit_sums(), *self._finished[: KEPT_CYCLES - 1]]
        if self._clusters is not None:
            self._clustered = [self._counted_clusters(), *self._clustered[: WINDOW_CYCLES - 1]]
            self._recent_visits = [
                (self.visited_pages(), self.is_changed()),
                *self._recent_visits[: WINDOW_CYCLES - 1],
            ]
        visited = self.visited_pages()
        if self._worth is not None:
            seen = {name: values[visited] for name, values in self._worth.state.items()}
            seen["last_cycle"] = self.states["last_cycle"][visited]
            self._worth.observe(seen, visited, self._cycle)
            for name, values in self._worth.state.items():
                values[visited] = seen[name]
        if self._distances is not None:
            self._distances.visit(visited)
        if self._claims is not None:
            self._claims.observe(visited, self.is_changed(), self._cycle)
        self.states.observe(visited, self.is_changed(), self._cycle)


class Copies:
    """Copies of P pages, all current at first: what each has missed, and sums over those out of date."""

    def __init__(self, prepared: PreparedHistory, tallies: Collection[str]) -> None:
        """``tallies``: names of the optional `metrics.Tallies` to count."""
        self._weights = prepared.weights
        self._stale = bool({"stale_weight", "age_weight", "penalty"} & set(tallies))
        self._penalised = "penalty" in tallies
        self.missed: npt.NDArray[np.int32] = np.zeros(prepared.pages, np.int32)
        """Changes that each copy has missed: ``[P]``."""
        self._diverged = np.zeros(prepared.pages, np.int32)
        self.outdated = 0
        """Number of copies that have missed a change."""
        self._weight = self._since = self._penalty = 0

    def change(self, cycle: int, pages: Ints) -> None:
        """Note that `pages` changed in a cycle, so that their copies are out of date."""
        before = self.missed[pages]
        self.missed[pages] = before + 1
        self.outdated += len(pages) - int(np.count_nonzero(before))
        if self._stale:
            diverged = pages[before == 0]
            self._diverged[diverged] = cycle
            weight = self.weight(diverged)
            self._weight += weight
            self._since += weight * cycle
        if self._penalised:
            after = penalties(self._weights, pages, before + 1)
            self._penalty += int((after - penalties(self._weights, pages, before)).sum())

    def visit(self, pages: Ints) -> None:
        """Renew the copies of `pages`, all of which are out of date."""
        if self._stale:
            self._weight -= self.weight(pages)
            since = self._diverged[pages].astype(np.int64)
            if len(self._weights.fixed):
                since *= self._weights.fixed[pages]
            self._since -= int(since.sum())
        if self._penalised:
            self._penalty -= int(penalties(self._weights, pages, self.missed[pages]).sum())
        self.missed[pages] = 0
        self.outdated -= len(pages)

    def weight(self, pages: Ints) -> int:
        return int(self._weights.fixed[pages].sum()) if len(self._weights.fixed) else len(pages)

    def tallies(self, cycle: int) -> dict[str, int]:
        """Weight, age and penalty of the copies that are out of date after a cycle."""
        if not self._stale:
            return {}
        age = (cycle + 1) * self._weight - self._since
        return {"stale_weight": self._weight, "age_weight": age, "penalty": self._penalty}


class WeightedGains:
    """DCG gains of a cycle's visits times the pages' weights, for the metric ``weighted_ndcg``."""

    def __init__(self, prepared: PreparedHistory, copies: Copies) -> None:
        self._copies = copies
        self._weights = prepared.weights.values if len(prepared.weights.values) else np.ones(prepared.pages)
        self._gains = np.diff(prepared.gain_sums).astype(np.float64)
        self._dcg: list[float] = []
        self._pending: list[Floats] = []
        self._most = 0

    def visit(self, cycle: int, pages: Ints, is_changed: npt.NDArray[np.bool_]) -> None:
        """Record a cycle's visits in order, before `Copies.visit`."""
        gained = self._gains[: len(pages)][is_changed] * self._weights[pages[is_changed]]
        self._dcg.append(math.fsum(gained.tolist()))
        pending = np.sort(self._weights[self._copies.missed > 0])[::-1]
        self._pending.append(pending[: len(self._gains)])
        self._most = max(self._most, len(pages))

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """Gains of every cycle, and those of the best possible ranking."""
        best = []
        for pending in self._pending:
            first = pending[: self._most]  # what a policy did not visit counts against it
            best.append(math.fsum((self._gains[: len(first)] * first).tolist()))
        return {"weighted_dcg": np.array(self._dcg), "weighted_best": np.array(best)}


class ContentCopies:
    """Versions that the copies hold, for the metrics of `metrics.CONTENTS`."""

    def __init__(self, prepared: PreparedHistory) -> None:
        """Raises HistoryError for a history without contents."""
        if prepared.impact is None:
            raise HistoryError(
                f"{' and '.join(CONTENTS)} need contents and a log of queries: give both (--query-log)"
            )
        self._impact = prepared.impact
        self._first = prepared.warmup + 1
        self.held = self._impact.version[prepared.warmup].copy()
        self._rows: list[npt.NDArray[np.int32]] = []

    def visit(self, cycle: int, pages: Ints, is_changed: npt.NDArray[np.bool_]) -> None:
        self.held[pages] = self._impact.version[cycle, pages]
        self._rows.append(self.held.copy())

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """Metrics after every cycle, in fixed point: ``impact``, and ``quality`` of complete searches."""
        live = self._impact.version[self._first :]
        lost = np.array([self._impact.between(*both).sum() for both in zip(self._rows, live, strict=True)])
        never = float(self._impact.unrefreshed(self._first - 1).mean())
        metrics: dict[str, Floats] = {"impact": 1.0 - lost / never if never > 0.0 else np.ones(len(lost))}
        if self._impact.quality is not None:
            metrics["quality"] = self._impact.quality(np.array(self._rows))
        return {name: np.rint(np.ldexp(row, CONTENT_BITS)).astype(np.int64) for name, row in metrics.items()}


MOST_NEAR: Final = 2**22
"""Most entries of the rings of all groups; with more, a policy is replayed without a compiled loop."""

Kinds = npt.NDArray[np.uint8]
Missed = npt.NDArray[np.int32]


class Rings(NamedTuple):
    """Groups within distance d of each group, as compiled loops read them."""

    near: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int64]
    of_group: int
    """Number of rings of each group."""


SampledCycle = Callable[[Round, Missed], tuple[Pages, Kinds] | None]
"""Visits of a cycle by a compiled loop, and their kinds; None: the policy itself must plan them."""


def compiled_loop(policy: Policy, evidence: ReplayEvidence) -> SampledCycle | None:
    """Compiled loop that plans and visits the cycles of a sampling policy; None: it has none."""
    if type(policy) is RandomNodes:
        return _Draws(evidence).random_nodes
    if type(policy) is Greedy:
        return partial(_greedy, policy, _Draws(evidence))
    if type(policy) is Follow and (rings := _rings_of(policy, evidence)) is not None:
        return partial(_follow, policy, rings, _Draws(evidence))
    return None


class _Draws:
    """Random numbers (draws) of the pages in a cycle, and the order of samples by them."""

    def __init__(self, evidence: ReplayEvidence) -> None:
        from training.replaying.kernels import dense, sampling  # compile: only when they are used

        self.kernels: Any = sampling
        self._at_least: Any = dense.at_least
        self.evidence = evidence
        self.drawn = np.empty(evidence.pages, np.uint64)
        self._page_memory = np.empty(evidence.pages + 1, np.uint32)

    def draw(self) -> None:
        self.kernels.draw(self.evidence.salt, self.drawn)

    def turns(self, most: int) -> Pages | None:
        """First `most` pages by draw; None: two draws are equal as floats, so the loop is not compiled."""
        share = min(1.0, (most + 8.0 * most**0.5 + 8.0) / len(self.drawn))
        count = 0
        while count < min(most, len(self.drawn)):
            bound = np.uint64(2.0**64 * (1.0 - share)) if share < 1.0 else np.uint64(0)
            count = self._at_least(self.drawn, bound, self._page_memory)
            share = min(1.0, 2.0 * share)
        pages = self._page_memory[:count]
        # Sorting numbers takes a third of the time of sorting positions by them: each carries its position.
        bits = np.uint64(max(1, count).bit_length())
        mixed = np.sort(~self.drawn[pages] >> bits << bits | np.arange(count, dtype=np.uint64))[:most]
        # Turns are floats: what differs by one unit of these, or less, may be one number there.
        if (np.diff(mixed >> max(bits, np.uint64(12))) <= 1).any():
            return None
        return np.asarray(pages[mixed & ((np.uint64(1) << bits) - np.uint64(1))])

    def random_nodes(self, round: Round, missed: Missed) -> tuple[Pages, Kinds] | None:
        self.draw()
        pages = self.turns(round.remaining)
        return None if pages is None else (pages, np.full(len(pages), SAMPLE, np.uint8))


def _greedy(policy: Greedy, draws: _Draws, round: Round, missed: Missed) -> tuple[Pages, Kinds]:
    grouping = draws.evidence.grouping(policy.level)
    pages, begin = grouping.by_group
    filled = int(np.count_nonzero(np.diff(begin)))
    each = policy.sample or sample_pages(round.remaining, filled)
    visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
    draws.draw()
    count = draws.kernels.greedy(each, round.remaining, draws.drawn, missed, (pages, begin), visits)
    # Pages in no group, first in the array, are visited after groups; where there is no group, never.
    if 0 < count < round.remaining and begin[0]:
        lone = pages[: begin[0]]
        lone = lone[np.argsort(~draws.drawn[lone])][: round.remaining - count]
        visits[0][count : count + len(lone)], visits[1][count : count + len(lone)] = lone, SAMPLE
        count += len(lone)
    return visits[0][:count], visits[1][:count]


def _follow(
    policy: Follow, rings: Rings, draws: _Draws, round: Round, missed: Missed
) -> tuple[Pages, Kinds] | None:
    following = policy.parameters
    draws.draw()
    turns = draws.turns(2 * round.remaining)
    if turns is None:
        return None
    follows = policy.is_followed(SampleOutcomes(turns, missed[turns] > 0), round, draws.evidence)
    grouping = draws.evidence.grouping(following.near)
    visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
    near, begin, of_group = rings
    count = draws.kernels.follow(
        turns,
        follows,
        draws.drawn,
        (grouping.number, *grouping.by_group),
        (near, begin),
        (round.remaining, following.in_flight, of_group),
        visits,
    )
    return visits[0][:count], visits[1][:count]


_RINGS: Final[weakref.WeakKeyDictionary[Grouping, dict[int, Rings | None]]] = weakref.WeakKeyDictionary()


def _rings_of(policy: Follow, evidence: ReplayEvidence) -> Rings | None:
    """Rings of all groups, cached by grouping and d; None: too many, or there are no groups, only links."""
    near, d = policy.parameters.near, policy.parameters.d
    if near == "links":
        return None
    try:
        grouping = evidence.grouping(near)
    except PolicyError:
        return None  # the policy itself raises the error, if it needs the groups
    known = _RINGS.setdefault(grouping, {})
    if d not in known:
        known[d] = _all_rings(grouping, d)
    return known[d]


def _all_rings(grouping: Grouping, d: int) -> Rings | None:
    assert grouping.distances is not None
    parts: list[npt.NDArray[np.int32]] = []
    size: list[int] = []
    total = 0
    for group in range(grouping.groups):
        for ring, _ in itertools.zip_longest(grouping.distances.rings(group, d), range(abs(d) + 1)):
            parts.append(np.empty(0, np.int32) if ring is None else ring.astype(np.int32))
            size.append(len(parts[-1]))
            total += size[-1]
        if total > MOST_NEAR:
            return None
    begin = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    return Rings(cast(Any, np.concatenate([np.empty(0, np.int32), *parts])), begin, abs(d) + 1)


Watch = Callable[[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]], None]


def replay_dense(
    prepared: PreparedHistory,
    function: ScoreFunction | Baseline | None,
    tallies: Collection[str],
    watch: Watch | None = None,
    policy: PolicyChoice = TOP_K,
    *,
    by_rounds: bool = False,
) -> Tallies:
    """Replay a score function (None: the oracle) under a policy, or a baseline, page by page.

    Thesis Algorithm 2. ``tallies``: names of the optional `Tallies` to count. ``watch(cycle, pages, found)``
    receives every cycle's visits: page numbers in order of visit, int64 ``[visits]``, and whether each had
    changed, bool ``[visits]``. A policy with a method ``observe`` receives the same, of the warm-up cycles
    too. ``by_rounds``: the policy itself plans every round, even where it has a compiled loop.

    Raises PolicyError if the policy breaks its contract, ScoreError for a terminal that the history lacks.
    """
    copies = Copies(prepared, tallies)
    counters: list[ContentCopies | WeightedGains] = []
    if not CONTENTS.keys().isdisjoint(tallies):
        counters.append(ContentCopies(prepared))
    if "weighted_dcg" in tallies:
        counters.append(WeightedGains(prepared, copies))
    scoring = function if isinstance(function, ScoreFunction) else None
    columns = columns_read(scoring, policy) + (site_share.COLUMNS if prepared.site_share < 1.0 else ())
    evidence = ReplayEvidence(prepared, columns)
    planner = _planner(prepared, function, policy, copies)
    promises = prepared.promises
    sampled = (
        None
        if by_rounds or prepared.neighbours.regrouping or promises is not None
        else compiled_loop(planner, evidence)
    )
    observe: Watch | None = getattr(planner, "observe", None)
    if observe is not None:
        for cycle in range(1, prepared.warmup + 1):
            observe(cycle, np.arange(prepared.pages), prepared.changed[cycle - 1])
    gains = np.diff(prepared.gain_sums)
    costs_ms = _costs_ms(prepared) if "cost" in tallies else np.zeros(prepared.pages, np.int64)
    rows = []
    for cycle, salt, changes in zip(
        prepared.scored_cycles.tolist(), prepared.salts, prepared.changes, strict=True
    ):
        copies.change(cycle, changes)
        pending = copies.outdated
        evidence.begin(cycle, salt)
        if promises is not None:
            last = evidence.states["last_cycle"].astype(np.int64)
            promised, hidden = promises.of_cycle(cycle, last, prepared.k)
            evidence.keep_promises(promised, copies.missed.take(promised) > 0, hidden)
        _visit(planner, sampled, Round(cycle, 0, prepared.k), evidence, copies)
        visited, is_changed = evidence.visited_pages(), evidence.is_changed()
        last = evidence.states["last_cycle"][visited] if {"new", "idle"} & {*tallies} else visited[:0]
        changed = visited[is_changed]
        row = {
            "visited": len(visited),
            "changed": len(changed),
            "pending": pending,
            "dcg": gains[: len(visited)][is_changed].sum(),
            "new": np.count_nonzero(last == prepared.warmup),
            "idle": np.count_nonzero(last != cycle - 1),
            "changed_weight": copies.weight(changed),
            "cost": costs_ms[visited].sum(),
        }
        for observer in (watch, observe, *(one.visit for one in counters)):
            if observer is not None:
                observer(cycle, visited, is_changed)
        copies.visit(changed)
        evidence.observe()
        rows.append(row | copies.tallies(cycle))
    observed = {name: observer for one in counters for name, observer in one.tallies().items()}
    names = {"visited", "changed", "pending", *tallies} - CONTENTS.keys() - observed.keys()
    return observed | {name: np.array([row[name] for row in rows], np.int64) for name in names}


def _costs_ms(prepared: PreparedHistory) -> Ints:
    if prepared.latency_ms is None:
        raise HistoryError(
            "changes per second need the download times of the pages, which the history does not tell: use "
            "the store of a crawl or what `scrapy gp4c export` writes of it"
        )
    return measured.costs_ms(prepared.latency_ms)


def _visit(
    policy: Policy, sampled: SampledCycle | None, first: Round, evidence: ReplayEvidence, copies: Copies
) -> None:
    visits = None if sampled is None else sampled(first, copies.missed)
    if visits is not None:
        pages, kinds = visits
        chosen = Selection(pages, np.full(len(pages), np.nan), None, kinds)
        evidence.visit(chosen, copies.missed[pages] > 0)
        return
    for number in rounds_of(policy):
        chosen = choose(policy, Round(first.cycle, number, first.remaining - evidence.visited), evidence)
        if policy.rounds is None and not len(chosen.pages):
            break
        evidence.visit(chosen, copies.missed.take(chosen.pages) > 0)


def _planner(
    prepared: PreparedHistory, function: ScoreFunction | Baseline | None, policy: PolicyChoice, copies: Copies
) -> Policy:
    if function is None:
        return _Oracle(copies)
    if isinstance(function, Baseline):
        return function.make(prepared)
    made = policy.make(PolicySettings(function, prepared.seed))
    return site_share.shared(made, prepared.site_share) if prepared.site_share < 1.0 else made


@dataclass(frozen=True)
class _Oracle:
    """Policy that visits changed pages first: no ranking finds more in a cycle."""

    copies: Copies
    name: str = ORACLE
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        def changed(block: Block) -> Floats:
            return (self.copies.missed[block.pages] > 0).astype(np.float64)

        return best_candidates(changed, round.remaining, evidence)
