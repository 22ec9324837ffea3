"""The grouped replay engine: pages in equal observed state share one row, one score, one place in line.

A replay has few distinct states, so per cycle only the groups are scored; work on single pages is done
for the k visited ones alone (`training.kernels`). Which state columns tell groups apart depends on the
terminals of the score function. Staleness is kept as the change of what `Truth.untouched` would be.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from scrapy_gp4c import terminals
from scrapy_gp4c.score import ScoreFunction
from scrapy_gp4c.terminals import STATE, Array
from training import kernels
from training.kernels import Facts, Slots, Work
from training.metrics import Ints, Tallies
from training.states import States, states_of
from training.truth import Truth


class _Groups:
    """The groups of a replay by slot: state columns and page lists, in arrays that grow."""

    def __init__(self, truth: Truth, columns: tuple[str, ...]) -> None:
        self.state: dict[str, Array] = {name: np.empty(0, STATE[name]) for name in columns}
        self.slots = Slots(*(np.empty(0, np.int32) for _ in Slots._fields))
        used = len(truth.pattern_start) - 1
        self.reserve(used + 64)
        for name, values in truth.first_state(columns).items():
            self.state[name][:used] = values
        _first_lists(truth, self.slots)

    def reserve(self, capacity: int) -> None:
        """Make room for so many slots."""
        if capacity <= len(self.slots.start):
            return
        for name, old in self.state.items():
            self.state[name] = _grown(old, 2 * capacity)
        self.slots = Slots(self.state["last_cycle"], *(_grown(old, 2 * capacity) for old in self.slots[1:]))


def _first_lists(truth: Truth, slots: Slots) -> None:
    used = len(truth.pattern_start) - 1
    slots.start[:used] = truth.pattern_start[:-1]
    slots.length[:used] = slots.count[:used] = np.diff(truth.pattern_start)


def _grown(old: Array, size: int) -> Array:
    new = np.zeros(size, old.dtype)
    new[: len(old)] = old
    return new


def replay_grouped(truth: Truth, function: ScoreFunction, tallies: Collection[str]) -> Tallies:
    """Replay an expression by groups of equal state; the same numbers as `dense.replay_dense`.

    ``tallies``: names of the optional `Tallies` to count.
    """
    columns = terminals.columns_of(function.terminals, function.clock)
    facts = _facts(truth, tallies)
    work = _work(truth)
    counts = np.zeros((truth.cycles - truth.warmup, kernels.COUNTS), np.int64)
    states = states_of(truth, columns) if function.clock == "visits" else None
    if states is not None:
        slots = _replay_states(truth, function, states, facts, work, counts)
    else:
        slots = _replay_groups(truth, function, columns, facts, work, counts)
    if facts.penalised:
        kernels.penalise_rest(facts, slots, work)
    return _tallies(truth, counts, work, tallies)


def _replay_states(
    truth: Truth, function: ScoreFunction, states: States, facts: Facts, work: Work, counts: Ints
) -> Slots:
    """Score all states at once, then replay without coming back to Python."""
    assert function.expression is not None
    scores = function.expression(states.values(function.terminals), states.rows)
    patterns = len(truth.pattern_start) - 1
    capacity = min(truth.pages, patterns + len(states.after) * (truth.cycles - truth.warmup))
    slots = Slots(*(np.zeros(capacity, np.int32) for _ in Slots._fields))
    _first_lists(truth, slots)
    slots.last[:patterns] = truth.warmup
    state_of = np.empty(capacity, np.int32)
    state_of[:patterns] = states.first
    kernels.replay_states(
        truth.salts, truth.drawn, truth.drawn_start, scores, states.score_at, states.aged, states.after,
        state_of, facts, slots, work, counts,
    )  # fmt: skip
    return slots


def _replay_groups(
    truth: Truth,
    function: ScoreFunction,
    needed: tuple[str, ...],
    facts: Facts,
    work: Work,
    counts: Ints,
) -> Slots:
    """Score the groups that exist, cycle by cycle."""
    columns = tuple(dict.fromkeys((*needed, "last_cycle")))
    keyed = tuple(name for name in columns if name not in ("last_cycle", "first_cycle"))
    groups = _Groups(truth, columns)
    state = groups.state
    for i, cycle in enumerate(truth.scored_cycles.tolist()):
        top = int(work.sizes[kernels.TOP])
        scores = function.scores({name: values[:top] for name, values in state.items()}, cycle)
        live = np.flatnonzero(groups.slots.count[:top])
        order = live[np.argsort(-scores[live])]
        drawn = truth.drawn[truth.drawn_start[i] : truth.drawn_start[i + 1]]
        salt = truth.salts[i]
        kernels.choose(cycle, order, scores, salt, drawn, facts, groups.slots, work)
        visited = kernels.visit(cycle, salt, facts, groups.slots, work, counts[i])
        used = np.flatnonzero(work.moves[: 2 * visited])
        source = work.visited_slots[used >> 1]
        after = {name: values[source] for name, values in state.items()}
        outcome = (used & 1).astype(np.bool_)
        terminals.observe(after, outcome, cycle)
        keys = np.empty((len(used), len(keyed)), np.int64)
        for c, name in enumerate(keyed):
            keys[:, c] = after[name].view(np.int64) if after[name].dtype == np.float64 else after[name]
        groups.reserve(top + len(used))
        made = kernels.settle(cycle, visited, used, keys, facts, groups.slots, work)
        for name, values in after.items():
            state[name][work.new_slots[:made]] = values[work.new_moves[:made]]
    return groups.slots


def _facts(truth: Truth, tallies: Collection[str]) -> Facts:
    weights = truth.weights
    return Facts(
        truth.words,
        truth.gain_sums,
        weights.fixed,
        weights.values,
        weights.penalties,
        2.0**weights.penalty_bits,
        truth.cycles,
        truth.warmup,
        truth.k,
        truth.ties == "random",
        "dcg" in tallies,
        "penalty" in tallies,
    )


def _work(truth: Truth) -> Work:
    pages, k = truth.pages, truth.k
    room = min(k * (truth.cycles - truth.warmup), 2 * pages)
    arena = np.empty(pages + room, np.int32)
    arena[:pages] = truth.pattern_pages
    sizes = np.zeros(4, np.int64)
    sizes[kernels.TAIL] = pages
    sizes[kernels.TOP] = len(truth.pattern_start) - 1

    def scratch(size: int) -> Array:
        return np.empty(size, np.int32)

    return Work(
        group_of=truth.pattern.copy(),
        arena=arena,
        sizes=sizes,
        picked=scratch(k),
        class_end=scratch(k),
        class_sorted=np.empty(k, np.bool_),
        slot_of=scratch(k),
        diverged=scratch(k),
        again=scratch(k),
        found=np.empty(k, np.uint8),
        move_of=scratch(k),
        moves=scratch(2 * k),
        visited_slots=scratch(k),
        target=scratch(2 * k),
        new_moves=scratch(2 * k),
        new_slots=scratch(2 * k),
        table=scratch(8 * k + 4),
        gathered=scratch(pages),
        keys=np.empty(pages, np.uint64),
        buckets=np.empty(pages + 3, np.uint64),
        heads=scratch((1 << kernels.MAX_BITS) + 2),
        bitmap=np.zeros(pages // 64 + 1, np.uint64),
        by_page=scratch(0 if truth.ties == "random" else pages),
        again_count=np.zeros(truth.cycles + 2, np.int64),
        again_weight=np.zeros(truth.cycles + 2, np.int64),
        penalty_change=np.zeros(truth.cycles + 2, np.int64),
    )


def _tallies(truth: Truth, counts: Ints, work: Work, wanted: Collection[str]) -> Tallies:
    """Add up: what was untouched, less what was visited, plus what went stale again since."""
    cycles = truth.scored_cycles
    numbers = np.arange(truth.cycles + 2)
    again = np.asarray(work.again_weight if len(truth.weights.fixed) else work.again_count, np.int64)
    changed, weight, diverged = (counts[:, c] for c in (kernels.CHANGED, kernels.WEIGHT, kernels.DIVERGED))
    begun = np.stack((work.again_count, again, again * numbers, work.penalty_change)).cumsum(axis=1)
    pending, stale, stale_since, penalty = (truth.untouched + begun)[:, cycles]
    stale -= np.cumsum(weight)
    stale_since -= np.cumsum(diverged)
    every = {
        "dcg": counts[:, kernels.DCG],
        "new": counts[:, kernels.NEW],
        "idle": counts[:, kernels.IDLE],
        "changed_weight": weight,
        "stale_weight": stale,
        "age_weight": (cycles + 1) * stale - stale_since,
        "penalty": penalty,
    }
    return Tallies(
        np.full(len(cycles), truth.k),
        changed,
        pending - np.cumsum(changed) + changed,
        **{name: every[name] for name in wanted},
    )
