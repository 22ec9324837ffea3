"""Reading what a damaged file still has, without LMDB: every value whose checksum is right, wherever it is.

First what the trees lead to, as far as they do, and then what stands in pages that no tree leads to and that
are not free: a lost branch does not lose its leaves. A checksum tells the table that a value belongs to.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import blocks, columns
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.store.lmdb_store.header import Header, NoLmdbFileError, headers
from scrapy_gp4c.store.lmdb_store.request_text import in_full
from scrapy_gp4c.store.lmdb_store.sealed import SUM_BYTES, TABLES, U32, U32_PAIR, is_sealed, seed_of
from scrapy_gp4c.store.lmdb_store.structure import NO_ROOT, TREE
from scrapy_gp4c.store.lmdb_store.tree_pages import (
    BRANCH,
    ELSEWHERE,
    HEAD_BYTES,
    LEAF,
    TABLE,
    Nodes,
    read_nodes,
)

Values = dict[str, dict[bytes, bytes]]
"""Table -> key -> value, without its checksum."""
Array = npt.NDArray[Any]
LOST: Final = -1
"""New id of a page that is left out of a repaired store."""

_LONG: Final = (
    "log", "notes", "new", "visits", "plans", "group_visits", "gains", "clusters", "claims", "trust",
)  # fmt: skip
_SHORT: Final = (
    "urls", "columns", "groups", "validators", "first_urls", "bodies", "descriptions", "cycles", "worths",
    "hints", "weights",
)  # fmt: skip


class Salvaged(NamedTuple):
    """What was found."""

    values: Values
    entries: dict[str, int]
    """Table -> the number of its values, for the tables that the file still counts."""

    def blocks(self) -> dict[int, Columns]:
        """The columns of all blocks that are there, by number: those of schemas before 8 too."""
        return {U32.unpack(key)[0]: _columns_of(value) for key, value in self.values["columns"].items()}


def _columns_of(block: bytes) -> Columns:
    try:
        return blocks.unpack(block)
    except (ValueError, struct.error):
        return columns.read_columns(block, COLUMNS)


def salvage(data: Path) -> Salvaged:
    """Read all that can be read of a file. Memory: what it holds.

    Raises NoLmdbFileError for another file.
    """
    with data.open("rb") as file:
        reader = _Reader(file, headers(file))
        return reader.all()


class _Reader:
    def __init__(self, file: BinaryIO, found: list[Header]) -> None:
        if not found:
            raise NoLmdbFileError
        self._file = file
        self._headers = found
        self._size = found[0].page_bytes
        self._pages = os.fstat(file.fileno()).st_size // self._size
        self._seen = np.zeros(self._pages, bool)
        self._values: Values = {name: {} for name in TABLES}

    def all(self) -> Salvaged:
        """Read the newer header's trees, and whatever else is there."""
        trees = self._trees(self._headers[0], 1)
        records = [
            (bytes(key), np.frombuffer(value, TREE)[0])
            for key, flags, value in self._leaves(trees)
            if flags & TABLE and len(value) == TREE.itemsize
        ]
        for _, record in records:
            for key, _, value in self._leaves(int(record["root"])):
                self._take(key, value)
        free = np.zeros(self._pages, bool)
        for _, _, value in self._leaves(self._trees(self._headers[0], 0), numbers=True):
            listed = np.frombuffer(value[: len(value) // 8 * 8], "<u8")[1:]
            free[listed[listed < self._pages].astype(np.int64)] = True
        for number in np.flatnonzero(~(self._seen | free)).tolist():
            for key, _, value in self._nodes_of(number, False) if number > 1 else ():
                self._take(key, value)
        names = {name.encode(): name for name in TABLES}
        entries = {names[key]: int(record["entries"]) for key, record in records if key in names}
        return Salvaged(self._values, entries)

    def _trees(self, header: Header, place: int) -> int:
        """Root of the free list's tree, or of the table of tables'."""
        self._file.seek(header.meta_at + HEAD_BYTES + 24 + place * TREE.itemsize)
        return int(np.frombuffer(self._file.read(TREE.itemsize), TREE)[0]["root"])

    def _leaves(self, root: int, *, numbers: bool = False) -> Iterator[tuple[bytes, int, bytes]]:
        """Key, flags and value of all nodes of a tree's leaves that can be read."""
        todo = [root]
        while todo:
            number = todo.pop()
            if number == NO_ROOT or number >= self._pages or self._seen[number]:
                continue
            children = self._children(number, numbers)
            if children is None:
                yield from self._nodes_of(number, numbers)
            else:
                self._seen[number] = True
                todo += reversed(children)

    def _page(self, number: int) -> bytes:
        self._file.seek(number * self._size)
        return self._file.read(self._size)

    def _nodes(self, number: int, kind: int, numbers: bool) -> tuple[bytes, Nodes] | None:
        page = self._page(number)
        if len(page) < self._size:
            return None
        rows = np.frombuffer(page, np.uint8)[None]
        try:
            return page, read_nodes(rows, np.array([number], np.uint64), kind, numbers)
        except NoLmdbFileError:
            return None

    def _children(self, number: int, numbers: bool) -> list[int] | None:
        found = self._nodes(number, BRANCH, numbers)
        if found is None:
            return None
        nodes = found[1]
        return [int(low) | int(high) << 32 for low, high in zip(nodes.size, nodes.flags, strict=True)]

    def _nodes_of(self, number: int, numbers: bool) -> Iterator[tuple[bytes, int, bytes]]:
        """Key, flags and value of a leaf's nodes; none for a page that is none."""
        found = self._nodes(number, LEAF, numbers)
        if found is None:
            return
        self._seen[number] = True
        page, nodes = found
        places = (nodes.key_at, nodes.value_at, nodes.size, nodes.flags)
        for key_at, at, size, flags in zip(*map(np.ndarray.tolist, places), strict=True):
            value = page[at : at + size]
            if flags & ELSEWHERE:
                first = int.from_bytes(page[at : at + 8], "little")
                value = self._large(first, size)
            yield page[key_at:at], flags, value

    def _large(self, first: int, size: int) -> bytes:
        """A value that has pages of its own."""
        if first >= self._pages:
            return b""
        last = min(self._pages, first + -(-(size + HEAD_BYTES) // self._size))
        self._seen[first:last] = True
        self._file.seek(first * self._size + HEAD_BYTES)
        return self._file.read(size)

    def _take(self, key: bytes, value: bytes) -> None:
        """Keep a value in the table that its checksum names; what a tree has led to stays."""
        for name in (*{U32.size: _SHORT, U32_PAIR.size: _LONG}.get(len(key), ()), "meta"):
            if len(value) >= SUM_BYTES and is_sealed(seed_of(name, key), value):
                content = value[:-SUM_BYTES]
                self._values[name].setdefault(key, in_full(content) if name == "urls" else content)
                return
        if len(key) == U32_PAIR.size and len(value) == U32.size:
            self._values["ids"].setdefault(key, value)


class Lost(NamedTuple):
    """What could not be read."""

    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.number:,} {self.what}"


def remapped(rows: Array, new_id: Array) -> Array:
    """Rows with a field ``page``, of the pages that are left, with their new ids."""
    page = rows["page"].astype(np.int64)
    known = page < len(new_id)
    known[known] = new_id[page[known]] != LOST
    left = rows[known].copy()
    left["page"] = new_id[page[known]]
    return left


def new_finders(found_by: Array, new_id: Array) -> Array:
    """New values of ``found_by`` that stand for pages; 0 where the finder is left out."""
    page = found_by.astype(np.int64) - 1
    known = page < len(new_id)
    found = np.zeros(len(page), np.int64)
    found[known] = new_id[page[known]] - LOST
    return found
