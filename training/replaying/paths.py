"""Replays on their way: groups of pages, their states, and what was counted so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scrapy_gp4c.scoring.terminals import STATE, Array
from training.replaying.arranged import ArrangedHistory
from training.replaying.kernels import memory
from training.replaying.kernels.memory import Work
from training.replaying.metrics import Ints
from training.replaying.states import States
from training.replaying.workspace import FIRST, Workspace

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
    """`training.replaying.trails.blank`; nothing where no trail is wanted."""

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
    arranged: ArrangedHistory, names: tuple[str, ...], listed: States | None, space: Workspace, trail: Array
) -> Path:
    """A replay after the warm-up: one group per pattern. ``names``: of the state columns."""
    patterns = len(arranged.pattern_start) - 1
    used = FIRST + patterns
    capacity = used + SLOTS
    slots = np.zeros((memory.FIELDS, capacity), np.int32)
    slots[memory.START, FIRST:used] = arranged.pattern_start[:-1]
    slots[memory.LENGTH : memory.COUNT + 1, FIRST:used] = np.diff(arranged.pattern_start)
    slots[memory.LAST, FIRST:used] = arranged.warmup
    if listed is not None:
        states = np.zeros((1, capacity), np.int64)
        states[0, FIRST:used] = listed.first
    else:
        states = np.zeros((len(names), capacity), np.int64)
        columns = named(names, states[:, FIRST:used])
        for name, values in arranged.first_state(names).items():
            columns[name][:] = values
    counts = np.zeros((arranged.cycles - arranged.warmup, memory.COUNTS), np.int64)
    return Path(space.begin(arranged), slots, states, counts, trail)


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
