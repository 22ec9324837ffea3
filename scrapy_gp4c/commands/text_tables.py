"""Tables of text for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from unicodedata import category, east_asian_width

from scrapy_gp4c.foreign_text import printable


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
