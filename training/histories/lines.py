"""Lines of files of others: a few MB of gzip may unpack to one of many GB, which nobody wants in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final

from scrapy_gp4c.errors import HistoryError

MOST_BYTES: Final = 2**28
"""Of a line: a page with all its cycles, or with the texts of all its versions."""


def lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of an open file; raises HistoryError for one of more than `MOST_BYTES` bytes."""
    for number, line in enumerate(iter(partial(file.readline, MOST_BYTES + 1), b""), 1):
        if len(line) > MOST_BYTES:
            raise HistoryError(
                f"{path}, line {number}: expected at most {MOST_BYTES:,} bytes; found more. Is it a history?"
            )
        yield line
