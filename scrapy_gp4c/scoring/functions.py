"""Score functions, and how they are loaded from a name, an expression, a file or a dotted path.

A score function is written as a name of `scrapy_gp4c.scoring.named.NAMED`, an expression, the path of a score
file (docs/code/architecture.md, "Files and formats") or the dotted path of a callable
``f(terminals: Mapping[str, ndarray[P]]) -> ndarray[P]``.
"""

import argparse
import hashlib
import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import LazyColumns
from scrapy_gp4c.errors import ExpressionError, Gp4cError, ScoreError, did_you_mean
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, check_terminals, parse
from scrapy_gp4c.scoring.hints import UNCLAIMED
from scrapy_gp4c.scoring.named import NAMED
from scrapy_gp4c.scoring.sizes import UNSIZED
from scrapy_gp4c.scoring.terminals import NAMES, Clock

FORMAT: Final = "gp4c-score/1"


@dataclass(frozen=True)
class ScoreFunction:
    """A loaded score function: an expression or a callable, its clock, and where it is from."""

    text: str
    """Name, expression, path or dotted path as the user wrote it."""
    expression: Expression | None
    """The parsed expression; None for a callable."""
    callable: Callable[[Mapping[str, npt.NDArray[Any]]], npt.ArrayLike] | None
    terminals: tuple[str, ...]
    """Terminals that it reads; a callable gets all of them."""
    clock: Clock = "visits"
    sha256: str | None = None
    """Digest of the score file; None: not from a file."""
    policy: str | None = None
    """Policy (as in ``GP4C_POLICY``) that belongs to a named function or a score file; None: any policy."""
    learned_under: str | None = None
    """Text of the policy under which the function was learned; None: not learned."""

    @property
    def formula(self) -> str:
        """Canonical text of the expression, or the dotted path."""
        return self.text if self.expression is None else self.expression.text

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that its terminals read: of `terminals.STATE` and `terminals.ROUND`."""
        return terminals.columns_of(self.terminals, self.clock)

    def on_clock(self, clock: Clock | None) -> Self:
        """Return this function with the clock `clock`; None leaves it as it is."""
        return self if clock in (None, self.clock) else replace(self, clock=clock)

    def for_pages(self, *, has_claims: bool = False, has_sizes: bool = False) -> Self:
        """Return a function of equal scores that reads no claims or no sizes where no page has any."""
        missing = ({} if has_claims else UNCLAIMED) | ({} if has_sizes else UNSIZED)
        if self.expression is None or missing.keys().isdisjoint(self.terminals):
            return self
        expression = self.expression.substituted(missing)
        return replace(self, expression=expression, terminals=expression.terminals)

    def scores(self, state: Mapping[str, npt.NDArray[Any]], cycle: int) -> npt.NDArray[np.float64]:
        """Scores at planning cycle `cycle`: float64 ``[P]``, finite.

        ``state``: the columns that the terminals name, each ``[P]``. Raises ScoreError when a callable
        returns something else than P numbers.
        """
        rows = len(state[next(iter(state))])
        if self.expression is not None:
            return self.expression(terminals.compute(self.terminals, state, cycle, self.clock), rows)
        table = terminals.TERMINALS[self.clock]
        values = LazyColumns(terminals.ALWAYS_KNOWN, lambda name: table[name].formula(state, cycle))
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


def load(text: str) -> ScoreFunction:
    """Load a score function from a name, an expression, the path of a score file or a dotted path.

    Raises ScoreError or ExpressionError, which quote the text and say what is accepted.
    """
    if not isinstance(text, str) or not text.strip():
        raise ScoreError(
            f"a score function is a name ({', '.join(NAMED)}), an expression, the path of a score file "
            f"or a dotted path; found {text!r}"
        )
    if text in NAMED:
        return replace(of_expression(parse(NAMED[text].expression), text), policy=NAMED[text].policy)
    if text.endswith(".json") or _is_file(text):
        return _load_file(text)
    if is_dotted(text):
        function = load_callable(text, "score function", ScoreError)
        return ScoreFunction(text, None, function, terminals.ALWAYS_KNOWN)
    try:
        return _require_terminals(of_expression(parse(text), text))
    except ExpressionError as error:
        raise ExpressionError(
            f"{error}\n(neither a named score function{did_you_mean(text, NAMED)}: {', '.join(NAMED)}; "
            "nor the path of a score file)"
        ) from None


def recorded(formula: object, configured: ScoreFunction | None = None) -> ScoreFunction:
    """Return the score function of a cycle's record, without importing or reading files.

    ``formula``: `ScoreFunction.formula` from the record; ``configured``: the function of the user's settings,
    returned if its formula is the same. Raises ScoreError for another dotted path, ExpressionError for a text
    that is neither a name nor an expression.
    """
    if configured is not None and formula == configured.formula:
        return configured
    text = str(formula)
    if is_dotted(text):
        raise ScoreError(f"the score function {text!r} is a dotted path, which only settings may name")
    return of_expression(parse(NAMED[text].expression if text in NAMED else text), text)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a path, or with a null character
        return False


def of_expression(
    expression: Expression, text: str | None = None, clock: Clock = "visits", sha256: str | None = None
) -> ScoreFunction:
    """Make a score function of an expression; ``text``: as the user wrote it, None: canonical.

    Raises ExpressionError for a terminal that does not exist.
    """
    check_terminals(expression, terminals.NAMES)
    return ScoreFunction(text or expression.text, expression, None, expression.terminals, clock, sha256)


def _require_terminals(function: ScoreFunction) -> ScoreFunction:
    if not function.terminals:
        raise ExpressionError(
            f"the score expression {function.formula!r} names no terminal: every page would get the same "
            f"score. Use one of {', '.join(terminals.NAMES)}; 'random' ranks at random."
        )
    return function


def _load_file(path: str) -> ScoreFunction:
    try:
        raw = Path(path).read_bytes()
        content = json.loads(raw)
    except OSError as error:
        raise ScoreError(f"cannot read the score file {path!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ScoreError(f"the score file {path!r} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        format_name = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ScoreError(
            f'the score file {path!r} must have "format": {FORMAT!r}; found {format_name!r}. '
            "Write it anew with `python -m training.learn`."
        )
    clock = content.get("clock", "visits")
    if clock not in terminals.CLOCKS:
        raise ScoreError(
            f'the score file {path!r} has "clock": {clock!r}; expected one of {terminals.CLOCKS}'
        )
    text = content.get("expression")
    if not isinstance(text, str):
        raise ScoreError(f'the score file {path!r} has no "expression" text; found {text!r}')
    policy = content.get("policy", "top_k")
    if not isinstance(policy, str):
        raise ScoreError(f'the score file {path!r} has "policy": {policy!r}; expected the text of a policy')
    try:
        function = of_expression(parse(text), path, clock, hashlib.sha256(raw).hexdigest())
        own_policy = content.get("policy")
        return replace(_require_terminals(function), learned_under=policy, policy=own_policy)
    except ExpressionError as error:
        raise ExpressionError(f"in the score file {path!r}: {error}") from None


def is_dotted(text: str) -> bool:
    """Whether a text may be a dotted path: two or more names joined by dots, as ``package.module.name``."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text) is not None


def load_callable(path: str, noun: str, kind: type[Gp4cError]) -> Callable[..., Any]:
    """Import the callable at dotted path `path`; ``noun``: what errors call it, such as "score function".

    Raises an error of type `kind` if there is none; other errors raised by the imported module pass.
    """
    module, _, name = path.rpartition(".")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise kind(f"cannot load the {noun} {path!r}: {error}") from error
    if not callable(function):
        raise kind(f"the {noun} {path!r} is a {type(function).__name__}, not callable: name a function")
    return function


class ScoreParser(argparse.ArgumentParser):
    """Command-line parser in which ``--score '-t*X'`` is a score, not the option ``-t``.

    It puts a blank in front of a value that reads as a score expression, which `score_argument` removes.
    """

    # argparse's stubs overload it by the kind of namespace, which is handed on here as it comes.
    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        args = sys.argv[1:] if args is None else args
        return super().parse_known_args([f" {arg}" if _is_score(arg) else arg for arg in args], namespace)


def score_argument(value: str) -> str:
    """Return a value without the blank that `ScoreParser` put in front; to be the option's ``type``."""
    return value[1:] if value.startswith(" -") else value


def _is_score(argument: str) -> bool:
    if not argument.startswith("-") or argument.startswith("--"):
        return False
    try:
        expression = parse(argument)
    except ExpressionError:
        return False
    return len(expression.tokens) > 2 or any(name in NAMES for name in expression.terminals)
