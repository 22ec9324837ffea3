"""Canonical forms of score expressions, and shorter expressions that behave alike.

Every rewrite to the canonical form keeps the value bit for bit under the closed arithmetic of
`scrapy_gp4c.scoring.expression`, whose values are always finite:

* a subtree without terminals becomes its value;
* ``x * 1``, ``1 * x``, ``x / 1`` and ``x - 0.0`` become ``x``; ``x - x`` becomes ``0.0``;
* the operands of ``+`` and ``*`` are put in order (IEEE 754 addition and multiplication commute; they do
  not associate, so nothing is regrouped).

Not rewritten, because it is not exact: ``x / x`` (0 near 0), ``x * 0.0`` and ``x + 0.0`` (the sign of
zero), ``pow(x, 1)`` (saturates), ``log(exp(x))`` and anything that moves a rounding.

Evolved trees carry parts that no longer matter (Koza 1992 calls them introns) and constants with sixteen
digits. `simplify` takes a part out, or rounds a constant, if the function still behaves exactly as before by
a given test, such as equal values in every cycle of a replay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression, Token, parse
from scrapy_gp4c.scoring.named import NAMED

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
        first, second = arguments
        if token in "*/" and second == (1.0,):
            return first
        if token == "*" and first == (1.0,):
            return second
        if token == "-" and first == second and _signs(first) == _signs(second):
            return (0.0,)
        if token == "-" and second == (0.0,) and _signs(second) == (1.0,):
            return first
        if token in "+*" and _follows(first, second):
            first, second = second, first
        return (token, *first, *second)
    return (token, *arguments[0])


def _constant(node: Node) -> bool:
    return len(node) == 1 and not isinstance(node[0], str)


def _signs(node: Node) -> tuple[float, ...]:
    """The signs of the constants: 0.0 and -0.0 compare equal, yet are not the same constant."""
    return tuple(math.copysign(1.0, token) for token in node if not isinstance(token, str))


def _follows(first: Node, second: Node) -> bool:
    """Short before long, and constants behind names: ``t * 10.0``."""
    if len(first) != len(second):
        return len(first) > len(second)
    return first != second and _key(first) > _key(second)


def _key(node: Node) -> list[tuple[bool, Token]]:
    return [(not isinstance(token, str), token) for token in node]


@lru_cache(maxsize=65_536)
def _value(program: Node, signs: tuple[float, ...]) -> float:
    """Value of an operator on constants; the signs only complete the key of the cache."""
    return float(Expression(program)({}, _ROWS)[0])


def simplify(expression: Expression, same: Callable[[Expression], bool]) -> Expression:
    """A shorter or equal expression for which ``same`` holds, found greedily.

    ``same`` tells whether an expression behaves like the given one; it is called at most a few times per
    node. The result names a terminal.
    """
    (simplified,) = simplify_all([expression], lambda asked: {0: same(asked[0])})
    return simplified


def simplify_all(
    expressions: Sequence[Expression], same: Callable[[dict[int, Expression]], dict[int, bool]]
) -> list[Expression]:
    """`simplify` for several at once.

    ``same`` is asked about one candidate for each of them that is not done yet, by number; so it can look
    at all these at the same time.
    """
    searches = [_search(expression) for expression in expressions]
    simplified: dict[int, Expression] = {}
    answers: Mapping[int, bool | None] = dict.fromkeys(range(len(searches)))
    while answers:
        asked: dict[int, Expression] = {}
        for number, answer in answers.items():
            try:
                asked[number] = searches[number].send(answer)
            except StopIteration as end:
                simplified[number] = end.value
        answers = same(asked) if asked else {}
    return [simplified[number] for number in range(len(searches))]


def _search(expression: Expression) -> Generator[Expression, bool | None, Expression]:
    """Yields candidates, is sent whether each behaves like the expression, and returns the simplest."""
    current = canonical(expression)
    position = 0
    while position < len(current.tokens):
        for candidate in _without(current.tokens, position):
            shorter = canonical(Expression(candidate))
            if shorter.terminals and len(shorter.tokens) < len(current.tokens) and (yield shorter):
                current = shorter
                position = 0
                break
        else:
            position += 1
    for position, token in enumerate(current.tokens):
        if isinstance(token, str):
            continue
        for digits in (1, 2, 3):
            rounded = float(f"{token:.{digits}g}")
            tokens = (*current.tokens[:position], rounded, *current.tokens[position + 1 :])
            if rounded == token:
                break
            if (yield Expression(tokens)):
                current = Expression(tokens)
                break
    return canonical(current)


def _without(tokens: tuple[Token, ...], position: int) -> Iterator[tuple[Token, ...]]:
    """The program with the node at `position` replaced by each of its operands."""
    token = tokens[position]
    if not isinstance(token, str) or token not in PRIMITIVES:
        return
    start = position + 1
    operands = []
    for _ in range(PRIMITIVES[token].arity):
        end = _end(tokens, start)
        operands.append((start, end))
        start = end
    for first, last in operands:
        yield (*tokens[:position], *tokens[first:last], *tokens[start:])


def _end(tokens: tuple[Token, ...], start: int) -> int:
    """Index behind the subtree that begins at `start`."""
    open_places = 1
    while open_places:
        token = tokens[start]
        open_places += (PRIMITIVES[token].arity if isinstance(token, str) and token in PRIMITIVES else 0) - 1
        start += 1
    return start


def readable(text: str) -> str:
    """Name of a named function, or the expression with its constants rounded to 4 digits."""
    if text in NAMED:
        return text

    def rounded(token: Token) -> Token:
        return token if isinstance(token, str) else float(f"{token:.4g}")

    return Expression(tuple(rounded(token) for token in parse(text).tokens)).text
