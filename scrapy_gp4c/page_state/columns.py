"""Columns of pages, in memory and as bytes; their update by visits; stages of pages (new, in warm-up, ...).

A block holds 16,384 consecutive pages (the last block fewer, tests as they like) in the columns `COLUMNS`,
each with one entry per page. As bytes, it begins with a head of the number of pages and the width of each
column, bytes per page. A width may be below that of the dtype, where no value is negative or broken, and is 0
where all pages have the same value. The columns follow, the widest first, so that each lies at a multiple of
its width, then one value for each column of width 0. All numbers are little-endian. The store keeps columns
that most pages lack, such as `hints.COLUMNS`, apart from the block. This module does not know LMDB.
"""

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.page_state.outcomes import CHANGED, COPIED, DOUBTFUL, FAILED, FIRST, GONE, JUDGED, among
from scrapy_gp4c.scoring import discovery, measured, sizes, terminals

Columns = dict[str, Array]

COLUMNS: Final[dict[str, str]] = {
    **terminals.STATE,
    **discovery.COLUMNS,
    **sizes.COLUMNS,
    **measured.COLUMNS,
    "key": "<u8",  # first 8 bytes, big-endian, of the request fingerprint
    "group": "<u4",  # number of the page's directory
    "fingerprint": "<u8",
    "has_copy": "u1",  # 1: there is a fingerprint to compare with
    "failures": "u1",  # error, gone and excluded outcomes in a row, saturating
    "gone": "u1",  # gone outcomes since the last success, saturating
    "last_attempt": "<i4",  # cycle of the last visit with any outcome; 0: none
    "outcome": "u1",  # of the last visit
}
"""Column name -> little-endian dtype of one page in a block."""


class PageRow(NamedTuple):
    """The columns of one page, in the order of `COLUMNS`, as Python numbers."""

    n: int
    X: int
    last: int
    first_cycle: int
    last_cycle: int
    A: float
    G: float
    A_cycles: float
    G_cycles: float
    E: float
    T: int
    found_cycle: int
    found_by: int
    entered: int
    brought_sum: float
    brought_cycles: float
    brought_cycle: int
    size: int
    latency_ms: int
    distance_sum: int
    distance_n: int
    key: int
    group: int
    fingerprint: int
    has_copy: int
    failures: int
    gone: int
    last_attempt: int
    outcome: int


def new_columns(keys: npt.NDArray[np.uint64]) -> Columns:
    """Return columns of pages without a visit, all 0 but the page keys; ``keys``: uint64 ``[P]``."""
    columns = {name: np.zeros(len(keys), dtype) for name, dtype in COLUMNS.items()}
    columns["key"][:] = keys
    return columns


NEW_ROW: Final = PageRow(*(np.zeros((), dtype).item() for dtype in COLUMNS.values()))
"""Columns of a page that was never visited; the key is 0."""


def apply_visits(
    columns: Columns, rows: npt.NDArray[np.intp], visits: Array, cycle: int, brought: Array | None = None
) -> None:
    """Update all of `COLUMNS` that visits change, in place, by the visits of a cycle.

    ``columns``: writable, each ``[P]``; ``visits``: dtype `VISIT` ``[V]``, at most one per page; ``rows``:
    row of each visit's page, ``[V]``; ``brought``: number of new pages that each found, ``[V]``; None: 0.
    """
    outcome = visits["outcome"]
    columns["last_attempt"][rows] = cycle
    columns["outcome"][rows] = outcome

    new_pages = np.zeros(len(visits), np.int64) if brought is None else brought
    observe_growth(columns, rows, outcome, new_pages, cycle)
    changed = outcome == CHANGED
    distances = {name: columns[name][rows[changed]] for name in ("distance_sum", "distance_n")}
    copies = columns["fingerprint"][rows[changed]]
    measured.observe(distances, measured.flips(copies, visits["fingerprint"][changed]))
    for name, column in distances.items():
        columns[name][rows[changed]] = column
    copied = among(outcome, COPIED)
    columns["fingerprint"][rows[copied]] = visits["fingerprint"][copied]
    columns["has_copy"][rows[copied]] = 1
    # Imported pages have a copy of unknown size: the next one that is read counts.
    unsized = copied & (columns["size"][rows] == 0)
    columns["size"][rows[unsized]] = sizes.size_class(visits["bytes"][unsized])
    untimed = copied & (columns["latency_ms"][rows] == 0)
    columns["latency_ms"][rows[untimed]] = visits["latency_ms"][untimed]

    observe(columns, rows, outcome, cycle)

    failed = among(outcome, FAILED)
    for name, counted in (("failures", failed), ("gone", outcome == GONE)):
        columns[name][rows[~failed]] = 0
        count = columns[name][rows[counted]]
        columns[name][rows[counted]] = count + (count < 255)


def observe(columns: Columns, rows: npt.NDArray[np.intp], outcome: Array, cycle: int) -> None:
    """Update only the columns of `terminals.STATE`, in place, by the outcomes of visits of a cycle.

    ``columns``: writable, each ``[P]``; those but ``n`` and ``last_cycle`` may be missing; ``rows``,
    ``outcome``: of the visits, ``[V]``, at most one per page.
    """
    _observe_first(columns, rows[outcome == FIRST], cycle)
    judged = among(outcome, JUDGED)
    state = {name: columns[name][rows[judged]] for name in terminals.STATE if name in columns}
    terminals.observe(state, outcome[judged] == CHANGED, cycle)
    for name, column in state.items():
        columns[name][rows[judged]] = column


def observe_growth(
    columns: Columns, rows: npt.NDArray[np.intp], outcome: Array, brought: Array, cycle: int
) -> None:
    """Update the columns ``brought_...``, in place, by the new pages that visits found.

    Call it before `observe`, with the same arguments; ``brought``: new pages by visit, ``[V]``.
    """
    dated = among(outcome, (FIRST, *JUDGED))
    is_first = dated & (columns["n"][rows] == 0) & (outcome == FIRST)
    columns["brought_cycle"][rows[is_first]] = cycle
    again = rows[dated & ~is_first]
    names = ("last_cycle", "brought_sum", "brought_cycles", "brought_cycle")
    state = {name: columns[name][again] for name in names}
    discovery.observe(state, brought[dated & ~is_first], cycle)
    for name, column in state.items():
        columns[name][again] = column


def _observe_first(columns: Columns, rows: npt.NDArray[np.intp], cycle: int) -> None:
    """Set the last cycle of pages with a FIRST visit, and the first cycle if they had no judged visit."""
    unjudged = rows[columns["n"][rows] == 0]
    for name in ("first_cycle", "found_cycle"):
        if name in columns:
            columns[name][unjudged] = cycle
    if "G_cycles" in columns:
        # G_cycles is relative to last_cycle: move both together.
        age_cycles = cycle - columns["last_cycle"][rows].astype(np.float64)
        columns["G_cycles"][rows] *= np.exp2(-age_cycles)
    columns["last_cycle"][rows] = cycle


MAX_WAIT_CYCLES: Final = 32
MAX_WAIT_FAILURES: Final = MAX_WAIT_CYCLES.bit_length()
"""Number of failures in a row from which on a page waits `MAX_WAIT_CYCLES`."""
_WAIT_CYCLES: Final = np.clip(2.0 ** np.arange(-1.0, 255.0), 1, MAX_WAIT_CYCLES).astype(np.int32)
"""Waiting time, cycles, by the number of failures in a row: ``[256]``."""


class Stages(NamedTuple):
    """Masks of the four stages of pages, each bool ``[P]``; every page is in exactly one."""

    gone: Bools
    """Had `gone_after` 404 or 410 answers in a row; visited again ever more rarely."""
    unfetched: Bools
    """Known, but never fetched."""
    warming: Bools
    """Fetched, with fewer judged visits than the warm-up gives every page."""
    settled: Bools
    """Past the warm-up: candidates of the policy."""


def stages(columns: Mapping[str, npt.NDArray[Any]], warmup_visits: int, gone_after: int) -> Stages:
    """Sort pages into stages by their columns ``n``, ``has_copy`` and ``gone``, each ``[P]``."""
    gone = np.asarray(columns["gone"] >= gone_after)
    unfetched = ~gone & is_unfetched(columns["n"], columns["has_copy"])
    warming = ~gone & ~unfetched & (columns["n"] < warmup_visits)
    return Stages(gone, unfetched, warming, ~gone & ~unfetched & ~warming)


def is_unfetched(n: Any, has_copy: Any) -> Any:
    """Whether pages were never fetched, by their columns ``n`` and ``has_copy``, numbers or arrays."""
    return (n == 0) & (has_copy == 0)


def is_awake(
    columns: Mapping[str, npt.NDArray[Any]], cycle: int, in_every_cycle: Bools | bool = False
) -> Bools:
    """Whether each page may be visited in a cycle, having waited long enough after failures: bool ``[P]``.

    A page whose last visits all failed waits 1, 2, 4, ... at most `MAX_WAIT_CYCLES` cycles between two
    attempts, so that dead hosts do not eat the budget. A page of a start request does not wait while its
    answers are 404 or 410. Pages marked in ``in_every_cycle``, ``[P]``, never wait, because an exported
    history leaves out pages that lack a visit in any cycle.
    """
    failures, last_attempt = columns["failures"], columns["last_attempt"]
    awake = np.asarray(last_attempt < cycle)
    waiting = np.flatnonzero(failures > 1)  # of most crawls few
    if len(waiting):
        is_start = (columns["found_by"][waiting] == discovery.START) & (columns["gone"][waiting] > 0)
        waited = cycle - last_attempt[waiting] >= _WAIT_CYCLES[failures[waiting]]
        always = np.broadcast_to(in_every_cycle, awake.shape)[waiting]
        awake[waiting] &= waited | is_start | always
    return awake


def next_attempt(columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """First cycle in which each page may be visited again after its failures: ``[P]``, see `is_awake`."""
    failures, last_attempt = columns["failures"], columns["last_attempt"].astype(np.int64)
    return np.asarray(last_attempt + _WAIT_CYCLES[failures], np.int64)


LINKED_FAILURES: Final = 1
"""New value of ``failures`` of a gone page that is linked again: it waits one cycle."""
RECOVERING: Final = 0
"""New value of ``failures`` of a page named by a hint or an import, or whose site answers again: no wait."""


def shorten_wait(
    columns: Columns, rows: npt.NDArray[np.intp], failures: Any = RECOVERING, is_over: Any = False
) -> None:
    """Lower the column ``failures`` of `rows` to `failures`, in place, so that pages wait less.

    Pages whose last outcome was doubtful (a block page, say) wait on, unless the doubt `is_over`, ``[rows]``.
    """
    if "outcome" in columns and len(rows):
        most = np.where((columns["outcome"][rows] == DOUBTFUL) & ~np.asarray(is_over), 255, failures)
        np.minimum.at(columns["failures"], rows, most.astype(np.uint8))


def in_panel(keys: npt.NDArray[np.uint64], share: float) -> Bools:
    """Whether each page is in the control group, a `share` of all: bool ``[P]``; ``keys``: uint64 ``[P]``.

    A page's key, uniformly distributed, decides. So the choice is stable while pages come and go, and a
    larger share includes the group of a smaller one.
    """
    if share >= 1.0:
        return np.ones(len(keys), np.bool_)
    return np.asarray(keys < np.uint64(share * 2.0**64))


HEAD: Final = struct.Struct(f"<I{len(COLUMNS)}B{-(4 + len(COLUMNS)) % 8}x")
"""Head of a packed block: number of pages, width of each column; padded to a multiple of 8 bytes."""
_SIZES: Final = [np.dtype(dtype).itemsize for dtype in COLUMNS.values()]
_PLACES: Final = {name: position for position, name in enumerate(COLUMNS)}
_NARROW: Final = (1, 2, 4)
_UNSIGNED: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_OTHERS: Final = {"i4": "i", "f2": "e", "f8": "d"}
"""Codes of module struct for dtypes that are not unsigned."""


class _Field(NamedTuple):
    """Position of a column in a packed block."""

    dtype: str
    offset: int
    step: int
    """Bytes from one page to the next; 0: all pages have the same number."""
    number: struct.Struct


class _Layout(NamedTuple):
    pages: int
    fields: tuple[_Field, ...]
    """One for each column, in the order of `COLUMNS`."""
    size_bytes: int


@lru_cache(maxsize=4096)
def _layout(head: bytes) -> _Layout:
    """Compute the layout of a packed block from its head; raises ValueError for a damaged head."""
    pages, *widths = HEAD.unpack(head)
    offset, fields = HEAD.size, dict[int, _Field]()
    for position in sorted(range(len(widths)), key=lambda position: -widths[position]):
        dtype, width = list(COLUMNS.values())[position], widths[position]
        if width not in (0, *_NARROW, _SIZES[position]) or width > _SIZES[position]:
            raise ValueError(f"expected a column of {_SIZES[position]} bytes a page or less; found {width}")
        if 0 < width < _SIZES[position]:
            dtype = f"<u{width}"
        name = np.dtype(dtype).str[1:]
        number = struct.Struct("<" + (_OTHERS.get(name) or _UNSIGNED[int(name[1:])]))
        fields[position] = _Field(dtype, offset, width, number)
        offset += pages * width if width else _SIZES[position]
    return _Layout(pages, tuple(fields[position] for position in range(len(widths))), offset)


def _layout_of(block: bytes | memoryview) -> _Layout:
    layout = _layout(bytes(block[: HEAD.size]))
    if len(block) != layout.size_bytes:
        raise ValueError(f"expected a block of {layout.size_bytes} bytes; found {len(block)}")
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
    """Pack the columns ``[P]`` of a block into bytes, as the module's docstring says."""
    arrays = [np.ascontiguousarray(columns[name], dtype) for name, dtype in COLUMNS.items()]
    widths = list(map(_width, arrays))
    parts = [HEAD.pack(len(arrays[0]), *widths)]
    for position in sorted(range(len(arrays)), key=lambda position: -widths[position]):
        numbers, width = arrays[position], widths[position]
        if 0 < width < numbers.itemsize:
            numbers = numbers.astype(f"<u{width}")
        parts.append(numbers[: None if width else 1].tobytes())
    return b"".join(parts)


def page_count(block: bytes | memoryview) -> int:
    """Number of pages in a packed block."""
    return _layout_of(block).pages


def _numbers(block: bytes | memoryview, layout: _Layout, name: str) -> Array:
    """Read-only view of column `name` in a packed block: one number where all pages have the same."""
    field = layout.fields[_PLACES[name]]
    return np.frombuffer(block, field.dtype, layout.pages if field.step else 1, field.offset)


def unpack(block: bytes | memoryview, names: Collection[str] = COLUMNS) -> Columns:
    """Unpack the columns `names` of a packed block: read-only arrays ``[P]``, which may be views on it."""
    layout = _layout_of(block)
    return {
        name: np.broadcast_to(_numbers(block, layout, name).astype(COLUMNS[name], copy=False), layout.pages)
        for name in names
    }


def rows_of(block: bytes | memoryview, rows: npt.NDArray[np.integer[Any]], names: Iterable[str]) -> Columns:
    """Unpack the columns `names` of the pages at `rows` of a packed block, copied."""
    layout = _layout_of(block)
    columns: Columns = {}
    for name in names:
        numbers = _numbers(block, layout, name)
        chosen = numbers[rows] if len(numbers) == layout.pages else np.full(len(rows), numbers[0])
        columns[name] = chosen.astype(COLUMNS[name], copy=False)
    return columns


def some_of(blocks: Sequence[bytes | memoryview], names: Iterable[str]) -> Columns:
    """Unpack the columns `names` of several packed blocks, joined to ``[P]``, copied."""
    layouts = [_layout_of(block) for block in blocks]
    ends = np.cumsum([0, *(layout.pages for layout in layouts)]).tolist()
    columns: Columns = {}
    for name in names:
        columns[name] = np.empty(ends[-1], COLUMNS[name])
        for block, layout, first, end in zip(blocks, layouts, ends[:-1], ends[1:], strict=True):
            columns[name][first:end] = _numbers(block, layout, name)
    return columns


def key_at(block: bytes | memoryview, index: int) -> int:
    field = _layout_of(block).fields[_PLACES["key"]]
    return field.number.unpack_from(block, field.offset + index * field.step)[0]


def row(block: bytes | memoryview, index: int) -> PageRow:
    # Views on all columns would take five times as long.
    fields = _layout_of(block).fields
    return PageRow(*[number.unpack_from(block, start + index * step)[0] for _, start, step, number in fields])
