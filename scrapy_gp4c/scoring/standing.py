"""What of a score many pages share: told once for all of them, it need not be told page by page.

Pages in equal own state are equal in what reads that state alone, pages of one directory in what reads
tables of directories alone; and a number per page and cycle stands still in the rounds of the cycle. So an
expression is cut into its largest parts of each kind, and what is left of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, Token
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.primitives import PRIMITIVES, finite
from scrapy_gp4c.scoring.terminals import Clock

Floats = npt.NDArray[np.float64]


class Level(IntEnum):
    """Who shares a part of a score."""

    NUMBER = 0
    """All, always."""
    ROUND = 1
    """All pages of a round."""
    OWN = 2
    """Pages in equal own state."""
    DIRECTORY = 3
    """Pages of one directory."""
    STILL = 4
    """Nobody, but it stands still in a cycle."""
    PAGE = 5
    """Nobody."""


PARTS: Final = (Level.OWN, Level.DIRECTORY, Level.STILL)
"""What a score is cut into, beside the rest."""
OF_DIRECTORIES: Final = frozenset(("near", "near_site", "near_dir", "site_rate", "site_now", "directory_now"))
"""Columns of a round that tell one number for a directory."""
_MOVING: Final = frozenset(terminals.ROUND) - {"draw", "site_rate", "cluster_recent"}


class Divided(NamedTuple):
    """A score expression in parts."""

    parts: dict[Level, dict[str, Expression]]
    """Level of `PARTS` -> name -> what is shared by those."""
    rest: Expression
    """What is made of these, by their names, and of other terminals."""
    reads: tuple[str, ...]
    """Terminals of the rest."""
    clock: Clock

    @property
    def is_shared(self) -> bool:
        """Whether pages in equal own state and of one directory have the same score in a round."""
        levels = {_level_of(name, self.clock) for name in self.reads}
        return not self.parts[Level.STILL] and levels <= {Level.ROUND}

    def stands_still(self, name: str) -> bool:
        """Whether a part of own states is the same in all rounds of a cycle."""
        reads = self.parts[Level.OWN][name].terminals
        return all(_level_of(read, self.clock) is Level.OWN for read in reads)

    def told(self, name: str, level: Level, state: Mapping[str, npt.NDArray[Any]], cycle: int) -> Floats:
        """One part, float64 ``[R]``, finite; ``state``: columns ``[R]`` of the R rows that it is told of."""
        part = self.parts[level][name]
        return part(terminals.compute(part.terminals, state, cycle, self.clock))

    def finish(
        self, parts: Mapping[str, Floats], state: Mapping[str, npt.NDArray[Any]], cycle: int, out: Floats
    ) -> None:
        """Write what `ScoreFunction.scores` gives to ``out``, float64 ``[P]``, bit for bit.

        ``parts``: all of them by name, for each page; ``state``: as for `ScoreFunction.scores`.
        """
        with np.errstate(all="ignore"):
            told = terminals.compute(self.reads, state, cycle, self.clock)
            values = {name: finite(column) for name, column in told.items()}
        self.rest.evaluate(values | dict(parts), out)


def divided(function: ScoreFunction) -> Divided | None:
    """The parts of a score function; None of a callable, which nobody can look into."""
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
        own = [named(*one) if level is Level.PAGE else one[0] for one in arguments]
        stack.append(((token, *(one for part in own for one in part)), level))
    rest = Expression(named(*stack.pop()))
    found = {
        level: {name: Expression(part) for part, name in names.items()} for level, names in parts.items()
    }
    names = {name for own in found.values() for name in own}
    return Divided(found, rest, tuple(sorted({*rest.terminals} - names)), function.clock)


def _level_of(name: str, clock: Clock) -> Level:
    columns = frozenset(terminals.TERMINALS[clock][name].columns)
    if columns == {"spent"}:
        return Level.ROUND
    if columns <= terminals.STATE.keys():
        return Level.OWN
    if columns <= OF_DIRECTORIES:
        return Level.DIRECTORY
    return Level.STILL if _MOVING.isdisjoint(columns) else Level.PAGE


def _joined(one: Level, other: Level) -> Level:
    """Who shares what is made of two values."""
    low, high = min(one, other), max(one, other)
    if low in (high, Level.NUMBER) or (low is Level.ROUND and high in (Level.OWN, Level.DIRECTORY)):
        return high
    return Level.STILL if (low, high) == (Level.OWN, Level.STILL) else Level.PAGE
