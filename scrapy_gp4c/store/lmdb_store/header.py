"""Reading the header of an LMDB 0.9 file without LMDB."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, Final, NamedTuple

MAGIC: Final = 0xBEEFC0DE
VERSION: Final = 1
PAGE_BYTES: Final = [2**power for power in range(9, 17)]
_META: Final = struct.Struct("=16xII16xI92xQQ")
"""A meta page: magic, version, page size, last page, transaction (mdb.c)."""


class NoLmdbFileError(Exception):
    """The file begins unlike any of LMDB, or (with a text that says how) is cut off or damaged."""


class Header(NamedTuple):
    """What the newer of the two meta pages says."""

    meta_at: int
    """Byte where that page begins."""

    version: int
    page_bytes: int
    last_page: int
    transaction: int


def read_header(file: BinaryIO) -> Header:
    """Read the header; one of another version than `VERSION` has nothing else that is known.

    ``file`` may be written meanwhile; it must not be buffered then. Raises NoLmdbFileError, with a text where
    the file is LMDB's but ends too early or has a damaged header.
    """
    last: list[Header] = []
    while True:
        metas = _metas(file)
        if metas[0].version != VERSION:
            return metas[0]
        older, newer = sorted(metas, key=lambda meta: (meta.transaction, -meta.meta_at))
        if newer.transaction - older.transaction <= 1 and newer.transaction % 2 == (newer.meta_at > 0):
            return newer
        # A writer that commits between the reading of one page and of the other leaves two that do not fit.
        if metas == last:
            raise NoLmdbFileError("has a damaged header")
        last = metas


def _metas(file: BinaryIO) -> list[Header]:
    """Both meta pages; only the first of a file of another version."""
    metas: list[Header] = []
    while len(metas) < 2:
        at = metas[0].page_bytes if metas else 0
        file.seek(at)
        head = file.read(_META.size)
        if len(head) < _META.size:
            raise NoLmdbFileError(f"ends after {os.fstat(file.fileno()).st_size} bytes")
        magic, version, page_bytes, last_page, transaction = _META.unpack(head)
        if magic != MAGIC:
            raise NoLmdbFileError(*(["has a damaged header"] if metas else []))
        metas.append(Header(at, version, page_bytes, last_page, transaction))
        if version != VERSION:
            break
        if page_bytes not in PAGE_BYTES or page_bytes != metas[0].page_bytes:
            raise NoLmdbFileError("has a damaged header")
    return metas


def headers(file: BinaryIO) -> list[Header]:
    """The headers that can be read at all, the newer one first: for what a damaged file still has."""
    found = []
    for at in (0, *PAGE_BYTES):
        file.seek(at)
        head = file.read(_META.size)
        if len(head) == _META.size:
            magic, version, page_bytes, last_page, transaction = _META.unpack(head)
            if (magic, version) == (MAGIC, VERSION) and page_bytes in PAGE_BYTES and at in (0, page_bytes):
                found.append(Header(at, version, page_bytes, last_page, transaction))
    return sorted(found, key=lambda header: -header.transaction)
