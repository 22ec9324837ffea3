"""Command lines with scores in them: ``--score '-t*X'`` is a score, not the option ``-t``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from scrapy_gp4c.errors import ExpressionError
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.terminals import NAMES


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
