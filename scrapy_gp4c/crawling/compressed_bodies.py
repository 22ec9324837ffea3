"""Compressed bodies that lack their end: Scrapy decodes what there is of them, which looks like a page."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

try:
    import brotli
except ImportError:
    brotli = None
try:
    from compression import zstd  # type: ignore[import-not-found] # Python 3.14
except ImportError:
    try:
        from backports import zstd
    except ImportError:
        zstd = None

_CHUNK_BYTES: Final = 65_536
MAX_DECODED_BYTES: Final = 2**26
"""A body of more is not checked to its end: it may be a bomb."""
_GZIP_MAGIC: Final = b"\x1f\x8b"


def lacks_end(body: bytes, encodings: Sequence[bytes]) -> bool:
    """Whether a body with one Content-Encoding is known to lack its end."""
    names = [name.strip().lower() for value in encodings for name in value.split(b",")]
    if len(names) != 1 or not body:
        return False
    try:
        return _lacks_end(body, names[0])
    except Exception:  # no such stream: Scrapy says what is wrong with it
        return False


def _lacks_end(body: bytes, encoding: bytes) -> bool:
    if encoding in (b"gzip", b"x-gzip"):
        while body.startswith(_GZIP_MAGIC):
            decompressor = zlib.decompressobj(wbits=31)
            if not _inflates(decompressor, body):
                return True
            body = decompressor.unused_data  # a further member, or padding
        return False
    if encoding == b"deflate":
        try:
            return not _inflates(zlib.decompressobj(), body)
        except zlib.error:  # raw, as some servers send it
            return not _inflates(zlib.decompressobj(wbits=-15), body)
    if encoding == b"br" and brotli is not None:
        return not _unbrotli_ends(body)
    if encoding == b"zstd" and zstd is not None:
        return not _unzstd_ends(body)
    return False


def _inflates(decompressor: Any, body: bytes) -> bool:
    decoded = 0
    while not decompressor.eof and decoded < MAX_DECODED_BYTES:
        chunk = decompressor.decompress(body, _CHUNK_BYTES)
        body = decompressor.unconsumed_tail
        if not chunk and not body:
            return bool(decompressor.eof)
        decoded += len(chunk)
    return True


def _unbrotli_ends(body: bytes) -> bool:
    decompressor = brotli.Decompressor()
    decoded = 0
    while not decompressor.is_finished() and decoded < MAX_DECODED_BYTES:
        # Without a limit, a few kB of a bomb are gigabytes at once.
        chunk = decompressor.process(body, output_buffer_limit=_CHUNK_BYTES)
        decoded += len(chunk)
        body = b""
        if not chunk and decompressor.can_accept_more_data():
            return bool(decompressor.is_finished())
    return True


def _unzstd_ends(body: bytes) -> bool:
    decoded = 0
    while body:
        decompressor = zstd.ZstdDecompressor()
        data = body
        while not decompressor.eof and decoded < MAX_DECODED_BYTES:
            chunk = decompressor.decompress(data, _CHUNK_BYTES)
            decoded += len(chunk)
            data = b""
            if not chunk and decompressor.needs_input and not decompressor.eof:
                return False
        if decoded >= MAX_DECODED_BYTES:
            return True
        body = decompressor.unused_data
    return True
