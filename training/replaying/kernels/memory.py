"""Memory of the compiled loops: constants of a replay, its arrays, and the names of rows in these.

`training.replaying.kernels` explains slots, runs, classes of ties and keys. P is the number of pages, k that
of visits in a cycle.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

MAX_BITS = 16
"""Binary logarithm of the most buckets of keys."""
MAX_FIELD = 22
"""Binary logarithm of the most bits of `Work.field`, whose 64-bit words are counted in `Work.heads`: so at
most MAX_BITS + 6."""
LANES = 4
"""Number of histograms side by side (`Work.lanes`), so that equal neighbours do not wait for each other."""


class Facts(NamedTuple):
    """Constants of a replay, most of them fields of `PreparedHistory`."""

    words: Array
    """``[P * width]``: `PreparedHistory.words` (a bit per cycle with a change), page after page"""
    width: int
    """words of a page"""
    gains: Array
    """DCG gain of each rank"""
    gain_sums: Array
    fixed: Array
    weights: Array
    penalties: Array
    scale: float
    pages: int
    cycles: int
    warmup: int
    k: int
    by_draw: bool
    ranked: bool
    aged: bool
    penalised: bool


class Work(NamedTuple):
    """Arrays of a replay: pages by slot, the visits of a cycle by run, and scratch memory."""

    group_of: Array
    """slot by page, of tracked slots; else `NOWHERE`"""
    arena: Array
    sizes: Array
    """see `TOP`"""
    picked: Array
    """pages visited in the cycle, run by run; a *place* is a position in it"""
    runs: Array
    """int32 ``[2, k + 1]``, see `SLOT`"""
    class_end: Array
    """place after the last page of each class of ties"""
    class_known: Array
    """whether `rank_of` holds the order of the class"""
    rank_of: Array
    """by place: rank within the class"""
    again: Array
    """by place: cycles until the page changes again if the visit found a change, else 0"""
    moves: Array
    """``moves[2 * q + o]``: number of pages of run q whose visit had outcome o (1: a change)"""
    target: Array
    """slot to which the pages of each such move go"""
    new_slots: Array
    table: Array
    gathered: Array
    from_slot: Array
    keys: Array
    sorted_keys: Array
    heads: Array
    field: Array
    lanes: Array
    again_count: Array
    again_weight: Array
    penalty_change: Array


NOWHERE = 0
"""Slot that is never used."""
TOP, FREES, TAIL, RUNS, CLASSES, TRACKING, SIZES = range(7)
"""Positions in `Work.sizes`: slots ever used, free slots on the stack, entries of the arena in use, runs and
classes of ties of this cycle, whether any slot was ever tracked."""
LAST, START, LENGTH, COUNT, LOW, TRACKED, STAMP, TAKEN, FREE, FIELDS = range(10)
"""Rows of the table of slots, int32 ``[FIELDS, slots]``: cycle of the last visit; where the list begins; its
length; how many listed pages are still there (fewer, if some were picked page by page); a lower bound of
their ids; whether the slot is tracked; the last cycle in which its class was picked from page by page; how
many pages were taken in the choice just made; a stack of empty slots."""
SLOT, PLACE = range(2)
"""Rows of `Work.runs`: slot; place of the first page in `Work.picked` (one more entry ends the last run)."""
CHANGED, DCG, NEW, IDLE, WEIGHT, DIVERGED, COUNTS = range(7)
"""Positions in the counts of a cycle: changed pages; DCG; first visits since the warm-up; pages not visited
in the cycle before; weight of changed pages; sum of the cycles of their first missed changes, weighted."""
