"""Reading an LMDB 0.9 file without LMDB: its header, and whether every page that it refers to is there.

LMDB maps its file into memory: what lies behind the end of a truncated file ends the process with SIGBUS, and
copying such a file to nowhere reads none of its large values. Here pages are read as bytes of a file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

MAGIC: Final = 0xBEEFC0DE
VERSION: Final = 1
_META: Final = struct.Struct("=16xII16xI36xQ40xQQQ")
"""A meta page: magic, version, page size, roots of free list and tables, last page, transaction (mdb.c)."""
_PAGE: Final = struct.Struct("=10xHH2x")
"""A page's header: flags, end of its list of nodes."""
_NODE: Final = struct.Struct("=HHHH")
"""A node's header: two halves of a size (or page number), flags (or its highest part), size of the key."""
_NUMBER: Final = struct.Struct("=Q")
_BRANCH, _LEAF, _FIXED = 1, 2, 0x20
_ELSEWHERE, _TABLE = 1, 2
"""Flags of a leaf's node: its value has pages of its own, or is a table's root."""
_ROOT_AT: Final = 40
"""Where a table's record has its root."""
_NONE: Final = 2**64 - 1


class NoLmdbFileError(Exception):
    """The file begins unlike any of LMDB, or (with a text that says how) is cut off or damaged."""


class Header(NamedTuple):
    """What the newer of the two meta pages says."""

    version: int
    page_bytes: int
    roots: tuple[int, int]
    last_page: int
    transaction: int


def read_header(file: BinaryIO) -> Header:
    """Read the header; one of another version than `VERSION` has nothing else that is known.

    Raises NoLmdbFileError, with a text where the file is LMDB's but ends too early.
    """
    metas: list[Header] = []
    while len(metas) < 2:
        file.seek(metas[0].page_bytes if metas else 0)
        head = file.read(_META.size)
        if len(head) < _META.size:
            raise NoLmdbFileError(f"ends after {os.fstat(file.fileno()).st_size} bytes")
        magic, version, page_bytes, free, tables, last_page, transaction = _META.unpack(head)
        if not metas and magic != MAGIC:
            raise NoLmdbFileError
        metas.append(Header(version, page_bytes, (free, tables), last_page, transaction))
        if version != VERSION:
            return metas[0]
    return max(metas, key=lambda meta: meta.transaction)


def is_whole(data: Path) -> bool:
    """Tell whether every page that the tables and the free list refer to lies within the file.

    A file that is as long as its header says costs two reads. A shorter one may be sound, as pages at the end
    that were allocated and freed in one transaction are never written: then all its trees are walked, and
    walked again where a writer went on meanwhile. Raises NoLmdbFileError as `read_header`.
    """
    with data.open("rb", buffering=0) as file:  # what is read a second time is not remembered
        while True:
            header = read_header(file)
            pages = os.fstat(file.fileno()).st_size // header.page_bytes
            if header.version != VERSION or pages > header.last_page:
                return True
            if all(_is_within(file, header, root, pages) for root in header.roots):
                return True
            if read_header(file).transaction == header.transaction:
                return False


def _is_within(file: BinaryIO, header: Header, root: int, pages: int) -> bool:
    """Tell whether the pages of a tree, and of the trees in it, are among the first `pages` of the file."""
    todo, read = [root] if root != _NONE else [], 0
    while todo:
        number = todo.pop()
        read += 1
        if number >= pages or read > pages:  # the latter: a damaged tree that runs in a circle
            return False
        file.seek(number * header.page_bytes)
        page = file.read(header.page_bytes)
        try:
            for first, count in _references(page):
                if count is None:
                    todo.append(first)
                elif first + -(-(count + _PAGE.size) // header.page_bytes) > pages:
                    return False
        except struct.error:
            return False
    return True


def _references(page: bytes) -> Iterator[tuple[int, int | None]]:
    """Yield the pages that a page of a tree names: their number, and the bytes of a value that lies there."""
    flags, end = _PAGE.unpack_from(page)
    if not flags & (_BRANCH | _LEAF):
        raise struct.error("no page of a tree")
    if flags & _FIXED:
        return
    for (at,) in struct.iter_unpack("=H", page[_PAGE.size : end]):
        low, high, node, key_bytes = _NODE.unpack_from(page, at)
        value = at + _NODE.size + key_bytes
        if flags & _BRANCH:
            yield low | high << 16 | node << 32, None
        elif node & _ELSEWHERE:
            yield _NUMBER.unpack_from(page, value)[0], low | high << 16
        elif node & _TABLE and (root := _NUMBER.unpack_from(page, value + _ROOT_AT)[0]) != _NONE:
            yield root, None
