"""The memory that grouped replays work in, handed from replay to replay.

Taking memory over saves the operating system the trouble of clearing it, and keeps it in the processor's
caches. Replays of one size share all scratch memory; what a replay still needs after a cycle (its page
lists and sums) it has for itself, so that it can be copied and go on in more than one way.

Replays on their way: groups of pages, their states, and what was counted so far.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from scrapy_gp4c.scoring.terminals import STATE, Array
from training.replaying.kernels import memory
from training.replaying.kernels.choice import tell_apart
from training.replaying.kernels.memory import Facts, Work
from training.replaying.metrics import Floats, Ints
from training.replaying.prepared import PreparedHistory
from training.replaying.states import States

FIRST: Final = memory.NOWHERE + 1
"""The slot of the first warm-up pattern."""
_SUMS: Final = ("again_count", "again_weight", "penalty_change")


class Workspace:
    """Memory for replays of one size."""

    def __init__(self, pages: int, k: int, cycles: int, warmup: int) -> None:
        """Take the sizes of a `PreparedHistory`."""
        self._spare = [_new_work(pages, k, cycles, warmup)]
        self._like = self._spare[0]

    def begin(self, prepared: PreparedHistory) -> Work:
        """Memory for a replay, all pages in their groups after the warm-up; to be given back."""
        work = self._take()
        work.arena[: prepared.pages] = prepared.pattern_pages
        work.sizes[:] = 0
        work.sizes[memory.TAIL] = prepared.pages
        work.sizes[memory.TOP] = FIRST + len(prepared.pattern_start) - 1
        for name in _SUMS:
            getattr(work, name)[:] = 0
        return work

    def copy(self, work: Work) -> Work:
        """Memory for a replay that has come as far as another one; to be given back."""
        copy = self._take()
        tail = work.sizes[memory.TAIL]
        copy.arena[:tail] = work.arena[:tail]
        if work.sizes[memory.TRACKING]:
            copy.group_of[:] = work.group_of
        for name in ("sizes", *_SUMS):
            getattr(copy, name)[:] = getattr(work, name)
        return copy

    def give_back(self, work: Work) -> None:
        """Take the memory of a replay that is over."""
        self._spare.append(work)

    def _take(self) -> Work:
        if self._spare:
            return self._spare.pop()
        own = ("arena", "group_of", "sizes", *_SUMS)
        return self._like._replace(**{name: np.empty_like(getattr(self._like, name)) for name in own})


_LAST: Final[dict[tuple[int, ...], Workspace]] = {}
"""The memory used last, while nobody uses it."""


@contextmanager
def workspace_for(prepared: PreparedHistory) -> Iterator[Workspace]:
    """Memory for such replays, nobody else's for the time: other threads take memory of their own."""
    key = (prepared.pages, prepared.k, prepared.cycles, prepared.warmup)
    space = _LAST.pop(key, None) or Workspace(*key)
    _LAST.clear()
    yield space
    _LAST[key] = space


def by_slot(slots: Array) -> tuple[Ints, Ints, Floats]:
    """Memory to put slots in order, and for the row and the score of each; `slots`: the table of them."""
    capacity = slots.shape[1]
    return np.empty((2, capacity), np.int64), np.empty(capacity, np.int64), np.empty(capacity)


def parted(scores: Floats, sizes: Array, k: int) -> list[list[int]]:
    """Score functions, by number, those together that choose the same k pages in the same order.

    ``scores``: ``[functions, groups]``; ``sizes``: pages of each group, int32.
    """
    functions, groups = scores.shape
    labels, lengths = np.zeros((2, functions), np.int64)
    tell_apart(
        scores, sizes, k, labels, np.empty(scores.shape, np.int32), lengths, np.empty((2, groups), np.int64)
    )
    parts: dict[int, list[int]] = defaultdict(list)
    for function, label in enumerate(labels.tolist()):
        parts[label].append(function)
    return list(parts.values())


def facts_of(prepared: PreparedHistory, tallies: Collection[str]) -> Facts:
    """What stays the same in replays that count the optional `tallies`."""
    weights = prepared.weights
    return Facts(
        prepared.words.reshape(-1),
        prepared.words.shape[1],
        np.diff(prepared.gain_sums),
        # Of arrays that cannot be written to, as this one in the process that made it, numba makes code anew.
        prepared.gain_sums.copy(),
        weights.fixed,
        weights.values,
        weights.penalties,
        2.0**weights.penalty_bits,
        prepared.pages,
        prepared.cycles,
        prepared.warmup,
        prepared.k,
        prepared.ties == "random",
        "dcg" in tallies,
        "age_weight" in tallies,
        "penalty" in tallies,
    )


def _new_work(pages: int, k: int, cycles: int, warmup: int) -> Work:
    def scratch(size: int) -> Array:
        return np.empty(size, np.int32)

    return Work(
        group_of=np.empty(pages, np.uint32),
        # Compacted lists, and what one cycle may add; never compacted if memory allows.
        arena=np.empty(pages + max(3 * k, min(k * (cycles - warmup + 4), 2 * pages)), np.uint32),
        sizes=np.empty(memory.SIZES, np.int64),
        picked=np.empty(k + 1, np.uint32),
        runs=np.empty((2, k + 1), np.int32),
        class_end=scratch(k),
        class_known=np.empty(k, np.bool_),
        rank_of=scratch(k),
        again=np.empty(k, np.uint32),
        moves=scratch(2 * k),
        target=scratch(2 * k),
        new_slots=scratch(2 * k),
        table=scratch(8 * k),
        gathered=np.empty(pages, np.uint32),
        from_slot=np.empty(k, np.uint32),
        keys=np.empty(pages, np.uint64),
        sorted_keys=np.empty(pages, np.uint64),
        heads=scratch((1 << memory.MAX_BITS) + 2),
        field=np.empty(1 << (memory.MAX_FIELD - 6), np.uint64),
        lanes=scratch(memory.LANES * max(cycles + 2, 65)),
        again_count=np.empty(cycles + 2, np.int64),
        again_weight=np.empty(cycles + 2, np.int64),
        penalty_change=np.empty(cycles + 2, np.int64),
    )


SLOTS: Final = 1000
"""Slots that a replay begins with; the more of them, the longer it takes to copy it."""


@dataclass
class Path:
    """A replay on its way."""

    work: Work
    slots: Array
    """int32 ``[memory.FIELDS, slots]``"""
    states: Ints
    """``[state columns, slots]``, floats as their bits: what tells groups apart. ``[1, slots]``, numbers
    of listed states, in cycles for which these are listed."""
    counts: Ints
    """``[scored cycles, memory.COUNTS]``"""
    trail: Array
    """`training.replaying.prefix_cache.blank`; nothing where no trail is wanted."""

    @property
    def top(self) -> int:
        """Slots ever used."""
        return int(self.work.sizes[memory.TOP])

    def grow(self, capacity: int) -> None:
        """Make room for so many slots."""
        self.slots, self.states = (_roomy(rows, capacity, self.top) for rows in (self.slots, self.states))

    def copy(self, space: Workspace) -> Path:
        """Another replay that has come as far."""
        slots, states = (_roomy(rows, rows.shape[1], self.top) for rows in (self.slots, self.states))
        return Path(space.copy(self.work), slots, states, self.counts.copy(), self.trail.copy())


def begun(
    prepared: PreparedHistory, names: tuple[str, ...], listed: States | None, space: Workspace, trail: Array
) -> Path:
    """A replay after the warm-up: one group per pattern. ``names``: of the state columns."""
    patterns = len(prepared.pattern_start) - 1
    used = FIRST + patterns
    capacity = used + SLOTS
    slots = np.zeros((memory.FIELDS, capacity), np.int32)
    slots[memory.START, FIRST:used] = prepared.pattern_start[:-1]
    slots[memory.LENGTH : memory.COUNT + 1, FIRST:used] = np.diff(prepared.pattern_start)
    slots[memory.LAST, FIRST:used] = prepared.warmup
    if listed is not None:
        states = np.zeros((1, capacity), np.int64)
        states[0, FIRST:used] = listed.first
    else:
        states = np.zeros((len(names), capacity), np.int64)
        columns = named(names, states[:, FIRST:used])
        for name, values in prepared.first_state(names).items():
            columns[name][:] = values
    counts = np.zeros((prepared.cycles - prepared.warmup, memory.COUNTS), np.int64)
    return Path(space.begin(prepared), slots, states, counts, trail)


def named(names: tuple[str, ...], states: Ints) -> dict[str, Array]:
    """The columns of some states by name, as views."""
    return {
        name: values.view(np.float64) if STATE[name] == "<f8" else values
        for name, values in zip(names, states, strict=True)
    }


def _roomy(rows: Array, capacity: int, used: int) -> Array:
    """The first `used` columns, and zeros up to `capacity` of them."""
    roomy = np.zeros((len(rows), capacity), rows.dtype)
    roomy[:, :used] = rows[:, :used]
    return roomy
