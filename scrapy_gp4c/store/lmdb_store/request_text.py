"""Requests as the store keeps them: JSON, in which what most of them have in common is one byte.

Such a byte is none of UTF-8, so that no other text has it: what has none is JSON as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy.typing as npt

from scrapy_gp4c.store.lmdb_store.sealed import Table

_BEGINS: Final = (
    b'{"url":"https://www.',
    b'{"url":"http://www.',
    b'{"url":"https://',
    b'{"url":"http://',
)
"""The first that fits is taken: the longer ones come first."""
_MIDDLES: Final = (b'","callback":"parse_', b'","callback":"')
_END: Final = b'"}'
_CODES: Final = tuple(
    (bytes([0xFF - number]), text) for number, text in enumerate((*_BEGINS, *_MIDDLES, _END))
)
"""Code and what it stands for. A store has them: new ones go to the end, and none is ever another."""
_BEGIN_CODES: Final = _CODES[: len(_BEGINS)]
_MIDDLE_CODES: Final = _CODES[len(_BEGINS) : -1]
_END_CODE: Final = _CODES[-1][0]


def shortened(request: bytes) -> bytes:
    """A request in JSON, as the store keeps it."""
    if not request.isascii():
        return request
    for code, text in _BEGIN_CODES:
        if request.startswith(text):
            request = code + request[len(text) :]
            break
    for code, text in _MIDDLE_CODES:
        request = request.replace(text, code)
    return request[: -len(_END)] + _END_CODE if request.endswith(_END) else request


def in_full(kept: bytes) -> bytes:
    """JSON, of one request as the store keeps it or of a text of many."""
    if kept.isascii():
        return kept
    for code, text in _CODES:
        kept = kept.replace(code, text)
    return kept


class RequestTable(Table):
    """The table `urls`: whoever reads or writes it has requests in JSON."""

    __slots__ = ()

    def checked(self, key: bytes, value: bytes | memoryview) -> memoryview:
        """Return a request in full, whose checksum must be right."""
        return memoryview(in_full(bytes(super().checked(key, value))))

    def get_many(self, txn: Any, numbers: npt.NDArray[Any]) -> list[bytes] | None:
        """Read the requests of pages ``[N]``; None where one is missing."""
        kept = super().get_many(txn, numbers)
        return None if kept is None else list(map(in_full, kept))

    def joined(self, txn: Any, numbers: npt.NDArray[Any]) -> bytes | None:
        """Read what `get_many` reads, with commas between: many requests are made full at once."""
        kept = super().get_many(txn, numbers)
        return None if kept is None else in_full(b",".join(kept))

    def put(self, txn: Any, key: bytes, value: bytes, *, overwrite: bool = True) -> None:
        """Write a request."""
        super().put(txn, key, shortened(value), overwrite=overwrite)

    def put_many(self, txn: Any, items: Iterator[tuple[bytes, bytes]], **options: bool) -> None:
        """Write many requests; ``options``: of LMDB's ``putmulti``."""
        super().put_many(txn, ((key, shortened(value)) for key, value in items), **options)
