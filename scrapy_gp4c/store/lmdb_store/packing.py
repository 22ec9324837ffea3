"""What a sealed commit holds beside its visits, as bytes, and back: a log elsewhere may keep it.

A row is a tag, a page and a value with its length, little-endian; notes come last, as they are. The same
commit gives the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import NOTE
from scrapy_gp4c.store.lmdb_store.unsaved import OF_PAGES, Unsaved

_ROW: Final = struct.Struct("<BII")
"""Tag, page, and bytes of the value."""
_NEW: Final = 0
_REQUEST: Final = 1
_NOTES: Final = 2
_FIRST_VALUE: Final = 8
"""Tag of the first table of `OF_PAGES`; those of the others follow."""
_NONE: Final = 2**32 - 1
"""In place of a length: there is no value."""


def pack_rest(sealed: Unsaved) -> bytes:
    """All but the visits."""
    parts: list[bytes] = []

    def row(tag: int, page: int, value: bytes | None) -> None:
        parts.append(_ROW.pack(tag, page, _NONE if value is None else len(value)) + (value or b""))

    for page, value in sealed.pages.items():
        row(_NEW, page, value)
    for page, value in sealed.requests.items():
        row(_REQUEST, page, value)
    for tag, name in enumerate(OF_PAGES, _FIRST_VALUE):
        for page, kept in sealed.values[name].items():
            row(tag, page, kept)
    if len(notes := sealed.notes()):
        row(_NOTES, 0, notes.tobytes())
    return b"".join(parts)


def unpacked(visits: npt.NDArray[Any], rest: bytes) -> Unsaved:
    """A sealed commit of its visits, dtype `VISIT`, and `pack_rest`. Raises ValueError for other bytes."""
    found, at = Unsaved(), 0
    if len(visits):
        found.visits.append(visits.tobytes())
    while at < len(rest):
        if at + _ROW.size > len(rest):
            raise ValueError(f"expected a row of {_ROW.size} bytes and its value; found {len(rest) - at}")
        tag, page, size = _ROW.unpack_from(rest, at)
        at += _ROW.size
        value = None if size == _NONE else rest[at : at + size]
        if value is not None and len(value) != size:
            raise ValueError(f"expected a value of {size} bytes; found {len(value)}")
        at += len(value or b"")
        if tag >= _FIRST_VALUE and tag - _FIRST_VALUE < len(OF_PAGES):
            found.values[OF_PAGES[tag - _FIRST_VALUE]][page] = value
        elif value is None or tag not in (_NEW, _REQUEST, _NOTES):
            raise ValueError(f"expected a row with a known tag and a value; found tag {tag}")
        elif tag == _NEW:
            found.pages[page] = value
        elif tag == _REQUEST:
            found.requests[page] = value
        else:
            found.add_notes(np.frombuffer(value, NOTE))
    return found
