"""Tables of text for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows, the first being the header, in aligned columns; the last column is to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[-1]]) + "\n")
