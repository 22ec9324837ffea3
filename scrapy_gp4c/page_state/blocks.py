"""Blocks of page columns as bytes: every column in as few bytes a page as its values need.

A head holds the number of pages and the width of each of `COLUMNS`: the width of its dtype; a narrower one,
for whole numbers none of which is negative; or 0, where all pages have the same value. The columns follow,
the widest first, so that each lies at a multiple of its width, then one value for each column of width 0. All
numbers are little-endian. `EXTRAS` are columns that most pages do without: they have a value of their own
beside the block, where any page needs them. This module does not know LMDB.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state.columns import COLUMNS, Columns, PageRow, read_columns
from scrapy_gp4c.scoring import hints

HEAD: Final = struct.Struct(f"<I{len(COLUMNS)}B{-(4 + len(COLUMNS)) % 8}x")
"""Pages, and the width of each column; a multiple of the widest."""
_SIZES: Final = [np.dtype(dtype).itemsize for dtype in COLUMNS.values()]
_PLACES: Final = {name: position for position, name in enumerate(COLUMNS)}
_NARROW: Final = (1, 2, 4)
_UNSIGNED: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_OTHERS: Final = {"i4": "i", "f2": "e", "f8": "d"}
"""Codes of module struct."""


class _Field(NamedTuple):
    """Position of a column in a block."""

    dtype: str
    """Dtype of the numbers in the block."""
    at: int
    step: int
    """Bytes from one page to the next; 0: all pages have the same number."""
    number: struct.Struct


class _Layout(NamedTuple):
    pages: int
    fields: tuple[_Field, ...]
    """In the order of `COLUMNS`."""
    size: int
    """Bytes of the block."""


@lru_cache(maxsize=4096)
def _layout(head: bytes) -> _Layout:
    """Positions of the columns by the head of a block; raises ValueError for a damaged head."""
    pages, *widths = HEAD.unpack(head)
    at, fields = HEAD.size, dict[int, _Field]()
    for position in sorted(range(len(widths)), key=lambda position: -widths[position]):
        dtype, width = list(COLUMNS.values())[position], widths[position]
        if width not in (0, *_NARROW, _SIZES[position]) or width > _SIZES[position]:
            raise ValueError(f"expected a column of {_SIZES[position]} bytes a page or less; found {width}")
        if 0 < width < _SIZES[position]:
            dtype = f"<u{width}"
        name = np.dtype(dtype).str[1:]
        number = struct.Struct("<" + (_OTHERS.get(name) or _UNSIGNED[int(name[1:])]))
        fields[position] = _Field(dtype, at, width, number)
        at += pages * width if width else _SIZES[position]
    return _Layout(pages, tuple(fields[position] for position in range(len(widths))), at)


def _layout_of(block: bytes | memoryview) -> _Layout:
    layout = _layout(bytes(block[: HEAD.size]))
    if len(block) != layout.size:
        raise ValueError(f"expected a block of {layout.size} bytes; found {len(block)}")
    return layout


def _width(numbers: Array) -> int:
    """Bytes that each number of a column needs, 0 where all are the same, bit for bit."""
    unsigned = numbers.view(f"u{numbers.itemsize}")
    if len(unsigned) and (unsigned == unsigned[0]).all():
        return 0
    if len(unsigned) and numbers.dtype.kind != "f" and numbers.min() >= 0:
        highest = int(numbers.max())
        return next((width for width in _NARROW if highest >> 8 * width == 0), numbers.itemsize)
    return numbers.itemsize


def pack(columns: Mapping[str, Array]) -> bytes:
    """Bytes of a block of columns ``[P]``."""
    arrays = [np.ascontiguousarray(columns[name], dtype) for name, dtype in COLUMNS.items()]
    widths = list(map(_width, arrays))
    parts = [HEAD.pack(len(arrays[0]), *widths)]
    for position in sorted(range(len(arrays)), key=lambda position: -widths[position]):
        numbers, width = arrays[position], widths[position]
        if 0 < width < numbers.itemsize:
            numbers = numbers.astype(f"<u{width}")
        parts.append(numbers[: None if width else 1].tobytes())
    return b"".join(parts)


def pages_of(block: bytes | memoryview) -> int:
    """Number of pages of a block."""
    return _layout_of(block).pages


def _numbers(block: bytes | memoryview, layout: _Layout, name: str) -> Array:
    """Numbers of a column as views on the block: one number, where all pages have the same."""
    field = layout.fields[_PLACES[name]]
    return np.frombuffer(block, field.dtype, layout.pages if field.step else 1, field.at)


def unpack(block: bytes | memoryview, names: Collection[str] = COLUMNS) -> Columns:
    """Columns ``[P]`` of a block, read-only, some as views on its bytes."""
    layout = _layout_of(block)
    columns: Columns = {}
    for name in names:
        numbers = _numbers(block, layout, name)
        if len(numbers) != layout.pages:
            numbers = np.full(layout.pages, numbers[0], COLUMNS[name])
        columns[name] = numbers.astype(COLUMNS[name], copy=False)
        columns[name].flags.writeable = False
    return columns


def rows_of(block: bytes | memoryview, rows: npt.NDArray[np.integer[Any]], names: Iterable[str]) -> Columns:
    """Columns ``[rows]`` of some pages of a block, copied."""
    layout = _layout_of(block)
    columns: Columns = {}
    for name in names:
        numbers = _numbers(block, layout, name)
        if len(numbers) != layout.pages:
            columns[name] = np.full(len(rows), numbers[0], COLUMNS[name])
        else:
            columns[name] = numbers[rows].astype(COLUMNS[name], copy=False)
    return columns


def some_of(blocks: Sequence[bytes | memoryview], names: Iterable[str]) -> Columns:
    """Columns ``[P]`` of consecutive blocks, copied."""
    layouts = [_layout_of(block) for block in blocks]
    ends = np.cumsum([0, *(layout.pages for layout in layouts)]).tolist()
    columns: Columns = {}
    for name in names:
        columns[name] = np.empty(ends[-1], COLUMNS[name])
        for block, layout, first, end in zip(blocks, layouts, ends[:-1], ends[1:], strict=True):
            columns[name][first:end] = _numbers(block, layout, name)
    return columns


def key_at(block: bytes | memoryview, index: int) -> int:
    """Key of one page of a block."""
    field = _layout_of(block).fields[_PLACES["key"]]
    key: int = field.number.unpack_from(block, field.at + index * field.step)[0]
    return key


def row(block: bytes | memoryview, index: int) -> PageRow:
    """One page of a block."""
    # Views on all columns would take five times as long.
    fields = _layout_of(block).fields
    return PageRow(*[number.unpack_from(block, at + index * step)[0] for _, at, step, number in fields])


EXTRAS: Final[dict[str, str]] = {**hints.COLUMNS}
"""Column name -> little-endian dtype; 0 by default."""


def unpack_extras(packed: bytes | memoryview | None, rows: int) -> Columns:
    """Columns `EXTRAS` of a block, each ``[rows]``, writable; ``packed``: their bytes, None: all zeros.

    Pages that were added since the bytes were written have zeros.
    """
    columns = {name: np.zeros(rows, dtype) for name, dtype in EXTRAS.items()}
    if packed is not None:
        for name, column in read_columns(packed, EXTRAS).items():
            columns[name][: len(column)] = column
    return columns
