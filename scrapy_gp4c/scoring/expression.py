"""The score language: parsing and evaluation of score expressions, in crawls, replays and learning.

Syntax is Python's, parsed with ``ast`` against a whitelist and never executed: names of terminals,
finite numbers, ``+ - * /``, unary minus, ``**`` and the functions of `PRIMITIVES`.

Arithmetic is closed: every expression has a finite value for all inputs, and NaN never reaches a ranking. A
terminal's value that is not finite counts as 0. Protected operators return 0 outside their domain (Santos et
al. 2014, section 4.2.1):

* ``x / y`` is 0 where ``|y| < TINY``; ``log(x)`` is 0 where ``x <= 0``; ``sqrt(x)`` is 0 where ``x < 0``;
* ``pow(x, y)`` is 0 where it is undefined (negative base with a broken exponent, 0 to a negative power);
* ``exp`` and ``pow`` saturate at ``LARGE`` instead of overflowing;
* any other result that is not finite is 0.

The function ``div(x, y)`` divides as the thesis does (2013, section 3.2): `LARGE_QUOTIENT` with the sign of x
where ``|y| < TINY``. The thesis does not say how large its number is, nor its sign for 0 / 0 (here +).
"""

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ExpressionError, did_you_mean

Array = npt.NDArray[np.float64]

TINY: Final = 1e-12
"""A denominator below this magnitude counts as zero."""
LARGE_QUOTIENT: Final = 1.0 / TINY
"""Quotient of ``div`` by zero: 1 / TINY, so that products of several of them stay finite."""
LARGE: Final = math.exp(700.0)
"""Largest result of ``exp`` and ``pow``: far enough from overflow to add and compare."""


WATCH: Final[dict[str, Any]] = {"over": "raise", "invalid": "raise", "divide": "raise", "under": "ignore"}
"""Options of ``np.errstate`` by which a result of a primitive that is not finite raises FloatingPointError.

The processor sets a flag (IEEE 754, section 7), so that results need not be searched for such."""


def _watched(ufunc: np.ufunc) -> Callable[..., None]:
    """Wrap a ufunc so that results that are not finite become 0, but only under ``np.errstate(**WATCH)``."""

    def apply(*arguments: Array, out: Array) -> None:
        try:
            ufunc(*arguments, out=out)
        except FloatingPointError:  # raised when all of `out` is written
            make_finite(out)

    return apply


_quotient = _watched(np.divide)
_exponential = _watched(np.exp)
_SMALL: Final = 2 * TINY * np.finfo(np.float64).max
"""Number whose division overflows for every denominator below `TINY` (and some below 2 * `TINY`)."""


def _divide(x: Array, y: Array, out: Array) -> None:
    try:
        np.divide(_SMALL, y)
        _quotient(x, y, out=out)
    except FloatingPointError:
        tiny = np.abs(y) < TINY
        _quotient(x, np.where(tiny, 1.0, y), out=out)
        out[tiny] = 0.0


def _divide_large(x: Array, y: Array, out: Array) -> None:
    tiny = np.abs(y) < TINY
    large = np.copysign(LARGE_QUOTIENT, x)
    _quotient(x, np.where(tiny, 1.0, y), out=out)
    np.copyto(out, large, where=tiny)


def _power(x: Array, y: Array, out: Array) -> None:
    result = np.empty_like(out)
    try:
        np.power(x, y, out=result)
    except FloatingPointError:
        result[((x == 0.0) & (y < 0.0)) | np.isnan(result)] = 0.0
    np.minimum(result, LARGE, out=out)
    np.maximum(out, -LARGE, out=out)


def _exp(x: Array, out: Array) -> None:
    np.minimum(x, 700.0, out=out)
    _exponential(out, out=out)


def make_finite(values: Array) -> None:
    """Replace NaN and infinities by 0, in place."""
    known = np.isfinite(values)
    if np.count_nonzero(known) < len(values):
        values[~known] = 0.0


def finite(values: npt.NDArray[Any]) -> Array:
    """Convert to float64, with 0 for NaN and infinities; returns the same array where nothing changes."""
    numbers = values.astype(np.float64, copy=False)
    if values.dtype.kind == "f":
        known = np.isfinite(numbers)
        if np.count_nonzero(known) < len(numbers):
            return np.where(known, numbers, 0.0)
    return numbers


class Primitive(NamedTuple):
    """An operator or function of the score language."""

    arity: int
    apply: Callable[..., None]
    """``apply(*arguments, out=out)``: finite float64 arrays of one shape; ``out`` may be one of the
    arguments. To be called under ``np.errstate(**WATCH)``."""
    infix: int
    """Binding strength of the infix form; 0: written as a function call."""


PRIMITIVES: Final[dict[str, Primitive]] = {
    "+": Primitive(2, _watched(np.add), 1),
    "-": Primitive(2, _watched(np.subtract), 1),
    "*": Primitive(2, _watched(np.multiply), 2),
    "/": Primitive(2, _divide, 2),
    "div": Primitive(2, _divide_large, 0),
    "neg": Primitive(1, _watched(np.negative), 3),
    "pow": Primitive(2, _power, 0),
    "exp": Primitive(1, _exp, 0),
    "log": Primitive(1, _watched(np.log), 0),
    "sqrt": Primitive(1, _watched(np.sqrt), 0),
    "abs": Primitive(1, _watched(np.abs), 0),
    "min": Primitive(2, _watched(np.minimum), 0),
    "max": Primitive(2, _watched(np.maximum), 0),
}


Token = str | float

MAX_LENGTH: Final = 200_000
MAX_DEPTH: Final = 64
MAX_PARENTHESES: Final = 100
BLOCK_ROWS: Final = 16_384
"""Rows evaluated at a time: the buffers of one block stay in the processor's cache."""

_ARITIES: Final[dict[Token, int]] = {name: p.arity for name, p in PRIMITIVES.items()}
_FUNCTIONS: Final = {name: p for name, p in PRIMITIVES.items() if p.infix == 0}
_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "pow",
}


class Expression:
    """A parsed score expression: an immutable prefix program.

    ``tokens`` lists operators, terminal names (str) and constants (float) in prefix order; ``text`` is
    the canonical text, with ``parse(e.text).tokens == e.tokens``; ``terminals`` the names used, sorted.
    """

    __slots__ = ("_text", "terminals", "tokens")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        """``tokens``: a prefix program; raises ExpressionError unless it is one complete tree."""
        _check_tree(tokens)
        self.tokens = tokens
        self._text: str | None = None  # written on demand: learning makes many that nobody reads
        self.terminals = tuple(sorted(t for t in set(tokens) if isinstance(t, str) and t not in PRIMITIVES))

    @property
    def text(self) -> str:
        """Canonical text, with minimal parentheses; `parse` gives the same tokens."""
        if self._text is None:
            self._text = _write(self.tokens)
        return self._text

    def filled(self, values: Mapping[str, float]) -> "Expression":
        """Return the expression with numbers in place of its terminals; its score is the same, bit for bit.

        ``values``: each of its terminals -> number; NaN and infinities count as 0.
        """
        known = {name: float(finite(np.array([values[name]]))[0]) for name in self.terminals}
        return Expression(
            tuple(known.get(token, token) if isinstance(token, str) else token for token in self.tokens)
        )

    def substituted(self, values: Mapping[str, Token]) -> "Expression":
        """Return the expression with some terminals replaced, and simplified without changing any score.

        ``values``: terminal -> terminal or number. Operations on numbers alone become numbers, and a factor
        of 1 disappears.
        """
        stack: list[tuple[Token, ...]] = []
        for token in reversed(self.tokens):
            arguments = [stack.pop() for _ in range(_ARITIES.get(token, 0))]
            node = (values.get(token, token) if isinstance(token, str) else token, *chain(*arguments))
            if arguments and not any(isinstance(one, str) for one in node[1:]):
                node = (float(Expression(node)({}, 16)[0]),)  # as of a block: of one row it may differ
            elif token == "*" and (1.0,) in arguments:
                node = arguments[arguments[0] == (1.0,)]
            stack.append(node)
        return Expression(stack.pop())

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Expression, (self.tokens,))

    def __call__(self, terminals: Mapping[str, npt.NDArray[Any]], rows: int | None = None) -> Array:
        """Compute the scores of all rows: float64 ``[P]``, always finite.

        ``terminals`` maps each name in ``self.terminals`` to an array ``[P]`` of any real dtype; ``rows``
        gives P where the expression has no terminal.
        """
        columns = {name: np.asarray(terminals[name]) for name in self.terminals}
        if columns:
            rows = len(next(iter(columns.values())))
        elif rows is None:
            raise ExpressionError(f"{self.text!r} names no terminal, so the number of rows is needed")
        scores = np.empty(rows)
        for start in range(0, rows, BLOCK_ROWS):
            block = {}
            with np.errstate(all="ignore"):
                for name, column in columns.items():
                    block[name] = finite(column[start : start + BLOCK_ROWS])
            self.evaluate(block, scores[start : start + BLOCK_ROWS])
        return scores

    def evaluate(self, terminals: Mapping[str, Array], out: Array) -> None:
        """Write the scores to `out`, without converting `terminals`: both float64 ``[P]``, all finite."""
        with np.errstate(**WATCH):
            if len(out) <= BLOCK_ROWS:
                self._evaluate_block(terminals, out)
                return
            for start in range(0, len(out), BLOCK_ROWS):
                rows = slice(start, start + BLOCK_ROWS)
                self._evaluate_block({name: terminals[name][rows] for name in self.terminals}, out[rows])

    def _evaluate_block(self, values: Mapping[str, Array], out: Array) -> None:
        read_only = {id(column) for column in values.values()}
        free: list[Array] = []
        stack: list[Array] = []
        for remaining in reversed(range(len(self.tokens))):
            token = self.tokens[remaining]
            if isinstance(token, str) and token in values:
                stack.append(values[token])
            elif isinstance(token, str):
                primitive = PRIMITIVES[token]
                arguments = [stack.pop() for _ in range(primitive.arity)]
                if remaining == 0:  # the whole expression
                    primitive.apply(*arguments, out=out)
                    return
                free.extend(column for column in arguments if id(column) not in read_only)
                result = free.pop() if free else np.empty(len(out))
                primitive.apply(*arguments, out=result)
                stack.append(result)
            else:
                result = free.pop() if free else np.empty(len(out))
                result.fill(token)
                stack.append(result)
        out[:] = stack.pop()


def _check_tree(tokens: tuple[Token, ...]) -> None:
    missing = 1
    for token in tokens:
        if not missing:
            raise ExpressionError(f"the program {tokens!r} is not one tree")
        missing += _ARITIES.get(token, 0) - 1
    if missing:
        raise ExpressionError(f"the program {tokens!r} lacks an argument")


def _write(tokens: tuple[Token, ...]) -> str:
    stack: list[tuple[str, int]] = []  # text and binding strength
    for token in reversed(tokens):
        if not isinstance(token, str):
            stack.append((repr(float(token)), 3 if math.copysign(1.0, token) < 0 else 9))
        elif token not in PRIMITIVES:
            stack.append((token, 9))
        elif not (strength := PRIMITIVES[token].infix):
            arguments = [stack.pop()[0] for _ in range(_ARITIES[token])]
            stack.append((f"{token}({', '.join(arguments)})", 9))
        elif token == "neg":
            # A number right behind the sign is read back as a negative constant: "-3.0" but "-(3.0)".
            text, inner = stack.pop()
            stack.append((f"-({text})" if inner <= 3 or text[0].isdigit() else f"-{text}", 3))
        else:
            left, left_strength = stack.pop()
            right, right_strength = stack.pop()
            left = f"({left})" if left_strength < strength else left
            right = f"({right})" if right_strength <= strength else right
            stack.append((f"{left} {token} {right}", strength))
    return stack[0][0]


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Parse an expression of the score language.

    Any name that is not a function counts as a terminal; `check_terminals` checks that it exists.
    Raises ExpressionError with the text and a caret at the fault.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"a score expression may have {MAX_LENGTH:,} characters; this one has {len(text):,}"
        )
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth > MAX_PARENTHESES:
            raise _fault(text, position, f"more than {MAX_PARENTHESES} parentheses are open here")
    stripped = text.strip()
    if not stripped:
        raise ExpressionError("the score expression is empty; write one such as 't * X'")
    try:
        tree = ast.parse(stripped, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        column = (getattr(error, "offset", None) or 1) - 1
        raise _fault(stripped, column, "not a complete expression here") from None
    tokens: list[Token] = []
    _read(tree.body, stripped, tokens, 1)
    return Expression(tuple(tokens))


def _read(node: ast.expr, text: str, tokens: list[Token], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _fault(text, node.col_offset, f"deeper than {MAX_DEPTH} levels")
    arguments: list[ast.expr]
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            tokens.append(_number(value, text, node.col_offset))
            return
        case ast.UnaryOp(
            op=ast.USub(), operand=ast.Constant(value=int() | float() as value, col_offset=column)
        ) if column == node.col_offset + 1 and not isinstance(value, bool):
            tokens.append(-_number(value, text, node.col_offset))
            return
        case ast.Name(id=name):
            if name in PRIMITIVES:
                raise _fault(text, node.col_offset, f"the function {name!r} needs arguments")
            tokens.append(name)
            return
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            tokens.append("neg")
            arguments = [operand]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            tokens.append(_OPERATORS[type(operator)])
            arguments = [left, right]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if len(args) != _FUNCTIONS[name].arity:
                raise _fault(
                    text,
                    node.col_offset,
                    f"{name!r} takes {_FUNCTIONS[name].arity} argument(s), not {len(args)}",
                )
            tokens.append(name)
            arguments = args
        case _:
            raise _fault(
                text,
                node.col_offset,
                "only terminals, finite numbers, + - * / ** and the functions "
                f"{', '.join(_FUNCTIONS)} are allowed",
            )
    for argument in arguments:
        _read(argument, text, tokens, depth + 1)


def _number(value: float, text: str, column: int) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _fault(text, column, "this number is not finite")
    return number


def _fault(text: str, column: int, what: str) -> ExpressionError:
    start = max(0, column - 60)
    excerpt = re.sub(r"\s", " ", text[start : column + 60])
    return ExpressionError(f"bad score expression: {what}\n  {excerpt}\n  {' ' * (column - start)}^")


def check_terminals(expression: Expression, known: Collection[str]) -> None:
    """Raise ExpressionError for the first terminal that is not in `known`, with a list of these."""
    for name in expression.terminals:
        if name not in known:
            match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", expression.text)
            raise _fault(
                expression.text,
                match.start() if match else 0,
                f"there is no terminal {name!r}{did_you_mean(name, known)}; there are: {', '.join(known)}; "
                f"and the functions {', '.join(_FUNCTIONS)}",
            )


# --- terminals: what the names of an expression stand for; `scrapy_gp4c.scoring.terminals` has them all

Formula = Callable[[Mapping[str, Array], int], Array]
"""``formula(state, cycle)``: values ``[P]`` at planning cycle ``cycle`` (the state is older)."""


class Terminal(NamedTuple):
    """A terminal by one of the clocks: its formula, the columns that this reads, and its meaning."""

    columns: tuple[str, ...]
    """Columns that the formula reads: pages equal in these have the same value."""
    formula: Formula
    meaning: str


def of_column(name: str) -> Formula:
    """Return the formula of a terminal that has the values of the column `name`."""
    return lambda state, cycle: state[name]


def of_columns(meanings: Mapping[str, str]) -> dict[str, Terminal]:
    """Return terminals that have the values of the column of their name; ``meanings``: name -> meaning."""
    return {name: Terminal((name,), of_column(name), meaning) for name, meaning in meanings.items()}
