"""``scrapy gp4c export``: write the recorded history as text, for `import` and for learning.

The format is that of `scrapy_gp4c.store.history_fields`.
"""

from __future__ import annotations

import gzip
import io
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.atomic_files import replacing
from scrapy_gp4c.store.export import lines

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "write the recorded history as text (TSV)"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE, compressed if it ends in .gz (default: stdout)"
    )


def run(project: Project, options: Namespace) -> None:
    """Write the history; a file appears only when it is complete, a device is written as it is."""
    with project.open_store() as store, _output(options.output) as output:
        for line in lines(store, project.credentials):
            output.write(line + "\n")


@contextmanager
def _output(name: str | None) -> Iterator[TextIO]:
    if name is None:
        yield sys.stdout
        return
    try:
        with replacing(name) as raw:
            # No file name and no time stamp inside: the same history gives the same bytes.
            packed = (
                gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if name.endswith(".gz") else nullcontext(raw)
            )
            with packed as binary:
                output = open_text(binary)
                yield output
                output.detach()  # written, and left open: `replacing` closes it when it is on the disk
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"cannot write {name}: {error.strerror}. Choose another file with -o.") from error


def open_text(binary: Any) -> io.TextIOWrapper:
    """Text layer of the format over a binary file."""
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
