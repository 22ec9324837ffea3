"""Arithmetic of score functions on few rows, where NumPy's calls take longer than the numbers."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from scrapy_gp4c.scoring.primitives import LARGE_QUOTIENT, TINY
from training.replaying.kernels.compiling import inner, outer

ADD, SUBTRACT, MULTIPLY, DIVIDE, DIVIDE_LARGE, OTHER, TERMINAL, CONSTANT = range(8)
"""Kinds of steps of a program; the last two push the row of a number."""
MOST = np.finfo(np.float64).max


@outer
def run(program, step, constants, values, begin, stack, height):
    """Run a program from a step on to the next `OTHER` one, or to the end; returns step and height.

    `program`: int64 ``[2, steps]``, kind and number of each. `values`: float64 ``[terminals, rows]``, of
    which those from `begin` on count, as many as `stack`, float64 ``[heights, rows]``, has; `height`: rows on
    the stack. The left operand is on top. The numbers are those of `scrapy_gp4c.scoring.primitives`.
    """
    rows = stack.shape[1]
    while step < program.shape[1]:
        kind = program[0, step]
        number = program[1, step]
        if kind == TERMINAL:
            stack[height] = values[number, begin : begin + rows]
            height += 1
        elif kind == CONSTANT:
            stack[height] = constants[number]
            height += 1
        elif kind == OTHER:
            return step, height
        else:
            _apply(kind, stack[height - 1], stack[height - 2])
            height -= 1
        step += 1
    return step, height


@inner
def _apply(kind, left, right):
    """Write the result of an operator to `right`."""
    if kind == ADD:
        for i in range(right.size):
            right[i] = _finite(left[i] + right[i])
    elif kind == SUBTRACT:
        for i in range(right.size):
            right[i] = _finite(left[i] - right[i])
    elif kind == MULTIPLY:
        for i in range(right.size):
            right[i] = _finite(left[i] * right[i])
    else:
        for i in range(right.size):
            is_zero = abs(right[i]) < TINY
            quotient = _finite(left[i] / (1.0 if is_zero else right[i]))
            by_zero = 0.0 if kind == DIVIDE else np.copysign(LARGE_QUOTIENT, left[i])
            right[i] = by_zero if is_zero else quotient


@inner
def _finite(number):
    return number if abs(number) <= MOST else 0.0
