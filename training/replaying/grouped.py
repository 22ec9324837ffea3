"""The grouped replay engine: pages in equal observed state share one row, one score, one place in line.

A replay has few distinct states, so per cycle only the groups are scored; work on single pages is done
for the k visited ones alone (`training.replaying.kernels`). Which state columns tell groups apart depends on
the terminals of the score function. Staleness is kept as the change of what `ArrangedHistory.untouched` would
be.

Functions whose groups are the same are replayed together: as long as they choose the same groups in the
same order, a cycle is replayed once for all of them. Where they part, the replay goes on with the first
ones, and comes back to a copy of what it was for the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import STATE, Array, Clock
from training.replaying.arranged import ArrangedHistory
from training.replaying.kernels import compiling, memory
from training.replaying.kernels.cycles import advance, replay_states, settle
from training.replaying.kernels.memory import Work
from training.replaying.kernels.visits import penalise_rest
from training.replaying.metrics import Floats, Ints, Tallies
from training.replaying.states import state_columns, states_of
from training.replaying.workspace import FIRST, Workspace, by_slot, facts_of, parted, workspace_for

compiling.tell_who_waits()

SLOTS: Final = 1000
"""Slots that a replay begins with; the more of them, the longer it takes to copy it."""


def replay_grouped(
    arranged: ArrangedHistory, functions: Sequence[ScoreFunction], tallies: Collection[str]
) -> list[Tallies]:
    """Replay expressions by groups of equal state; the same numbers as `dense.replay_dense` for each.

    ``tallies``: names of the optional `Tallies` to count. Functions that did the same in every cycle have
    the same object in the list.
    """
    alike: dict[tuple[tuple[str, ...], Clock], dict[int, Expression]] = defaultdict(dict)
    for number, function in enumerate(functions):
        assert function.expression is not None
        alike[state_columns(function)][number] = function.expression
    found: dict[int, Tallies] = {}
    with workspace_for(arranged) as space:
        for (columns, clock), expressions in alike.items():
            numbers = list(expressions)
            batch = _Batch(arranged, columns, clock, list(expressions.values()), tallies, space)
            for members, result in batch.replay():
                found |= dict.fromkeys((numbers[member] for member in members), result)
    return [found[number] for number in range(len(functions))]


@dataclass
class _Path:
    """A replay on its way."""

    work: Work
    slots: Array
    states: Ints
    """``[state columns, slots]``, floats as their bits: what tells groups apart. ``[1, slots]``, numbers
    of listed states, in cycles for which these are listed."""

    def grow(self, capacity: int) -> None:
        """Make room for so many slots."""
        top = self.work.sizes[memory.TOP]
        self.slots, self.states = (_roomy(rows, capacity, top) for rows in (self.slots, self.states))


class _Branch(NamedTuple):
    """Functions to go on with later."""

    path: _Path
    shared: bool
    """Whether another branch begins here too, later: then the path must be copied."""
    done: int
    """Scored cycles behind it."""
    members: list[int]
    """They choose alike in the next cycle, except where all begin."""
    scores: Floats | None
    """The first member's scores in the next cycle, by slot; None: to be computed."""


class _Batch:
    """Expressions whose groups are the same, to be replayed together."""

    def __init__(
        self,
        arranged: ArrangedHistory,
        columns: tuple[str, ...],
        clock: Clock,
        expressions: list[Expression],
        tallies: Collection[str],
        space: Workspace,
    ) -> None:
        """Score the listed states, if there are any."""
        self._arranged = arranged
        self._clock = clock
        self._names = tuple(name for name in columns if name != "last_cycle")
        self._expressions = expressions
        self._tallies = tallies
        self._facts = facts_of(arranged, tallies)
        self._space = space
        self._counts = np.zeros((arranged.cycles - arranged.warmup, memory.COUNTS), np.int64)
        self._moves = np.empty(2 * arranged.k, np.int64)
        self._keys = np.empty((1, 2 * arranged.k), np.int64)
        self._listed = states_of(arranged, columns, clock)
        self._listed_cycles = 0 if self._listed is None else self._listed.cycles
        if self._listed is not None:
            self._listed_scores = np.array([self._listed.scores(expression) for expression in expressions])

    def replay(self) -> Iterator[tuple[list[int], Tallies]]:
        """Replay all; members (by number) and tallies of those that did the same in every cycle."""
        pending = [_Branch(self._begin(), False, 0, list(range(len(self._expressions))), None)]
        while pending:
            path, shared, done, members, scores = pending.pop()
            if shared:
                path = self._copy(path)
            agreed = done > 0
            while done < len(self._counts):
                if len(members) > 1 and not agreed:
                    (members, scores), *others = self._part(path, done, members)
                    if others:
                        behind = self._copy(path)
                        # The one begun last takes the path over.
                        pending.append(_Branch(behind, False, done, *others[0]))
                        pending += [_Branch(behind, True, done, *other) for other in others[1:]]
                done = self._go_on(path, done, members, scores)
                agreed, scores = False, None
            if self._facts.penalised:
                penalise_rest(self._facts, path.slots, path.work)
            yield members, _tallies(self._arranged, self._counts.copy(), path.work, self._tallies)
            self._space.give_back(path.work)

    def _begin(self) -> _Path:
        """One group per warm-up pattern."""
        arranged = self._arranged
        patterns = len(arranged.pattern_start) - 1
        used = FIRST + patterns
        capacity = used + SLOTS
        slots = np.zeros((memory.FIELDS, capacity), np.int32)
        slots[memory.START, FIRST:used] = arranged.pattern_start[:-1]
        slots[memory.LENGTH : memory.COUNT + 1, FIRST:used] = np.diff(arranged.pattern_start)
        slots[memory.LAST, FIRST:used] = arranged.warmup
        if self._listed is not None:
            states = np.zeros((1, capacity), np.int64)
            states[0, FIRST:used] = self._listed.first
        else:
            states = np.zeros((len(self._names), capacity), np.int64)
            named = self._named(states[:, FIRST:used])
            for name, values in arranged.first_state(self._names).items():
                named[name][:] = values
        return _Path(self._space.begin(arranged), slots, states)

    def _copy(self, path: _Path) -> _Path:
        top = path.work.sizes[memory.TOP]
        slots, states = (_roomy(rows, rows.shape[1], top) for rows in (path.slots, path.states))
        return _Path(self._space.copy(path.work), slots, states)

    def _named(self, states: Ints) -> dict[str, Array]:
        """The columns of some states by name, as views."""
        return {
            name: values.view(np.float64) if STATE[name] == "<f8" else values
            for name, values in zip(self._names, states, strict=True)
        }

    def _part(self, path: _Path, done: int, members: list[int]) -> list[tuple[list[int], Floats | None]]:
        """Part functions by what they choose in the next cycle; with the scores of the first of each part."""
        counts = path.slots[memory.COUNT, : path.work.sizes[memory.TOP]]
        if done < self._listed_cycles:
            assert self._listed is not None
            live = np.flatnonzero(counts)
            rows = self._listed.score_at[path.states[0, live]]
            if self._listed.aged:
                rows += self._arranged.warmup + done - path.slots[memory.LAST, live]
            scores = self._listed_scores[np.ix_(members, rows)]
            counts = counts[live]
        else:
            scores = self._scores(path, done, members)
        return [
            ([members[i] for i in part], scores[part[0]] if done >= self._listed_cycles else None)
            for part in parted(scores, counts, self._arranged.k)
        ]

    def _scores(self, path: _Path, done: int, members: list[int]) -> Floats:
        """Scores of the groups in the next cycle, ``[members, slots]``."""
        top = int(path.work.sizes[memory.TOP])
        state = self._named(path.states[:, :top]) | {"last_cycle": path.slots[memory.LAST, :top]}
        expressions = [self._expressions[member] for member in members]
        names = {name for expression in expressions for name in expression.terminals}
        values = {
            name: column.astype(np.float64, copy=False)
            for name, column in terminals.compute(
                names, state, self._arranged.warmup + 1 + done, self._clock
            ).items()
        }
        scores = np.empty((len(members), top))
        for own, expression in zip(scores, expressions, strict=True):
            expression.evaluate(values, own)
        return scores

    def _go_on(self, path: _Path, done: int, members: list[int], scores: Floats | None) -> int:
        """Replay the next cycle, or as many as need no look at the members; returns the cycles done then."""
        if done < self._listed_cycles:
            stop = self._listed_cycles if len(members) == 1 else done + 1
            self._replay_states(path, done, stop, self._listed_scores[members[0]])
            if stop == self._listed_cycles < len(self._counts):
                self._name_states(path)
            return stop
        if scores is None:
            scores = self._scores(path, done, members[:1])[0]
        self._replay_cycle(path, done, scores)
        return done + 1

    def _replay_states(self, path: _Path, done: int, stop: int, scores: Floats) -> None:
        """Replay cycles of which all states are listed without coming back to Python."""
        arranged, listed = self._arranged, self._listed
        assert listed is not None
        while done < stop:
            done = replay_states(
                done, stop, arranged.salts, arranged.drawn, arranged.drawn_start, scores, listed.score_at,
                listed.aged, listed.after, path.states, self._facts, path.slots, path.work, self._counts,
                self._moves, self._keys, *by_slot(path.slots),
            )  # fmt: skip
            if done < stop:
                path.grow(4 * path.work.sizes[memory.TOP])

    def _name_states(self, path: _Path) -> None:
        """The listed cycles are over."""
        assert self._listed is not None
        path.states = self._listed.bits.take(path.states[0], axis=1)

    def _replay_cycle(self, path: _Path, done: int, scores: Floats) -> None:
        arranged, work = self._arranged, path.work
        cycle = arranged.warmup + 1 + done
        drawn = arranged.drawn[arranged.drawn_start[done] : arranged.drawn_start[done + 1]]
        counts = self._counts[done]
        moved = advance(
            cycle, scores, arranged.salts[done], drawn, self._facts, path.slots, work, counts,
            self._moves, by_slot(path.slots)[0],
        )  # fmt: skip
        if done + 1 == len(self._counts) and not self._facts.penalised:
            return  # nobody asks for the groups after the last cycle
        used = self._moves[:moved]
        source = work.runs[memory.SLOT, used >> 1]
        after = path.states.take(source, axis=1)
        last_cycle = path.slots[memory.LAST, source]
        terminals.observe(self._named(after) | {"last_cycle": last_cycle}, used & 1, cycle)
        top = work.sizes[memory.TOP]
        if top + moved > path.slots.shape[1]:
            path.grow(2 * (top + moved))
        settle(cycle, used, after, path.states, path.slots, work)


def _roomy(rows: Array, capacity: int, used: int) -> Array:
    """The first `used` columns, and zeros up to `capacity` of them."""
    roomy = np.zeros((len(rows), capacity), rows.dtype)
    roomy[:, :used] = rows[:, :used]
    return roomy


def _tallies(arranged: ArrangedHistory, counts: Ints, work: Work, wanted: Collection[str]) -> Tallies:
    """Add up: what was untouched, less what was visited, plus what went stale again since."""
    cycles = arranged.scored_cycles
    changed, weight = counts[:, memory.CHANGED], counts[:, memory.WEIGHT]

    def standing(row: int, begun: Ints) -> Ints:
        return np.asarray((arranged.untouched[row] + np.cumsum(begun))[cycles])

    every: dict[str, Ints] = {
        "dcg": counts[:, memory.DCG],
        "new": counts[:, memory.NEW],
        "idle": counts[:, memory.IDLE],
        "changed_weight": weight,
    }
    if "stale_weight" in wanted or "age_weight" in wanted:
        again = np.asarray(work.again_weight if len(arranged.weights.fixed) else work.again_count, np.int64)
        every["stale_weight"] = stale = standing(1, again) - np.cumsum(weight)
        since = standing(2, again * np.arange(len(again))) - np.cumsum(counts[:, memory.DIVERGED])
        every["age_weight"] = (cycles + 1) * stale - since
    if "penalty" in wanted:
        every["penalty"] = standing(3, np.asarray(work.penalty_change))
    pending = standing(0, np.asarray(work.again_count)) - np.cumsum(changed) + changed
    return Tallies(
        np.full(len(cycles), arranged.k),
        changed,
        pending,
        **{name: every[name] for name in wanted},
    )
