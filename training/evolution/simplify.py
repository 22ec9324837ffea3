"""Shorten a learned function without changing what it does.

Evolved trees carry parts that no longer matter (Koza 1992 calls them introns) and constants with sixteen
digits. Here a part is taken out, or a constant rounded, if the function still behaves exactly as before
in the judgement of a given test, such as equal values in every cycle of a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from scrapy_gp4c.scoring.expression import Expression, Token, parse
from scrapy_gp4c.scoring.primitives import PRIMITIVES
from training.evolution.canonical import canonical


def simplify(expression: Expression, same: Callable[[Expression], bool]) -> Expression:
    """A shorter or equal expression for which ``same`` holds, found greedily.

    ``same`` tells whether an expression behaves like the given one; it is called at most a few times per
    node. The result names a terminal.
    """
    (found,) = simplify_all([expression], lambda asked: {0: same(asked[0])})
    return found


def simplify_all(
    expressions: Sequence[Expression], same: Callable[[dict[int, Expression]], dict[int, bool]]
) -> list[Expression]:
    """`simplify` for several at once.

    ``same`` is asked about one candidate for each of them that is not done yet, by number; so it can look
    at all these at the same time.
    """
    searches = [_search(expression) for expression in expressions]
    found: dict[int, Expression] = {}
    answers: Mapping[int, bool | None] = dict.fromkeys(range(len(searches)))
    while answers:
        asked: dict[int, Expression] = {}
        for number, answer in answers.items():
            try:
                asked[number] = searches[number].send(answer)
            except StopIteration as end:
                found[number] = end.value
        answers = same(asked) if asked else {}
    return [found[number] for number in range(len(searches))]


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
    """The expression with its constants rounded to 4 digits, for the eye."""

    def rounded(token: Token) -> Token:
        return token if isinstance(token, str) else float(f"{token:.4g}")

    return Expression(tuple(rounded(token) for token in parse(text).tokens)).text
