"""Lists of all states that a page can reach, while these are few, so that each score is computed once.

With terminals such as n, X and t a page of a history of 57 cycles can reach 30,000 states at most. Scoring
them all at once costs less than scoring the existing groups in every cycle, and the replay runs without
returning to Python between cycles. With terminals that remember every outcome the number of states doubles
from cycle to cycle: then only the first cycles are listed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.scoring import hints, refresh_value, terminals, weights
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import ROUND, STATE, TERMINALS, Clock
from training.replaying.prepared import PreparedHistory

MOST_ROWS: Final = 65_536
"""Most listed rows: states times cycles since the last visit."""
ROWS_PER_CYCLE: Final = 2048
"""Most rows added for one more cycle: scoring more costs as much as returning to Python."""
MOST_RANKED: Final = 16_384
"""Most rows whose ordering costs less than a replay, about."""
RECENT_SCORES: Final = 2**18
"""Scores kept for a second request."""


@dataclass(frozen=True)
class States:
    """Listed states of a set of state columns on the visits clock: N states, R rows."""

    cycles: int
    """Scored cycles whose states are listed; states after the last one have no score."""
    bits: Ints
    """``[state columns but last_cycle, N]``: the states, floats as their bits."""
    after: npt.NDArray[np.int32]
    """``[N, 2]``: state after a visit without and with a change."""
    first: npt.NDArray[np.int32]
    """``[Q]``: state of each warm-up pattern."""
    aged: bool
    """Whether scores depend on the cycles since the last visit."""
    score_at: Ints
    """``[N]``: first row of each state; if `aged`, rows of t = 1, 2, ... follow each other."""
    columns: dict[str, Array]
    """State columns by row, for planning cycle 0."""
    rows: int
    complete: bool
    """Whether the states of all scored cycles are listed."""
    known: dict[str, Array] = field(default_factory=dict)
    """Values of the terminals computed so far, by row."""
    recent: dict[Expression, Floats] = field(default_factory=dict)
    """Scores computed last."""

    def scores(self, expression: Expression) -> Floats:
        """Scores by row."""
        scores = self.recent.get(expression)
        if scores is None:
            missing = [name for name in expression.terminals if name not in self.known]
            for name, values in terminals.compute(missing, self.columns, 0).items():
                self.known[name] = values.astype(np.float64)
            scores = np.empty(self.rows)
            expression.evaluate(self.known, scores)
            most = RECENT_SCORES // self.rows
            for old in list(self.recent)[: max(len(self.recent) + 1 - most, 0)]:
                self.recent.pop(old, None)
            if most:
                self.recent[expression] = scores
        return scores

    def ranking(self, expression: Expression) -> bytes | None:
        """Digest of the order, ties included, of all states by `expression`; None: too many states.

        A replay depends on a score function only through the order of the pages in each cycle. So functions
        that put all possible states in the same order need one replay: `t * X`, `10 * t * X` and `exp(t *
        X)`, say.
        """
        if not self.complete or self.rows > MOST_RANKED:
            return None
        scores = self.scores(expression)
        order = np.argsort(scores)
        ranked = scores[order]
        rank = np.empty(self.rows, np.uint16)
        rank[order[1:]] = np.cumsum(ranked[1:] != ranked[:-1])
        rank[order[0]] = 0
        return hashlib.blake2b(rank.tobytes(), digest_size=16, key=",".join(self.columns).encode()).digest()


WITH_G: Final = ("n", "X", "last", "last_cycle", "A", "G")
"""Columns with G, which remembers every outcome: no other column adds groups to these."""


BY_PAGE: Final = frozenset(
    (*ROUND, "E", "T", "found_cycle", *refresh_value.COLUMNS, *weights.COLUMNS, *hints.COLUMNS)
)
"""Columns in which hardly two pages are equal."""


def are_groups(function: ScoreFunction) -> bool:
    """Whether many pages are in states that are equal to a function."""
    columns = function.columns
    return function.expression is not None and BY_PAGE.isdisjoint(columns)


def state_columns(function: ScoreFunction) -> tuple[tuple[str, ...], Clock]:
    """State columns by which a score function tells pages apart, and the clock that it needs for that.

    There are few different results, so that many functions share their states.
    """
    clock = function.clock
    if all(TERMINALS[clock][name] is TERMINALS["visits"][name] for name in function.terminals):
        clock = "visits"
    columns = terminals.columns_of(function.terminals, clock)
    return WITH_G if "G" in columns else tuple(name for name in STATE if name in columns), clock


def states_of(prepared: PreparedHistory, columns: tuple[str, ...], clock: Clock) -> States | None:
    """Listed states for the result of `state_columns`; None: not even one cycle has few.

    Terminals of the visits clock depend on the cycle through t alone. So a state last visited in cycle -t
    stands, at planning cycle 0, for all that were visited t cycles ago. The cycles clock has no such states.
    """
    if clock != "visits":
        return None
    if columns not in prepared.states:
        prepared.states[columns] = _list(prepared, columns)
    listed: States | None = prepared.states[columns]
    return listed


def ranking(prepared: PreparedHistory, function: ScoreFunction) -> bytes | None:
    """Key that is equal for functions that rank all pages alike in every replay; None: unknown."""
    if not function.terminals or not are_groups(function):
        return None
    assert function.expression is not None
    states = states_of(prepared, *state_columns(function))
    return None if states is None else states.ranking(function.expression)


def _list(prepared: PreparedHistory, needed: tuple[str, ...]) -> States | None:
    aged = "last_cycle" in needed
    columns = tuple(name for name in needed if name != "last_cycle")
    numbering = _Numbers(columns)
    first = numbering.of(prepared.first_state(columns), prepared.pattern_outcomes.shape[1], 0)
    after: list[tuple[int, int]] = []
    cycles = rows = 0
    while cycles < prepared.cycles - prepared.warmup:
        # One cycle more: every state so far may have gone one cycle longer without a visit.
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
    at = np.repeat(np.arange(len(counts)), counts)
    score_at = np.cumsum(counts) - counts
    states = numbering.columns(0)
    table = {name: values[at] for name, values in states.items()}
    if aged:
        table["last_cycle"] = -(np.arange(len(at)) - score_at[at] + 1)
    bits = [values.view(np.int64) if values.dtype.kind == "f" else values for values in states.values()]
    return States(
        cycles,
        np.array(bits, np.int64).reshape(len(columns), len(counts)),
        np.array(after, np.int32).reshape(-1, 2),
        np.array(first, np.int32),
        aged,
        score_at,
        table,
        len(at),
        cycles == prepared.cycles - prepared.warmup,
    )


class _Numbers:
    """Numbering of states in the order of their discovery."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self.states: dict[tuple[float, ...], int] = {}
        self.visits: list[int] = []
        """By state: scored cycles until it can first occur."""

    def of(self, state: dict[str, Array], rows: int, visits: int) -> list[int]:
        """Numbers of some states; new ones get the next number."""
        columns = (values.tolist() for values in state.values())
        out = []
        for key in zip(*columns, strict=True) if state else [()] * rows:
            if key not in self.states:
                self.states[key] = len(self.states)
                self.visits.append(visits)
            out.append(self.states[key])
        return out

    def columns(self, begin: int) -> dict[str, Array]:
        """Columns of the states from number `begin` on."""
        keys = list(self.states)[begin:]
        return {name: np.array([key[c] for key in keys], STATE[name]) for c, name in enumerate(self._columns)}
