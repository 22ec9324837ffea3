"""Bytes of blocks of page columns: there and back, in as few of them as will do, and one row of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.columns import (
    COLUMNS,
    HEAD,
    Columns,
    key_at,
    new_columns,
    pack,
    pages_of,
    row,
    rows_of,
    some_of,
    unpack,
)
from tests.support.page_blocks import blocks_of_pages


@given(blocks_of_pages())
def test_a_block_comes_back_from_its_bytes(columns: Columns) -> None:
    """Every bit of every column, read-only, whatever lay in memory in whatever order."""
    packed = pack(columns)
    assert pages_of(packed) == len(columns["key"])
    assert len(packed) <= HEAD.size + sum(
        max(1, len(column)) * column.itemsize for column in columns.values()
    )
    for back in (unpack(packed), unpack(bytearray(packed)), unpack(memoryview(packed))):
        assert list(back) == list(COLUMNS)
        for name, values in back.items():
            assert values.dtype == np.dtype(COLUMNS[name])
            assert values.tobytes() == columns[name].tobytes()
            assert not values.flags.writeable
    strided = {name: np.repeat(values, 2)[::2] for name, values in columns.items()}
    other = {name: values.astype(values.dtype.newbyteorder(">")) for name, values in columns.items()}
    assert pack(strided) == pack(other) == pack(unpack(packed)) == packed


@given(st.lists(blocks_of_pages(), min_size=1, max_size=3), st.sets(st.sampled_from(sorted(COLUMNS))))
def test_some_columns_are_read_without_the_others(result: list[Columns], names: set[str]) -> None:
    """Bit for bit those of blocks in a row, and what becomes of their bytes is nothing to them."""
    packed = [bytearray(pack(columns)) for columns in result]
    columns_read = some_of([memoryview(one) for one in packed], names)
    one_by_one = [unpack(bytes(one), names) for one in packed]
    for one in packed:
        one[:] = bytes(len(one))
    assert {name: values.tobytes() for name, values in columns_read.items()} == {
        name: b"".join(columns[name].tobytes() for columns in result) for name in names
    }
    assert all(values.dtype == np.dtype(COLUMNS[name]) for name, values in columns_read.items())
    for columns, alone in zip(result, one_by_one, strict=True):
        assert {name: values.tobytes() for name, values in alone.items()} == {
            name: columns[name].tobytes() for name in names
        }


@given(blocks_of_pages(), st.sets(st.sampled_from(list(COLUMNS))), st.data())
def test_some_rows_are_read_without_the_others(
    columns: Columns, names: set[str], data: st.DataObject
) -> None:
    """Bit for bit, in any order, and what becomes of the block's bytes is nothing to them."""
    pages = len(columns["key"])
    rows = np.array(data.draw(st.lists(st.integers(0, pages - 1)) if pages else st.just([])), np.intp)
    packed = bytearray(pack(columns))
    columns_read = rows_of(memoryview(packed), rows, names)
    packed[:] = bytes(len(packed))
    assert {name: values.tobytes() for name, values in columns_read.items()} == {
        name: columns[name][rows].tobytes() for name in names
    }
    assert all(values.dtype == np.dtype(COLUMNS[name]) for name, values in columns_read.items())


@given(blocks_of_pages(least=1))
def test_a_row_is_read_without_the_others(columns: Columns) -> None:
    """As Python numbers, each from its own column; the key alone likewise, from a view as well."""
    packed = pack(columns)
    for index in range(len(columns["key"])):
        result = row(packed, index)
        assert result == row(memoryview(packed), index)
        assert result._asdict() == {name: columns[name][index].item() for name in COLUMNS}
        assert key_at(packed, index) == key_at(memoryview(packed), index) == result.key


@pytest.mark.parametrize(
    ("name", "values", "width"),
    [
        ("n", [0, 255], 1), ("n", [1, 256], 2), ("n", [0, 65_535], 2), ("n", [0, 65_536], 4),
        ("n", [-1, 0], 4), ("n", [7, 7], 0), ("n", [-7, -7], 0), ("key", [1, 2**32 - 1], 4),
        ("key", [1, 2**32], 8), ("E", [0.0, 1.0], 8), ("E", [0.5, 0.5], 0), ("E", [0.0, -0.0], 8),
        ("has_copy", [0, 1], 1), ("brought_sum", [0.0, 1.0], 2),
    ],
)  # fmt: skip
def test_a_column_is_as_wide_as_its_numbers(name: str, values: list[float], width: int) -> None:
    """Whole numbers that are not negative take what the largest needs; one number for all is kept once."""
    columns = new_columns(np.zeros(2, np.uint64))
    zeros = len(pack(columns))
    columns[name] = np.array(values, COLUMNS[name])
    size = np.dtype(COLUMNS[name]).itemsize
    assert len(pack(columns)) - zeros == (2 * width - size if width else 0)
    assert unpack(pack(columns))[name].tobytes() == columns[name].tobytes()


def test_what_is_no_block_is_refused() -> None:
    """Too short or too long, or with a column that is wider than its numbers."""
    packed = pack(new_columns(np.arange(3, dtype=np.uint64)))
    for raw in (
        packed[:-1],
        packed + b"x",
        packed[:4] + b"\3" + packed[5:],
        packed[:4] + b"\x08" + packed[5:],
    ):
        with pytest.raises(ValueError, match="expected a"):
            unpack(raw)
