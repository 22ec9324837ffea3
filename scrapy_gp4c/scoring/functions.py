"""Score functions: loading any that is given.

A score function is given as a name of `scrapy_gp4c.scoring.named.NAMED`, an expression, the path of a score
file (docs/architecture.md, "Files and formats") or the dotted path of a callable
``f(terminals: Mapping[str, ndarray[P]]) -> ndarray[P]``.

Callables named by a dotted path: a score function, a fitness or a policy of a user's own.

Command lines with scores in them: ``--score '-t*X'`` is a score, not the option ``-t``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, check_terminals, parse
from scrapy_gp4c.scoring.named import NAMED
from scrapy_gp4c.scoring.terminals import NAMES, Clock

FORMAT: Final = "gp4c-score/1"


@dataclass(frozen=True)
class ScoreFunction:
    """A loaded score function: what to call, and all that a record of its use needs."""

    text: str
    """Exactly what was given."""
    expression: Expression | None
    """The parsed expression; None for a callable."""
    callable: Callable[[Mapping[str, npt.NDArray[Any]]], npt.ArrayLike] | None
    terminals: tuple[str, ...]
    """The terminals it reads; a callable gets all of them."""
    clock: Clock = "visits"
    sha256: str | None = None
    """Digest of the score file it came from."""
    policy: str | None = None
    """Text of the policy that its name brings along; None: it goes with any."""
    learned_under: str | None = None
    """Text of the policy under which it was learned; None: it was not."""

    @property
    def formula(self) -> str:
        """The expression's canonical text, or the dotted path."""
        return self.text if self.expression is None else self.expression.text

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that its terminals read: of `terminals.STATE` and `terminals.ROUND`."""
        return terminals.columns_of(self.terminals, self.clock)

    def on_clock(self, clock: Clock | None) -> ScoreFunction:
        """The same function on another clock; None: on its own."""
        return self if clock in (None, self.clock) else replace(self, clock=clock)

    def scores(self, state: Mapping[str, npt.NDArray[Any]], cycle: int) -> npt.NDArray[np.float64]:
        """Scores at planning cycle `cycle`: float64 ``[P]``, finite.

        ``state``: the columns that the terminals name, each ``[P]``. Raises ScoreError when a callable
        returns something else than P numbers.
        """
        rows = len(state[next(iter(state))])
        if self.expression is not None:
            return self.expression(terminals.compute(self.terminals, state, cycle, self.clock), rows)
        values = _Terminals(state, cycle, self.clock)
        assert self.callable is not None
        try:
            scores = np.array(self.callable(values), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ScoreError(f"the score function {self.text!r} failed: {error}") from error
        if scores.shape != (rows,):
            raise ScoreError(
                f"the score function {self.text!r} must return one score per page, shape ({rows},); "
                f"it returned shape {scores.shape}"
            )
        scores[~np.isfinite(scores)] = 0.0
        return scores


class _Terminals(Mapping[str, npt.NDArray[Any]]):
    """All terminals, each ``[P]``, computed when a callable asks for them."""

    def __init__(self, state: Mapping[str, npt.NDArray[Any]], cycle: int, clock: Clock) -> None:
        table = terminals.TERMINALS[clock]
        self._state, self._cycle = state, cycle
        self._table = {name: table[name] for name in terminals.TOLD}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._table[name].formula(self._state, self._cycle)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def load(given: str) -> ScoreFunction:
    """Load a score function given as name, expression, score file or dotted path.

    Raises ScoreError or ExpressionError, which name what was given and what would be accepted.
    """
    if not isinstance(given, str) or not given.strip():
        raise ScoreError(
            f"a score function is a name ({', '.join(NAMED)}), an expression, the path of a score file "
            f"or a dotted path; found {given!r}"
        )
    if given in NAMED:
        return replace(of_expression(parse(NAMED[given].expression), given), policy=NAMED[given].policy)
    if given.endswith(".json") or _is_file(given):
        return _load_file(Path(given), given)
    if is_dotted(given):
        return _load_callable(given)
    try:
        return _telling_apart(of_expression(parse(given), given))
    except ExpressionError as error:
        raise ExpressionError(
            f"{error}\n(neither a named score function: {', '.join(NAMED)}; nor the path of a score file)"
        ) from None


def recorded(formula: object, own: ScoreFunction | None = None) -> ScoreFunction:
    """The function of a formula in a store's record: nothing is imported or read for what a store says.

    ``own``: the function of the user's own settings, taken where its formula is the same. Raises ScoreError
    for another dotted path, ExpressionError for what is neither a name nor an expression.
    """
    if own is not None and formula == own.formula:
        return own
    text = str(formula)
    if is_dotted(text):
        raise ScoreError(f"the score function {text!r} is a dotted path, which only settings may name")
    return of_expression(parse(NAMED[text].expression if text in NAMED else text), text)


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # too long for a path, or with a null character
        return False


def of_expression(
    expression: Expression, given: str | None = None, clock: Clock = "visits", sha256: str | None = None
) -> ScoreFunction:
    """The score function of an expression; ``given``: what it was given as, if not by its canonical text.

    Raises ExpressionError for a terminal that does not exist.
    """
    check_terminals(expression, terminals.NAMES)
    text = expression.text if given is None else given
    return ScoreFunction(text, expression, None, expression.terminals, clock, sha256)


def _telling_apart(function: ScoreFunction) -> ScoreFunction:
    """The function, unless it scores all pages alike: then raise ExpressionError."""
    if not function.terminals:
        raise ExpressionError(
            f"the score expression {function.formula!r} names no terminal: every page would get the same "
            f"score. Use one of {', '.join(terminals.NAMES)}; 'random' ranks at random."
        )
    return function


def _load_callable(given: str) -> ScoreFunction:
    try:
        function = load_callable(given)
    except ImportError as error:
        raise ScoreError(f"cannot load the score function {given!r}: {error}") from error
    except NotCallableError as error:
        raise ScoreError(f"the score function {given!r} is a {error}, not callable") from None
    return ScoreFunction(given, None, function, terminals.TOLD)


def _load_file(path: Path, given: str) -> ScoreFunction:
    try:
        raw = path.read_bytes()
        content = json.loads(raw)
    except OSError as error:
        raise ScoreError(f"cannot read the score file {given!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ScoreError(f"the score file {given!r} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ScoreError(
            f'the score file {given!r} must have "format": {FORMAT!r}; found {found!r}. '
            "Write it anew with `python -m training.learn`."
        )
    clock = content.get("clock", "visits")
    if clock not in terminals.CLOCKS:
        raise ScoreError(
            f'the score file {given!r} has "clock": {clock!r}; expected one of {terminals.CLOCKS}'
        )
    text = content.get("expression")
    if not isinstance(text, str):
        raise ScoreError(f'the score file {given!r} has no "expression" text; found {text!r}')
    policy = content.get("policy", "top_k")
    if not isinstance(policy, str):
        raise ScoreError(f'the score file {given!r} has "policy": {policy!r}; expected the text of a policy')
    try:
        function = of_expression(parse(text), given, clock, hashlib.sha256(raw).hexdigest())
        return replace(_telling_apart(function), learned_under=policy)
    except ExpressionError as error:
        raise ExpressionError(f"in the score file {given!r}: {error}") from None


class NotCallableError(TypeError):
    """A dotted path leads to something that cannot be called; the message is the name of its type."""


def is_dotted(text: str) -> bool:
    """Tell whether a text is written like the path of something in a module: ``package.module.name``."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text) is not None


def load_callable(path: str) -> Callable[..., Any]:
    """Import the callable that a dotted path names.

    Raises ImportError where the path leads nowhere, NotCallableError where it leads to something else; what
    the imported module itself raises passes on.
    """
    module, _, name = path.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ImportError(str(error)) from error
    if not callable(found):
        raise NotCallableError(type(found).__name__)
    return found


class ScoreParser(argparse.ArgumentParser):
    """A parser that takes an argument which reads as a score expression for a value, minus sign or not.

    Such a value arrives with a blank before it: give its option ``type=as_given``.
    """

    # argparse's stubs overload it by the kind of namespace, which is handed on here as it comes.
    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse, as any parser does."""
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args([f" {one}" if _is_score(one) else one for one in given], namespace)


def as_given(value: str) -> str:
    """The value without the blank that `ScoreParser` put before it."""
    return value[1:] if value.startswith(" -") else value


def _is_score(argument: str) -> bool:
    """Tell a score that begins with a minus sign from an option: ``-t*X`` and ``-n`` from ``-o``."""
    if not argument.startswith("-") or argument.startswith("--"):
        return False
    try:
        expression = parse(argument)
    except ExpressionError:
        return False
    return len(expression.tokens) > 2 or any(name in NAMES for name in expression.terminals)
