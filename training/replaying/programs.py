"""Score functions on few groups: the same numbers as those of `Expression.evaluate`, in fewer calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.primitives import PRIMITIVES
from training.replaying.kernels import programs
from training.replaying.metrics import Floats

_COMPILED: Final = {
    "+": programs.ADD,
    "-": programs.SUBTRACT,
    "*": programs.MULTIPLY,
    "/": programs.DIVIDE,
}
"""Operators that a processor has. Others are left to NumPy, whose exponentials no other library gives to the
last bit."""


class Program:
    """An expression, its arithmetic compiled."""

    def __init__(self, expression: Expression, terminals: Sequence[str]) -> None:
        """``terminals``: what the rows of values are."""
        steps: list[tuple[int, int]] = []
        constants: list[float] = []
        self._others: dict[int, str] = {}
        height = self._heights = 0
        for token in reversed(expression.tokens):
            if not isinstance(token, str):
                steps.append((programs.CONSTANT, len(constants)))
                constants.append(token)
            elif token not in PRIMITIVES:
                steps.append((programs.TERMINAL, terminals.index(token)))
            else:
                kind = _COMPILED.get(token, programs.OTHER)
                if kind == programs.OTHER:
                    self._others[len(steps)] = token
                steps.append((kind, 0))
                height -= PRIMITIVES[token].arity
            height += 1
            self._heights = max(self._heights, height)
        self._steps = np.array(steps, np.int64).T.copy()
        self._constants = np.array(constants, np.float64)

    def evaluate(self, values: Floats, begin: int, out: Floats) -> None:
        """Write scores to `out`, float64 ``[rows]``.

        ``values``: float64 ``[terminals, any]``, finite; meant are as many as `out` has, from `begin` on. To
        be called under ``np.errstate(**WATCH)``, as primitives are.
        """
        stack = np.empty((self._heights, len(out)))
        step, height = programs.run(self._steps, 0, self._constants, values, begin, stack, 0)
        while step in self._others:
            primitive = PRIMITIVES[self._others[step]]
            operands = [stack[height - 1 - number] for number in range(primitive.arity)]
            primitive.apply(*operands, out=operands[-1])
            height -= primitive.arity - 1
            step, height = programs.run(self._steps, step + 1, self._constants, values, begin, stack, height)
        out[:] = stack[0]
