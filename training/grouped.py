"""The grouped replay engine: pages in equal observed state share one row, one score, one place in line.

A replay has few distinct states, so per cycle only the groups are scored; work on single pages is done
for the k visited ones alone (`training.kernels`). Which state columns tell groups apart depends on the
terminals of the score function. Staleness is kept as the change of what `Truth.untouched` would be.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from scrapy_gp4c import terminals
from scrapy_gp4c.score import ScoreFunction
from scrapy_gp4c.terminals import STATE, Array
from training.kernels import memory
from training.kernels.cycles import advance, replay_states, settle
from training.kernels.memory import Facts, Work
from training.kernels.visits import penalise_rest
from training.metrics import Ints, Tallies
from training.states import States, states_of
from training.truth import Truth

_FIRST: Final = memory.NOWHERE + 1
"""The slot of the first warm-up pattern."""


class _Groups:
    """The groups of a replay by slot: states and page lists, in arrays that grow."""

    def __init__(self, names: tuple[str, ...], states: Ints, slots: Array) -> None:
        """Take what the slots used so far hold; ``names``: state columns but ``last_cycle``."""
        self.names = names
        self.states = states
        """``[state columns, slots]``, floats as their bits: what tells groups apart."""
        self.slots = slots

    def reserve(self, capacity: int) -> None:
        """Make room for so many slots."""
        used = self.slots.shape[1]
        if capacity <= used:
            return
        slots = np.zeros((memory.FIELDS, 2 * capacity), np.int32)
        slots[:, :used] = self.slots
        self.slots = slots
        states = np.zeros((len(self.names), 2 * capacity), np.int64)
        states[:, :used] = self.states
        self.states = states

    def named(self, states: Ints) -> dict[str, Array]:
        """The columns of some states by name, as views."""
        return {
            name: values.view(np.float64) if STATE[name] == "<f8" else values
            for name, values in zip(self.names, states, strict=True)
        }


def _first_lists(truth: Truth, slots: Array) -> None:
    patterns = slice(_FIRST, _FIRST + len(truth.pattern_start) - 1)
    slots[memory.START, patterns] = truth.pattern_start[:-1]
    slots[memory.LENGTH : memory.COUNT + 1, patterns] = np.diff(truth.pattern_start)
    slots[memory.LAST, patterns] = truth.warmup


def replay_grouped(truth: Truth, function: ScoreFunction, tallies: Collection[str]) -> Tallies:
    """Replay an expression by groups of equal state; the same numbers as `dense.replay_dense`.

    ``tallies``: names of the optional `Tallies` to count.
    """
    columns = terminals.columns_of(function.terminals, function.clock)
    names = tuple(name for name in columns if name != "last_cycle")
    facts = _facts(truth, tallies)
    work = _work(truth)
    counts = np.zeros((truth.cycles - truth.warmup, memory.COUNTS), np.int64)
    listed = states_of(truth, columns) if function.clock == "visits" else None
    if listed is not None:
        slots, state_of = _replay_states(truth, function, listed, facts, work, counts)
        done = listed.cycles
    else:
        done = 0
    if done < len(counts):
        if listed is not None:
            top = work.sizes[memory.TOP]
            # Contiguous: for another layout everything would be compiled once more.
            slots = np.ascontiguousarray(slots[:, :top])
            groups = _Groups(names, listed.bits.take(state_of[0, :top], axis=1), slots)
        else:
            groups = _after_warmup(truth, names)
        _replay_groups(truth, function, groups, done, facts, work, counts)
        slots = groups.slots
    if facts.penalised:
        penalise_rest(facts, slots, work)
    found = _tallies(truth, counts, work, tallies)
    _SPARE[truth.pages, truth.k, truth.cycles, truth.warmup] = work
    return found


def _after_warmup(truth: Truth, names: tuple[str, ...]) -> _Groups:
    """One group per warm-up pattern."""
    used = _FIRST + len(truth.pattern_start) - 1
    slots = np.zeros((memory.FIELDS, used), np.int32)
    _first_lists(truth, slots)
    groups = _Groups(names, np.zeros((len(names), used), np.int64), slots)
    named = groups.named(groups.states[:, _FIRST:])
    for name, values in truth.first_state(names).items():
        named[name][:] = values
    return groups


def _replay_states(
    truth: Truth, function: ScoreFunction, states: States, facts: Facts, work: Work, counts: Ints
) -> tuple[Array, Ints]:
    """Score all listed states at once, then replay their cycles without coming back to Python.

    Returns the table of slots, and ``[1, slots]`` the state of each.
    """
    assert function.expression is not None
    scores = function.expression(states.values(function.terminals), states.rows)
    patterns = len(truth.pattern_start) - 1
    capacity = _FIRST + min(truth.pages, patterns + len(states.after) * states.cycles)
    slots = np.zeros((memory.FIELDS, capacity), np.int32)
    _first_lists(truth, slots)
    state_of = np.zeros((1, capacity), np.int64)
    state_of[0, _FIRST : _FIRST + patterns] = states.first
    replay_states(
        truth.salts[: states.cycles], truth.drawn, truth.drawn_start, scores, states.score_at, states.aged,
        states.after, state_of, facts, slots, work, counts,
    )  # fmt: skip
    return slots, state_of


def _replay_groups(
    truth: Truth, function: ScoreFunction, groups: _Groups, done: int, facts: Facts, work: Work, counts: Ints
) -> None:
    """Replay the scored cycles from number `done` on; score the groups that exist, cycle by cycle."""
    moves = np.empty(len(work.moves), np.int64)
    for i in range(done, len(counts)):
        cycle = truth.warmup + 1 + i
        top = int(work.sizes[memory.TOP])
        state = groups.named(groups.states[:, :top]) | {"last_cycle": groups.slots[memory.LAST, :top]}
        scores = function.scores(state, cycle)
        drawn = truth.drawn[truth.drawn_start[i] : truth.drawn_start[i + 1]]
        moved = advance(cycle, scores, truth.salts[i], drawn, facts, groups.slots, work, counts[i], moves)
        used = moves[:moved]
        source = work.runs[memory.SLOT, used >> 1]
        after = groups.states.take(source, axis=1)
        last_cycle = groups.slots[memory.LAST, source]
        terminals.observe(groups.named(after) | {"last_cycle": last_cycle}, used & 1, cycle)
        groups.reserve(top + moved)
        settle(cycle, used, after, groups.states, groups.slots, work)


def _facts(truth: Truth, tallies: Collection[str]) -> Facts:
    weights = truth.weights
    return Facts(
        truth.words.reshape(-1),
        truth.words.shape[1],
        np.diff(truth.gain_sums),
        truth.gain_sums,
        weights.fixed,
        weights.values,
        weights.penalties,
        2.0**weights.penalty_bits,
        truth.pages,
        truth.cycles,
        truth.warmup,
        truth.k,
        truth.ties == "random",
        "dcg" in tallies,
        "age_weight" in tallies,
        "penalty" in tallies,
    )


_SPARE: Final[dict[tuple[int, ...], Work]] = {}
"""The memory of the last replay: taking it over saves the operating system the trouble of clearing it."""


def _work(truth: Truth) -> Work:
    """Memory for a replay, all pages in their groups after the warm-up."""
    key = (truth.pages, truth.k, truth.cycles, truth.warmup)
    work = _SPARE.pop(key, None) or _new_work(*key)
    _SPARE.clear()
    work.arena[: truth.pages] = truth.pattern_pages
    work.sizes[:] = 0
    work.sizes[memory.TAIL] = truth.pages
    work.sizes[memory.TOP] = _FIRST + len(truth.pattern_start) - 1
    for counts in (work.again_count, work.again_weight, work.penalty_change):
        counts[:] = 0
    return work


def _new_work(pages: int, k: int, cycles: int, warmup: int) -> Work:
    def scratch(size: int) -> Array:
        return np.empty(size, np.int32)

    return Work(
        group_of=np.empty(pages, np.uint32),
        # Compacted lists, and what one cycle may add; else as rarely compacted as memory allows.
        arena=np.empty(pages + max(3 * k, min(k * (cycles - warmup), 2 * pages)), np.uint32),
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


def _tallies(truth: Truth, counts: Ints, work: Work, wanted: Collection[str]) -> Tallies:
    """Add up: what was untouched, less what was visited, plus what went stale again since."""
    cycles = truth.scored_cycles
    changed, weight = counts[:, memory.CHANGED], counts[:, memory.WEIGHT]

    def standing(row: int, begun: Ints) -> Ints:
        return np.asarray((truth.untouched[row] + np.cumsum(begun))[cycles])

    every: dict[str, Ints] = {
        "dcg": counts[:, memory.DCG],
        "new": counts[:, memory.NEW],
        "idle": counts[:, memory.IDLE],
        "changed_weight": weight,
    }
    if "stale_weight" in wanted or "age_weight" in wanted:
        again = np.asarray(work.again_weight if len(truth.weights.fixed) else work.again_count, np.int64)
        every["stale_weight"] = stale = standing(1, again) - np.cumsum(weight)
        since = standing(2, again * np.arange(len(again))) - np.cumsum(counts[:, memory.DIVERGED])
        every["age_weight"] = (cycles + 1) * stale - since
    if "penalty" in wanted:
        every["penalty"] = standing(3, np.asarray(work.penalty_change))
    pending = standing(0, np.asarray(work.again_count)) - np.cumsum(changed) + changed
    return Tallies(
        np.full(len(cycles), truth.k),
        changed,
        pending,
        **{name: every[name] for name in wanted},
    )
