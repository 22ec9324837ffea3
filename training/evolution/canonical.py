"""Canonical form of a score expression: different trees that surely score alike share one text.

Every rewrite keeps the value bit for bit under the closed arithmetic of
`scrapy_gp4c.scoring.primitives`, whose values are always finite:

* a subtree without terminals becomes its value;
* ``x * 1``, ``1 * x``, ``x / 1`` and ``x - 0.0`` become ``x``; ``x - x`` becomes ``0.0``;
* the operands of ``+`` and ``*`` are put in order (IEEE 754 addition and multiplication commute; they do
  not associate, so nothing is regrouped).

Not rewritten, because it is not exact: ``x / x`` (0 near 0), ``x * 0.0`` and ``x + 0.0`` (the sign of
zero), ``pow(x, 1)`` (saturates), ``log(exp(x))`` and anything that moves a rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from scrapy_gp4c.scoring.expression import Expression, Token
from scrapy_gp4c.scoring.primitives import PRIMITIVES

_ROWS: Final = 16
"""A constant is computed on a block of rows, as it would be in use, not on one."""

Node = tuple[Token, ...]


def canonical(expression: Expression) -> Expression:
    """The canonical form; equal scores bit for bit on every input, and a fixed point of this function."""
    return Expression(_canonical(expression.tokens))


def _canonical(tokens: Sequence[Token]) -> Node:
    stack: list[Node] = []
    for token in reversed(tokens):
        if not isinstance(token, str) or token not in PRIMITIVES:
            stack.append((token,))
        elif PRIMITIVES[token].arity == 1:
            stack.append(_rewrite(token, [stack.pop()]))
        else:
            stack.append(_rewrite(token, [stack.pop(), stack.pop()]))
    return stack.pop()


def _rewrite(token: str, arguments: list[Node]) -> Node:
    if _constant(arguments[0]) and _constant(arguments[-1]):  # of one or two
        program = (token, *(argument[0] for argument in arguments))
        return (_value(program, _signs(program)),)
    if len(arguments) == 2:
        left, right = arguments
        if token in "*/" and right == (1.0,):
            return left
        if token == "*" and left == (1.0,):
            return right
        if token == "-" and left == right and _signs(left) == _signs(right):
            return (0.0,)
        if token == "-" and right == (0.0,) and _signs(right) == (1.0,):
            return left
        if token in "+*" and _follows(left, right):
            left, right = right, left
        return (token, *left, *right)
    return (token, *arguments[0])


def _constant(node: Node) -> bool:
    return len(node) == 1 and not isinstance(node[0], str)


def _signs(node: Node) -> tuple[float, ...]:
    """The signs of the constants: 0.0 and -0.0 compare equal, yet are not the same constant."""
    return tuple(math.copysign(1.0, token) for token in node if not isinstance(token, str))


def _follows(left: Node, right: Node) -> bool:
    """Short before long, and constants behind names: ``t * 10.0``."""
    if len(left) != len(right):
        return len(left) > len(right)
    return left != right and _key(left) > _key(right)


def _key(node: Node) -> list[tuple[bool, Token]]:
    return [(not isinstance(token, str), token) for token in node]


@lru_cache(maxsize=65_536)
def _value(program: Node, signs: tuple[float, ...]) -> float:
    """Value of an operator on constants; the signs only complete the key of the cache."""
    return float(Expression(program)({}, _ROWS)[0])
