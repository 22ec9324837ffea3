"""``scrapy gp4c export``: the recorded history as text, which `import` and the training readers take.

The format is that of `scrapy_gp4c.store.history_text`.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.history_text import lines

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "write the recorded history as text (TSV)"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE, compressed if it ends in .gz (default: stdout)"
    )


def run(project: Project, options: Namespace) -> None:
    """Write the history; a file appears only when it is complete."""
    with project.open_store() as store, _output(options.output) as output:
        for line in lines(store):
            output.write(line + "\n")


@contextmanager
def _output(name: str | None) -> Iterator[TextIO]:
    if name is None:
        yield sys.stdout
        return
    part = Path(f"{name}.part")
    try:
        raw = part.open("wb")
    except OSError as error:
        raise StoreError(f"cannot write {name}: {error.strerror}. Choose another file with -o.") from error
    try:
        with raw:
            # No file name and no time stamp inside: the same history gives the same bytes.
            compressed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if name.endswith(".gz") else None
            with open_text(compressed or raw) as output:
                yield output
        os.replace(part, name)
    except OSError as error:
        raise StoreError(f"cannot write {name}: {error.strerror}. Free space, or choose another.") from error
    finally:
        part.unlink(missing_ok=True)


def open_text(binary: Any) -> TextIO:
    """Text layer of the format over a binary file."""
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
