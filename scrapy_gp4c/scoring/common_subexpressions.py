"""Common subexpressions of scores: values that many pages share are computed once.

Pages in equal state are equal in subexpressions of that state, pages of one directory in subexpressions of
its tables; and a draw per page and cycle stands still in the rounds of the cycle. So an expression is cut
into its largest parts of each kind and the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.scoring import sizes, terminals
from scrapy_gp4c.scoring.expression import Expression, Token
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.primitives import PRIMITIVES, finite
from scrapy_gp4c.scoring.terminals import Clock


class Level(IntEnum):
    """Pages that share the value of a subexpression."""

    NUMBER = 0
    """All pages, always."""
    ROUND = 1
    """All pages, in one round."""
    OWN = 2
    """Pages in equal state."""
    DIRECTORY = 3
    """Pages of one directory."""
    STILL = 4
    """No other page, but the value stays the same in the rounds of a cycle."""
    PAGE = 5
    """No other page."""


PARTS: Final = (Level.OWN, Level.DIRECTORY, Level.STILL)
"""Levels of the parts of a score."""
OF_DIRECTORIES: Final = frozenset(("near", "near_site", "near_dir", "site_rate", "site_now", "directory_now"))
"""Columns of a round with one number per directory."""
_MOVING: Final = frozenset(terminals.ROUND) - {"draw", "site_rate", "cluster_recent"}
OF_STATES: Final = frozenset((*terminals.STATE, *sizes.COLUMNS, "size_lift"))
"""Columns in which pages in equal state are equal, for all rounds of a cycle."""


class Divided(NamedTuple):
    """A score expression in parts."""

    parts: dict[Level, dict[str, Expression]]
    """Level of `PARTS` -> name -> subexpression."""
    remainder: Expression
    """The expression with names in place of the parts."""
    reads: tuple[str, ...]
    """Terminals of the rest."""
    clock: Clock

    @property
    def is_shared(self) -> bool:
        """Whether pages in equal state and of one directory have the same score in a round."""
        levels = {_level_of(name, self.clock) for name in self.reads}
        return not self.parts[Level.STILL] and levels <= {Level.ROUND}

    def stands_still(self, name: str) -> bool:
        """Whether a part of states is the same in all rounds of a cycle."""
        reads = self.parts[Level.OWN][name].terminals
        return all(_level_of(read, self.clock) is Level.OWN for read in reads)

    def value(self, name: str, level: Level, state: Mapping[str, npt.NDArray[Any]], cycle: int) -> Floats:
        """Values of one part, float64 ``[R]``, finite; ``state``: columns ``[R]``."""
        expression = self.parts[level][name]
        return expression(terminals.compute(expression.terminals, state, cycle, self.clock))

    def finish(
        self, parts: Mapping[str, Floats], state: Mapping[str, npt.NDArray[Any]], cycle: int, out: Floats
    ) -> None:
        """Write the scores to ``out``, float64 ``[P]``: those of `ScoreFunction.scores`, bit for bit.

        ``parts``: name -> values of each page, ``[P]``; ``state``: as for `ScoreFunction.scores`.
        """
        with np.errstate(all="ignore"):
            computed = terminals.compute(self.reads, state, cycle, self.clock)
            values = {name: finite(column) for name, column in computed.items()}
        self.remainder.evaluate(values | dict(parts), out)


def divided(function: ScoreFunction) -> Divided | None:
    """The parts of a score function; None for a callable."""
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
        return Level.ROUND
    if columns <= OF_STATES:
        return Level.OWN
    if columns <= OF_DIRECTORIES:
        return Level.DIRECTORY
    return Level.STILL if _MOVING.isdisjoint(columns) else Level.PAGE


def _joined(one: Level, other: Level) -> Level:
    """Level of a value computed from two values."""
    low, high = min(one, other), max(one, other)
    if low in (high, Level.NUMBER) or (low is Level.ROUND and high in (Level.OWN, Level.DIRECTORY)):
        return high
    return Level.STILL if (low, high) == (Level.OWN, Level.STILL) else Level.PAGE


MOST_STATES: Final = 2**18
"""States in a table, so that it stays in the processor's cache."""
LEAST_NODES: Final = 8
"""Nodes of an expression from which on looking its scores up is faster."""
WHOLE: Final = frozenset(name for name, dtype in terminals.STATE.items() if np.dtype(dtype).kind in "iu")
"""Columns of whole numbers, mostly small."""


class StateScores:
    """A score function in one cycle, with a table of the scores of all states.

    Where the function reads whole numbers alone, in few combinations, all combinations are scored once and
    looked up; the scores are the same. The table is made when at least as many pages as it has states would
    be scored one by one otherwise.
    """

    def __init__(self, function: ScoreFunction, cycle: int) -> None:
        """Take a function and the planning cycle."""
        self._function, self._cycle = function, cycle
        is_long = function.expression is not None and len(function.expression.tokens) >= LEAST_NODES
        self._names = function.columns if is_long and WHOLE.issuperset(function.columns) else ()
        self._seen: list[tuple[int, int]] = []
        """Least and greatest number of each column so far."""
        self._known: list[tuple[int, int]] = []
        """First and last number of each column in the table."""
        self._table: npt.NDArray[np.float64] = np.empty(0)
        self._one_by_one = 0

    def __call__(self, state: Mapping[str, Array]) -> npt.NDArray[np.float64]:
        """Scores of the pages of a block, float64 ``[rows]``, see `ScoreFunction.scores`."""
        columns = [state[name] for name in self._names]
        if columns and len(columns[0]) and self._covers(columns):
            return self._table.take(self._places(columns))
        return self._function.scores(state, self._cycle)

    def _covers(self, columns: Sequence[Array]) -> bool:
        """Whether the table has all states of a block; makes one that does when it is time for it."""
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
            self._table = self._function.scores(state, self._cycle)

    def _places(self, columns: Sequence[Array]) -> npt.NDArray[np.int32]:
        combination: npt.NDArray[np.int32] = np.zeros(len(columns[0]), np.int32)
        for column, (first, last) in zip(columns, self._known, strict=True):
            combination *= np.int32(last - first + 1)
            combination += np.subtract(column, first, dtype=np.int32)
        return combination


def _spanned(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]
