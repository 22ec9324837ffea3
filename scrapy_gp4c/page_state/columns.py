"""Columns of pages, what a visit does to them, and the stages of pages.

A block holds consecutive pages, 16,384 but for tests, in the columns of `COLUMNS`, each with one entry per
page; the last block is shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.page_state.outcomes import CHANGED, COPIED, DOUBTFUL, FAILED, FIRST, GONE, JUDGED, among
from scrapy_gp4c.scoring import discovery, sizes, terminals

Columns = dict[str, Array]

COLUMNS: Final[dict[str, str]] = {
    **terminals.STATE,
    **discovery.COLUMNS,
    **sizes.COLUMNS,
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
    """The columns of one page as Python numbers."""

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
    key: int
    group: int
    fingerprint: int
    has_copy: int
    failures: int
    gone: int
    last_attempt: int
    outcome: int


def new_columns(keys: npt.NDArray[np.uint64]) -> Columns:
    """Columns of pages that were never visited, in directory 0; ``keys``: uint64 ``[P]``."""
    columns = {name: np.zeros(len(keys), dtype) for name, dtype in COLUMNS.items()}
    columns["key"][:] = keys
    return columns


def read_columns(block: bytes | memoryview, dtypes: Mapping[str, str]) -> Columns:
    """Columns ``[P]`` of bytes that hold one column behind the other, as views."""
    rows = len(block) // sum(np.dtype(dtype).itemsize for dtype in dtypes.values())
    columns: Columns = {}
    offset = 0
    for name, dtype in dtypes.items():
        columns[name] = np.frombuffer(block, dtype, rows, offset)
        offset += columns[name].nbytes
    return columns


NEW_ROW: Final = PageRow(*(np.zeros((), dtype).item() for dtype in COLUMNS.values()))
"""Columns of a page that was never visited; the key is 0."""


def apply_visits(
    columns: Columns, rows: npt.NDArray[np.intp], visits: Array, cycle: int, brought: Array | None = None
) -> None:
    """Update the columns, in place, by the visits of a cycle.

    ``columns``: writable, each ``[P]``; ``visits``: dtype `VISIT` ``[V]``, at most one per page;
    ``rows``: ``[V]``, the row of each visit's page; ``brought``: how many new pages each visit
    found, ``[V]``; None: none.
    """
    outcome = visits["outcome"]
    columns["last_attempt"][rows] = cycle
    columns["outcome"][rows] = outcome

    new_pages = np.zeros(len(visits), np.int64) if brought is None else brought
    observe_growth(columns, rows, outcome, new_pages, cycle)
    copied = among(outcome, COPIED)
    columns["fingerprint"][rows[copied]] = visits["fingerprint"][copied]
    columns["has_copy"][rows[copied]] = 1
    # Imported pages have a copy of unknown size: the next one that is read counts.
    unsized = copied & (columns["size"][rows] == 0)
    columns["size"][rows[unsized]] = sizes.size_class(visits["bytes"][unsized])

    observe(columns, rows, outcome, cycle)

    failed = among(outcome, FAILED)
    for name, counted in (("failures", failed), ("gone", outcome == GONE)):
        columns[name][rows[~failed]] = 0
        count = columns[name][rows[counted]]
        columns[name][rows[counted]] = count + (count < 255)


def observe(columns: Columns, rows: npt.NDArray[np.intp], outcome: Array, cycle: int) -> None:
    """Update the columns of `terminals.STATE`, in place, by the outcomes of visits of a cycle.

    ``columns``: writable, each ``[P]``; n, last_cycle, and of the others those that the caller needs;
    ``rows``, ``outcome``: of the visits, ``[V]``, at most one per page.
    """
    _first(columns, rows[outcome == FIRST], cycle)
    judged = among(outcome, JUDGED)
    state = {name: columns[name][rows[judged]] for name in terminals.STATE if name in columns}
    terminals.observe(state, outcome[judged] == CHANGED, cycle)
    for name, column in state.items():
        columns[name][rows[judged]] = column


def observe_growth(
    columns: Columns, rows: npt.NDArray[np.intp], outcome: Array, brought: Array, cycle: int
) -> None:
    """Update the columns of discovery, in place, by the new pages that visits found; call before `observe`.

    ``columns``, ``rows``, ``outcome``: as for `observe`; ``brought``: new pages by visit, ``[V]``.
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


def _first(columns: Columns, rows: npt.NDArray[np.intp], cycle: int) -> None:
    """Date copies that were compared with nothing: the gap before them counts as unobserved."""
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
_WAIT_CYCLES: Final = np.clip(2.0 ** np.arange(-1.0, 255.0), 1, MAX_WAIT_CYCLES).astype(np.int32)
"""Waiting time by the number of failures in a row, a byte: ``[256]``."""


class Stages(NamedTuple):
    """Stages of pages, each bool ``[P]``; every page is in exactly one."""

    gone: Bools
    """Had so many ``gone`` outcomes in a row; looked at again ever more rarely."""
    unfetched: Bools
    """Known, and no visit has brought a copy yet."""
    warming: Bools
    """Fetched, with fewer judged visits than the warm-up gives every page."""
    settled: Bools
    """Ranked by the score."""


def stages(columns: Mapping[str, npt.NDArray[Any]], warmup_visits: int, gone_after: int) -> Stages:
    """Stages by the columns ``n``, ``has_copy`` and ``gone``, each ``[P]``."""
    gone = np.asarray(columns["gone"] >= gone_after)
    unfetched = ~gone & is_unfetched(columns["n"], columns["has_copy"])
    warming = ~gone & ~unfetched & (columns["n"] < warmup_visits)
    return Stages(gone, unfetched, warming, ~gone & ~unfetched & ~warming)


def is_unfetched(n: Any, has_copy: Any) -> Any:
    """Whether pages were never fetched, for numbers or arrays."""
    return (n == 0) & (has_copy == 0)


def is_awake(
    columns: Mapping[str, npt.NDArray[Any]], cycle: int, in_every_cycle: Bools | bool = False
) -> Bools:
    """Pages that may be visited in a cycle: bool ``[P]``.

    A page whose last visits all failed waits 1, 2, 4, ... at most `MAX_WAIT_CYCLES` cycles between two
    attempts, so that dead hosts do not eat the budget. A page that the spider's start asks for does not wait
    while its answers are 404 or 410. Pages that are visited ``in_every_cycle``, ``[P]``, do not wait: a
    history with holes would lose them.
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
    """Cycles from which on pages may be visited: ``[P]``, see `is_awake`."""
    failures, last_attempt = columns["failures"], columns["last_attempt"].astype(np.int64)
    return np.asarray(last_attempt + _WAIT_CYCLES[failures], np.int64)


LINKED_FAILURES: Final = 1
"""Failures in a row that are left to a gone page that a link or a claim names: it waits one cycle."""
RECOVERING: Final = 0
"""Failures in a row that are left to a page that a hint or an import names, or whose site answers again."""


def shorten_wait(columns: Columns, rows: npt.NDArray[np.intp], failures: Any = RECOVERING) -> None:
    """Let pages wait no longer than after so many failures in a row, in place; doubt of a page stays."""
    if "outcome" in columns and len(rows):
        most = np.where(columns["outcome"][rows] == DOUBTFUL, 255, failures)
        np.minimum.at(columns["failures"], rows, most.astype(np.uint8))


def in_panel(keys: npt.NDArray[np.uint64], share: float) -> Bools:
    """Pages of the control group: bool ``[P]``; ``keys``: uint64 ``[P]``, uniformly distributed.

    A page's key decides, so that the choice is stable while pages come and go, and a larger share includes
    the group of a smaller one.
    """
    if share >= 1.0:
        return np.ones(len(keys), np.bool_)
    return np.asarray(keys < np.uint64(share * 2.0**64))
