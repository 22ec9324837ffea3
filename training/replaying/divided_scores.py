"""Score expressions divided into parts, so that a replay computes what many pages share once."""

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
