"""``scrapy gp4c import``, ``hint`` and ``export``: lists of URLs and exported histories, plain or gzip.

A list for ``hint`` has changed pages, a URL per line. One to import may also have a tab and a weight. A
history (`scrapy_gp4c.store.history_fields`) is imported into a new store only.
"""

from __future__ import annotations

import gzip
import io
import sys
import time
import zlib
from argparse import Namespace
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TextIO, cast

import numpy as np

from scrapy_gp4c.commands.action import JSON, Action, option, print_json, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import ImportFileError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.outcomes import EXCLUDED
from scrapy_gp4c.page_state.page_names import Moves
from scrapy_gp4c.scoring.weights import read_weight
from scrapy_gp4c.store.atomic_files import explained, replacing
from scrapy_gp4c.store.export import lines
from scrapy_gp4c.store.history_fields import HEADER_START, is_header
from scrapy_gp4c.store.opening import Store, import_history, remove_leftovers
from scrapy_gp4c.store.records import SAME_PAGE, StoredRequest

PROGRESS_LINES: Final = 100_000
MAX_LINE_BYTES: Final = 2**24
"""Longest line that is read: a gzip file of a few MB may unpack to a line of many GB."""

Line = tuple[int, str]


@dataclass(frozen=True)
class Imported:
    """Counts of imported pages and visits."""

    added: int
    """Pages of the list that were not known."""
    known: int
    """Pages of the list that were known already."""
    cycles: int
    """Imported cycles of a history; 0: the file was a list of URLs."""


class Weighed(NamedTuple):
    """Pages with a weight in an imported list."""

    keys: array[int]
    weights: array[float]


def _import(project: Project, options: Namespace) -> None:
    name = options.file
    first = next(content_lines(name), (0, ""))[1]
    if first.startswith("#") or first.count("\t") > 1:
        if options.callback is not None:
            raise ImportFileError(f"{name} is a history, which has its own callbacks: leave out --callback")
        restored, cycles = import_history(project.store_path, name, content_lines(name), project.page)
        say(f"restored {counted(restored, 'page')} with {counted(cycles, 'cycle')}", file=sys.stderr)
        if options.json:
            print_json(Imported(restored, 0, cycles))
        return
    callback = options.callback
    if callback is not None and not callable(getattr(project.spider_class, callback, None)):
        raise ImportFileError(
            f"--callback {callback}: the spider {project.spider_class.name!r} has no such method"
        )
    failure: list[ImportFileError] = []
    weighed = Weighed(array("Q"), array("d"))
    with project.open_store(readonly=False) as store:
        remove_leftovers(store.path)
        pages = _pages(project, Addresses(project, store), name, callback, weighed, failure)
        added, known = store.add_pages(pages)
        if weighed.keys:
            keys = np.frombuffer(weighed.keys, np.uint64)
            store.put_weights(store.find_many(keys), np.frombuffer(weighed.weights))
    say(f"{counted(added, 'page')} added, {known:,} known already", file=sys.stderr)
    if options.json:
        print_json(Imported(added, known, 0))
    if failure:
        raise failure[0]


def _pages(
    project: Project,
    addresses: Addresses,
    name: str,
    callback: str | None,
    weighed: Weighed,
    failure: list[ImportFileError],
) -> Iterator[tuple[int, StoredRequest]]:
    """Yield (key, request) of a list's pages up to the first bad line, whose error is put into `failure`.

    ``name``: the list's file. Keys and weights of pages with a weight are put into `weighed`.
    """
    try:
        for number, line in content_lines(name):
            try:
                url, weight = _split(line)
                stored: StoredRequest = {"url": url}
                if callback is not None:
                    stored["callback"] = callback
                key, stored = project.page(stored)
                key = addresses.key(stored["url"], key)
            except ValueError as error:
                raise ImportFileError(
                    f"{name}, line {number}: {error}. The pages of the lines before it are in the store; "
                    "correct the line and import the file again."
                ) from None
            if weight is not None:
                weighed.keys.append(key)
                weighed.weights.append(weight)
            yield key, stored
    except ImportFileError as error:
        failure.append(error)


def _split(line: str) -> tuple[str, float | None]:
    url, tab, text = line.partition("\t")
    if not tab:
        return line, None
    try:
        weight: object = float(text)
    except ValueError:
        weight = text
    return url, read_weight(weight)


def content_lines(name: str) -> Iterator[Line]:
    """Yield (line number, line) of a file's lines, without blank ones and comments; ``-``: standard input.

    Header and cycle records of a history, which are comments, are yielded too. Gzip is recognised by content.
    """
    try:
        with io.BytesIO(sys.stdin.buffer.read()) if name == "-" else Path(name).open("rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            source = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if compressed else raw
            is_history = False
            for number, line in enumerate(iter(partial(source.readline, MAX_LINE_BYTES + 1), b""), 1):
                if len(line) > MAX_LINE_BYTES:
                    raise ImportFileError(
                        f"{name}, line {number}: expected at most {MAX_LINE_BYTES:,} bytes; found more. "
                        "Give a file of URLs, one per line, or a history."
                    )
                if number % PROGRESS_LINES == 0:
                    say(f"{number:,} lines", file=sys.stderr)
                text = _decode(name, number, line)
                if number == 1:
                    is_history = is_header(text)
                if text and (not text.startswith("#") or (is_history and text.startswith(HEADER_START))):
                    yield number, text
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ImportFileError(f"cannot read {name}: {reason}. Give an existing text or gzip file.") from error


def _decode(name: str, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip(" \r\n")
    except UnicodeDecodeError as error:
        raise ImportFileError(
            f"{name}, line {number}: expected UTF-8 text; found byte 0x{line[error.start]:02x} at position "
            f"{error.start + 1}. Convert the file to UTF-8."
        ) from error


IMPORT = Action(
    "add the URLs of a file, or restore an exported history",
    _import,
    [
        option("file", metavar="FILE", help="URLs, one per line, or a history; plain or gzip"),
        option(
            "--callback", metavar="NAME", help="spider method that gets the pages (URLs only; default: parse)"
        ),
        JSON,
    ],
    Imported,
)


@dataclass(frozen=True)
class Hinted:
    """Counts of the pages that a hint named."""

    hinted: int
    """Known pages, which count as changed in the next cycle as far as such hints were right so far."""
    unknown: int
    """URLs that are no page of the store; nothing is stored of them."""


def _hint(project: Project, options: Namespace) -> Hinted:
    """Store that pages in a list changed; raises ImportFileError with the number of a bad line."""
    keys_of_lines: dict[str, int] = {}
    for number, line in content_lines(options.file):
        try:
            keys_of_lines[line] = project.page({"url": line})[0]
        except ValueError as error:
            raise ImportFileError(
                f"{options.file}, line {number}: {error}. Correct the line; nothing was noted."
            ) from None
    project.open_store().close()  # there must be one
    with project.open_store(readonly=False) as store:
        addresses = Addresses(project, store)
        keys = {addresses.key(url, key) for url, key in keys_of_lines.items()}
        pages = np.unique(store.find_many(np.array(list(keys), np.uint64)))
        known = pages[pages >= 0]
        if len(known):
            store.claim_changes(known, time.time())
    result = Hinted(len(known), len(keys) - len(known))
    unknown = counted(result.unknown, "URL")
    say(f"{counted(result.hinted, 'page')} hinted, {unknown} not known", file=sys.stderr)
    return result


HINT = Action(
    "note that the pages of a list have changed",
    _hint,
    [
        option(
            "file", metavar="FILE", help="URLs of pages that have changed, one per line; - for standard input"
        ),
        JSON,
    ],
    Hinted,
)


def _export(project: Project, options: Namespace) -> None:
    """Write the history; a file is replaced only when complete, a device is written directly."""
    with project.open_store() as store, _output(options.output) as output:
        for line in lines(store, project.credentials):
            output.write(line + "\n")


class Addresses:
    """Lookup of page keys by URL, also of pages whose site moved, and of pages that repeat another."""

    def __init__(self, project: Project, store: Store) -> None:
        self._project, self._store = project, store
        self._moves = Moves(store.newest_value("moved", []))
        self._originals: dict[int, int] = {}
        """Key of a page that repeats another -> key of the other."""
        for first, block in store.blocks({"key", "outcome"}):
            for row in np.flatnonzero(block["outcome"] == EXCLUDED).tolist():
                _, is_repeat, url = (store.answer(first + row).error or "").partition(SAME_PAGE)
                if is_repeat:
                    self._originals[int(block["key"][row])] = project.page({"url": url})[0]

    def key(self, url: str, key: int) -> int:
        """Return the key of the stored page with this URL, else `key`, which was made from the URL."""
        if self._moves.rules and self._store.find(key) is None:
            old_keys = (self._project.page({"url": old})[0] for old in self._moves.old_names(url))
            key = next((old for old in old_keys if self._store.find(old) is not None), key)
        return self._originals.get(key, key)


@contextmanager
def _output(name: str | None) -> Iterator[TextIO]:
    if name is None:
        yield sys.stdout
        return
    with explained(f"cannot write {name}", "Choose another file with -o."), replacing(name) as raw:
        # No file name and no time stamp inside: the same history gives the same bytes.
        packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if name.endswith(".gz") else nullcontext(raw)
        with packed as binary:
            output = io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
            yield output
            output.detach()  # written, and left open: `replacing` closes it when it is on the disk


EXPORT = Action(
    "write the recorded history as text (TSV)",
    _export,
    [
        option(
            "-o",
            "--output",
            metavar="FILE",
            help="write to FILE, compressed if it ends in .gz (default: stdout)",
        )
    ],
)
