"""Paths of grouped replays, and the memory that they work in.

Memory is handed from replay to replay, which keeps it in the processor's caches. Replays of one size share
all scratch memory. A path owns its page lists and sums, so that it can be copied and go on in more than one
way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.scoring.terminals import STATE
from training.replaying.kernels import memory
from training.replaying.kernels.choice import label_by_choice
from training.replaying.kernels.memory import Facts, Work
from training.replaying.prepared import PreparedHistory
from training.replaying.states import States

FIRST: Final = memory.NOWHERE + 1
"""Slot of the first warm-up pattern."""
_SUMS: Final = ("again_count", "again_weight", "penalty_change")


class Workspace:
    """Memory for replays of one size."""

    def __init__(self, pages: int, k: int, cycles: int, warmup: int) -> None:
        self._spare = [_new_work(pages, k, cycles, warmup)]
        self._like = self._spare[0]

    def begin(self, prepared: PreparedHistory) -> Work:
        """Memory for a replay after the warm-up; the caller gives it back."""
        work = self._take()
        work.arena[: prepared.pages] = prepared.pattern_pages
        work.sizes[:] = 0
        work.sizes[memory.TAIL] = prepared.pages
        work.sizes[memory.TOP] = FIRST + len(prepared.pattern_start) - 1
        for name in _SUMS:
            getattr(work, name)[:] = 0
        return work

    def copy(self, work: Work) -> Work:
        """Memory with a copy of another replay's; the caller gives it back."""
        copy = self._take()
        tail = work.sizes[memory.TAIL]
        copy.arena[:tail] = work.arena[:tail]
        if work.sizes[memory.TRACKING]:
            copy.group_of[:] = work.group_of
        for name in ("sizes", *_SUMS):
            getattr(copy, name)[:] = getattr(work, name)
        return copy

    def give_back(self, work: Work) -> None:
        """Take back the memory of a finished replay."""
        self._spare.append(work)

    def _take(self) -> Work:
        if self._spare:
            return self._spare.pop()
        copied = ("arena", "group_of", "sizes", *_SUMS)
        return self._like._replace(**{name: np.empty_like(getattr(self._like, name)) for name in copied})


_LAST: Final[dict[tuple[int, ...], Workspace]] = {}
"""Memory used last, while nobody uses it."""


@contextmanager
def workspace_for(prepared: PreparedHistory) -> Iterator[Workspace]:
    """Workspace for such replays; another thread meanwhile gets its own."""
    key = (prepared.pages, prepared.k, prepared.cycles, prepared.warmup)
    space = _LAST.pop(key, None) or Workspace(*key)
    _LAST.clear()
    yield space
    _LAST[key] = space


def by_slot(slots: Array) -> tuple[Ints, Ints, Floats]:
    """Scratch memory for a table of slots: orders, rows and scores."""
    capacity = slots.shape[1]
    return np.empty((2, capacity), np.int64), np.empty(capacity, np.int64), np.empty(capacity)


def partition_by_choice(scores: Floats, sizes: Array, k: int) -> list[list[int]]:
    """Numbers of score functions, those together that choose the same k pages in the same order.

    ``scores``: ``[functions, groups]``; ``sizes``: pages of each group, int32.
    """
    functions, groups = scores.shape
    labels, lengths = np.zeros((2, functions), np.int64)
    label_by_choice(
        scores, sizes, k, labels, np.empty(scores.shape, np.int32), lengths, np.empty((2, groups), np.int64)
    )
    parts: dict[int, list[int]] = defaultdict(list)
    for function, label in enumerate(labels.tolist()):
        parts[label].append(function)
    return list(parts.values())


def facts_of(prepared: PreparedHistory, tallies: Collection[str]) -> Facts:
    """Constants of replays that count the optional `tallies`."""
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
"""Free slots at the start of a replay; more of them make copies slower."""


@dataclass
class ReplayPath:
    """Replay in progress: groups of pages, their states, and the counts so far."""

    work: Work
    slots: Array
    """int32 ``[memory.FIELDS, slots]``"""
    states: Ints
    """``[state columns, slots]``, floats as their bits.

    In cycles with listed states ``[1, slots]``: their numbers.
    """
    counts: Ints
    """``[scored cycles, memory.COUNTS]``"""
    trail: Array
    """Trail for the prefix cache, see `blank`; empty where none is wanted."""

    @property
    def top(self) -> int:
        """Slots ever used."""
        return int(self.work.sizes[memory.TOP])

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` slots."""
        self.slots, self.states = (_roomy(rows, capacity, self.top) for rows in (self.slots, self.states))

    def copy(self, space: Workspace) -> ReplayPath:
        """Independent copy of the replay so far."""
        slots, states = (_roomy(rows, rows.shape[1], self.top) for rows in (self.slots, self.states))
        return ReplayPath(space.copy(self.work), slots, states, self.counts.copy(), self.trail.copy())


def path_after_warmup(
    prepared: PreparedHistory, names: tuple[str, ...], listed: States | None, space: Workspace, trail: Array
) -> ReplayPath:
    """Path after the warm-up, with one group per pattern; ``names``: of the state columns."""
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
    return ReplayPath(space.begin(prepared), slots, states, counts, trail)


def named(names: tuple[str, ...], states: Ints) -> dict[str, Array]:
    """Columns of some states by name, as views."""
    return {
        name: values.view(np.float64) if STATE[name] == "<f8" else values
        for name, values in zip(names, states, strict=True)
    }


def _roomy(rows: Array, capacity: int, used: int) -> Array:
    roomy = np.zeros((len(rows), capacity), rows.dtype)
    roomy[:, :used] = rows[:, :used]
    return roomy
