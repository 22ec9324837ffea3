"""Common subexpressions of scores: values that many pages share are computed once.

Pages in equal state are equal in subexpressions of that state, pages of one directory in subexpressions of
its tables; and a draw per page and cycle stands still in the rounds of the cycle. So an expression is cut
into its largest parts of each kind and the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.scoring import sizes, terminals
from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression, Token, finite
from scrapy_gp4c.scoring.functions import ScoreFunction
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
