"""The grouped replay engine: pages in equal observed state share one row, one score, one place in line.

A replay has few distinct states, so per cycle only the groups are scored; work on single pages is done
for the k visited ones alone (`training.replaying.kernels`). Which state columns tell groups apart depends on
the terminals of the score function. Staleness is kept as the change of what `ArrangedHistory.untouched` would
be.

Functions whose groups are the same are replayed together: as long as they choose the same groups in the
same order, a cycle is replayed once for all of them. Where they part, the replay goes on with the first
ones, and comes back to a copy of what it was for the others. Those that a search replayed
before are known by their trails (`training.replaying.trails`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import Clock
from training.replaying.abreast import ABREAST, Abreast, Member
from training.replaying.arranged import ArrangedHistory
from training.replaying.kernels import compiling, memory
from training.replaying.kernels.cycles import replay_states
from training.replaying.kernels.memory import Work
from training.replaying.kernels.visits import penalise_rest
from training.replaying.metrics import Floats, Ints, Tallies
from training.replaying.paths import Path, begun
from training.replaying.states import MOST_RANKED, state_columns, states_of
from training.replaying.trails import Trails, Trodden, blank
from training.replaying.workspace import Workspace, by_slot, facts_of, parted, workspace_for

compiling.tell_who_waits()


def replay_grouped(
    arranged: ArrangedHistory,
    functions: Sequence[ScoreFunction],
    tallies: Collection[str],
    trodden: Trodden | None = None,
) -> list[Tallies]:
    """Replay expressions by groups of equal state; the same numbers as `dense.replay_dense` for each.

    ``tallies``: names of the optional `Tallies` to count. Functions that did the same in every cycle have
    the same object in the list. ``trodden``: what earlier calls for the same training set left.
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
            trails = None
            if trodden is not None and batch.leaves_trails:
                trails = trodden.setdefault((columns, clock, frozenset(tallies)), Trails(batch.scored))
            for members, result in batch.replay(trails):
                found |= dict.fromkeys((numbers[member] for member in members), result)
    return [found[number] for number in range(len(functions))]


class _Branch(NamedTuple):
    """Functions to go on with later."""

    path: Path
    shared: bool
    """Whether another branch begins here too, later: then the path must be copied."""
    done: int
    """Scored cycles behind it."""
    functions: list[int]
    agreed: bool
    """Whether they are known to choose alike in the next cycle."""


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
        self._names = tuple(name for name in columns if name != "last_cycle")
        self._expressions = expressions
        self._tallies = tallies
        self._facts = facts_of(arranged, tallies)
        self._space = space
        self.scored = arranged.cycles - arranged.warmup
        self._moves = np.empty(2 * arranged.k, np.int64)
        self._keys = np.empty((1, 2 * arranged.k), np.int64)
        self._listed = states_of(arranged, columns, clock)
        self._listed_cycles = 0 if self._listed is None else self._listed.cycles
        self._abreast = Abreast(arranged, self._names, clock, expressions, self._facts)
        if self._listed is not None:
            self._listed_scores = np.array([self._listed.scores(expression) for expression in expressions])

    @property
    def leaves_trails(self) -> bool:
        """Whether all states are listed, in few rows."""
        return self._listed is not None and self._listed.complete and self._listed.rows <= MOST_RANKED

    def replay(self, trails: Trails | None) -> Iterator[tuple[list[int], Tallies]]:
        """Replay all; functions (by number) and tallies of those that did the same in every cycle."""
        left = list(range(len(self._expressions)))
        if trails is not None:
            known = [trails.find(scores) for scores in self._listed_scores]
            yield from (([number], tallies) for number, tallies in enumerate(known) if tallies is not None)
            left = [number for number in left if known[number] is None]
        if not left:
            return
        trail = blank(self.scored if trails is not None else 0)
        root = begun(self._arranged, self._names, self._listed, self._space, trail)
        pending = [_Branch(root, False, 0, left, False)]
        while pending:
            done = max(pending[-1].done, self._listed_cycles)
            members: list[Member] = []
            while pending and len(members) < ABREAST and max(pending[-1].done, self._listed_cycles) == done:
                members.append(self._listed_part(pending.pop(), pending))
            while done < self.scored:
                members = self._go_on(members, done, pending)
                done += 1
            for path, functions in members:
                if self._facts.penalised:
                    penalise_rest(self._facts, path.slots, path.work)
                tallies = _tallies(self._arranged, path.counts, path.work, self._tallies)
                if trails is not None:
                    trails.add(self._listed_scores[functions[0]], path.trail, tallies)
                yield functions, tallies
                self._space.give_back(path.work)

    def _listed_part(self, branch: _Branch, pending: list[_Branch]) -> Member:
        """Take a branch up, and go through the cycles of which the states are listed."""
        path, shared, done, functions, agreed = branch
        if shared:
            path = path.copy(self._space)
        while done < self._listed_cycles:
            if len(functions) > 1 and not agreed:
                functions, *others = self._parted(path, done, functions)
                if others:
                    self._leave(pending, path.copy(self._space), done, others)
            stop = self._listed_cycles if len(functions) == 1 else done + 1
            self._replay_states(path, done, stop, self._listed_scores[functions[0]])
            done, agreed = stop, False
            if done == self._listed_cycles < self.scored:
                assert self._listed is not None
                path.states = self._listed.bits.take(path.states[0], axis=1)
        return Member(path, functions)

    def _leave(self, pending: list[_Branch], behind: Path, done: int, others: list[list[int]]) -> None:
        """Functions that part from others: `behind` is where, and taken over by those begun last."""
        pending.append(_Branch(behind, False, done, others[0], True))
        pending += [_Branch(behind, True, done, other, True) for other in others[1:]]

    def _parted(self, path: Path, done: int, functions: list[int]) -> list[list[int]]:
        """Functions, those together that choose alike in the next cycle, whose states are listed."""
        assert self._listed is not None
        live = np.flatnonzero(path.slots[memory.COUNT, : path.top])
        rows = self._listed.score_at[path.states[0, live]]
        if self._listed.aged:
            rows += self._arranged.warmup + done - path.slots[memory.LAST, live]
        scores = self._listed_scores[np.ix_(functions, rows)]
        parts = parted(scores, path.slots[memory.COUNT, live], self._arranged.k)
        return [[functions[place] for place in part] for part in parts]

    def _go_on(self, members: list[Member], done: int, pending: list[_Branch]) -> list[Member]:
        """Replay a cycle of which the states are not listed; those that part go abreast if there is room."""
        look = self._abreast.look(done, members)
        after = []
        room = ABREAST - len(members)
        for member, begin, scores in zip(members, look.begins, look.scores, strict=True):
            path, functions = member
            first, *others = self._abreast.parts(member, scores)
            for part in others[:room]:
                copy = path.copy(self._space)
                self._abreast.replay(copy, done, scores[part[0]], look.after, begin)
                after.append(Member(copy, [functions[place] for place in part]))
            left = [[functions[place] for place in part] for part in others[room:]]
            room -= len(others) - len(left)
            if left:
                self._leave(pending, path.copy(self._space), done, left)
            self._abreast.replay(path, done, scores[first[0]], look.after, begin)
            after.append(Member(path, [functions[place] for place in first]))
        return after

    def _replay_states(self, path: Path, done: int, stop: int, scores: Floats) -> None:
        """Replay cycles of which all states are listed without coming back to Python."""
        arranged, listed = self._arranged, self._listed
        assert listed is not None
        while done < stop:
            done = replay_states(
                done, stop, arranged.salts, arranged.drawn, arranged.drawn_start, scores, listed.score_at,
                listed.aged, listed.after, path.states, self._facts, path.slots, path.work, path.counts,
                self._moves, self._keys, *by_slot(path.slots), path.trail,
            )  # fmt: skip
            if done < stop:
                path.grow(4 * path.top)


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
