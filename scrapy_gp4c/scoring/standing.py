"""What of a score stands still while a cycle goes on: told once, it need not be told anew in every round.

A page's own columns change when a cycle is over; what related pages tell moves with every visit. So an
expression is cut into its largest parts that read nothing of the latter, and what is left of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, Token
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.primitives import PRIMITIVES, finite
from scrapy_gp4c.scoring.terminals import Clock

Floats = npt.NDArray[np.float64]

MOVING: Final = frozenset(terminals.ROUND) - {"draw", "site_rate", "cluster_recent"}
"""Columns that may change from one round of a cycle to the next."""


class Divided(NamedTuple):
    """A score expression in parts."""

    standing: dict[str, Expression]
    """Name -> a part that reads nothing of `MOVING`."""
    rest: Expression
    """What is made of these, by their names, and of the other terminals."""
    moving: tuple[str, ...]
    """Terminals of the rest."""
    clock: Clock

    def parts(self, state: Mapping[str, npt.NDArray[Any]], cycle: int) -> dict[str, Floats]:
        """The standing parts, each float64 ``[P]``, finite; ``state``: as for `ScoreFunction.scores`."""
        return {
            name: part(terminals.compute(part.terminals, state, cycle, self.clock))
            for name, part in self.standing.items()
        }

    def finish(
        self, parts: Mapping[str, Floats], state: Mapping[str, npt.NDArray[Any]], cycle: int, out: Floats
    ) -> None:
        """Write what `ScoreFunction.scores` gives to ``out``, float64 ``[P]``, bit for bit."""
        with np.errstate(all="ignore"):
            told = terminals.compute(self.moving, state, cycle, self.clock)
            values = {name: finite(column) for name, column in told.items()}
        self.rest.evaluate(values | dict(parts), out)


def divided(function: ScoreFunction) -> Divided | None:
    """The parts of a score function; None of a callable, which nobody can look into."""
    if function.expression is None:
        return None
    table = terminals.TERMINALS[function.clock]
    moving = tuple(name for name in function.terminals if not MOVING.isdisjoint(table[name].columns))
    names: dict[tuple[Token, ...], str] = {}

    def named(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        if not any(isinstance(token, str) and token not in PRIMITIVES for token in tokens):
            return tokens  # numbers alone
        return (names.setdefault(tokens, f"standing_{len(names)}"),)

    stack: list[tuple[tuple[Token, ...], bool]] = []
    for token in reversed(function.expression.tokens):
        arity = PRIMITIVES[token].arity if token in PRIMITIVES else 0
        arguments = [stack.pop() for _ in range(arity)]
        moves = token in moving or any(own_moves for _, own_moves in arguments)
        parts = [named(own) if moves and not own_moves else own for own, own_moves in arguments]
        stack.append(((token, *(one for part in parts for one in part)), moves))
    tokens, moves = stack.pop()
    rest = Expression(tokens if moves else named(tokens))
    standing = {name: Expression(part) for part, name in names.items()}
    return Divided(standing, rest, moving, function.clock)
