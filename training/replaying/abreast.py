"""Cycles of which the states are not listed: several replays go through them abreast.

There are few groups in a replay, so that to score them takes the calls more time than the numbers. So the
groups of all replays that are in the same cycle are looked at together: their terminals, and what a visit
makes of their states, are computed once for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.primitives import WATCH
from scrapy_gp4c.scoring.terminals import Clock
from training.replaying.arranged import ArrangedHistory
from training.replaying.kernels import memory
from training.replaying.kernels.cycles import replay_cycle
from training.replaying.kernels.memory import Facts
from training.replaying.metrics import Floats, Ints
from training.replaying.paths import Path, named
from training.replaying.programs import Program
from training.replaying.workspace import by_slot, parted

ABREAST: Final = 8
"""Replays that go abreast, at most: each takes memory of its own."""


class Member(NamedTuple):
    """A replay, and the functions that it is one of, by number."""

    path: Path
    functions: list[int]


class Abreast:
    """Looks at the groups of several replays in one cycle."""

    def __init__(
        self,
        arranged: ArrangedHistory,
        names: tuple[str, ...],
        clock: Clock,
        expressions: Sequence[Expression],
        facts: Facts,
    ) -> None:
        """``names``: of the state columns but ``last_cycle``; ``expressions``: by number."""
        self._arranged = arranged
        self._names = names
        self._clock = clock
        self._expressions = expressions
        self._terminals = sorted({name for expression in expressions for name in expression.terminals})
        self._programs: dict[int, Program] = {}
        self._facts = facts
        self._moves = np.empty(2 * arranged.k, np.int64)
        self._keys = np.empty((len(names), 2 * arranged.k), np.int64)

    def look(self, done: int, members: Sequence[Member]) -> Look:
        """Look at the groups of all, after so many scored cycles."""
        cycle = self._arranged.warmup + 1 + done
        tops = [member.path.top for member in members]
        begins = np.cumsum([0, *tops]).tolist()
        states = np.concatenate([one.path.states[:, : one.path.top] for one in members], axis=1)
        last_cycle = np.concatenate([one.path.slots[memory.LAST, : one.path.top] for one in members])
        state = named(self._names, states) | {"last_cycle": last_cycle}
        values = np.empty((len(self._terminals), len(last_cycle)))
        columns = terminals.compute(self._terminals, state, cycle, self._clock)
        for row, name in zip(values, self._terminals, strict=True):
            row[:] = columns[name]
        scores = []
        with np.errstate(**WATCH):
            for one, begin, top in zip(members, begins, tops, strict=False):
                own = np.empty((len(one.functions), top))
                for row, function in zip(own, one.functions, strict=True):
                    self._program(function).evaluate(values, begin, row)
                scores.append(own)
        return Look(begins[:-1], scores, self._after(states, last_cycle, cycle))

    def _program(self, function: int) -> Program:
        if function not in self._programs:
            self._programs[function] = Program(self._expressions[function], self._terminals)
        return self._programs[function]

    def _after(self, states: Ints, last_cycle: Ints, cycle: int) -> Ints:
        if cycle == self._facts.cycles and not self._facts.penalised:
            return states[:, :0]  # nobody asks for the groups after the last cycle
        after = np.concatenate((states, states), axis=1)
        found = np.repeat((False, True), states.shape[1])
        state = named(self._names, after) | {"last_cycle": np.concatenate((last_cycle, last_cycle))}
        terminals.observe(state, found, cycle)
        return after

    def parts(self, member: Member, scores: Floats) -> list[list[int]]:
        """Places of the functions in `Member.functions`, those together that choose alike."""
        if len(member.functions) == 1:
            return [[0]]
        return parted(scores, member.path.slots[memory.COUNT, : member.path.top], self._arranged.k)

    def replay(self, path: Path, done: int, scores: Floats, after: Ints, begin: int) -> None:
        """Replay the next cycle of one of them. ``scores``: by slot; ``after``: of `Look`."""
        arranged = self._arranged
        if 3 * path.top > path.slots.shape[1]:  # every group may become two more
            path.grow(6 * path.top)
        replay_cycle(
            arranged.warmup + 1 + done, scores, arranged.salts[done],
            arranged.drawn[arranged.drawn_start[done] : arranged.drawn_start[done + 1]],
            self._facts, path.slots, path.work, path.counts[done], self._moves, self._keys,
            by_slot(path.slots)[0], path.states, after, begin,
        )  # fmt: skip


class Look(NamedTuple):
    """What a look at all groups tells."""

    begins: list[int]
    """First of the groups of each replay."""
    scores: list[Floats]
    """By replay: ``[functions, slots]``."""
    after: Ints
    """``[state columns, 2 * groups]``: states after a visit without a change, then after one with a change;
    nothing where nobody asks for it."""
