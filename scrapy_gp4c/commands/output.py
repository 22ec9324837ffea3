"""What all commands print and read: JSON, tables for the terminal, counts and dates."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import category, east_asian_width

from scrapy_gp4c.foreign_text import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def add_json(add: Callable[..., object]) -> None:
    """Add ``--json``; ``add``: ``add_argument`` of a parser or group."""
    add("--json", action="store_true", help="print one JSON document instead")


def say(text: object = "", file: TextIO | None = None) -> None:
    """Print a line; control characters in it are percent-encoded, because a terminal obeys them."""
    print(printable(str(text)), file=file)


def print_json(document: DataclassInstance) -> None:
    """Print a record as JSON; a number that is not finite as null."""
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
    """A count of at least 1; raises ArgumentTypeError."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"expected a count of at least 1; found {text!r}")
    return number


def date(text: str) -> float:
    """Return s since 1970 of a date, or date and time, of this machine's time zone."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ArgumentTypeError(f"expected a date such as 2026-11-01; found {text!r}") from None


def print_table(rows: Sequence[tuple[str, ...]], text_column_count: int = 0) -> None:
    """Print what `table_lines` returns."""
    for line in table_lines(rows, text_column_count):
        sys.stdout.write(line + "\n")


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes: two for wide letters, none for marks (UAX #11)."""
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    marks = sum(category(letter) in ("Mn", "Me", "Cf") for letter in text)
    return len(text) + wide - marks


def table_lines(rows: Sequence[tuple[str, ...]], text_column_count: int = 0) -> list[str]:
    """Rows, the first being the header, in aligned columns; control characters are percent-encoded.

    The first `text_column_count` columns are to the left, as the last one always is; the others to the right.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, width) in enumerate(zip(row[:-1], widths, strict=False)):
            blanks = " " * (width - width_of(cell))
            cells.append(cell + blanks if column < text_column_count else blanks + cell)
        lines.append("  ".join([*cells, row[-1]]))
    return lines
