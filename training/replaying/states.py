"""All states that a page can come to be in, as long as these are few: then every score is computed once.

With terminals such as n, X and t a page of a history of 57 cycles can be in 30,000 states at most. Scoring
them all in one go costs less than scoring the groups that exist anew in each cycle, and the replay
need not come back to Python between cycles. With terminals that remember every outcome the states double
from cycle to cycle: then the first cycles are listed, in which there are few groups to score each time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import refresh_value, terminals, weights
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import ROUND, STATE, TERMINALS, Array, Clock
from training.replaying.metrics import Floats, Ints
from training.replaying.prepared import PreparedHistory

MOST_ROWS: Final = 65_536
"""Rows (states times cycles since the last visit) that may be listed."""
ROWS_PER_CYCLE: Final = 2048
"""Rows that may be added to list one more cycle: scoring them costs as much as coming back to Python."""
MOST_RANKED: Final = 16_384
"""Rows up to which ordering them costs less than a replay, about."""
RECENT_SCORES: Final = 2**18
"""Scores that are kept for a second look."""


@dataclass(frozen=True)
class States:
    """The states of a set of state columns on the visits clock (N states, R rows)."""

    cycles: int
    """Scored cycles for which the states are listed; what the last one leads to has no score."""
    bits: Ints
    """``[state columns but last_cycle, N]``: the states, floats as their bits."""
    after: npt.NDArray[np.int32]
    """``[N, 2]``: the state after a visit without and with a change."""
    first: npt.NDArray[np.int32]
    """``[Q]``: state of each warm-up pattern."""
    aged: bool
    """Whether scores depend on the cycles since the last visit."""
    score_at: Ints
    """``[N]``: first row of each state; if `aged`, the rows of t = 1, 2, ... follow each other."""
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
        """Digest of the order, ties included, in which `expression` puts all states; None if they are many.

        A replay depends on a score function only through the order in which it puts the pages of a cycle.
        So those that put every state that can occur in the same order need one replay: `t * X`,
        `10 * t * X` and `exp(t * X)`, say.
        """
        if not self.complete or self.rows > MOST_RANKED:
            return None
        scores = self.scores(expression)
        order = np.argsort(scores)
        ranked = scores[order]
        place = np.empty(self.rows, np.uint16)
        place[order[1:]] = np.cumsum(ranked[1:] != ranked[:-1])
        place[order[0]] = 0
        return hashlib.blake2b(place.tobytes(), digest_size=16, key=",".join(self.columns).encode()).digest()


WITH_G: Final = ("n", "X", "last", "last_cycle", "A", "G")
"""With G every outcome counts: no other column of the visits clock makes more groups."""


BY_PAGE: Final = frozenset((*ROUND, "E", "T", "found_cycle", *refresh_value.COLUMNS, *weights.COLUMNS))
"""Columns in which hardly two pages are equal."""


def are_groups(function: ScoreFunction) -> bool:
    """Tell whether pages in equal state are many, and equal to a function."""
    columns = function.columns
    return function.expression is not None and BY_PAGE.isdisjoint(columns)


def state_columns(function: ScoreFunction) -> tuple[tuple[str, ...], Clock]:
    """State columns by which a score function tells pages apart, and the clock that it needs for that.

    Few different answers, so that many functions share their states.
    """
    clock = function.clock
    if all(TERMINALS[clock][name] is TERMINALS["visits"][name] for name in function.terminals):
        clock = "visits"
    columns = terminals.columns_of(function.terminals, clock)
    return WITH_G if "G" in columns else tuple(name for name in STATE if name in columns), clock


def states_of(prepared: PreparedHistory, columns: tuple[str, ...], clock: Clock) -> States | None:
    """The states that tell pages apart by `state_columns`, or None if not even one cycle's are few.

    Terminals of the visits clock depend on the cycle through t alone, so that a state last visited in
    cycle -t stands, at planning cycle 0, for all that were visited t cycles ago. On the other there are none.
    """
    if clock != "visits":
        return None
    if columns not in prepared.states:
        prepared.states[columns] = _list(prepared, columns)
    found: States | None = prepared.states[columns]
    return found


def ranking(prepared: PreparedHistory, function: ScoreFunction) -> bytes | None:
    """Equal for functions that rank all pages alike in every replay; None where that is not easily told."""
    if not function.terminals or not are_groups(function):
        return None
    assert function.expression is not None
    states = states_of(prepared, *state_columns(function))
    return None if states is None else states.ranking(function.expression)


def _list(prepared: PreparedHistory, needed: tuple[str, ...]) -> States | None:
    aged = "last_cycle" in needed
    columns = tuple(name for name in needed if name != "last_cycle")
    found = _Numbers(columns)
    first = found.of(prepared.first_state(columns), prepared.pattern_outcomes.shape[1], 0)
    after: list[tuple[int, int]] = []
    cycles = rows = 0
    while cycles < prepared.cycles - prepared.warmup:
        # One cycle more: every state so far may have gone one cycle longer without a visit.
        begin = len(after)
        added = len(found.states) if aged else len(found.states) - begin
        if added > ROWS_PER_CYCLE or rows + added > MOST_ROWS:
            break
        cycles += 1
        rows += added
        level = {name: np.repeat(values, 2) for name, values in found.columns(begin).items()}
        visits = 2 * (len(found.states) - begin)
        outcome = np.zeros(visits, np.bool_)
        outcome[1::2] = True
        terminals.observe(level, outcome, cycles)
        numbers = found.of(level, visits, cycles)
        after.extend(zip(numbers[::2], numbers[1::2], strict=True))
    if not cycles:
        return None
    # States that the last cycle leads to are visited no more.
    after.extend((0, 0) for _ in range(len(found.states) - len(after)))
    left = cycles - np.array(found.visits)
    counts = left if aged else np.minimum(left, 1)
    at = np.repeat(np.arange(len(counts)), counts)
    score_at = np.cumsum(counts) - counts
    states = found.columns(0)
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
    """Numbers the states in the order in which they are come upon."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self.states: dict[tuple[float, ...], int] = {}
        self.visits: list[int] = []
        """By state: scored cycles until it can first occur."""

    def of(self, state: dict[str, Array], rows: int, visits: int) -> list[int]:
        """The numbers of some states, those that are new included."""
        columns = (values.tolist() for values in state.values())
        out = []
        for key in zip(*columns, strict=True) if state else [()] * rows:
            if key not in self.states:
                self.states[key] = len(self.states)
                self.visits.append(visits)
            out.append(self.states[key])
        return out

    def columns(self, begin: int) -> dict[str, Array]:
        """The states from number `begin` on, by column."""
        keys = list(self.states)[begin:]
        return {name: np.array([key[c] for key in keys], STATE[name]) for c, name in enumerate(self._columns)}
