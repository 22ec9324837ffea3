"""Blocks of page columns: bytes there and back, one row of them, and what visits do to rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.columns import (
    COLUMNS,
    HEAD,
    NEW_ROW,
    Columns,
    PageRow,
    apply_visits,
    key_at,
    new_columns,
    pack,
    page_count,
    row,
    rows_of,
    some_of,
    unpack,
)
from scrapy_gp4c.page_state.outcomes import (
    CHANGED,
    COPIED,
    ERROR,
    FAILED,
    FIRST,
    GONE,
    JUDGED,
    OUTCOMES,
    VISIT,
)

KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=6).map(lambda keys: np.array(keys, np.uint64))


@st.composite
def blocks_of_pages(draw: st.DrawFn, least: int = 0) -> Columns:
    """Columns of ``least`` to 5 rows: each random bytes, small numbers or one repeated value, without NaN."""
    rows = draw(st.integers(least, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = {}
    for name, dtype in COLUMNS.items():
        values = np.frombuffer(rng.bytes(rows * np.dtype(dtype).itemsize), dtype).copy()
        if values.dtype.kind == "f":
            values[~np.isfinite(values)] = -0.0
        else:
            values >>= values.dtype.type(draw(st.sampled_from((0, 0, 8, 16, 24, 48))) % (8 * values.itemsize))
        if rows and draw(st.booleans()):
            values[:] = values[0]
        columns[name] = values
    return columns


def copied(columns: Columns) -> Columns:
    return {name: values.copy() for name, values in columns.items()}


def test_a_row_has_the_columns_in_their_order() -> None:
    """Whoever adds a column adds it to both."""
    assert PageRow._fields == tuple(COLUMNS)


@given(KEYS)
def test_new_pages_are_nothing_but_their_keys(keys: np.ndarray) -> None:
    """Each row is `NEW_ROW` with a key of its own."""
    packed = pack(new_columns(keys))
    assert [row(packed, i) for i in range(len(keys))] == [NEW_ROW._replace(key=int(key)) for key in keys]
    assert not any(NEW_ROW)


def visits_of(outcomes: list[int]) -> np.ndarray:
    """A visit of each outcome, with a fingerprint."""
    visits = np.zeros(len(outcomes), VISIT)
    visits["outcome"] = outcomes
    visits["fingerprint"] = np.arange(len(outcomes)) + 100
    return visits


def after(outcomes: list[int], brought: list[int] | None = None) -> PageRow:
    """One page after a visit in each of the cycles 1, 2, ..., between two that nobody visits."""
    columns = new_columns(np.array([8, 9, 10], np.uint64))
    for cycle, outcome in enumerate(outcomes, start=1):
        new = None if brought is None else np.array([brought[cycle - 1]])
        apply_visits(columns, np.array([1]), visits_of([outcome]), cycle, new)
    packed = pack(columns)
    assert [row(packed, at) for at in (0, 2)] == [NEW_ROW._replace(key=key) for key in (8, 10)]
    return row(packed, 1)


@given(st.lists(st.integers(0, len(OUTCOMES) - 1), max_size=12))
def test_a_page_is_what_its_visits_were(outcomes: list[int]) -> None:
    """Counts, runs of failures and dates by their definitions, from the list of outcomes."""
    result = after(outcomes)
    judged = [cycle for cycle, outcome in enumerate(outcomes, start=1) if outcome in JUDGED]
    copies = [cycle for cycle, outcome in enumerate(outcomes, start=1) if outcome in COPIED]
    dated = [cycle for cycle, outcome in enumerate(outcomes, start=1) if outcome not in FAILED]
    run = outcomes[max((at + 1 for at, one in enumerate(outcomes) if one not in FAILED), default=0) :]
    assert result.n == len(judged)
    assert outcomes.count(CHANGED) == result.X
    assert result.last == (bool(judged) and outcomes[judged[-1] - 1] == CHANGED)
    assert result.last_cycle == max(dated, default=0)
    assert result.last_attempt == len(outcomes)
    assert result.outcome == (outcomes[-1] if outcomes else 0)
    assert result.has_copy == bool(copies)
    assert result.failures == len(run)
    assert result.gone == run.count(GONE)
    before = [
        at for at, one in enumerate(outcomes, start=1) if one == FIRST and not set(judged) & set(range(at))
    ]
    assert result.first_cycle == max(before, default=0)
    changes = [at for at in judged if outcomes[at - 1] == CHANGED]
    assert result.found_cycle == max([*before, *changes], default=0)


def test_counts_of_failures_stay_within_their_byte() -> None:
    """The 256th in a row is the 255th again; one success ends both counts."""
    for outcomes, wanted in (
        ([GONE] * 300, (255, 255)),
        ([ERROR] * 300 + [GONE], (255, 1)),
        ([GONE] * 300 + [CHANGED], (0, 0)),
    ):
        result = after([FIRST, *outcomes])
        assert (result.failures, result.gone) == wanted


def test_the_last_copy_is_compared_with() -> None:
    """A visit without one, failed or not modified, keeps the fingerprint before."""
    columns = new_columns(np.zeros(len(OUTCOMES), np.uint64))
    columns["fingerprint"][:] = 7
    apply_visits(columns, np.arange(len(OUTCOMES)), visits_of(list(range(len(OUTCOMES)))), 1)
    wanted = [100 + code if code in COPIED else 7 for code in range(len(OUTCOMES))]
    assert columns["fingerprint"].tolist() == wanted
    assert columns["has_copy"].tolist() == [int(code in COPIED) for code in range(len(OUTCOMES))]


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_what_a_first_visit_brings_is_no_growth(brought: list[int]) -> None:
    """Nor what a failed visit might have; later ones count with their cycles, decayed each time."""
    result = after([FIRST, CHANGED, ERROR, CHANGED], brought)
    decay = 2 ** (-2 / 8)
    assert result.brought_sum == pytest.approx(brought[1] * decay + brought[3], rel=2e-3)
    assert result.brought_cycles == pytest.approx(1 * decay + 2, rel=2e-3)
    assert result.brought_cycle == (4 if brought[3] else 2 if brought[1] else 1)


@given(blocks_of_pages(least=3), st.permutations(range(3)))
def test_rows_of_visits_may_come_in_any_order(columns: Columns, order: list[int]) -> None:
    """Each visit meets its own page; a block like that of a crawl in which much has happened."""
    for name in ("n", "X", "first_cycle", "last_cycle", "found_cycle", "brought_cycle", "T"):
        columns[name] %= 50
    for name in ("A", "G", "A_cycles", "G_cycles", "E", "brought_sum", "brought_cycles"):
        columns[name][:] = np.arange(len(columns[name]))
    visits, one, other = visits_of([CHANGED, GONE, FIRST]), copied(columns), copied(columns)
    apply_visits(one, np.arange(3), visits, 60, np.array([1, 2, 0]))
    chosen = np.array(order)
    apply_visits(other, chosen, visits[chosen], 60, np.array([1, 2, 0])[chosen])
    assert pack(one) == pack(other)
    assert pack(one) != pack(columns)


@given(blocks_of_pages())
def test_a_block_comes_back_from_its_bytes(columns: Columns) -> None:
    """Every bit of every column, read-only, whatever lay in memory in whatever order."""
    packed = pack(columns)
    assert page_count(packed) == len(columns["key"])
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
