"""``scrapy gp4c export``: the recorded history as text, which `import` and the training readers take.

One line per page: ``site<TAB>page<TAB>bits<TAB>json``. ``site`` is the host, ``page`` the URL. ``bits`` has
one character per cycle from 2 to the last finished one: ``1`` changed, ``0`` unchanged, ``.`` not judged (no
visit, or one with nothing to compare with). ``json`` is what `import` needs to restore the page. The first
line is a comment, ``#`` and JSON: the format's name and the cycles' records.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO
from urllib.parse import urlsplit

import numpy as np

from scrapy_gp4c.columns import CHANGED, NOT_MODIFIED, OUTCOMES, UNCHANGED, Columns
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store import Store

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "write the recorded history as text (TSV)"
FORMAT: Final = "gp4c-history/1"
CHANGED_BIT, UNCHANGED_BIT, NOT_JUDGED = (ord(character) for character in "10.")
MATRIX_BYTES = 64_000_000
"""Memory for the bits of the pages exported in one pass over the visits."""


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


def lines(store: Store) -> Iterator[str]:
    """Yield the lines of a store's history up to its last finished cycle."""
    last = store.last_cycle
    records = [record for record in store.cycles() if record["cycle"] <= last]
    yield "# " + json.dumps({"format": FORMAT, "cycles": records})
    cycles = max(0, last - 1)
    blocks = max(1, MATRIX_BYTES // max(1, cycles * store.block_rows))
    group: list[tuple[int, Columns]] = []
    for block in store.blocks():
        group.append(block)
        if len(group) == blocks:
            yield from _lines(store, group, last)
            group = []
    if group:
        yield from _lines(store, group, last)


def _lines(store: Store, group: list[tuple[int, Columns]], last: int) -> Iterator[str]:
    first = group[0][0]
    stop = group[-1][0] + len(group[-1][1]["n"])
    bits = np.full((stop - first, max(0, last - 1)), NOT_JUDGED, np.uint8)
    for cycle, visits in store.visits(2, last):
        visits = visits[(visits["page"] >= first) & (visits["page"] < stop)]
        for outcomes, bit in (((CHANGED,), CHANGED_BIT), ((UNCHANGED, NOT_MODIFIED), UNCHANGED_BIT)):
            bits[visits["page"][np.isin(visits["outcome"], outcomes)] - first, cycle - 2] = bit
    for start, block in group:
        ids = np.arange(start, start + len(block["n"]))
        for row, request in enumerate(store.requests(ids)):
            text = bits[start - first + row].tobytes().decode("ascii")
            url = request.pop("url")
            extra = _state(block, row, text) | _validators(store, start + row)
            if request:
                extra["request"] = request
            yield "\t".join((urlsplit(url).netloc, url, text, json.dumps(extra)))


def _state(block: Columns, row: int, text: str) -> dict[str, Any]:
    """Return what the bits do not tell of a page's columns."""
    value = {name: column[row].item() for name, column in block.items() if name not in ("A", "G")}
    extra: dict[str, Any] = {}
    if value["first_cycle"]:
        extra["first_cycle"] = value["first_cycle"]
    last_judged = max(text.rfind("0"), text.rfind("1")) + 2
    if value["n"] and value["last_cycle"] > last_judged:
        extra["last_cycle"] = value["last_cycle"]
    if value["has_copy"]:
        extra["fingerprint"] = f"{value['fingerprint']:016x}"
    if value["failures"]:
        extra["failures"] = value["failures"]
        extra["gone"] = value["gone"]
        extra["last_attempt"] = value["last_attempt"]
        extra["outcome"] = OUTCOMES[value["outcome"]]
    return extra


def _validators(store: Store, page: int) -> dict[str, Any]:
    values = zip(("etag", "last_modified"), store.validators(page), strict=True)
    return {name: value for name, value in values if value is not None}
