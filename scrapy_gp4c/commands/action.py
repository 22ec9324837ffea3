"""Parts of the actions of ``scrapy gp4c``: the class `Action`, options, output as JSON and tables."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TextIO
from unicodedata import category, east_asian_width

from scrapy_gp4c.foreign_text import printable
from scrapy_gp4c.scoring.functions import score_argument
from scrapy_gp4c.settings.values import budget

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of an action, as arguments of `ArgumentParser.add_argument`."""

    names: tuple[str, ...]
    settings: dict[str, Any]


def option(*names: str, **settings: Any) -> Option:
    """Return an `Option` with the arguments of `ArgumentParser.add_argument`, written as for that method."""
    return Option(names, settings)


def _budget(text: str) -> str:
    """Return a text unchanged if it is a budget; else raise ArgumentTypeError."""
    try:
        budget(text)
    except ValueError:
        expected = "expected a share above 0 and at most 1, such as 0.05, or a count of at least 1"
        raise ArgumentTypeError(f"{expected}; found {text[:40]!r}") from None
    return text


JSON: Final = option("--json", action="store_true", help="print one JSON document instead")
OTHER_SETTINGS: Final = (
    option(
        "--budget",
        metavar="B",
        type=_budget,
        help="budget in place of GP4C_BUDGET: a share such as 0.05, or a count",
    ),
    option(
        "--score", metavar="F", type=score_argument, help="score function in place of GP4C_SCORE_FUNCTION"
    ),
)
"""Options that override settings: `scrapy_gp4c.commands.actions.IN_PLACE_OF_SETTINGS` says which."""


@dataclasses.dataclass(frozen=True)
class Action:
    """An action of ``scrapy gp4c``: its help, options, and the functions that run it and print its result."""

    help: str
    run: Callable[..., Any]
    """``run(project, options)``; the record that it returns, if any, is printed."""
    options: Sequence[Option | Sequence[Option]] = ()
    """Options of the action; those of an inner sequence exclude each other."""
    document: type | None = None
    """Class of the record that ``--json`` prints; None: the action has no ``--json``."""
    show: Callable[[Any, Namespace], None] | None = None
    """``show(record, options)`` prints a record for people."""

    def add_options(self, parser: ArgumentParser) -> None:
        for one in self.options:
            group = [one] if isinstance(one, Option) else one
            adding = parser.add_mutually_exclusive_group() if len(group) > 1 else parser
            for each in group:
                adding.add_argument(*each.names, **each.settings)

    def __call__(self, project: Any, options: Namespace) -> None:
        """Run the action, and print its record as JSON or for people."""
        record = self.run(project, options)
        if record is not None and options.json:
            print_json(record)
        elif record is not None and self.show is not None:
            self.show(record, options)


def say(text: object = "", file: TextIO | None = None) -> None:
    """Print a line; control characters in it are percent-encoded, because a terminal obeys them."""
    print(printable(str(text)), file=file)


def print_json(document: DataclassInstance) -> None:
    """Print a dataclass as JSON, with null for numbers that are not finite."""
    plain = _plain(dataclasses.asdict(document))
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
    if any(printable(line) != line for line in text.split("\n")):  # JSON itself quotes few controls
        text = json.dumps(plain, indent=1, allow_nan=False)
    sys.stdout.write(text + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def positive(text: str) -> int:
    """Read a whole number of at least 1; raises ArgumentTypeError."""
    number = int(text[:20]) if text.isdecimal() else 0
    if number < 1:
        raise ArgumentTypeError(f"expected a count of at least 1; found {text!r}")
    if number >= 2**31:  # the store counts cycles in 32 bits
        raise ArgumentTypeError(f"expected a count of at most {2**31 - 1}; found {text[:40]!r}")
    return number


def date(text: str) -> float:
    """Read a date, or date and time, in this machine's time zone: s since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ArgumentTypeError(f"expected a date such as 2026-11-01; found {text!r}") from None


def print_table(rows: Sequence[tuple[str, ...]], text_column_count: int = 0) -> None:
    for line in table_lines(rows, text_column_count):
        sys.stdout.write(line + "\n")


def width_of(text: str) -> int:
    """Return the terminal columns that a text takes: two for wide letters, none for marks (UAX #11)."""
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    marks = sum(category(letter) in ("Mn", "Me", "Cf") for letter in text)
    return len(text) + wide - marks


def table_lines(rows: Sequence[tuple[str, ...]], text_column_count: int = 0) -> list[str]:
    """Format rows, the first being the header, as lines with aligned columns and no control characters.

    The first `text_column_count` columns and the last one are aligned left, the others right.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, width) in enumerate(zip(row[:-1], widths, strict=False)):
            blanks = " " * (width - width_of(cell))
            cells.append(cell + blanks if column < text_column_count else blanks + cell)
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines
