"""The memory that grouped replays work in, handed from replay to replay.

Taking memory over saves the operating system the trouble of clearing it, and keeps it in the processor's
caches. Replays of one size share all scratch memory; what a replay still needs after a cycle (its page
lists and sums) it has for itself, so that it can be copied and go on in more than one way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from scrapy_gp4c.scoring.terminals import Array
from training.replaying.arranged import ArrangedHistory
from training.replaying.kernels import memory
from training.replaying.kernels.memory import Facts, Work
from training.replaying.kernels.order import tell_apart
from training.replaying.metrics import Floats, Ints

FIRST: Final = memory.NOWHERE + 1
"""The slot of the first warm-up pattern."""
_SUMS: Final = ("again_count", "again_weight", "penalty_change")


class Workspace:
    """Memory for replays of one size."""

    def __init__(self, pages: int, k: int, cycles: int, warmup: int) -> None:
        """Take the sizes of a `ArrangedHistory`."""
        self._spare = [_new_work(pages, k, cycles, warmup)]
        self._like = self._spare[0]

    def begin(self, arranged: ArrangedHistory) -> Work:
        """Memory for a replay, all pages in their groups after the warm-up; to be given back."""
        work = self._take()
        work.arena[: arranged.pages] = arranged.pattern_pages
        work.sizes[:] = 0
        work.sizes[memory.TAIL] = arranged.pages
        work.sizes[memory.TOP] = FIRST + len(arranged.pattern_start) - 1
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
def workspace_for(arranged: ArrangedHistory) -> Iterator[Workspace]:
    """Memory for such replays, nobody else's for the time: other threads take memory of their own."""
    key = (arranged.pages, arranged.k, arranged.cycles, arranged.warmup)
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


def facts_of(arranged: ArrangedHistory, tallies: Collection[str]) -> Facts:
    """What stays the same in replays that count the optional `tallies`."""
    weights = arranged.weights
    return Facts(
        arranged.words.reshape(-1),
        arranged.words.shape[1],
        np.diff(arranged.gain_sums),
        # Of arrays that cannot be written to, as this one in the process that made it, numba makes code anew.
        arranged.gain_sums.copy(),
        weights.fixed,
        weights.values,
        weights.penalties,
        2.0**weights.penalty_bits,
        arranged.pages,
        arranged.cycles,
        arranged.warmup,
        arranged.k,
        arranged.ties == "random",
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
