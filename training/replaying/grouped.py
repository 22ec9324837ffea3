"""Grouped replay engine: pages in equal observed state share one row and one score.

A cycle scores the few groups, and touches single pages only for its k visits (`training.replaying.kernels`,
which also explains slots, ``facts`` and ``work``). The terminals of a score function name the state columns
that tell groups apart. Tallies of outdated pages are kept as differences to those of a crawl without visits
(`PreparedHistory.untouched`).

Functions with the same groups share one replay while they choose the same pages. Where they part, the
replay (`ReplayPath`) goes on with some, and later returns to a copy of its path for the others. Functions
that choose as an earlier one did are found in a `PrefixCache`. States are *listed* in the first cycles, while
few are possible: each then has a number, and is scored once beforehand (`prepared.States`). In later cycles
several replays are scored in one batch: their few groups cost NumPy hardly more than those of one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Array, Floats, Ints
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import STATE, Clock
from training.replaying.kernels import compiling, cycles, memory
from training.replaying.kernels.choice import label_by_choice
from training.replaying.kernels.cycles import replay_cycle, replay_states
from training.replaying.kernels.memory import Facts, Work
from training.replaying.kernels.visits import penalise_rest
from training.replaying.metrics import Tallies
from training.replaying.prepared import MOST_CACHED, PreparedHistory, States, state_columns, states_of

FIRST: Final = memory.NOWHERE + 1
"""Slot (row of the memory) of the first group: at first, each has the pages with equal warm-up outcomes."""
_SUMS: Final = ("again_count", "again_weight", "penalty_change")


class Workspace:
    """Arrays (`memory.Work`) for replays of one size, used again by one replay after the other."""

    def __init__(self, pages: int, k: int, cycles: int, warmup: int) -> None:
        self._spare = [_new_work(pages, k, cycles, warmup)]
        self._like = self._spare[0]

    def begin(self, prepared: PreparedHistory) -> Work:
        """Arrays in the state after the warm-up, for one replay, which ends with `give_back`."""
        work = self._take()
        work.arena[: prepared.pages] = prepared.pattern_pages
        work.sizes[:] = 0
        work.sizes[memory.TAIL] = prepared.pages
        work.sizes[memory.TOP] = FIRST + len(prepared.pattern_start) - 1
        for name in _SUMS:
            getattr(work, name)[:] = 0
        return work

    def copy(self, work: Work) -> Work:
        """Copy of another replay's `work`, for a replay that ends with `give_back`."""
        copy = self._take()
        tail = work.sizes[memory.TAIL]
        copy.arena[:tail] = work.arena[:tail]
        if work.sizes[memory.TRACKING]:
            copy.group_of[:] = work.group_of
        for name in ("sizes", *_SUMS):
            getattr(copy, name)[:] = getattr(work, name)
        return copy

    def give_back(self, work: Work) -> None:
        """Take the arrays of a replay that has ended, for the next one."""
        self._spare.append(work)

    def _take(self) -> Work:
        if self._spare:
            return self._spare.pop()
        copied = ("arena", "group_of", "sizes", *_SUMS)
        return self._like._replace(**{name: np.empty_like(getattr(self._like, name)) for name in copied})


_LAST: Final[dict[tuple[int, ...], Workspace]] = {}
"""Workspace that was used last, by its sizes; empty while it is in use."""


@contextmanager
def workspace_for(prepared: PreparedHistory) -> Iterator[Workspace]:
    """Workspace for replays of `prepared`; another thread meanwhile gets its own."""
    key = (prepared.pages, prepared.k, prepared.cycles, prepared.warmup)
    space = _LAST.pop(key, None) or Workspace(*key)
    _LAST.clear()
    yield space
    _LAST[key] = space


def scratch_memory(slots: Array) -> tuple[Ints, Ints, Floats]:
    """Arrays for compiled loops to write to, for the table `slots`: ``orders``, ``row_of``, ``by_slot``."""
    capacity = slots.shape[1]
    return np.empty((2, capacity), np.int64), np.empty(capacity, np.int64), np.empty(capacity)


def partition_by_choice(scores: Floats, sizes: Array, k: int) -> list[list[int]]:
    """Lists of score functions, by their rows in `scores`, that choose the same k pages in the same order.

    ``scores``: ``[functions, groups of pages]``; ``sizes``: number of pages of each group, int32.
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
    """Constants of replays of `prepared` that count the optional `tallies` (names of `Tallies` fields)."""
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
    """A replay in progress: groups of pages in slots, their states, and the counts of its cycles so far."""

    work: Work
    slots: Array
    """int32 ``[memory.FIELDS, slots]``"""
    states: Ints
    """State of each slot's group, floats as their bits: ``[state columns, slots]``; while states are listed,
    their numbers: ``[1, slots]``."""
    counts: Ints
    """``[scored cycles, memory.COUNTS]``"""
    trail: Array
    """Record of the replay for the `PrefixCache`, see `blank_trail`; empty without a cache."""

    @property
    def top(self) -> int:
        """Number of slots (rows of the memory for groups) that were ever used."""
        return int(self.work.sizes[memory.TOP])

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` slots."""
        self.slots, self.states = (_roomy(rows, capacity, self.top) for rows in (self.slots, self.states))

    def copy(self, space: Workspace) -> "ReplayPath":
        """Independent copy of the replay so far."""
        slots, states = (_roomy(rows, rows.shape[1], self.top) for rows in (self.slots, self.states))
        return ReplayPath(space.copy(self.work), slots, states, self.counts.copy(), self.trail.copy())


def path_after_warmup(
    prepared: PreparedHistory, names: tuple[str, ...], listed: States | None, space: Workspace, trail: Array
) -> ReplayPath:
    """Return a replay after the warm-up: one group for each pattern (equal warm-up outcomes of pages).

    ``names``: state columns; ``listed``: numbered states, or None; ``trail``: see `ReplayPath.trail`.
    """
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
    """Columns of `states`, int64 ``[columns, states]``, by name, as views; bits of floats become floats."""
    return {
        name: values.view(np.float64) if STATE[name] == "<f8" else values
        for name, values in zip(names, states, strict=True)
    }


def _roomy(rows: Array, capacity: int, used: int) -> Array:
    roomy = np.zeros((len(rows), capacity), rows.dtype)
    roomy[:, :used] = rows[:, :used]
    return roomy


MOST_BATCHED: Final = 8
"""Most replays in a batch: each takes memory of its own."""


class BatchMember(NamedTuple):
    """One replay of a batch, and the numbers of the functions that choose its pages."""

    path: ReplayPath
    functions: list[int]


class BatchScores(NamedTuple):
    """Scores of the groups of all replays of a batch, in one cycle."""

    begins: list[int]
    """Position of each replay's first group in `after`."""
    scores: list[Floats]
    """By replay: ``[functions, slots]``."""
    after: Ints
    """States of all groups after a visit without a change, then of all after one with a change: ``[state
    columns, 2 * groups]``; empty in the last cycle."""


WIDTH: Final = 510
"""Most groups of a cycle that a trail records; most cycles have about 50."""
MOST_TRAILS: Final = 16_384
"""Most trails in a cache."""
TRAIL_ROWS: Final = 2**22
"""Most rows (numbers of groups' states) in a cache, 2 bytes each; a trail takes some hundred."""

PrefixCaches = dict[tuple[tuple[str, ...], Clock, frozenset[str]], "PrefixCache"]
"""Prefix caches of one training set by state columns, clock and counted tallies."""


class PrefixCache:
    """Results of replays by the choices that led to them (trails), for the same listed states.

    A trail is the order in which a function ranks the groups of each cycle, as far as pages are chosen: it
    determines the replay. Trails share their first cycles and form a tree, in which the scores of a function
    lead to the trail that it would repeat. The cache is cleared when full.
    """

    def __init__(self, scored: int) -> None:
        self._tallies: list[Tallies] = []
        self._used = 0
        self._rows = np.empty(TRAIL_ROWS, np.int16)
        self._starts = np.empty((MOST_TRAILS, scored), np.int64)
        self._links = np.empty((cycles.LINKS, MOST_TRAILS), np.int32)

    def find(self, scores: Floats) -> Tallies | None:
        """Tallies of an earlier replay with the same choices; ``scores``: by row of `States`."""
        if not self._tallies:
            return None
        trail, agreed = cycles.follow(scores, self._rows, self._starts, self._links)
        return self._tallies[trail] if agreed == self._starts.shape[1] else None

    def add(self, scores: Floats, trail: Array, tallies: Tallies) -> None:
        """Add the trail and tallies of a replay; ``trail``: of `blank_trail`, filled by the replay."""
        groups = trail[:, cycles.LIVE].tolist()
        size = len(trail) * cycles.FIRST + sum(groups)
        if min(groups) < 0 or size > TRAIL_ROWS:
            return
        if len(self._tallies) == MOST_TRAILS or self._used + size > TRAIL_ROWS:
            self._tallies.clear()
            self._used = 0
        number, leaves = len(self._tallies), 0
        self._links[:, number] = -1
        if number:
            parent, leaves = cycles.follow(scores, self._rows, self._starts, self._links)
            if leaves == len(trail):
                return
            self._links[cycles.NEXT, number] = self._links[cycles.CHILD, parent]
            self._links[cycles.CHILD, parent] = number
        self._links[cycles.LEAVES, number] = leaves
        for cycle in range(leaves, len(trail)):
            begin, end = self._used, self._used + cycles.FIRST + groups[cycle]
            self._starts[number, cycle] = begin
            self._rows[begin:end] = trail[cycle, : end - begin]
            self._used = end
        self._tallies.append(tallies)


def blank_trail(scored: int) -> Array:
    """Array for a trail, which a replay fills: int16 ``[scored cycles, cycles.FIRST + WIDTH]``."""
    return np.empty((scored, cycles.FIRST + WIDTH), np.int16)


compiling.announce_compilation()


def replay_grouped(
    prepared: PreparedHistory,
    functions: Sequence[ScoreFunction],
    tallies: Collection[str],
    prefix_caches: PrefixCaches | None = None,
) -> list[Tallies]:
    """Replay score functions by groups of equal state; each gives the numbers of `dense.replay_dense`.

    ``functions``: all with an expression; ``tallies``: names of the optional `Tallies` to count. Functions
    that choose alike in every cycle share one object in the list. ``prefix_caches``: of earlier calls for the
    same training set.
    """
    alike: dict[tuple[tuple[str, ...], Clock], dict[int, Expression]] = defaultdict(dict)
    for number, function in enumerate(functions):
        assert function.expression is not None
        alike[state_columns(function)][number] = function.expression
    results: dict[int, Tallies] = {}
    with workspace_for(prepared) as space:
        for (columns, clock), expressions in alike.items():
            numbers = list(expressions)
            batch = _Batch(prepared, columns, clock, list(expressions.values()), tallies, space)
            prefix_cache = None
            if prefix_caches is not None and batch.is_cached:
                prefix_cache = prefix_caches.setdefault(
                    (columns, clock, frozenset(tallies)), PrefixCache(batch.scored)
                )
            for members, result in batch.replay(prefix_cache):
                results |= dict.fromkeys((numbers[member] for member in members), result)
    return [results[number] for number in range(len(functions))]


class _Branch(NamedTuple):
    """Score functions whose replay is postponed: it goes on later from a copy of the path so far."""

    path: ReplayPath
    shared: bool
    """Whether a later branch starts from the same path, which must then be copied."""
    done: int
    """Number of scored cycles that the path has replayed."""
    functions: list[int]
    agreed: bool
    """Whether the functions are known to choose alike in the next cycle."""


class _Batch:
    """Expressions that tell groups apart by the same columns, replayed together."""

    def __init__(
        self,
        prepared: PreparedHistory,
        columns: tuple[str, ...],
        clock: Clock,
        expressions: list[Expression],
        tallies: Collection[str],
        space: Workspace,
    ) -> None:
        self._prepared = prepared
        self._names = tuple(name for name in columns if name != "last_cycle")
        self._expressions = expressions
        self._tallies = tallies
        self._facts = facts_of(prepared, tallies)
        self._space = space
        self.scored = prepared.cycles - prepared.warmup
        self._moves = np.empty(2 * prepared.k, np.int64)
        self._keys = np.empty((1, 2 * prepared.k), np.int64)
        self._listed = states_of(prepared, columns, clock)
        self._listed_cycles = 0 if self._listed is None else self._listed.cycles
        self._clock = clock
        self._terminals = sorted({name for expression in expressions for name in expression.terminals})
        self._column_keys = np.empty((len(self._names), 2 * prepared.k), np.int64)
        if self._listed is not None:
            self._listed_scores = np.array([self._listed.scores(expression) for expression in expressions])

    @property
    def is_cached(self) -> bool:
        """Whether a `PrefixCache` is used: all possible states are listed, in few enough rows."""
        return self._listed is not None and self._listed.complete and self._listed.rows <= MOST_CACHED

    def replay(self, prefix_cache: PrefixCache | None) -> Iterator[tuple[list[int], Tallies]]:
        """Yield lists of functions (numbers) that chose alike in every cycle, each with its tallies."""
        unknown = list(range(len(self._expressions)))
        if prefix_cache is not None:
            known = [prefix_cache.find(scores) for scores in self._listed_scores]
            yield from (([number], tallies) for number, tallies in enumerate(known) if tallies is not None)
            unknown = [number for number in unknown if known[number] is None]
        if not unknown:
            return
        trail = blank_trail(self.scored if prefix_cache is not None else 0)
        root = path_after_warmup(self._prepared, self._names, self._listed, self._space, trail)
        pending = [_Branch(root, False, 0, unknown, False)]
        while pending:
            done = max(pending[-1].done, self._listed_cycles)
            members: list[BatchMember] = []
            while (
                pending and len(members) < MOST_BATCHED and max(pending[-1].done, self._listed_cycles) == done
            ):
                members.append(self._listed_part(pending.pop(), pending))
            while done < self.scored:
                members = self._replay_unlisted(members, done, pending)
                done += 1
            for path, functions in members:
                if self._facts.penalised:
                    penalise_rest(self._facts, path.slots, path.work)
                tallies = _tallies(self._prepared, path.counts, path.work, self._tallies)
                if prefix_cache is not None:
                    prefix_cache.add(self._listed_scores[functions[0]], path.trail, tallies)
                yield functions, tallies
                self._space.give_back(path.work)

    def _listed_part(self, branch: _Branch, pending: list[_Branch]) -> BatchMember:
        """Replay a branch through the cycles whose states are listed, with functions that choose alike.

        Functions that choose otherwise are added to `pending` as branches of their own.
        """
        path, shared, done, functions, agreed = branch
        if shared:
            path = path.copy(self._space)
        while done < self._listed_cycles:
            if len(functions) > 1 and not agreed:
                functions, *others = self._split_by_choice(path, done, functions)
                if others:
                    self._postpone(pending, path.copy(self._space), done, others)
            stop = self._listed_cycles if len(functions) == 1 else done + 1
            self._replay_states(path, done, stop, self._listed_scores[functions[0]])
            done, agreed = stop, False
            if done == self._listed_cycles < self.scored:
                assert self._listed is not None
                path.states = self._listed.bits.take(path.states[0], axis=1)
        return BatchMember(path, functions)

    def _postpone(self, pending: list[_Branch], path: ReplayPath, done: int, others: list[list[int]]) -> None:
        """Add to `pending` a branch for each of `others`, lists of functions; all start from `path`."""
        pending.append(_Branch(path, False, done, others[0], True))
        pending += [_Branch(path, True, done, other, True) for other in others[1:]]

    def _split_by_choice(self, path: ReplayPath, done: int, functions: list[int]) -> list[list[int]]:
        """Split `functions` into lists that choose alike in the cycle after `done` scored ones."""
        assert self._listed is not None
        live = np.flatnonzero(path.slots[memory.COUNT, : path.top])
        rows = self._listed.score_at[path.states[0, live]]
        if self._listed.aged:
            rows += self._prepared.warmup + done - path.slots[memory.LAST, live]
        scores = self._listed_scores[np.ix_(functions, rows)]
        parts = partition_by_choice(scores, path.slots[memory.COUNT, live], self._prepared.k)
        return [[functions[position] for position in positions] for positions in parts]

    def _replay_unlisted(
        self, members: list[BatchMember], done: int, pending: list[_Branch]
    ) -> list[BatchMember]:
        """Replay a cycle whose states are not listed, for all `members` of the batch; return the new members.

        Functions that choose otherwise become a new member if the batch has room, else a branch in `pending`.
        """
        batch_scores = self._score_groups(done, members)
        after = []
        room = MOST_BATCHED - len(members)
        for member, begin, scores in zip(members, batch_scores.begins, batch_scores.scores, strict=True):
            path, functions = member
            first, *others = [[0]]
            if len(functions) > 1:
                first, *others = partition_by_choice(
                    scores, path.slots[memory.COUNT, : path.top], self._prepared.k
                )
            for positions in others[:room]:
                copy = path.copy(self._space)
                self._replay_cycle(copy, done, scores[positions[0]], batch_scores.after, begin)
                after.append(BatchMember(copy, [functions[position] for position in positions]))
            postponed = [[functions[position] for position in positions] for positions in others[room:]]
            room -= len(others) - len(postponed)
            if postponed:
                self._postpone(pending, path.copy(self._space), done, postponed)
            self._replay_cycle(path, done, scores[first[0]], batch_scores.after, begin)
            after.append(BatchMember(path, [functions[position] for position in first]))
        return after

    def _score_groups(self, done: int, members: Sequence[BatchMember]) -> BatchScores:
        """Scores and next states of the groups of all replays, in the cycle after `done` scored ones."""
        cycle = self._prepared.warmup + 1 + done
        tops = [member.path.top for member in members]
        begins = np.cumsum([0, *tops]).tolist()
        states = np.concatenate([one.path.states[:, : one.path.top] for one in members], axis=1)
        last_cycle = np.concatenate([one.path.slots[memory.LAST, : one.path.top] for one in members])
        state = named(self._names, states) | {"last_cycle": last_cycle}
        columns = terminals.compute(self._terminals, state, cycle, self._clock)
        values = {name: column.astype(np.float64) for name, column in columns.items()}
        scores = []
        for one, begin, top in zip(members, begins, tops, strict=False):
            of_member = {name: column[begin : begin + top] for name, column in values.items()}
            member_scores = np.empty((len(one.functions), top))
            for row, function in zip(member_scores, one.functions, strict=True):
                self._expressions[function].evaluate(of_member, row)
            scores.append(member_scores)
        return BatchScores(begins[:-1], scores, self._after(states, last_cycle, cycle))

    def _after(self, states: Ints, last_cycle: Ints, cycle: int) -> Ints:
        if cycle == self._facts.cycles and not self._facts.penalised:
            return states[:, :0]  # nobody asks for the groups after the last cycle
        after = np.concatenate((states, states), axis=1)
        changed = np.repeat((False, True), states.shape[1])
        state = named(self._names, after) | {"last_cycle": np.concatenate((last_cycle, last_cycle))}
        terminals.observe(state, changed, cycle)
        return after

    def _replay_cycle(self, path: ReplayPath, done: int, scores: Floats, after: Ints, begin: int) -> None:
        """Replay the next cycle of `path`; ``scores``: by slot; ``after``, ``begin``: see `BatchScores`."""
        prepared = self._prepared
        if 3 * path.top > path.slots.shape[1]:  # every group may become two more
            path.grow(6 * path.top)
        replay_cycle(
            prepared.warmup + 1 + done, scores, prepared.salts[done],
            prepared.drawn[prepared.drawn_start[done] : prepared.drawn_start[done + 1]],
            self._facts, path.slots, path.work, path.counts[done], self._moves, self._column_keys,
            scratch_memory(path.slots)[0], path.states, after, begin,
        )  # fmt: skip

    def _replay_states(self, path: ReplayPath, done: int, stop: int, scores: Floats) -> None:
        prepared, listed = self._prepared, self._listed
        assert listed is not None
        while done < stop:
            done = replay_states(
                done, stop, prepared.salts, prepared.drawn, prepared.drawn_start, scores, listed.score_at,
                listed.aged, listed.after, path.states, self._facts, path.slots, path.work, path.counts,
                self._moves, self._keys, *scratch_memory(path.slots), path.trail,
            )  # fmt: skip
            if done < stop:
                path.grow(4 * path.top)


def _tallies(prepared: PreparedHistory, counts: Ints, work: Work, names: Collection[str]) -> Tallies:
    """Tallies `names` of a replay; those of outdated pages are `untouched` less what visits renewed."""
    cycles = prepared.scored_cycles
    changed, weight = counts[:, memory.CHANGED], counts[:, memory.WEIGHT]

    def standing(row: int, path_after_warmup: Ints) -> Ints:
        return np.asarray((prepared.untouched[row] + np.cumsum(path_after_warmup))[cycles])

    every: dict[str, Ints] = {
        "dcg": counts[:, memory.DCG],
        "new": counts[:, memory.NEW],
        "idle": counts[:, memory.IDLE],
        "changed_weight": weight,
    }
    if "stale_weight" in names or "age_weight" in names:
        again = np.asarray(work.again_weight if len(prepared.weights.fixed) else work.again_count, np.int64)
        every["stale_weight"] = stale = standing(1, again) - np.cumsum(weight)
        since = standing(2, again * np.arange(len(again))) - np.cumsum(counts[:, memory.DIVERGED])
        every["age_weight"] = (cycles + 1) * stale - since
    if "penalty" in names:
        every["penalty"] = standing(3, np.asarray(work.penalty_change))
    pending = standing(0, np.asarray(work.again_count)) - np.cumsum(changed) + changed
    always = {"visited": np.full(len(cycles), prepared.k), "changed": changed, "pending": pending}
    return always | {name: every[name] for name in names}
