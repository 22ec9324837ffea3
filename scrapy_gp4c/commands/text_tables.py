"""Tables of text for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scrapy_gp4c.foreign_text import printable


def print_table(rows: Sequence[tuple[str, ...]], text_column_count: int = 0) -> None:
    """Print what `table_lines` returns."""
    for line in table_lines(rows, text_column_count):
        sys.stdout.write(line + "\n")


def table_lines(rows: Sequence[tuple[str, ...]], text_column_count: int = 0) -> list[str]:
    """Rows, the first being the header, in aligned columns; control characters are percent-encoded.

    The first `text_column_count` columns are to the left, as the last one always is; the others to the right.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:text_column_count], widths, strict=False)]
        cells += [
            cell.rjust(width)
            for cell, width in zip(row[text_column_count:-1], widths[text_column_count:], strict=False)
        ]
        lines.append("  ".join([*cells, row[-1]]))
    return lines
